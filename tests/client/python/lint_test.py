"""The Python client's code by linters: mypy --strict and flake8, those that are there (Debian has both); and ruff and
pyright from PyPI, in the versions of requirements.txt.

    lint_test.py BUILD_FOLDER [LintTest|FetchedTest]

Packages from PyPI are in BUILD_FOLDER/python_lint, and stay there until requirements.txt changes. Exit status 77:
skipped, for the reason that is printed.
"""

import importlib.util
import pathlib
import subprocess
import sys
import unittest

SKIPPED = 77
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PACKAGE = ROOT / "client" / "python"
REQUIREMENTS = HERE / "requirements.txt"
# ruff's format differs from flake8's rules here; generated files have long lines; names that __init__ has as
# themselves (`max as max`) are unused to flake8.
FLAKE8 = ["--max-line-length=100", "--extend-ignore=E203,W503",
          "--per-file-ignores=warpcall/_catalog.py:E501,warpcall/__init__.py:F401"]

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "deploy"))
import pinned  # noqa: E402


class Linters(unittest.TestCase):
    def check(self, *command):
        done = subprocess.run(command, cwd=PACKAGE, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, f"\n{done.stdout}")


class LintTest(Linters):
    def module(self, name, *arguments):
        if importlib.util.find_spec(name) is None:
            self.skipTest(f"no {name}; deploy/install_packages.sh test installs it")
        self.check(sys.executable, "-m", name, *arguments)

    def test_mypy(self):
        self.module("mypy", f"--cache-dir={BUILD / 'mypy_cache'}")

    def test_flake8(self):
        self.module("flake8", *FLAKE8)


class FetchedTest(Linters):
    @classmethod
    def setUpClass(cls):
        try:
            cls.programs = pinned.environment(BUILD / "python_lint", REQUIREMENTS)
        except pinned.Missing as missing:
            raise unittest.SkipTest(str(missing)) from None

    def test_ruff(self):
        self.check(self.programs / "ruff", "check", "--no-cache")
        self.check(self.programs / "ruff", "format", "--check", "--no-cache")

    def pyright(self, version):
        self.check(self.programs / "basedpyright", "--pythonpath", self.programs / "python",
                   "--pythonversion", version)

    def test_pyright_for_the_oldest_python(self):
        self.pyright("3.10")

    def test_pyright_for_the_newest_python(self):
        self.pyright("3.14")


if __name__ == "__main__":
    program = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, exit=False)
    skipped = program.result.skipped
    if skipped and len(skipped) >= program.result.testsRun:
        print(f"skipped: {skipped[0][1]}")
        sys.exit(SKIPPED)
    sys.exit(not program.result.wasSuccessful())
