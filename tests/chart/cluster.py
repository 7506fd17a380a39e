"""A control plane of the cases' own: a real API server with RBAC, admission and controllers, and no node."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from chart import BED, BED_BIN, CHART, HELM, NAME, NAMESPACE


class Failed(Exception):
    """What a command says when it fails."""


class ControlPlane:
    """Up in some seconds, down in one."""

    def __init__(self):
        if not HELM:
            raise unittest.SkipTest("NO HELM: set HELM or put it on PATH; the chart is NOT checked")
        if not (BED_BIN and (BED_BIN / "kube-apiserver").exists()):
            raise unittest.SkipTest("NO CONTROL PLANE: tests/bed/build controlplane makes one; the chart is NOT installed anywhere")
        self.folder = Path(tempfile.mkdtemp(prefix="chart-check-"))
        try:
            self._bed("up")
        except Exception:
            self.down()
            raise
        self.environment = os.environ | {"KUBECONFIG": str(self.folder / "admin.kubeconfig")}

    def _bed(self, verb):
        # Its daemons outlive the call and keep what they were given: no pipe of ours, or reading it would never end.
        with (self.folder.parent / f"{self.folder.name}.log").open("a+") as log:
            done = subprocess.run([str(BED / "controlplane"), verb, str(self.folder)], stdout=log, stderr=log, timeout=120, check=False)
            log.seek(0)
            if done.returncode:
                raise Failed(log.read()[-2000:])

    def down(self):
        self._bed("down")
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder.parent / f"{self.folder.name}.log").unlink(missing_ok=True)

    def _run(self, command, stdin=None):
        done = subprocess.run(command, input=stdin, env=self.environment, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(command[1:5])}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def kubectl(self, *args, stdin=None):
        return self._run([str(BED_BIN / "kubectl"), *args], stdin)

    def apply(self, *documents, more=()):
        return self.kubectl("apply", "--server-side", "-f", "-", *more, stdin="\n---\n".join(json.dumps(d) for d in documents))

    def established(self, *crds):
        """kubectl itself fails on a CRD whose conditions are still null."""
        def seen():
            try:
                return self.kubectl("wait", "--for=condition=Established", "--timeout=1s", *(f"crd/{crd}" for crd in crds))
            except Failed:
                return None
        eventually(seen, "the CRDs are established")

    def helm(self, *args, values=None):
        if values is not None:
            return self._run([HELM, *args, "-f", "-"], json.dumps(values))
        return self._run([HELM, *args])

    def install(self, values=None, *more, chart=CHART, namespace=NAMESPACE, name=NAME):
        return self.helm("install", name, str(chart), "-n", namespace, "--create-namespace", *more, values=values or {})

    def upgrade(self, values=None, *more, chart=CHART):
        return self.helm("upgrade", NAME, str(chart), "-n", NAMESPACE, *more, values=values or {})

    def get(self, kind, name=None, namespace=None):
        where = ["-n", namespace] if namespace else []
        return json.loads(self.kubectl("get", kind, *([name] if name else []), *where, "-o", "json"))

    def names(self, kind, namespace=None):
        return [o["metadata"]["name"] for o in self.get(kind, namespace=namespace)["items"]]

    def may(self, who, verb, resource, namespace=None, name=None):
        """What the authorizer says, asked as the API server asks itself."""
        [answer] = self.reviewed(who, [(verb, resource, namespace, name)])
        return answer

    def reviewed(self, who, asked):
        """The same for several of (verb, [group/]resource[/subresource], namespace, name), in order."""
        reviews = []
        for verb, resource, namespace, name in asked:
            group, resource = resource.split("/", 1) if "." in resource.split("/")[0] else ("", resource)
            resource, _, sub = resource.partition("/")
            attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace or "", "name": name or ""}
            reviews.append({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": who, "resourceAttributes": attributes}})
        # `allowed` and nothing else, one a line: what kubectl prints for several objects is no JSON document.
        out = self.kubectl("create", "-f", "-", "-o", "jsonpath={.status.allowed}{'\\n'}", stdin="\n---\n".join(map(json.dumps, reviews)))
        answers = [line == "true" for line in out.splitlines()]
        assert len(answers) == len(asked), out
        return answers


def eventually(check, what, limit=30.0):
    """Asks until there is an answer."""
    end = time.monotonic() + limit
    while not (found := check()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.2)
    return found
