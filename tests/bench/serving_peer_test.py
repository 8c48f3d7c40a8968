#!/usr/bin/env python3
"""serving_peer.py's handling of a wheel, of its models and of a benchmark's output, without the wheel. The benchmark's
client must also take warpcalld for a peer.

    serving_peer_test.py BUILD_FOLDER
"""

import math
import os
import pathlib
import sys
import tempfile
import types
import unittest
import zipfile
from unittest import mock

import numpy as np

import serving_peer
from serving_peer import KIB, MIB, OURS, PEER, Figures, Point

sys.path.append(str(serving_peer.HERE.parent / "deploy"))
import processes  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve()
BIN = pathlib.Path(os.environ.get("WARPCALL_TEST_BIN_DIR", BUILD / "bin"))
ROOT = "pytriton/tritonserver"
STARTED = "echo '| server_version | 9.8.7 |' >&2; echo 'Started GRPCInferenceService at' >&2; exec sleep 60"


class Tensor:
    def __init__(self, name, array):
        self.name, self.array = name, array

    def as_numpy(self):
        return self.array


def loaded(model):
    """The class in model.py, with the module that the server would bring."""
    backend = types.ModuleType("triton_python_backend_utils")
    backend.Tensor, backend.InferenceResponse = Tensor, lambda outputs: outputs
    backend.get_input_tensor_by_name = lambda request, name: request[name]
    names = {}
    with mock.patch.dict(sys.modules, {backend.__name__: backend}):
        exec(compile(model.read_text(encoding="utf-8"), str(model), "exec"), names)  # pylint: disable=exec-used
    return names["TritonPythonModel"]()


class ServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_models_are_called_as_warpcalls_and_answer_as_they_do(self):
        serving_peer.write_models(self.folder / "models")
        x = np.array([-9.5, -3, -0.75, 0, 0.5, 2, 7], np.float32)
        tanh = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in x.tolist()]
        for kernel, wanted in (("identity", x), ("gelu", np.array(tanh))):
            model = self.folder / "models" / f"{kernel}_fp32"
            configuration = (model / "config.pbtxt").read_text(encoding="utf-8")
            self.assertIn(f'name: "{kernel}_fp32"\n', configuration)
            self.assertIn("count: 2 kind: KIND_CPU", configuration)
            program = loaded(model / "1/model.py")
            program.initialize({"model_name": model.name})
            ((output,), (again,)) = program.execute([{"x": Tensor("x", x.copy())}, {"x": Tensor("x", x.copy())}])
            self.assertEqual((output.name, output.array.dtype), ("y", np.float32))
            np.testing.assert_array_less(np.abs(output.array - wanted), np.abs(x) * 2.0**-20 + 1e-30)
            np.testing.assert_array_equal(output.array, again.array)

    def wheel(self, *versions):
        path = self.folder / "a.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in (f"{ROOT}/bin/tritonserver", "nvidia_pytriton.libs/libb64.so", "pytriton/client/client.py",
                         f"{ROOT}/backends/python/libtriton_python.so", f"{ROOT}/caches/local/cache.so",
                         *(f"{ROOT}/python_backend_stubs/{v}/triton_python_backend_stub" for v in versions)):
                archive.writestr(name, name)
        return path

    def test_of_the_wheel_only_the_server_and_this_pythons_backend_are_taken(self):
        serving_peer.unpack(self.wheel("3.10", "3.11"), self.folder / "out", "3.11")
        files = {str(path.relative_to(self.folder / "out")): path
                 for path in (self.folder / "out").rglob("*") if path.is_file()}
        stub = f"{ROOT}/backends/python/triton_python_backend_stub"
        self.assertEqual(set(files), {f"{ROOT}/bin/tritonserver", f"{ROOT}/backends/python/libtriton_python.so",
                                      "nvidia_pytriton.libs/libb64.so", stub})
        self.assertIn("/3.11/", files[stub].read_text())
        for program in (stub, f"{ROOT}/bin/tritonserver"):
            self.assertTrue(os.access(files[program], os.X_OK), program)
        with self.assertRaisesRegex(serving_peer.Failure, "not for Python 3.12"):
            serving_peer.unpack(self.wheel("3.10"), self.folder / "other", "3.12")

    def peer(self, script):
        (self.folder / "bin").mkdir()
        program = self.folder / "bin/tritonserver"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return serving_peer.Peer(self.folder, self.folder)

    def test_a_server_has_started_when_it_says_so_and_ends_with_the_block(self):
        with self.peer(STARTED) as peer:
            self.assertEqual(peer.version, "9.8.7")
            self.assertRegex(peer.address, r"^127\.0\.0\.1:\d+$")
            self.assertIsNone(peer.process.poll())
        self.assertIsNotNone(peer.process.returncode)

    def test_a_server_that_does_not_start_is_told_with_its_last_words(self):
        with self.assertRaisesRegex(serving_peer.Failure, "did not start.*no such model"):
            self.peer("echo 'no such model' >&2; exit 1").__enter__()


def run_of(p50_us, rate):
    """A run in which warpcalld took p50_us and did `rate` everywhere, and the peer 300 us and 1000/s."""
    return {(point, kernel, server): Figures(p50_us, rate) if server == OURS else Figures(300, 1000)
            for point in serving_peer.BARS for kernel in serving_peer.KERNELS for server in (OURS, PEER)}


class TableTest(unittest.TestCase):
    def test_the_benchmarks_rows_are_read(self):
        output = ("warpcalld on cpu, 2 cores\n"
                  "| TCP | 8 | 4096 | peer gelu (ModelInfer) | 954.5 | 2.0 | 3.0 | 7140.2 | 0.029 | – | – | – |\n"
                  "| TCP | 1 | 4096 | ByteBuffer echo | 50.0 | 2.0 | 3.0 | 9000.0 | 0.029 | – | – | 9.1 |\n"
                  "| TCP | 1 | 4096 | warpcall identity (ModelInfer) | 63.1 | 2 | 3 | 11737.0 | 0 | – | – | 9 |\n")
        self.assertEqual(serving_peer.read_run(output),
                         {(Point(4 * KIB, 8), "gelu", PEER): Figures(954.5, 7140.2),
                          (Point(4 * KIB, 1), "identity", OURS): Figures(63.1, 11737.0)})

    def test_medians_are_of_each_figure(self):
        runs = [run_of(100, 2000), run_of(90, 9000), run_of(500, 3000)]
        case = Point(MIB, 1), "gelu", OURS
        self.assertEqual(serving_peer.medians(runs)[case], Figures(100, 3000))
        del runs[1][case]
        with self.assertRaisesRegex(serving_peer.Failure, "did not measure.*gelu"):
            serving_peer.medians(runs)

    def test_a_bar_is_met_by_times_and_rates_alike(self):
        def bars(p50_us, rate):
            lines = serving_peer.table(serving_peer.medians([run_of(p50_us, rate)])).splitlines()
            self.assertEqual(len(lines), 2 + 10)
            self.assertEqual({line.count("|") for line in lines}, {10})
            return [line.split(" | ")[-1].strip(" |") for line in (lines[2], lines[11])]

        self.assertEqual(bars(100, 3000), ["≥ 3: met", "≥ 2: met"])
        self.assertEqual(bars(101, 3000), ["≥ 3: missed", "≥ 2: met"])
        self.assertEqual(bars(100, 1999), ["≥ 3: missed", "≥ 2: missed"])
        self.assertIn("| 4 KiB, 8 connections | gelu | 300 | 1000 | 100 | 99.5 | 3.00 | 0.10 | ≥ 3: missed |",
                      serving_peer.table(run_of(100, 99.5)))


class BenchTest(unittest.TestCase):
    def test_the_same_client_calls_both(self):
        points = {Point(4 * KIB, 1): 3, Point(4 * KIB, 8): 3, Point(64 * KIB, 1): 2}
        with mock.patch.object(serving_peer, "BARS", points), tempfile.TemporaryDirectory() as folder, \
                processes.warpcalld(BIN / "warpcalld", pathlib.Path(folder), "--devices=cpu") as addresses:
            run = serving_peer.measure(BUILD, types.SimpleNamespace(address=addresses[0]), 0.25)
            table = serving_peer.table(serving_peer.medians([run]))
        self.assertEqual(table.count("met") + table.count("missed"), 6)
        self.assertGreater(min(figures.rate for figures in run.values()), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
