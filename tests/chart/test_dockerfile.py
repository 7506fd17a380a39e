"""The Dockerfile (IN-4): a linter's opinion, and the rules that matter here. It is built by its users: no builder is here."""

import fnmatch
import re
import shutil
import subprocess
import tomllib
import unittest

from chart import DEFAULTS, ROOT

TEXT = (ROOT / "Dockerfile").read_text()


def stages():
    """The instructions of each stage: (word, rest)."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#")))
    out = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, rest = line.split(None, 1)
        if word == "FROM":
            out.append([])
        out[-1].append((word, rest))
    return out


class Dockerfile(unittest.TestCase):
    def test_the_linter_has_nothing_to_say(self):
        hadolint = shutil.which("hadolint")
        if not hadolint:
            self.skipTest("no hadolint: its package could not be installed")
        done = subprocess.run([hadolint, "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_the_image_has_the_binary_and_the_roots_and_nothing_else(self):
        build, image = stages()
        self.assertEqual(image[0], ("FROM", "scratch"))
        self.assertEqual([rest for word, rest in image if word in ("COPY", "ADD", "RUN")], ["--from=build /tree/ /"])
        made = re.findall(r"install -D [^&]*?(/tree/\S+)", " ".join(rest for word, rest in build if word == "RUN"))
        self.assertEqual(made, ["/tree/egress-proxies-operator", "/tree/etc/ssl/certs/ca-certificates.crt"])

    def test_nobody_is_root_and_the_chart_agrees(self):
        user = dict(stages()[-1])["USER"]
        pod = DEFAULTS["podSecurityContext"]
        self.assertEqual(user, f"{pod['runAsUser']}:{pod['runAsGroup']}")
        self.assertGreater(pod["runAsUser"], 0)

    def test_the_entry_point_is_the_binary_itself(self):
        """Signals reach it, and the chart's arguments begin with the subcommand."""
        image = dict(stages()[-1])
        self.assertEqual(image["ENTRYPOINT"], '["/egress-proxies-operator"]')
        self.assertNotIn("CMD", image)
        self.assertEqual(image["EXPOSE"].split(), ["8090", "8081", "8443"])

    def test_the_build_is_static_locked_and_new_enough(self):
        [(_, base), *rest] = stages()[0]
        run = " ".join(text for word, text in rest if word == "RUN")
        for words in ["-C target-feature=+crt-static", "--release", "--locked", '--target "$target"', 'EPO_BUILD_COMMIT="$COMMIT"']:
            self.assertIn(words, run)
        wanted = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
        has = re.match(r"rust:(\d+)\.(\d+)-\w+ AS build", base).groups()
        self.assertGreaterEqual(tuple(map(int, has)), tuple(map(int, wanted.split("."))))

    def test_the_context_has_all_that_cargo_needs(self):
        ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
        needed = ["Cargo.toml", "Cargo.lock", "build.rs", "src", "tests/it/main.rs", *tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]]
        for path in needed:
            parts = path.split("/")
            prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
            self.assertFalse([(p, i) for p in prefixes for i in ignored if fnmatch.fnmatch(p, i)], path)
        self.assertIn("**/target", ignored)
        self.assertIn(".git", ignored)
