#!/usr/bin/env python3
"""The wheel warpcall-server without making it: its versions and pins, its launcher with programs and NVIDIA's wheels of
the test's own, and the licences that it would have.

    wheel_package_test.py WARPCALLD WARPCALL

Needs neither a network nor a GPU.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

sys.dont_write_bytecode = True

SOURCE = pathlib.Path(__file__).resolve().parents[2]
WHEEL = SOURCE / "deploy/wheel"
PROJECT = tomllib.loads((WHEEL / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLIENT = tomllib.loads((SOURCE / "client/python/pyproject.toml").read_text(encoding="utf-8"))["project"]
SECONDS_MAX = 60
# Says who runs it, how, and whether the dynamic loader finds a library by name alone, as the server opens CUDA's.
PROGRAM = """#!/usr/bin/python3
import ctypes, os, sys
print(os.getpid(), os.path.basename(sys.argv[0]), sys.argv[1:])
print(os.environ.get("LD_LIBRARY_PATH"))
print(os.environ.get("WARPCALLD_CUDA_INCLUDE"))
try:
    print(ctypes.CDLL("libwarpcall_answer.so.13").answer())
except OSError as error:
    print(error)
"""
PROGRAMS = []  # set by main


def pins(file):
    return set(re.findall(r"^[\w-]+==[\w.]+", (SOURCE / "deploy" / file).read_text(encoding="utf-8"), re.M))


class VersionTest(unittest.TestCase):
    def test_wheels_have_the_version_of_the_project(self):
        root = (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
        version = re.search(r"^project\(warpcall VERSION ([\d.]+) ", root, re.M)[1]
        self.assertEqual((PROJECT["version"], CLIENT["version"]), (version, version))
        self.assertEqual(CLIENT["optional-dependencies"]["server"], [f"warpcall-server=={version}"])

    def test_cuda_is_what_images_have_and_the_headers_that_compiled(self):
        (runtime,) = [pin for pin in pins("cuda_build_requirements.txt") if pin.startswith("nvidia-cuda-runtime==")]
        self.assertEqual(set(PROJECT["optional-dependencies"]["cuda"]), pins("cuda_run_requirements.txt") | {runtime})
        compiles = {pin for pin in PROJECT["optional-dependencies"]["cuda"] if "nvrtc" in pin} | {runtime}
        self.assertEqual(set(PROJECT["optional-dependencies"]["push"]), compiles)


class LauncherTest(unittest.TestCase):
    """A site-packages with the package, and programs that tell how they were started."""

    def setUp(self):
        self.site = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        shutil.copytree(WHEEL / "warpcall_server", self.site / "warpcall_server")
        self.note("warpcall_server", PROJECT["version"])
        folder = self.site / "warpcall_server/bin"
        folder.mkdir()
        for name in ("warpcalld", "warpcall"):
            (folder / name).write_text(PROGRAM, encoding="utf-8")
            (folder / name).chmod(0o755)

    def note(self, name, version):
        (self.site / f"{name}-{version}.dist-info").mkdir()

    def put_cuda(self):
        """Two of NVIDIA's wheels, one with headers. Returns the folders of their libraries."""
        folders = [self.site / "nvidia" / name / "lib" for name in ("cu13", "cudnn")]
        for folder in folders:
            folder.mkdir(parents=True)
        (self.site / "nvidia/cu13/include").mkdir()
        (self.site / "nvidia/cu13/include/cuda_fp16.h").touch()
        subprocess.run(["c++", "-shared", "-o", folders[0] / "libwarpcall_answer.so.13", "-x", "c++", "-"], check=True,
                       input='extern "C" int answer() { return 42; }', text=True, timeout=SECONDS_MAX)
        return ":".join(map(str, folders))

    def start(self, *words, **environment):
        """(lines on stdout, stderr) of a program that the launcher becomes."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "WARPCALL"))}
        with subprocess.Popen([sys.executable, *words], cwd=self.site, env=clean | environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            out, error = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual(process.returncode, 0, error)
        lines = out.splitlines()
        number, lines[0] = lines[0].split(" ", 1)
        self.assertEqual(int(number), process.pid, "the program is a process beside the launcher")
        return lines, error

    def server(self, *words, **environment):
        return self.start("-m", "warpcall_server", *words, **environment)

    def test_the_process_becomes_the_program(self):
        for name, function in PROJECT["scripts"].items():
            module, function = function.split(":")
            lines, error = self.start("-c", f"import {module}; {module}.{function}()", "--flag", "a b")
            self.assertEqual((lines[0], error), (f"{name} ['--flag', 'a b']", ""))
        self.assertEqual(self.server("--version")[0][0], "warpcalld ['--version']")

    def test_without_nvidias_wheels_nothing_is_set(self):
        lines, _ = self.server()
        self.assertEqual(lines[1:3], ["None", "None"])
        self.assertIn("libwarpcall_answer.so.13", lines[3])

    def test_nvidias_wheels_beside_it_are_found(self):
        folders = self.put_cuda()
        headers = str(self.site / "nvidia/cu13/include")
        self.assertEqual(self.server()[0][1:], [folders, headers, "42"])

    def test_what_the_user_set_goes_first(self):
        folders = self.put_cuda()
        lines, _ = self.server(LD_LIBRARY_PATH="/own", WARPCALLD_CUDA_INCLUDE="/mine")
        self.assertEqual(lines[1:], [f"/own:{folders}", "/mine", "42"])

    def test_a_client_of_another_version_is_warned_about(self):
        self.note("warpcall_fast", "9.9.9")  # none of its business: the client's own pin
        self.note("warpcall", PROJECT["version"])
        self.assertEqual(self.server()[1], "")
        (self.site / f"warpcall-{PROJECT['version']}.dist-info").rmdir()
        self.note("warpcall", "9.9.8")
        error = self.server()[1]
        self.assertEqual(len(error.splitlines()), 1)
        self.assertIn(f"warpcall-server is {PROJECT['version']}, but the client beside it, warpcall, is 9.9.8", error)


class LicenseTest(unittest.TestCase):
    def test_the_wheel_has_the_licence_of_all_that_it_brings(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "licenses"
        subprocess.run([sys.executable, SOURCE / "deploy/vendored.py", "licenses", folder, *PROGRAMS], check=True,
                       timeout=SECONDS_MAX)
        said = (folder / "NOTICE").read_text(encoding="utf-8")
        listed = re.findall(r"^(\S+) \S+: (.*)$", said, re.M)
        self.assertEqual([name for name, _ in listed if not (folder / f"{name}.txt").read_text(encoding="utf-8")], [])
        brought = " ".join(libraries for _, libraries in listed)
        linked = subprocess.run(["ldd", PROGRAMS[0]], check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
        for soname in re.findall(r"^\t(lib(?:grpc|protobuf|absl|dnnl|ssl|hwy|gomp)\S+) =>", linked.stdout, re.M):
            self.assertIn(soname, brought)
        self.assertNotIn("libc.so.6", brought)
        self.assertIn("nlohmann-json3-dev", said)
        self.assertTrue((folder / "common-Apache-2.0.txt").exists())

    def test_a_library_of_no_package_is_refused(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        run = {"check": True, "text": True, "timeout": SECONDS_MAX}
        subprocess.run(["c++", "-shared", "-o", folder / "libown.so", "-x", "c++", "-"], input="int own;", **run)
        subprocess.run(["c++", "-o", folder / "program", f"-Wl,--no-as-needed,-rpath,{folder}", "-x", "c++", "-",
                        "-x", "none", folder / "libown.so"], input="int main() {}", **run)
        done = subprocess.run([sys.executable, SOURCE / "deploy/vendored.py", "licenses", folder / "licenses",
                               folder / "program"], check=False, capture_output=True, text=True, timeout=SECONDS_MAX)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"libown\.so belongs to no package")


if __name__ == "__main__":
    PROGRAMS += sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
