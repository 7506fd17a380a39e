"""The chart as the cases see it: rendered with values, as objects and as text."""

import copy
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "egress-proxies-operator"
NAME = "egress-proxies-operator"
NAMESPACE = "egress-proxies-operator-system"
# Where the test bed is; a branch without it may point elsewhere.
BED = Path(os.environ.get("CHART_BED") or ROOT / "tests" / "bed")
BED_BIN = Path(subprocess.run([str(BED / "build"), "--print"], capture_output=True, text=True, check=True).stdout.strip()) if (BED / "build").exists() else None
HELM = os.environ.get("HELM") or shutil.which("helm") or (str(BED_BIN / "helm") if BED_BIN and (BED_BIN / "helm").exists() else None)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


class Refused(Exception):
    """What helm says when it renders nothing."""


class Strict(yaml.SafeLoader):
    """YAML as an API server reads it: a key that stands twice is refused."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise AssertionError(f"line {node.start_mark.line + 1}: {', '.join(twice)} stands twice")
        return super().construct_mapping(node, deep)


class ChartCase(unittest.TestCase):
    """A case that needs helm."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not HELM:
            raise unittest.SkipTest("NO HELM: set HELM or put it on PATH; the chart is NOT checked")


def helm(*args, values=None, check=True):
    """Runs helm; the text it prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        given = ["-f", file.name] if values is not None else []
        done = subprocess.run([HELM, *args, *given], capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise Refused(done.stderr.strip())
    return done.stdout if check else done


def text(values=None, *more, namespace=NAMESPACE):
    """The chart rendered, as text."""
    return helm("template", NAME, str(CHART), "-n", namespace, *more, values=values or {})


def objects(values=None, *more, namespace=NAMESPACE):
    """The chart rendered, as objects."""
    return [document for document in yaml.load_all(text(values, *more, namespace=namespace), Loader=Strict) if document]


def find(found, kind, name=None):
    """The one object of a kind, and of a name where there are several."""
    hits = [o for o in found if o["kind"] == kind and (name is None or o["metadata"]["name"] == name)]
    assert len(hits) == 1, f"{kind} {name}: {[(o['kind'], o['metadata']['name']) for o in found]}"
    return hits[0]


def deployment(values=None):
    """The Deployment."""
    return find(objects(values), "Deployment")


def container(values=None):
    """Its one container."""
    [one] = deployment(values)["spec"]["template"]["spec"]["containers"]
    return one


def notes(values=None):
    """What a person is told after the install."""
    out = helm("install", NAME, str(CHART), "-n", NAMESPACE, "--dry-run=client", values=values or {})
    return out.split("\nNOTES:\n", 1)[1]


def place(path, value):
    """`a.b.c` and a value as values for helm."""
    out = value
    for key in reversed(path):
        out = {key: out}
    return out


def merged(*layers):
    """Values laid over each other, as helm does."""
    out = {}
    for layer in layers:
        for key, value in copy.deepcopy(layer).items():
            out[key] = merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
    return out


def leaves(schema=None, path=()):
    """Every value with its schema, by its path."""
    for key, inner in (schema or SCHEMA)["properties"].items():
        here = (*path, key)
        if here == ("global",):
            continue
        if "properties" in inner:
            yield from leaves(inner, here)
        else:
            yield here, inner
