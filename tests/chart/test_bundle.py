"""The bundle of RE-8: all that kubectl needs, no token, no tracked file changed."""

import os
import subprocess
import tempfile
from pathlib import Path

import yaml
from chart import HELM, NAME, NAMESPACE, ROOT, ChartCase, helm, objects


def hack(script, out, **variables):
    """Runs one of the scripts of hack/; what it prints."""
    environment = {key: value for key, value in os.environ.items() if key != "IMAGE"} | {"HELM": HELM} | variables
    return subprocess.run([str(ROOT / "hack" / script), str(out)], env=environment, check=True, capture_output=True, text=True).stdout


def bundle(**variables):
    """The file that `just bundle` writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "install.yaml"
        hack("bundle", file, **variables)
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

    def test_it_names_the_image_it_is_told(self):
        found = [o for o in yaml.safe_load_all(bundle(IMAGE="registry.example.com/epo")) if o and o["kind"] == "Deployment"]
        images = [one["image"].rsplit(":", 1)[0] for o in found for one in o["spec"]["template"]["spec"]["containers"]]
        self.assertEqual(images, ["registry.example.com/epo"])

    def test_a_release_has_the_chart_the_bundle_and_their_checksums(self):
        """RE-7. The image is built where there is a builder."""
        with tempfile.TemporaryDirectory() as folder:
            told = hack("release", folder)
            files = sorted(path.name for path in Path(folder).iterdir())
            self.assertEqual([name.split("-0.")[0] for name in files], ["SHA256SUMS", NAME, "install.yaml"])
            self.assertEqual(told, (Path(folder) / "SHA256SUMS").read_text())
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
            [package] = Path(folder).glob("*.tgz")
            self.assertEqual([o["kind"] for o in yaml.safe_load_all(helm("template", "x", str(package))) if o], [o["kind"] for o in objects()])
