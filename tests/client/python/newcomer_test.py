"""A newcomer's first steps: README's `pip install` into a clean virtual environment, then README's first call as
printed there, on the real server; then both for a copy of the folder, and for an sdist made of it.

    newcomer_test.py BUILD_FOLDER

Exit status 77: skipped, PyPI is out of reach.
"""

import ast
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from support import ROOT, SKIPPED, RealServer, main

sys.path.insert(0, os.path.join(ROOT, "tests", "deploy"))
import pinned  # noqa: E402

PACKAGE = pathlib.Path(ROOT, "client", "python")
README = (PACKAGE / "README.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8470"
SECONDS_MAX = 240
# Others are allowed: dependencies of these, and packages of the environment itself.
NEEDED = {"grpcio", "numpy", "typing_extensions", "pip", "setuptools", "warpcall"}


def requirements(key):
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    return ast.literal_eval(re.search(rf"^{key} = (\[.*\])$", project, re.M)[1])


class Newcomer:
    """A clean virtual environment."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.site = None
        pinned.run("python3 -m venv", sys.executable, "-m", "venv", self.folder / "venv")
        left_out = ("PYTHON", "WARPCALL", "GRPC_")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(left_out)}
        self.environment["PATH"] = f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def check_pypi(self):
        """Raises pinned.Missing if the build's tools, or its dependencies, are unavailable. pip keeps its downloads
        here: installing hardly asks PyPI again."""
        needed = [*requirements("requires"), *requirements("dependencies")]
        pinned.run("pip download", self.folder / "venv" / "bin" / "pip", "download", "--quiet",
                   "--disable-pip-version-check", "--no-input", "--retries", "2",
                   "--dest", self.folder / "needed", *needed)

    def run(self, *command, folder=None):
        return subprocess.run(command, cwd=folder or self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False)


class NewcomerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = re.search(r"^pip install .*$", README, re.M)[0]
        cls.installed = NEWCOMER.run(*shlex.split(command), folder=ROOT)
        cls.server = cls.enterClassContext(RealServer())

    def setUp(self):
        self.assertEqual(self.installed.returncode, 0, self.installed.stderr)

    def output_of(self, *command, folder=None):
        done = NEWCOMER.run(*command, folder=folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_the_first_call(self):
        program = re.search(r"```python\n(.*?)```", README, re.S)[1]
        self.assertIn(ADDRESS, program)
        said = self.output_of("python", "-W", "error", "-c", program.replace(ADDRESS, self.server.address))
        lines = said.splitlines()
        self.assertRegex(lines[0], r"^<warpcall\.Result softmax -> float32\[4096,1024\] by \w+ on cpu: ")
        # Sums of softmax's rows.
        self.assertRegex(said, r"\[(1\.|0\.99)")
        # The last line: nanoseconds, bytes of x and y, a rate, a share of the ceiling or None.
        self.assertRegex(lines[-1], rf"^\d+ {2 * 4 * 4096 * 1024} \d+\.?\d*(e\+\d+)? ")

    def test_it_brings_numpy_and_grpcio_alone(self):
        listed = self.output_of("pip", "list", "--format", "freeze", "--disable-pip-version-check")
        self.assertLessEqual({line.partition("=")[0] for line in listed.split()}, NEEDED)
        self.output_of("pip", "check", "--disable-pip-version-check")

    def test_a_copy_of_the_folder_is_enough(self):
        copy, wheels = NEWCOMER.folder / "copy", NEWCOMER.folder / "wheels"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("fast", "__pycache__"))
        make = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation",
                "--wheel-dir", wheels]
        self.output_of("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
                       NEWCOMER.folder / "tools", *requirements("requires"))
        NEWCOMER.environment["PYTHONPATH"] = str(NEWCOMER.folder / "tools")
        try:
            self.output_of("python", *make, copy)
            (wheel,) = wheels.iterdir()
            names = zipfile.ZipFile(wheel).namelist()
            made = NEWCOMER.run("python", "-m", "hatchling", "build", "-t", "sdist", folder=copy)
            self.assertEqual(made.returncode, 0, made.stderr)
            (sdist,) = (copy / "dist").iterdir()
            wheel.unlink()
            self.output_of("python", *make, sdist)
        finally:
            del NEWCOMER.environment["PYTHONPATH"]
        (again,) = wheels.iterdir()
        self.assertEqual(zipfile.ZipFile(again).namelist(), names)
        self.assertIn("warpcall/py.typed", names)

    def test_every_file_of_the_package_is_installed(self):
        where = self.output_of("python", "-c", "import warpcall\n"
                               "print(warpcall.__file__, warpcall.__version__, warpcall.FAST)")
        path, version, fast = where.split()
        self.assertTrue(path.startswith(str(NEWCOMER.folder)), path)
        project = pathlib.Path(ROOT, "CMakeLists.txt").read_text(encoding="utf-8")
        self.assertEqual((version, fast), (re.search(r"project\(\w+ VERSION ([\d.]+)", project)[1], "False"))
        files = {file.name for file in (PACKAGE / "warpcall").iterdir() if file.is_file()}
        self.assertIn("py.typed", files)
        self.assertEqual(files, {file.name for file in pathlib.Path(path).parent.iterdir() if file.is_file()})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        try:
            NEWCOMER = Newcomer(scratch)
            NEWCOMER.check_pypi()
        except pinned.Missing as missing:
            print(f"skipped: {missing}")
            sys.exit(SKIPPED)
        main()
