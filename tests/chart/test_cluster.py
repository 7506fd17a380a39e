"""The chart against a real API server: install, upgrade, uninstall, and what the rights come to (IN-1, IN-2, IN-5, IN-7, IN-10)."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml
from chart import CHART, NAME, NAMESPACE, ROOT, find, leaves, merged, objects, place
from cluster import ControlPlane, Failed, eventually
from test_bundle import bundle
from test_values import COMPANIONS

WHO = f"system:serviceaccount:{NAMESPACE}:{NAME}"
GROUP = "crawl.example.com"
PX = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Proxy", "metadata": {"name": "px-1", "namespace": "default"}, "spec": {"mode": "Managed", "provider": "kubernetes"}}
plane = None


def setUpModule():
    global plane
    plane = ControlPlane()
    # The strictest level: what is admitted here is admitted anywhere.
    for namespace in (NAMESPACE, "crawl", "second"):
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})


def tearDownModule():
    if plane:
        plane.down()


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        # After what a case cleans up by itself.
        self.addCleanup(self.clean)

    def clean(self):
        """Nothing stays: each case begins as the first one did."""
        for release, namespace in [(NAME, NAMESPACE), ("other", "second")]:
            if release in plane.helm("list", "-n", namespace, "-q").split():
                plane.helm("uninstall", release, "-n", namespace, "--wait")
        plane.kubectl("delete", "secret,pod,deployment", "--all", "-n", NAMESPACE, "--now")
        ours = lambda: [name for name in plane.names("crd") if name.endswith(f".{GROUP}")]
        if left := ours():
            if f"proxies.{GROUP}" in left:
                plane.kubectl("delete", "px", "--all", "-A")
            # Not waited for by kubectl, which once did not come back. All of them must be gone: one that still ends takes
            # an apply of the next case, and then goes.
            plane.kubectl("delete", "crd", *left, "--wait=false", "--ignore-not-found")
            eventually(lambda: not ours(), "the end of the CRDs", 120)

    def refused(self, word, call, *args, **more):
        with self.assertRaises(Failed) as told:
            call(*args, **more)
        self.assertIn(word, str(told.exception))

    def token(self, name="discovery-token"):
        return base64.b64decode(plane.get("secret", name, NAMESPACE)["data"]["token"]).decode()


class Life(Case):
    def test_an_install_makes_pods_that_the_restricted_level_admits(self):
        told = plane.install()
        self.assertIn("Declare a proxy and watch it become Ready", told)
        self.assertEqual(set(plane.names("crd")), {f"proxies.{GROUP}", f"providerhealths.{GROUP}"})
        [pod] = eventually(lambda: [p for p in plane.get("pod", namespace=NAMESPACE)["items"] if p["metadata"]["name"].startswith(NAME)], "the Deployment's Pod")
        self.assertEqual(pod["spec"]["containers"][0]["args"][0], "run")
        self.assertEqual({m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"]},
                         {"/etc/proxy-operator", "/etc/proxy-operator/gcp", "/etc/proxy-operator/kvm", "/etc/proxy-operator/proxmox", "/etc/discovery-token", "/tmp", "/var/run/secrets/kubernetes.io/serviceaccount"})
        # `helm test` makes its Pod as well, though nobody runs it here.
        plane.apply(find(objects(), "Pod"), more=["--dry-run=server"])

    def test_an_upgrade_keeps_the_token_also_one_that_was_rotated_by_hand(self):
        """IN-7."""
        plane.install()
        made = self.token()
        self.assertRegex(made, r"^[A-Za-z0-9]{48}$")
        plane.upgrade({"logLevel": "debug"})
        self.assertEqual(self.token(), made)
        lines = base64.b64encode(b"shop-a s3cret\nadmin r00t\n").decode()
        plane.kubectl("patch", "secret", "discovery-token", "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"data": {"token": lines}}))
        plane.upgrade({"logLevel": "info"})
        self.assertEqual(self.token(), "shop-a s3cret\nadmin r00t\n")
        plane.upgrade({"discovery": {"tokenSecret": "crawlers"}})
        self.assertRegex(self.token("crawlers"), r"^[A-Za-z0-9]{48}$")

    def test_a_secret_that_is_there_is_used_and_never_touched(self):
        """IN-7: made if absent."""
        plane.kubectl("create", "secret", "generic", "discovery-token", "-n", NAMESPACE, "--from-literal=token=mine")
        plane.install()
        plane.upgrade({"logLevel": "debug"})
        self.assertEqual(self.token(), "mine")
        plane.helm("uninstall", NAME, "-n", NAMESPACE, "--wait")
        self.assertEqual(self.token(), "mine")

    def test_an_uninstall_keeps_crds_and_objects_and_the_next_install_has_them(self):
        """IN-1, IN-10."""
        plane.install()
        plane.apply(PX)
        uid = plane.get("px", "px-1", "default")["metadata"]["uid"]
        plane.helm("uninstall", NAME, "-n", NAMESPACE, "--wait")
        self.assertEqual(plane.get("px", "px-1", "default")["metadata"]["uid"], uid)
        self.assertEqual([o for o in plane.names("clusterrole") + plane.names("clusterrolebinding") if o.startswith(NAME)], [])
        self.assertNotIn("discovery-token", plane.names("secret", NAMESPACE))
        plane.install()
        self.assertEqual(plane.get("px", "px-1", "default")["metadata"]["uid"], uid)

    def test_a_second_release_goes_without_the_crds_or_takes_them_over(self):
        """IN-10."""
        plane.install()
        self.refused("invalid ownership metadata", plane.install, {}, namespace="second", name="other")
        plane.install({"crds": {"install": False}}, namespace="second", name="other")
        plane.helm("uninstall", NAME, "-n", NAMESPACE, "--wait")
        plane.helm("uninstall", "other", "-n", "second", "--wait")
        plane.install({}, "--take-ownership", namespace="second", name="other")
        owner = plane.get("crd", f"proxies.{GROUP}")["metadata"]["annotations"]
        self.assertEqual((owner["meta.helm.sh/release-name"], owner["helm.sh/resource-policy"]), ("other", "keep"))

    def test_an_upgrade_upgrades_the_crds(self):
        """IN-1: what helm does not do with a folder crds/."""
        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder) / "old"
            shutil.copytree(CHART, old)
            crd = old / "crds-src" / "proxies.yaml"
            text = crd.read_text()
            crd.write_text(text.replace("    - jsonPath: .status.ip\n      name: IP\n      type: string\n", ""))
            self.assertNotEqual(crd.read_text(), text)
            plane.install(chart=old)
        columns = lambda: [c["name"] for c in plane.get("crd", f"proxies.{GROUP}")["spec"]["versions"][0]["additionalPrinterColumns"]]
        self.assertNotIn("IP", columns())
        plane.upgrade()
        self.assertIn("IP", columns())

    def test_the_bundle_is_all_that_kubectl_needs(self):
        """RE-8."""
        text = bundle()
        inside = text.split("---\n", 1)[1]
        self.addCleanup(lambda: plane.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=inside))
        first = plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        self.assertEqual(first.count("serverside-applied"), len([d for d in yaml.safe_load_all(text) if d]))
        plane.established(f"proxies.{GROUP}", f"providerhealths.{GROUP}")
        plane.apply(PX, more=["--dry-run=server"])
        document = (ROOT / "docs" / "install.md").read_text()
        [made] = re.findall(r"(?m)^(kubectl -n \S+ create secret generic discovery-token .*)$", document)
        words = subprocess.run(["bash", "-c", f"kubectl() {{ printf '%s\\n' \"$@\"; }}; {made}"], capture_output=True, text=True, check=True).stdout.split("\n")
        plane.kubectl(*[word for word in words if word])
        self.assertRegex(self.token(), r"^[0-9a-f]{48}$")

    def test_the_samples_are_taken(self):
        """IN-3, SA-1."""
        plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config" / "crd"))
        plane.established(f"proxies.{GROUP}")
        for folder in ("samples", "samples/pools"):
            plane.kubectl("apply", "--server-side", "--dry-run=server", "-f", str(ROOT / "config" / folder))


class Objects(Case):
    def test_every_value_gives_objects_that_the_api_server_takes(self):
        """Strictly: an unknown field of an object is refused. A ServiceMonitor needs kinds that are not here."""
        plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config" / "crd"))
        rendered = {}
        for path, schema in leaves():
            if path[0] != "crds":
                beside = merged(COMPANIONS.get(path, {}), {"extraVolumes": [{"name": "roots", "emptyDir": {}}]} if path == ("extraVolumeMounts",) else {})
                values = merged({"crds": {"install": False}}, beside, place(path, schema["examples"][0]))
                rendered[".".join(path)] = [o for o in objects(values) if o["kind"] != "ServiceMonitor"]
        dry = ["--dry-run=server", "--validate=strict"]
        try:
            # All in one go; one by one only to name what is refused.
            plane.apply(*(o for found in rendered.values() for o in found), more=dry)
        except Failed:
            for value, found in rendered.items():
                with self.subTest(value):
                    plane.apply(*found, more=dry)
            raise


class Rights(Case):
    """Not what the rules say, but what the authorizer makes of them."""

    YES = [
        ("get list watch update patch", f"{GROUP}/proxies", "default"),
        ("get patch", f"{GROUP}/proxies/status", "default"),
        ("list watch", "secrets", "default"),
        ("create patch", "events.k8s.io/events", "default"),
        ("create get list delete", "pods", "default"),
    ]
    NO = [
        ("create delete deletecollection", f"{GROUP}/proxies", "default"),
        ("update", f"{GROUP}/proxies/status", "default"),
        ("update patch", f"{GROUP}/proxies/finalizers", "default"),
        ("get create update patch delete", "secrets", "default"),
        ("get list watch delete update", "events.k8s.io/events", "default"),
        ("create patch", "events", "default"),
        ("watch update patch deletecollection", "pods", "default"),
        ("create get", "pods/exec", "default"),
        ("get", "pods/log", "default"),
        ("get list watch create", "configmaps", "default"),
        ("create", "serviceaccounts/token", NAMESPACE),
        ("create", "apps/deployments", "default"),
    ]
    CLUSTER_YES = [
        ("get list create delete", f"{GROUP}/providerhealths", None),
        ("get patch", f"{GROUP}/providerhealths/status", None),
        ("create", "authentication.k8s.io/tokenreviews", None),
        ("create", "authorization.k8s.io/subjectaccessreviews", None),
    ]
    CLUSTER_NO = [
        ("update patch watch", f"{GROUP}/providerhealths", None),
        ("list watch", "namespaces", None),
        ("get list", "nodes", None),
        ("get", "apiextensions.k8s.io/customresourcedefinitions", None),
        ("create bind escalate", "rbac.authorization.k8s.io/clusterroles", None),
        ("impersonate", "users", None),
    ]

    def judge(self, table, expected, who=WHO, namespace=None):
        asked = [(verb, resource, namespace or where, None) for verbs, resource, where in table for verb in verbs.split()]
        answers = dict(zip(asked, plane.reviewed(who, asked)))
        self.assertEqual([one for one, answer in answers.items() if answer != expected], [], who)

    def own_lease_and_namespace(self):
        self.judge([("get create update patch", "coordination.k8s.io/leases", NAMESPACE)], True)
        self.judge([("delete list watch", "coordination.k8s.io/leases", NAMESPACE), ("get create", "coordination.k8s.io/leases", "default")], False)
        self.assertTrue(plane.may(WHO, "get", "namespaces", "kube-system", "kube-system"))
        self.assertFalse(plane.may(WHO, "get", "namespaces", NAMESPACE, NAMESPACE))

    def test_the_operator_may_what_it_needs_and_nothing_more(self):
        plane.install()
        self.judge(self.YES + self.CLUSTER_YES, True)
        self.judge(self.NO + self.CLUSTER_NO, False)
        self.own_lease_and_namespace()

    def test_in_one_namespace_it_may_nothing_in_others(self):
        """OP-25."""
        plane.install({"proxyNamespace": "crawl"})
        self.judge(self.YES, True, namespace="crawl")
        self.judge(self.YES + self.NO, False)
        self.judge(self.CLUSTER_YES, True)
        self.judge(self.CLUSTER_NO, False)
        self.own_lease_and_namespace()

    def test_the_list_of_its_rights_is_that_of_the_rules(self):
        """`kubectl auth can-i --list`, as the account itself sees it: ours and those that everybody has."""
        plane.install()
        everybody = self.listed("system:serviceaccount:default:default")
        ours = self.listed(WHO) - everybody
        expected = set()
        for role in ("ClusterRole", "Role"):
            for found in [o for o in objects() if o["kind"] == role and ("manager" in o["metadata"]["name"] or "leader" in o["metadata"]["name"])]:
                for rule in found["rules"]:
                    [group], [resource] = rule["apiGroups"], rule["resources"]
                    expected.add((f"{resource}.{group}".rstrip("."), tuple(rule.get("resourceNames", [])), tuple(sorted(rule["verbs"]))))
        # The server lists the status as RESOURCE.GROUP/SUBRESOURCE.
        self.assertEqual({(re.sub(r"\.crawl.*?/", "/", r), n, v) for r, n, v in ours}, {(re.sub(r"/status\.crawl.*", "/status", r), n, v) for r, n, v in expected})

    def listed(self, who):
        out = set()
        for line in plane.kubectl("auth", "can-i", "--list", "-n", NAMESPACE, "--as", who, "--no-headers").splitlines():
            found = re.match(r"(\S*)\s+\[(.*?)\]\s+\[(.*?)\]\s+\[(.*?)\]$", line.strip())
            if found and found.group(1) and not found.group(1).startswith("["):
                out.add((found.group(1), tuple(found.group(3).split()), tuple(sorted(found.group(4).split()))))
        return out

    def test_who_may_view_edit_or_administer_a_namespace_may_so_with_proxies(self):
        """IN-2, PH-46: through the standard roles, once the controller has aggregated them."""
        plane.install()
        for role in ("view", "edit", "admin"):
            plane.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": role, "namespace": "crawl"},
                         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                         "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"{role}er"}]})
        eventually(lambda: plane.may("adminer", "patch", f"{GROUP}/proxies/status", "crawl"), "the aggregation of the admin role")
        look, change, own = "get list watch", "create update patch delete", "update patch"
        for who, verbs, resource, expected in [
            ("viewer", look, "proxies", True), ("viewer", change, "proxies", False),
            ("editer", look + " " + change, "proxies", True), ("editer", own, "proxies/status", False),
            ("adminer", look + " " + change, "proxies", True), ("adminer", own, "proxies/status", True),
            ("viewer", look, "providerhealths", True), ("adminer", change, "providerhealths", False),
        ]:
            self.judge([(verbs, f"{GROUP}/{resource}", "crawl")], expected, who=who)
        self.assertFalse(plane.may("viewer", "get", f"{GROUP}/proxies", "default"))
