#!/usr/bin/env python3
"""Peers: their problems, the order of their measurements, their rows, and the table of these. Needs neither PyTorch nor
a GPU."""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import benchmarks
import peers_load
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
SOURCE = benchmarks.FOLDER
# A row of warpcall_cuda_kernel_bench.
ROW = "  {:<22} {:>10.2f} us  (p10 1.00 p90 2.00)     1000 GB/s {:5.1f} % of copy   500.00 TFLOP/s{}"
# --settled adds this to a row.
LOAD = "  {:5.0f} MHz {:6.1f} W {:9.3f} mJ {:7.4f} TFLOP/s per GHz"


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


class SettledRowTest(unittest.TestCase):
    LOAD = peers_load.Load(1700, 690.25, 125.4321)

    def test_a_settled_result_reads_as_a_row_of_the_benchmark(self):
        problem = peers_problems.parse(PRODUCT)
        line = (peers_problems.result_line("quack", [0.2], problem, 4e12)
                + peers_problems.load_text(self.LOAD, [0.2], problem))
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            log.write_text(f"{PRODUCT}\n{line}\n", encoding="utf-8")
            self.assertEqual(list(peers_table.read(log)[PRODUCT]), ["quack"])
            (mhz, watts, mj, per_ghz), = peers_table.loads(log)[PRODUCT].values()
        self.assertEqual((mhz, watts, mj), (1700, 690.2, 125.432))
        self.assertAlmostEqual(per_ghz, 2 * 4096**3 / 200e-6 / 1e12 / 1.7, delta=1e-4)

    def test_the_benchmark_writes_loads_the_same_way(self):
        source = (SOURCE / "tests/bench/cuda_kernel_bench.cc").read_text(encoding="utf-8")
        form, = re.findall(r'"(  %\S+ MHz [^"]*)"', source)
        problem = peers_problems.parse(PRODUCT)
        per_ghz = problem.flops / 0.2e-3 / 1e12 / 1.7
        self.assertEqual(form % (*self.LOAD, per_ghz), peers_problems.load_text(self.LOAD, [0.2], problem))

    def test_an_unknown_load_adds_nothing(self):
        self.assertEqual(peers_problems.load_text(None, [0.2], peers_problems.parse(PRODUCT)), "")


class Machine:
    """A GPU whose clock and power follow functions of the seconds, which pass while it runs: 50 ms a sample."""

    def __init__(self, mhz_at=lambda seconds: 1700, watts_at=lambda seconds: 700.0, joules_a_second=700.0):
        self.now, self.order, self.reads = 100.0, [], 0
        self.mhz_at, self.watts_at, self.joules_a_second = mhz_at, watts_at, joules_a_second

    def clock(self):
        return self.now

    def read(self):
        self.reads += 1
        seconds = self.now - 100
        return peers_load.Reading(self.mhz_at(seconds), self.watts_at(seconds), 5000 + self.joules_a_second * seconds)

    def contender(self, name="a"):
        def steady():
            self.now += 0.05
            self.order.append(name)
            return 100, 0.5
        return mock.Mock(steady=steady)

    def settles_after(self, reader):
        meter, contender = peers_load.LoadMeter(reader, self.clock), self.contender()
        meter.begin()
        while not meter.is_settled():
            contender.steady()
            meter.look()
        return self.now - 100


class NvmlTest(unittest.TestCase):
    """libnvidia-ml.so.1, whose functions write one figure each."""

    def library(self, **figures):
        def function(name):
            def call(*arguments):
                if name in figures:
                    arguments[-1]._obj.value = figures[name]
                    return 0
                return 0 if name in ("nvmlInit_v2", "nvmlDeviceGetHandleByUUID") else 3
            return mock.Mock(side_effect=call)
        library = mock.Mock(**{name: function(name) for name in (
            "nvmlInit_v2", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetTotalEnergyConsumption")})
        patcher = mock.patch.object(peers_load.ctypes, "CDLL", return_value=library)
        self.addCleanup(patcher.stop)
        patcher.start()
        return library

    def test_figures_are_in_mhz_watts_and_joules(self):
        library = self.library(nvmlDeviceGetClockInfo=1695, nvmlDeviceGetPowerUsage=689500,
                               nvmlDeviceGetTotalEnergyConsumption=5_000_000_123_000)  # more than 32 bits
        self.assertEqual(peers_load.Nvml("1-2").read(), (1695, 689.5, 5_000_000_123.0))
        self.assertEqual(library.nvmlDeviceGetHandleByUUID.call_args.args[0], b"GPU-1-2")
        self.assertEqual(library.nvmlDeviceGetClockInfo.call_args.args[1], 1)  # the SM clock

    def test_a_figure_that_nvml_does_not_have_is_unknown(self):
        self.library(nvmlDeviceGetClockInfo=1695)
        self.assertEqual(peers_load.Nvml("1").read(), (1695, 0, 0))

    def test_without_nvml_the_run_says_why(self):
        output = io.StringIO()
        with mock.patch.object(peers_load.ctypes, "CDLL", side_effect=OSError("no libnvidia-ml.so.1")), \
                contextlib.redirect_stdout(output):
            self.assertIsNone(peers.reader_of(mock.Mock(uuid="1")))
        self.assertEqual(output.getvalue(), "missing: nvml (no libnvidia-ml.so.1)\n")


class LoadTest(unittest.TestCase):
    def test_the_constants_are_those_of_the_server(self):
        header = (SOURCE / "server/inspect/load_meter.h").read_text(encoding="utf-8")
        method = (SOURCE / "server/inspect/benchmark.cc").read_text(encoding="utf-8")
        timing = (SOURCE / "tests/bench/cuda_timing.cu").read_text(encoding="utf-8")
        ns = {name: int(value.replace("'", "")) * 1e-9
              for name, value in re.findall(r"int64_t k(\w+) = ([\d']+);", header + method)}
        self.assertEqual((peers_load.SETTLE_S_MIN, peers_load.SETTLE_S_MAX, peers_load.TIMED_S),
                         (ns["SettleNsMin"], ns["SettleNsMax"], ns["TimedNs"]))
        self.assertAlmostEqual(peers_load.LOOK_S, ns["LookNs"])
        self.assertAlmostEqual(peers_load.WINDOW_S, ns["WindowNs"])
        self.assertIn(f"kSettledMhz = {peers_load.SETTLED_MHZ:g};", header)
        self.assertAlmostEqual(peers_load.SAMPLE_MS * 1e-3, ns["SettledSampleNs"])
        self.assertIn(f"kSteadySampleSeconds = {peers_load.SAMPLE_MS:g}e-3;", timing)

    def test_a_clock_that_stays_settles_in_the_shortest_time(self):
        machine = Machine()
        self.assertAlmostEqual(machine.settles_after(machine), peers_load.SETTLE_S_MIN, delta=0.06)

    def test_a_clock_that_falls_settles_when_it_stays(self):
        machine = Machine(lambda seconds: max(1600, 1980 - 76 * seconds))  # for five seconds, 38 MHz a window
        self.assertAlmostEqual(machine.settles_after(machine), 5.6, delta=0.4)

    def test_a_slow_fall_is_settled(self):
        machine = Machine(lambda seconds: 1980 - 24 * seconds)  # 12 MHz a window
        self.assertAlmostEqual(machine.settles_after(machine), peers_load.SETTLE_S_MIN, delta=0.06)

    def test_a_clock_that_never_stays_is_timed_at_last(self):
        machine = Machine(lambda seconds: 1980 - 44 * seconds)  # 22 MHz a window
        self.assertAlmostEqual(machine.settles_after(machine), peers_load.SETTLE_S_MAX, delta=0.06)

    def test_conditions_are_read_ten_times_a_second(self):
        machine = Machine()
        machine.settles_after(machine)
        self.assertAlmostEqual(machine.reads, peers_load.SETTLE_S_MIN / peers_load.LOOK_S, delta=11)

    def test_without_a_reader_the_shortest_time_counts(self):
        machine = Machine()
        self.assertAlmostEqual(machine.settles_after(None), peers_load.SETTLE_S_MIN, delta=0.06)
        machine = Machine()
        samples, loads = peers_load.settle({"a": machine.contender()}, None, machine.clock)
        self.assertEqual((set(samples["a"]), loads), ({0.5}, {"a": None}))

    def test_energy_is_that_of_the_timed_launches(self):
        machine = Machine(lambda seconds: 1900 if seconds < 3 else 1650, lambda seconds: 500 if seconds < 3 else 700)
        load = peers_load.settle({"a": machine.contender()}, machine, machine.clock)[1]["a"]
        self.assertEqual((load.mhz, load.watts), (1650, 700))
        self.assertAlmostEqual(load.mj, 700 * 0.05 / 100 * 1e3)

    def test_energy_that_does_not_grow_is_unknown(self):
        machine = Machine(joules_a_second=0.0)
        self.assertEqual(peers_load.settle({"a": machine.contender()}, machine, machine.clock)[1]["a"].mj, 0)

    def test_turns_are_in_order_and_then_in_reverse(self):
        machine = Machine()
        names = ["a", "b", "c"]
        samples, _ = peers_load.settle({name: machine.contender(name) for name in names}, machine, machine.clock)
        turns = [name for name, before in zip(machine.order, [None, *machine.order]) if name != before]
        self.assertEqual(turns, ["a", "b", "c", "b", "a"])
        for name in names:  # 3 s of 50 ms, twice
            self.assertAlmostEqual(len(samples[name]), 120, delta=3)
        # The last one settles once.
        self.assertAlmostEqual((machine.order.count("a") - machine.order.count("c")) * 0.05,
                               peers_load.SETTLE_S_MIN, delta=0.2)

    def test_nobody_is_measured_where_nobody_is(self):
        self.assertEqual(peers_load.settle({}, None), ({}, {}))


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

    def test_the_fastest_of_each_group_is_measured_in_a_settled_run(self):
        samples = {"copy": [0.1], "torch": [3, 3], "torch.compile": [2, 2], "cublaslt": [4], "triton": [9], "quack": [1]}
        self.assertEqual(peers.fastest_of_groups(samples), ["triton", "torch.compile", "quack"])

    def test_a_steady_sample_is_captured_anew_and_takes_50_ms(self):
        for ms, launches, replays in ((0.175, 286, 1), (0.025, 400, 5), (60, 2, 1)):
            contender = mock.Mock(replays=None, launches=6, problem=mock.Mock(attributes={}))
            contender.sample.return_value = ms
            contender.capture.side_effect = lambda count, contender=contender: setattr(contender, "launches", count)
            with mock.patch.object(peers, "elapsed_ms", side_effect=lambda function: len(function()) * 10.0):
                self.assertEqual(peers.Contender.steady(contender), (launches * replays, 10.0 / launches))
                peers.Contender.steady(contender)
            contender.capture.assert_called_once_with(launches)

    def test_every_contender_has_a_group(self):
        names = peers.contenders(peers_problems.parse(SOFTMAX), {name: None for name in ("triton", *peers.PACKAGES)})
        self.assertEqual(sorted(names), sorted(name for group in peers.GROUPS for name in group))

    def test_a_settled_run_prints_the_samples_and_loads_that_settling_had(self):
        chosen, order = [], []
        def settle(contenders):
            chosen.extend(contenders)
            return {"torch": [0.4]}, {"torch": peers_load.Load(1650, 690, 280)}
        def ready(*_):
            return {"torch": Timed(order, "torch", 0.2), "torch.compile": Timed(order, "torch.compile", 0.3)}, {}
        _, lines = self.run_one(PRODUCT, {}, ready, settle)
        self.assertEqual((chosen, order.count("torch")), (["torch"], peers.CHOOSING_SAMPLES))
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[1], r"^  torch +400\.00 us .* 1650 MHz +690\.0 W +280\.000 mJ")

    def test_quack_takes_what_it_has(self):
        modules = {"quack.rmsnorm": mock.Mock(), "quack.gemm_interface": mock.Mock()}
        with mock.patch.object(peers.importlib, "import_module", side_effect=modules.get):
            for line, _ in peers_problems.PROBLEMS:
                problem = peers_problems.parse(line)
                product = problem.kernel in peers_problems.PRODUCTS and problem.data_type != "float32"
                if product or problem.kernel in ("layernorm", "rmsnorm") or (problem.kernel == "softmax"
                                                                             and not problem.attributes):
                    self.assertTrue(callable(peers.by_quack(mock.Mock(), problem)), line)
                else:
                    with self.assertRaises(peers.NotTaken, msg=line):
                        peers.by_quack(mock.Mock(), problem)
            gelu = peers.by_quack(mock.Mock(), peers_problems.parse(
                "linear bfloat16 4096x4096 4096x4096 4096 activation=gelu"))
        modules["quack.gemm_interface"].gemm_act.return_value = (None, "after the activation")
        self.assertEqual(gelu(mock.Mock(), mock.Mock(), mock.Mock()), "after the activation")

    def test_flashinfer_takes_norms(self):
        norm = mock.Mock()
        for line, (function, epsilon) in ((NORM, (norm.layernorm, 1e-5)),
                                          ("rmsnorm bfloat16 65536x1024 1024", (norm.rmsnorm, 1e-6))):
            taken = peers.by_flashinfer(norm, peers_problems.parse(line))
            self.assertEqual((taken.func, taken.keywords), (function, {"eps": epsilon}))
        with self.assertRaisesRegex(peers.NotTaken, "FlashInfer has no such kernel"):
            peers.by_flashinfer(norm, peers_problems.parse(SOFTMAX))

    def run_one(self, line, found, ready, settle=None):
        output = io.StringIO()
        with mock.patch.multiple(peers, operands_of=mock.DEFAULT, Copies=mock.DEFAULT, ready=ready) as made, \
                contextlib.redirect_stdout(output):
            peers.torch.cuda.get_device_properties.return_value.L2_cache_size = L2_BYTES
            made["Copies"].return_value = Timed([], "copy", 0.1)
            some = peers.run(line, found, settle)
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
        self.assertEqual(set(found), {"triton", "quack", "flashinfer", "flash_attn"})
        self.assertEqual(set(peers.contenders(peers_problems.parse(SOFTMAX), found)),
                         {"torch", "torch.compile", "cublaslt"})
        output = io.StringIO()
        with contextlib.redirect_stdout(output), mock.patch.object(peers, "run", side_effect=ValueError("no")):
            self.assertEqual(peers.run_all([SOFTMAX], found), 1)
        self.assertIn("missing: quack (ModuleNotFoundError: No module 'q')", output.getvalue())
        self.assertIn("\nmethod: burst\n", output.getvalue())
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
        bench = ["NVIDIA H200: copy 4295 GB/s", "method: burst"]
        log = ["peers: NVIDIA H200, torch 2.11.0", "missing: quack (none)", "method: burst"]
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

    def test_a_row_that_only_reads_is_shown_beside_reads(self):
        ours = [ROW.format("dot_per_output", 34, 95, "   88.4 % of reads    0.9 % of multiply-adds")]
        self.assertEqual(self.row(NARROW, ours, [])[:3], ["dot_per_output", "34.0", "88 % of reads"])

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
        self.assertIn("| QuACK, FlashInfer, flash-attention |", lines[0])
        self.assertEqual(lines[0].count("|"), lines[1].count("|"))
        self.assertTrue(any(line.endswith("| 70.0 | 0.70 |") for line in lines))

    def test_the_run_is_told_below_the_table(self):
        self.assertEqual(list(peers_table.table(*self.logs()))[-1],
                         "peers: NVIDIA H200, torch 2.11.0; missing: quack (none); method: burst; "
                         "conditions: SM clock 1700 to 1980 MHz, throttled: power cap.")

    def test_a_problem_that_is_missing_stops_it(self):
        bench, log = self.logs()
        log.write_text(log.read_text(encoding="utf-8").replace(f"{WIDE}\n", "other\n"), encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, "'softmax bfloat16 8x262144' is missing in .*peers.log"):
            list(peers_table.table(bench, log))

    def test_the_program_lists_problems_as_the_benchmark_takes_them(self):
        for arguments, lines in (([], [line for line, _ in peers_problems.PROBLEMS]),
                                 (["--settled"], peers_problems.POWER_BOUND)):
            printed = subprocess.run([sys.executable, peers_problems.__file__, *arguments], capture_output=True,
                                     text=True, check=True)
            self.assertEqual(printed.stdout.splitlines(), lines)

    def test_what_power_bounds_is_among_the_problems(self):
        for line in peers_problems.POWER_BOUND:
            self.assertIn(line, dict(peers_problems.PROBLEMS))

    def settled_logs(self, ours=(), theirs=()):
        """Paths of the two logs of a settled run: the same for each problem but PRODUCT, if lines are given."""
        own = ROW.format("own", 100, 90, LOAD.format(1700, 690, 69, 0.5) + "   88.3 % of multiply-adds")
        peer = ROW.format("torch", 110, 80, LOAD.format(1650, 690, 75.9, 0.45))
        bench, log = ["NVIDIA H200: copy 4295 GB/s", "method: settled"], ["peers: NVIDIA H200", "method: settled"]
        for line in peers_problems.POWER_BOUND:
            bench += [line, *((line == PRODUCT and ours) or [own])]
            log += [line, *((line == PRODUCT and theirs) or [peer])]
        paths = self.folder / "settled_bench.log", self.folder / "settled.log"
        for path, lines in zip(paths, (bench, log)):
            path.write_text("\n".join([*lines, "conditions: cool", ""]), encoding="utf-8")
        return paths

    def settled_row(self, *logs):
        name = dict(peers_problems.PROBLEMS)[PRODUCT]
        row, = (line for line in peers_table.settled_table(*self.settled_logs(*logs)) if line.startswith(f"| {name} |"))
        return [cell.strip() for cell in row.strip("|").split("|")][1:]

    def test_a_settled_row_compares_time_clock_and_energy(self):
        self.assertEqual(self.settled_row(), ["own", "100.0", "1700", "690", "69.00", "0.500", "88.3 %", "torch", "110.0",
                                              "1650", "75.90", "1.100", "1.100"])

    def test_the_best_settled_peer_is_of_both_logs(self):
        ours = [ROW.format("own", 100, 90, LOAD.format(1700, 690, 69, 0.5) + "   88.3 % of multiply-adds"),
                ROW.format("(cuBLASLt directly)", 99, 90, LOAD.format(1755, 680.5, 67.62, 0.5)),
                "  (multiply-adds)        921.00 TFLOP/s in bfloat16" + LOAD.format(1500, 690, 1, 0.6)]
        theirs = [ROW.format("torch", 99.5, 80, LOAD.format(1650, 690, 75.9, 0.45))]
        self.assertEqual(self.settled_row(ours, theirs)[7:],
                         ["(cuBLASLt directly)", "99.0", "1755", "67.62", "0.990", "0.980"])

    def test_figures_that_nobody_read_are_dashes(self):
        row = self.settled_row([ROW.format("own", 100, 90, "")],
                               [ROW.format("torch", 110, 80, LOAD.format(1650, 690, 0, 0.45))])
        self.assertEqual(row, ["own", "100.0", "–", "–", "–", "–", "–", "torch", "110.0", "1650", "–", "1.100", "–"])

    def test_a_settled_table_has_its_cells_and_its_method(self):
        lines = list(peers_table.settled_table(*self.settled_logs()))
        self.assertEqual({line.count("|") for line in lines[:-2]}, {15})
        self.assertEqual(len(lines), 2 + len(peers_problems.POWER_BOUND) + 2)
        self.assertEqual(lines[-1], "peers: NVIDIA H200; method: settled; conditions: cool.")

    def test_logs_of_the_other_method_are_refused(self):
        with self.assertRaisesRegex(SystemExit, "peers_bench.log has method: burst; it must have method: settled"):
            list(peers_table.settled_table(*self.logs()))
        with self.assertRaisesRegex(SystemExit, "settled_bench.log has method: settled; it must have method: burst"):
            list(peers_table.table(*self.settled_logs()))

    def test_a_settled_problem_that_is_missing_stops_it(self):
        bench, log = self.settled_logs()
        log.write_text(log.read_text(encoding="utf-8").replace(f"{PRODUCT}\n", "other\n"), encoding="utf-8")
        with self.assertRaisesRegex(SystemExit, f"'{PRODUCT}' is missing in .*settled.log"):
            list(peers_table.settled_table(bench, log))

    def test_a_settled_problem_that_no_log_has_is_named_below_the_table(self):
        paths = self.settled_logs()
        for path in paths:
            text = path.read_text(encoding="utf-8")
            begin = text.index(f"{PRODUCT}\n")
            path.write_text(text[:begin] + text[text.index("\n", text.index("\n", begin) + 1) + 1:], encoding="utf-8")
        lines = list(peers_table.settled_table(*paths))
        self.assertEqual(len(lines), 2 + len(peers_problems.POWER_BOUND) - 1 + 2)
        name = dict(peers_problems.PROBLEMS)[PRODUCT]
        self.assertEqual(lines[-1], f"peers: NVIDIA H200; method: settled; conditions: cool; not measured: {name}.")

    def test_logs_of_two_calls_make_one_table(self):
        bench, log = self.settled_logs()
        for path in (bench, log):
            path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
        self.assertEqual(list(peers_table.settled_table(bench, log))[-1],
                         "peers: NVIDIA H200; method: settled; conditions: cool.")


if __name__ == "__main__":
    unittest.main()
