#!/usr/bin/env python3
"""Peers: their problems, the order of their measurements, their rows, and the table of these. Needs neither PyTorch nor
a GPU."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import benchmarks
import peers_problems

GPU = benchmarks.FOLDER / "tests/gpu"
sys.path.insert(0, str(GPU))
with mock.patch.dict(sys.modules, {"torch": mock.MagicMock(), "torch.nn.functional": mock.MagicMock()}):
    import peers
import peers_table

L2_BYTES = 60 << 20
NORM = "layernorm bfloat16 65536x1024 1024 1024"
PRODUCT = "matmul bfloat16 4096x4096 4096x4096"
TF32 = "matmul float32 4096x4096 4096x4096 precision=tf32"
SOFTMAX = "softmax bfloat16 65536x1024"
WIDE = "softmax bfloat16 8x262144"
NARROW = "matmul bfloat16 1x8192 8192x8192"
# A row of warpcall_cuda_kernel_bench.
ROW = "  {:<22} {:>10.2f} us  (p10 1.00 p90 2.00)     1000 GB/s {:5.1f} % of copy   500.00 TFLOP/s{}"


class ProblemsTest(unittest.TestCase):
    def test_a_line_is_taken_apart(self):
        problem = peers_problems.parse("fused bfloat16 65536x4096 4096 expression=gelu(x0 + x1)")
        self.assertEqual((problem.kernel, problem.data_type), ("fused", "bfloat16"))
        self.assertEqual(problem.shapes, ((65536, 4096), (4096,)))
        self.assertEqual(problem.attributes, {"expression": "gelu(x0 + x1)"})
        self.assertEqual(peers_problems.parse("softmax bfloat16 16384x4096 axis").attributes, {"axis": 0})

    def test_what_is_no_problem_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, "type is 'int8'.*float32, float16, bfloat16"):
            peers_problems.parse("gelu int8 4")
        with self.assertRaisesRegex(ValueError, "no shape after its type"):
            peers_problems.parse("gelu float32 approximate=none")
        with self.assertRaisesRegex(ValueError, "'transpose_a' has no value"):
            peers_problems.parse("matmul float32 4x4 4x4 transpose_a")

    def test_bytes_and_operations_are_the_least(self):
        self.assertEqual(peers_problems.parse(NORM).bytes, 2 * (2 * 65536 * 1024 + 2 * 1024))
        self.assertEqual(peers_problems.parse(NORM).flops, 0)
        product = peers_problems.parse("matmul float32 2x3 3x5")
        self.assertEqual((product.output, product.bytes, product.flops), ((2, 5), 4 * 31, 60))
        linear = peers_problems.parse("linear float16 2x3 5x3 5 activation=none")
        self.assertEqual((linear.output, linear.bytes, linear.flops), ((2, 5), 2 * 36, 60))

    def test_operands_pass_the_cache_five_times(self):
        for line, _ in peers_problems.PROBLEMS:
            problem = peers_problems.parse(line)
            sets = problem.sets(L2_BYTES)
            self.assertTrue(sets == 64 or sets * problem.bytes > 5 * L2_BYTES, line)
            self.assertTrue(sets == 1 or (sets - 1) * problem.bytes <= 5 * L2_BYTES, line)

    def test_a_sample_takes_a_millisecond(self):
        self.assertEqual(peers_problems.launches_for(0.3), 4)
        self.assertEqual(peers_problems.launches_for(5), 2)
        self.assertEqual(peers_problems.launches_for(0.001), 400)
        self.assertEqual(peers_problems.launches_for(0), 400)

    def test_a_result_reads_as_a_row_of_the_benchmark(self):
        problem = peers_problems.parse(PRODUCT)
        line = peers_problems.result_line("torch.compile", [0.3, 0.1, 0.2], problem, 4e12)
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.write_text(f"{PRODUCT}\n{line}\n", encoding="utf-8")
            (us, copied, tflops), = peers_table.read(log)[PRODUCT].values()
        self.assertEqual(us, 200)
        self.assertAlmostEqual(copied, 100 * problem.bytes / 200e-6 / 4e12, delta=0.06)
        self.assertAlmostEqual(tflops, 2 * 4096**3 / 200e-6 / 1e12, delta=0.01)


class Timed:
    """A contender each of whose samples takes so long."""

    def __init__(self, order, name, ms, launches=1):
        self.order, self.name, self.ms, self.launches = order, name, ms, launches

    def sample(self):
        self.order.append(self.name)
        return self.ms


class MeasuringTest(unittest.TestCase):
    def setUp(self):
        patcher = mock.patch.object(peers.time, "sleep")
        self.addCleanup(patcher.stop)
        self.rests = patcher.start()

    def test_contenders_take_turns(self):
        order = []
        samples = peers.measure({name: Timed(order, name, ms) for name, ms in (("a", 1), ("b", 2))})
        self.assertEqual(order, ["a", "b"] * peers.SAMPLES_MAX)
        self.assertEqual(samples, {"a": [1] * peers.SAMPLES_MAX, "b": [2] * peers.SAMPLES_MAX})

    def test_slow_ones_have_fewer_turns_but_some(self):
        order = []
        samples = peers.measure({"slow": Timed(order, "slow", 10, launches=10), "quick": Timed(order, "quick", 1)})
        # Each rests as long as its sample took.
        self.assertEqual([call.args[0] for call in self.rests.call_args_list[:2]], [0.1, 0.001])
        self.assertEqual(len(samples["slow"]), peers.SAMPLES_MIN)
        self.assertEqual(len(samples["quick"]), peers.SAMPLES_MAX)

    def run_one(self, line, found, ready):
        output = io.StringIO()
        with mock.patch.multiple(peers, operands_of=mock.DEFAULT, Copies=mock.DEFAULT, ready=ready) as made, \
                contextlib.redirect_stdout(output):
            peers.torch.cuda.get_device_properties.return_value.L2_cache_size = L2_BYTES
            made["Copies"].return_value = Timed([], "copy", 0.1)
            some = peers.run(line, found)
        return some, output.getvalue().splitlines()

    def test_shares_are_of_a_copy_of_as_many_bytes(self):
        def ready(*_):
            return {"torch": Timed([], "torch", 0.2)}, {"triton": peers.NotTaken("too long\nby far")}
        some, lines = self.run_one(SOFTMAX, {}, ready)
        self.assertTrue(some)
        self.assertEqual(lines[0], SOFTMAX)
        self.assertIn(" 100.0 % of copy", lines[1])
        self.assertRegex(lines[2], r"^  torch +200\.00 us .* 50\.0 % of copy")
        self.assertEqual(lines[3].split(), ["triton", "not", "measured:", "too", "long"])

    def test_a_problem_that_nobody_takes_is_said_to_be(self):
        some, lines = self.run_one(SOFTMAX, {}, lambda *_: ({}, {"torch": "ValueError: no"}))
        self.assertFalse(some)
        self.assertIn("not measured: ValueError: no", lines[-1])

    def test_a_package_that_is_missing_is_named_and_does_not_run(self):
        with mock.patch.object(peers.importlib, "import_module", side_effect=ModuleNotFoundError("No module 'q'")):
            found = peers.packages()
        peers.torch.__version__ = "2.11.0"
        peers.torch.cuda.get_device_properties.return_value.name = "NVIDIA H200"
        self.assertEqual(set(found), {"triton", "quack", "flash_attn"})
        self.assertEqual(set(peers.contenders(peers_problems.parse(SOFTMAX), found)),
                         {"torch", "torch.compile", "cublaslt"})
        output = io.StringIO()
        with contextlib.redirect_stdout(output), mock.patch.object(peers, "run", side_effect=ValueError("no")):
            self.assertEqual(peers.run_all([SOFTMAX], found), 1)
        self.assertIn("missing: quack (ModuleNotFoundError: No module 'q')", output.getvalue())
        self.assertIn(f"{SOFTMAX}\n  (all)                  not measured: ValueError: no\n0 of 1", output.getvalue())

    def test_every_problem_has_a_function_of_pytorch(self):
        for line, _ in peers_problems.PROBLEMS:
            self.assertTrue(callable(peers.eager(peers_problems.parse(line))), line)

    def test_a_wrong_result_is_no_result(self):
        problem = peers_problems.parse(SOFTMAX)
        result, norms = mock.MagicMock(shape=(2, 3)), iter((0.3, 10.0))
        peers.torch.linalg.vector_norm.side_effect = lambda *_, **__: _Scalar(next(norms))
        with self.assertRaisesRegex(peers.NotTaken, "wrong: .* is 0.03; it must be at most 0.02"):
            peers.check(problem, "triton", lambda: result, [], mock.MagicMock(shape=(2, 3)))
        with self.assertRaisesRegex(peers.NotTaken, r"its shape is \(2, 3\); it must be \(3, 2\)"):
            peers.check(problem, "triton", lambda: result, [], mock.MagicMock(shape=(3, 2)))
        norms = iter((float("nan"), 10.0))
        with self.assertRaisesRegex(peers.NotTaken, "wrong"):
            peers.check(problem, "triton", lambda: result, [], mock.MagicMock(shape=(2, 3)))
        norms = iter((0.1, 10.0))
        peers.check(problem, "triton", lambda: result, [], mock.MagicMock(shape=(2, 3)))


class _Scalar(float):
    def __truediv__(self, other):
        return _Scalar(float(self) / float(other))

    def item(self):
        return float(self)


class TableTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def logs(self, ours=None, theirs=None):
        """Paths of the two logs: the same for each problem but for those given, by line."""
        bench, log = ["NVIDIA H200: copy 4295 GB/s"], ["peers: NVIDIA H200, torch 2.11.0", "missing: quack (none)"]
        for line, _ in peers_problems.PROBLEMS:
            bench += [line, *(ours or {}).get(line, [ROW.format("own", 100, 90, "")])]
            log += [line, *(theirs or {}).get(line, [ROW.format("torch", 110, 80, "")])]
        bench.append("conditions: SM clock 1700 to 1980 MHz, throttled: power cap")
        paths = self.folder / "peers_bench.log", self.folder / "peers.log"
        for path, lines in zip(paths, (bench, log)):
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return paths

    def row(self, line, ours, theirs):
        """The cells of one problem."""
        name = dict(peers_problems.PROBLEMS)[line]
        rows = [text for text in peers_table.table(*self.logs({line: ours}, {line: theirs}))
                if text.startswith(f"| {name} |")]
        self.assertEqual(len(rows), 1)
        return [cell.strip() for cell in rows[0].strip("|").split("|")][1:]

    def test_the_fastest_of_each_group_counts(self):
        ours = [ROW.format("warp_per_row", 90, 70, ""), ROW.format("compiled_softmax", 80, 79, ""),
                ROW.format("triton_softmax", 76, 75, ""), ROW.format("cudnn_softmax", 200, 30, ""),
                ROW.format("chain_of_kernels", 10, 99, ""), "  (multiply-adds)        800.00 TFLOP/s in bfloat16"]
        theirs = [ROW.format("copy", 60, 100, ""), ROW.format("torch", 180, 30, ""),
                  ROW.format("torch.compile", 90, 60, ""), ROW.format("triton", 88, 60, "")]
        self.assertEqual(self.row(SOFTMAX, ours, theirs),
                         ["compiled_softmax", "80.0", "79 % of copy", "180.0", "90.0", "76.0", "200.0", "0.95"])

    def test_cublaslt_is_the_faster_of_both_ways_to_call_it(self):
        ours = [ROW.format("wgmma_tiled", 170, 20, "   85.5 % of multiply-adds"),
                ROW.format("cublaslt", 176, 20, "   82.0 % of multiply-adds"),
                ROW.format("(cuBLASLt directly)", 178, 20, "   82.0 % of multiply-adds")]
        theirs = [ROW.format("torch", 190, 20, ""), ROW.format("cublaslt", 187, 20, "")]
        self.assertEqual(self.row(PRODUCT, ours, theirs),
                         ["wgmma_tiled", "170.0", "86 % of multiply-adds", "190.0", "–", "–", "176.0", "1.04"])
        theirs[1] = ROW.format("cublaslt", 160, 20, "")
        self.assertEqual(self.row(PRODUCT, ours, theirs)[-2:], ["160.0", "0.94"])

    def test_a_product_of_few_rows_is_bound_by_its_bytes(self):
        ours = [ROW.format("mma_tiled", 34, 90, "    0.9 % of multiply-adds")]
        self.assertEqual(self.row(NARROW, ours, [])[:3], ["mma_tiled", "34.0", "90 % of copy"])

    def test_what_does_not_take_a_problem_or_is_wrong_is_shown_as_such(self):
        theirs = ["  torch                  not measured: OutOfMemoryError: out", ROW.format("torch.compile", 50, 9, ""),
                  "  triton                 not measured: wrong: |y - PyTorch's| / |PyTorch's| is 1"]
        self.assertEqual(self.row(WIDE, [ROW.format("cluster_per_row", 5, 9, "")], theirs)[3:],
                         ["not taken", "50.0", "wrong", "–", "10.00"])

    def test_without_a_kernel_of_our_own_there_is_no_ratio(self):
        self.assertEqual(self.row(TF32, [ROW.format("cublaslt", 300, 9, "")], [])[:3] +
                         self.row(TF32, [ROW.format("cublaslt", 300, 9, "")], [])[-2:],
                         ["–", "–", "–", "300.0", "–"])

    def test_packages_that_are_there_have_a_column(self):
        head = next(iter(peers_table.table(*self.logs())))
        self.assertNotIn("QuACK", head)
        theirs = {SOFTMAX: [ROW.format("torch", 110, 80, ""), ROW.format("quack", 70, 80, "")]}
        lines = list(peers_table.table(*self.logs(None, theirs)))
        self.assertIn("| QuACK, flash-attention |", lines[0])
        self.assertEqual(lines[0].count("|"), lines[1].count("|"))
        self.assertTrue(any(line.endswith("| 70.0 | 0.70 |") for line in lines))

    def test_the_run_is_told_below_the_table(self):
        self.assertEqual(list(peers_table.table(*self.logs()))[-1],
                         "peers: NVIDIA H200, torch 2.11.0; missing: quack (none); "
                         "conditions: SM clock 1700 to 1980 MHz, throttled: power cap.")

    def test_a_problem_that_is_missing_stops_it(self):
        bench, log = self.logs()
        log.write_text(log.read_text(encoding="utf-8").replace(f"{WIDE}\n", "other\n"), encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "'softmax bfloat16 8x262144' is missing in .*peers.log"):
            list(peers_table.table(bench, log))

    def test_the_program_lists_problems_as_the_benchmark_takes_them(self):
        printed = subprocess.run([sys.executable, peers_problems.__file__], capture_output=True, text=True, check=True)
        self.assertEqual(printed.stdout.splitlines(), [line for line, _ in peers_problems.PROBLEMS])


if __name__ == "__main__":
    unittest.main()
