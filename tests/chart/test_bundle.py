"""The bundle of RE-8: all that kubectl needs, no token, no tracked file changed."""

import os
import subprocess
import tempfile
from pathlib import Path

import yaml
from chart import HELM, NAME, NAMESPACE, ROOT, ChartCase, objects


def bundle():
    """The file that `just bundle` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "install.yaml"
        subprocess.run([str(ROOT / "hack" / "bundle"), str(file)], env=os.environ | {"HELM": HELM}, check=True, capture_output=True, text=True)
        return file.read_text()


def identity(found):
    return (found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"])


class Bundle(ChartCase):
    def test_it_is_the_chart_with_a_namespace_and_without_token_and_test(self):
        text = bundle()
        found = [o for o in yaml.safe_load_all(text) if o]
        self.assertEqual(identity(found[0]), ("Namespace", None, NAMESPACE), "before all that is in it")
        expected = {identity(o) for o in objects()} - {("Secret", NAMESPACE, "discovery-token"), ("Pod", NAMESPACE, f"{NAME}-test")}
        self.assertEqual({identity(o) for o in found[1:]}, expected)
        self.assertNotIn("Helm", text.replace("`helm upgrade`", ""))
        self.assertNotIn("helm.sh/chart", text)

    def test_two_runs_give_the_same_file_and_git_sees_none(self):
        """Nothing in it is made at random."""
        self.assertEqual(bundle(), bundle())
        done = subprocess.run(["git", "check-ignore", "-q", "dist/install.yaml"], cwd=ROOT, check=False)
        self.assertEqual(done.returncode, 0, "dist/ is ignored")
