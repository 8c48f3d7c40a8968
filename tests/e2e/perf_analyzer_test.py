#!/usr/bin/env python3
"""NVIDIA's perf_analyzer, unchanged, against the real server: it starts, measures, and its requests are those
that the server counted.

    perf_analyzer_test.py BUILD

The program is in the wheel of tritonclient 2.51.0, the last one for glibc 2.36; it links NVIDIA's runtime,
which comes from PyPI too, and Debian's libb64-0d. Exit status 77: skipped, for the reason that is printed.
"""

import ctypes.util
import os
import pathlib
import platform
import re
import subprocess
import sys
import unittest
import zipfile

import inference_protocol as support

BUILD = pathlib.Path(sys.argv[1]).resolve()
FOLDER = BUILD / "perf_analyzer"
WHEELS = {"tritonclient==2.51.0":
          "sha256:c485bb0123bdf310f90bc8b03d3489b28df2ffed55b30c7eee0b795b48113d52",
          "nvidia-cuda-runtime-cu12==12.4.127":
          "sha256:64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5"}
FILES = {"bin/perf_analyzer", "lib/libcudart.so.12"}

sys.path.insert(0, str(support.ROOT / "tests" / "deploy"))
import pinned  # noqa: E402

import differential  # noqa: E402


def fetch():
    """The program's path. Raises pinned.Missing."""
    program = FOLDER / "perf_analyzer"
    if platform.machine() != "x86_64":
        raise pinned.Missing("perf_analyzer's wheel is for x86-64")
    if ctypes.util.find_library("b64") is None:
        raise pinned.Missing("no libb64-0d; deploy/install_packages.sh test installs it")
    if (FOLDER / "fetched").exists():
        return program
    FOLDER.mkdir(parents=True, exist_ok=True)
    requirements = FOLDER / "requirements.txt"
    requirements.write_text("".join(f"{wheel} --hash={digest}\n" for wheel, digest in WHEELS.items()))
    pinned.download(FOLDER, requirements)
    for wheel in FOLDER.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(tuple(FILES)):
                    (FOLDER / name.rsplit("/", 1)[1]).write_bytes(archive.read(name))
    program.chmod(0o755)
    (FOLDER / "fetched").touch()
    return program


class PerfAnalyzerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off", "--allow_shared_memory"))

    def measure(self, model, *arguments):
        """What it prints of a run with 400 requests."""
        # Who registers shared memory and who asks are one connection: regions belong to one.
        environment = dict(os.environ, LD_LIBRARY_PATH=str(FOLDER),
                           TRITON_CLIENT_GRPC_CHANNEL_MAX_SHARE_COUNT="64")
        done = subprocess.run(
            [PROGRAM, "-i", "grpc", "-u", self.server.address, "-m", model, "--request-count", "400", "-z",
             "-v", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def counted(self, kernel):
        return support.total(self.server, "warpcall_requests_total", f'kernel="{kernel}"', 'code="OK"')

    def check(self, kernel, model, *arguments):
        before = self.counted(kernel)
        printed = self.measure(model, *arguments)
        self.assertRegex(printed, r"Inference count: [1-9]")  # by the server's statistics
        self.assertRegex(printed, r"compute infer \d+ usec")
        self.assertGreaterEqual(self.counted(kernel), before + 400)
        self.assertEqual(support.total(self.server, "warpcall_requests_total", f'kernel="{kernel}"'),
                         self.counted(kernel))
        self.assertGreater(int(re.search(r"Request count: (\d+)", printed)[1]), 0)

    def test_each_way_of_asking(self):
        for arguments in ((), ("--concurrency-range", "4"), ("--async", "--concurrency-range", "4"),
                          ("--streaming", "--async", "--concurrency-range", "4"),
                          ("--shared-memory=system", "--output-shared-memory-size=65536"),
                          ("--shared-memory=system", "--output-shared-memory-size=65536",
                           "--concurrency-range", "8"),
                          ("--collect-metrics", "--metrics-url", f"{self.server.metrics_address}/metrics"),
                          ("--request-parameter", "implementation:cpu:string")):
            with self.subTest(arguments=arguments):
                self.check("gelu", "gelu_fp32", "--shape", "x:64,64", *arguments)

    def test_models_of_several_inputs_and_of_other_types(self):
        self.check("matmul", "matmul_fp16", "--shape", "a:32,16", "--shape", "b:16,8")
        self.check("layernorm", "layernorm_bf16__cpu", "--shape", "x:8,64", "--shape", "weight:64",
                   "--shape", "bias:64")


if __name__ == "__main__":
    try:
        PROGRAM = fetch()
    except pinned.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(support.SKIPPED)
    unittest.main(argv=[sys.argv[0]])
