"""The Python client's code by the linters that are there: mypy --strict, flake8, and ruff, whose versions
pyproject.toml's extra "lint" names. Debian has the first two.

    lint_test.py BUILD_FOLDER
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import unittest

SKIPPED = 77
BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
PACKAGE = os.path.join(ROOT, "client", "python")
# What ruff's format does otherwise than flake8 wants; of what is generated, long lines.
FLAKE8 = ["--max-line-length=100", "--extend-ignore=E203,W503",
          "--per-file-ignores=warpcall/_catalog.py:E501"]


class LintTest(unittest.TestCase):
    def check(self, *command):
        done = subprocess.run(command, cwd=PACKAGE, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, f"\n{done.stdout}")

    def module(self, name, *arguments):
        if importlib.util.find_spec(name) is None:
            self.skipTest(f"no {name}")
        self.check(sys.executable, "-m", name, *arguments)

    def test_mypy(self):
        self.module("mypy", f"--cache-dir={os.path.join(os.path.abspath(BUILD), 'mypy_cache')}")

    def test_flake8(self):
        self.module("flake8", *FLAKE8)

    def test_ruff(self):
        ruff = shutil.which("ruff")
        if ruff is None:
            self.skipTest("no ruff")
        self.check(ruff, "check", "--no-cache")
        self.check(ruff, "format", "--check", "--no-cache")


if __name__ == "__main__":
    program = unittest.main(argv=sys.argv[:1], verbosity=2, exit=False)
    if len(program.result.skipped) == program.result.testsRun:
        print("skipped: no linter; deploy/install_packages.sh test installs what is missing")
        sys.exit(SKIPPED)
    sys.exit(not program.result.wasSuccessful())
