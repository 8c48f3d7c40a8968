#!/usr/bin/env python3
"""README's figures and picture follow BENCHMARKS.md, and outputs of benchmarks reach it."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import benchmarks
import peers_problems

SOURCE = benchmarks.FOLDER
GPU = SOURCE / "tests/gpu"
sys.path.insert(0, str(GPU))
import table
# Output of warpcall_cuda_kernel_bench, for every problem that table.py wants.
GPU_ROW = "  {:<20} {:>10} us   100.0 GB/s {:>6} % of copy {:>8} TFLOP/s\n"


class BenchmarksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "docs").mkdir()
        for name in ("BENCHMARKS.md", "README.md", "docs/speed.svg"):
            shutil.copy(SOURCE / name, self.folder / name)

    def read(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def test_what_is_committed_is_what_is_drawn(self):
        benchmarks.check(self.folder)

    def test_a_figure_by_hand_is_found(self):
        readme = self.read("README.md").replace("% of multiply-adds |", "% of all |")
        (self.folder / "README.md").write_text(readme, encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "README.md"):
            benchmarks.check(self.folder)

    def test_the_cpu_benchmark_fills_its_table(self):
        results = [{"name": f"{begin}/min_time:0.300/manual_time", "vs_onednn": 1.25 + index}
                   for index, (begin, _) in enumerate(benchmarks.CPU_KERNELS)]
        benchmarks.put(self.folder, "cpu-kernels", json.dumps({"benchmarks": results}))
        self.assertIn("| softmax 65536×256 float32 | simd_rows | 4.2 |", self.read("BENCHMARKS.md"))

    def test_the_gpu_benchmark_fills_its_table(self):
        log = "".join(
            f"{problem}\n" + GPU_ROW.format("own", "200.0", "95.0", "400.0")
            + GPU_ROW.format("cublaslt", "900.0", "9.0", "90.0")
            + GPU_ROW.format("chain_of_kernels", "1000.0", "9.0", "80.0")
            for problem, _ in table.PROBLEMS)
        (self.folder / "bench.log").write_text("method: burst\n" + log, encoding="utf-8")
        output = subprocess.run([sys.executable, GPU / "table.py", self.folder / "bench.log"],
                                capture_output=True, text=True, check=True).stdout
        benchmarks.put(self.folder, "gpu-kernels", output)
        self.assertIn("| softmax 65536×1024 bfloat16 | own | 200.0 | 95.0 % of copy | cublaslt | 900.0 |",
                      self.read("BENCHMARKS.md"))
        self.assertIn("\nmethod: burst.\n<!-- end gpu-kernels -->", self.read("BENCHMARKS.md"))

    def test_peers_fill_their_table_and_readmes(self):
        bench = "".join(f"{problem}\n" + GPU_ROW.format("own", "200.0", "95.4", "400.0")
                        + GPU_ROW.format("cudnn_softmax", "900.0", "9.0", "90.0")
                        for problem, _ in peers_problems.PROBLEMS)
        peers = "".join(f"{problem}\n" + GPU_ROW.format("torch", "300.0", "60.0", "200.0")
                        + "  triton      not measured: no\n" for problem, _ in peers_problems.PROBLEMS)
        (self.folder / "bench.log").write_text("method: burst\n" + bench, encoding="utf-8")
        (self.folder / "peers.log").write_text("peers: one GPU\nmethod: burst\n" + peers, encoding="utf-8")
        output = subprocess.run(
            [sys.executable, GPU / "peers_table.py", self.folder / "bench.log", self.folder / "peers.log"],
            capture_output=True, text=True, check=True).stdout
        benchmarks.put(self.folder, "peers", output)
        row = "| 200.0 | 95 % of copy | 300.0 | – | not taken | 900.0 | 1.50 |\n"
        self.assertIn(f"| softmax 65536×1024 bfloat16 | own {row}", self.read("BENCHMARKS.md"))
        self.assertIn("\npeers: one GPU; method: burst.\n<!-- end peers -->", self.read("BENCHMARKS.md"))
        self.assertIn("| softmax 65536×1024 bfloat16: 95 % of copy | 200.0 | 300.0 | – | not taken | 900.0 |\n",
                      self.read("README.md"))
        # Bars of the fastest and of peers that take half as long again and more, and none of peers without a time.
        svg = self.read("docs/speed.svg")
        self.assertEqual([svg.count(f'width="{width}" height="16"') for width in (380, 253, 84)], [3, 3, 3])
        self.assertIn(">Warpcall: own<", svg)
        self.assertIn(">900 µs<", svg)
        self.assertNotIn(">Triton<", svg)

    def test_settled_peers_fill_a_table_of_their_own(self):
        row = GPU_ROW.format("{}", "200.0", "95.4", "400.0").rstrip() + "  1700 MHz 690.0 W 138.000 mJ 0.4000 TFLOP/s per GHz\n"
        for name, peer in (("bench.log", "own"), ("peers.log", "torch")):
            log = "".join(f"{problem}\n{row.format(peer)}" for problem in peers_problems.POWER_BOUND)
            (self.folder / name).write_text("method: settled\n" + log, encoding="utf-8")
        output = subprocess.run(
            [sys.executable, GPU / "peers_table.py", "--settled", self.folder / "bench.log", self.folder / "peers.log"],
            capture_output=True, text=True, check=True).stdout
        before = self.read("README.md")
        benchmarks.put(self.folder, "peers-settled", output)
        self.assertIn("| matmul 4096³ bfloat16 | own | 200.0 | 1700 | 690 | 138.00 | 0.400 | – | torch | 200.0 | 1700 "
                      "| 138.00 | 1.000 | 1.000 |\n", self.read("BENCHMARKS.md"))
        self.assertIn("\nmethod: settled.\n<!-- end peers-settled -->", self.read("BENCHMARKS.md"))
        self.assertEqual(self.read("README.md"), before)

    def test_the_serving_peers_table_fills_readmes_figure(self):
        rows = [("4 KiB, 1 connection", "3.90", "3.14"), ("4 KiB, 8 connections", "4.00", "3.50"),
                ("1 MiB, 1 connection", "1.52", "1.60"), ("64 MiB, 1 connection", "2.90", "2.80")]
        lines = ["| tensor | model | a | b | c | d | by p50 | by requests/s | bar |", "|" + "---|" * 9]
        lines += [f"| {point} | gelu | 1 | 1 | 1 | 1 | {p50} | {rate} | ≥ 2: met |" for point, p50, rate in rows]
        benchmarks.put(self.folder, "serving", "\n".join(lines) + "\n\nTriton Inference Server 9.9; 2 cores.\n")
        # Not as fast as all that Triton can serve.
        self.assertIn("at least **3.9 times** (4 KiB) and **1.5 times** (1 MiB and more) as fast as NumPy models in "
                      "the Python backend of NVIDIA's Triton Inference Server", self.read("README.md"))

    def test_what_is_no_table_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "no output for transport"):
            benchmarks.put(self.folder, "transport", "warpcalld did not start\n")


if __name__ == "__main__":
    unittest.main()
