"""The Python client's verdicts on profiles and on two benchmarks equal the command line's. Both get the answers of one
server."""

import json
import math
import os
import subprocess
import unittest

from support import BUILD, FakeServer, Messages, grpc, main
import warpcall
from warpcall import _proto

MESSAGES = Messages()
CLIENT = os.path.join(BUILD, "bin", "warpcall")
WARPS = dict(registers_per_thread=32, shared_memory_bytes=4096, grid="132x1x1", block="256x1x1")
CPU = dict(name="cpu", kind="cpu", multiprocessors=4, measured_bandwidth_bytes_per_second=1e10)
GPU = dict(name="cuda:0", kind="cuda", multiprocessors=132, compute_capability="9.0",
           measured_bandwidth_bytes_per_second=4e12)


def row(kind, name, ns, calls=2, **more):
    fields = dict(mean_ns=ns / calls, achieved_occupancy=-1, sm_throughput=-1, dram_throughput=-1)
    return {"kind": kind, "name": name, "total_ns": ns, "calls": calls, **{**fields, **more}}


def of_cpu(kernel_ns, busy, waiting=0.0, run_ns=None):
    run_ns = run_ns or kernel_ns
    threads = [row("thread", f"cpu thread {i}", int(busy * run_ns), fraction=busy) for i in range(4)]
    if waiting:
        threads.append(row("thread", "waiting for a core", int(4 * waiting * run_ns)))
    return [row("kernel", "k", kernel_ns), row("host", "run", run_ns), *threads]


class Answers:
    """A server's answers to Profile, Describe and the lists; an empty one is UNIMPLEMENTED."""

    def __init__(self, device, rows, launch=None, **response):
        self.device = device
        name = device["name"]
        self.profile = MESSAGES.ProfileResponse(implementation="warp", device=name, iterations=2,
                                                counters_unavailable="hidden", **response)
        for each in rows:
            self.profile.rows.add(**each)
        self.plan = MESSAGES.DescribeResponse(implementation="warp", device=name, grid="132x1x1", block="256x1x1")
        if launch is not None:
            self.plan.launch.CopyFrom(MESSAGES.LaunchInfo(**launch))
        self.has_plan = launch is not None
        self.kernels = MESSAGES.ListKernelsResponse()
        kernel = self.kernels.kernels.add(name="gelu", input_names=["x"])
        kernel.implementations.add(name="warp", family="cuda", device_kind=device["kind"], data_types=[1])
        self.devices = MESSAGES.ListDevicesResponse()
        self.devices.devices.add(**device)

    def service(self, details):
        answers = {"Profile": self.profile, "Describe": self.plan if self.has_plan else None,
                   "ListKernels": self.kernels, "ListDevices": self.devices,
                   "Benchmark": MESSAGES.BenchmarkResponse(ceiling_bytes_per_second=2e10)}
        message = answers.get(details.method.rpartition("/")[2])

        def handle(request, context):
            if message is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
            return message.SerializeToString()

        return grpc.unary_unary_rpc_method_handler(handle)


class Server(FakeServer):
    """Gives one of these answers."""

    def __init__(self, answers):
        super().__init__(lambda request, context: b"")
        self.server.stop(0).wait()

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details):
                return answers.service(details)

        self.server = grpc.server(self.pool)
        self.server.add_generic_rpc_handlers((Handlers(),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()


CASES = {
    "memory of a CPU": Answers(CPU, of_cpu(1_000_000, 0.9), dict(bytes_moved=4_000_000, flops=10)),
    "cores": Answers(CPU, of_cpu(1_000_000, 0.9), dict(bytes_moved=1_000_000, flops=10)),
    "half of a CPU's memory": Answers(CPU, of_cpu(1_000_000, 0.9), dict(bytes_moved=2_750_000, flops=10)),
    "faster than a copy": Answers(CPU, of_cpu(1_000_000, 0.9), dict(bytes_moved=9_000_000, flops=10)),
    "idle threads": Answers(CPU, of_cpu(1_000_000, 0.2), dict(bytes_moved=1_000_000, flops=10)),
    "short on a CPU": Answers(CPU, of_cpu(20_000, 0.2), dict(bytes_moved=100, flops=10)),
    "no threads": Answers(CPU, [row("kernel", "k", 1_000_000)], dict(bytes_moved=100, flops=10)),
    "no plan": Answers(CPU, of_cpu(1_000_000, 0.9)),
    "nothing ran": Answers(CPU, [row("host", "run", 100)], dict(bytes_moved=100, flops=10)),
    "other work on a CPU": Answers(CPU, of_cpu(1_000_000, 0.1, waiting=0.6), dict(bytes_moved=100, flops=10),
                                   inconclusive="other work took 88 % of the threads' time"),
    "other work beside a GPU": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS), row("gap", "gap", 3_000_000)],
                                       dict(bytes_moved=100, flops=10),
                                       inconclusive="other work took 60 % of the threads' time"),
    "other work beside a GPU that is busy": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS)],
                                                    dict(bytes_moved=100, flops=10),
                                                    inconclusive="other work took 60 % of the threads' time"),
    "cache misses": Answers(CPU, [*of_cpu(1_000_000, 0.9), row("counter", "cache misses", 0, 90, bytes=8_000_000),
                                  row("counter", "instructions", 0, 3000), row("counter", "cycles", 0, 1000)],
                            dict(bytes_moved=2_000_000, flops=10)),
    "memory of a GPU": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS)],
                               dict(bytes_moved=3_000_000_000, flops=10, waves=1.2)),
    "DRAM's counters": Answers(GPU, [row("kernel", "k", 2_000_000, dram_throughput=0.8, sm_throughput=0.3, **WARPS)],
                               dict(bytes_moved=1_000_000_000, flops=10)),
    "multiprocessors": Answers(GPU, [row("kernel", "k", 2_000_000, dram_throughput=0.1, sm_throughput=0.9, **WARPS)],
                               dict(bytes_moved=1_000_000, flops=10, waves=0.4)),
    "float32 lanes": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS)],
                             dict(bytes_moved=1_000_000, flops=40_000_000_000, waves=2.3)),
    "latency": Answers(GPU, [row("kernel", "k", 2_000_000, 4, achieved_occupancy=0.31, **WARPS)],
                       dict(bytes_moved=1_000_000, flops=10, waves=1)),
    "short on a GPU": Answers(GPU, [row("kernel", "k", 8_000, 6, **WARPS)], dict(bytes_moved=100, flops=10)),
    "gaps": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS), row("gap", "gap", 3_000_000)],
                    dict(bytes_moved=100, flops=10)),
    "transfers": Answers(GPU, [row("kernel", "k", 2_000_000, **WARPS), row("copy", "h2d", 3_000_000, bytes=8000),
                               row("host", "copy_in", 1_000_000)], dict(bytes_moved=100, flops=10)),
}


class VerdictTest(unittest.TestCase):
    def profile(self, answers):
        with Server(answers) as server, warpcall.connect(server.address, timeout=60) as client:
            return client.profile("gelu", "64x64")

    def test_it_is_the_command_lines(self):
        bounds = set()
        for name, answers in CASES.items():
            with self.subTest(name), Server(answers) as server:
                done = subprocess.run([CLIENT, "--json", "--server", server.address, "profile", "gelu", "--shape",
                                       "64x64"], capture_output=True, text=True, timeout=60, check=True)
                said = json.loads(done.stdout)
                with warpcall.connect(server.address, timeout=60) as client:
                    ours = client.profile("gelu", "64x64").to_dict()
                self.assertEqual(ours["verdict"]["bound"], said["verdict"]["bound"])
                self.assertEqual(ours["verdict"]["reason"].replace("µs", "us"), said["verdict"]["reason"])
                self.assertEqual(len(ours["verdict"]["advice"]), len(said["verdict"]["advice"]))
                for figure, value in said["figures"].items():
                    self.assertAlmostEqual(ours["figures"][figure], -1 if value is None else value, places=6,
                                           msg=figure)
                bounds.add(ours["verdict"]["bound"])
        self.assertEqual(bounds, {"memory", "compute", "latency", "launch", "transfer", "inconclusive", "unknown"})

    def test_waiting_is_not_work(self):
        answers = Answers(CPU, of_cpu(1_000_000, 0.1, 0.88), dict(bytes_moved=1_000_000, flops=10),
                          inconclusive="other work took 88 % of the threads' time")
        verdict = self.profile(answers).verdict
        self.assertEqual(str(verdict), "Inconclusive: other work took 88 % of the threads' time.")
        self.assertEqual(verdict.advice, ())
        answers = Answers(CPU, of_cpu(1_000_000, 0.7, 0.2), dict(bytes_moved=1_000_000, flops=10))
        verdict = self.profile(answers).verdict
        self.assertEqual(verdict.bound, "compute")
        self.assertIn("Its threads waited 20.0% of the time for a core.", verdict.reason)
        self.assertIn("Profile again", verdict.advice[0])

    def test_a_copy_is_measured_where_the_server_did_not(self):
        unmeasured = {**CPU, "measured_bandwidth_bytes_per_second": 0}
        answers = Answers(unmeasured, of_cpu(1_000_000, 0.9), dict(bytes_moved=8_000_000, flops=10))
        profile = self.profile(answers)
        self.assertEqual(profile.figures.ceiling_bytes_per_second, 2e10)
        self.assertEqual(profile.verdict.bound, "memory")

    def test_it_prints_what_bounds_it_and_each_kind_of_row_by_itself(self):
        text = repr(self.profile(CASES["cache misses"]))
        lines = text.splitlines()
        self.assertEqual(lines[0], "gelu 64x64 by warp on cpu, 2 iterations")
        self.assertTrue(lines[1].startswith("Bound by memory: "), lines)
        self.assertTrue(lines[2].startswith("- "), lines)
        self.assertNotIn(" 0 ns", text)
        for head in ("kernels ", "name ", "host phase ", "thread ", "counter "):
            self.assertEqual(sum(line.startswith(head) for line in lines), 1, head)
        counters = [line.split() for line in lines[lines.index(next(x for x in lines if x[:8] == "counter ")) + 1:]]
        self.assertEqual(counters[0], ["cache", "misses", "90", "45", "7.63", "MiB"])
        text = repr(self.profile(CASES["no plan"]))
        self.assertIn("the least bytes and FLOP are not known: Describe: not here", text)
        self.assertIn("hardware counters: hidden", text)
        self.assertIn("132x1x1", repr(self.profile(CASES["latency"])))
        self.assertEqual(self.profile(CASES["latency"])._repr_html_().count("<table>"), 3)

    def test_names_of_templates_are_cut_in_tables_alone(self):
        name = "void warpcall::linear::(anonymous namespace)::WgmmaTiled<warpcall::Float16>(Arguments)"
        answers = Answers(GPU, [row("kernel", name, 2_000_000, 4, **WARPS)], dict(bytes_moved=100, flops=10))
        profile = self.profile(answers)
        self.assertEqual(profile.rows[0].name, name)
        lines = [line for line in repr(profile).splitlines() if "void warpcall::li...at16>(Arguments)" in line]
        self.assertEqual(len(lines), 2)  # the kernel's time, and its launch
        self.assertTrue(all(len(line) <= 120 for line in lines), lines)

    def test_a_refused_profile_raises(self):
        answers = Answers(CPU, [])
        answers.profile = None
        with self.assertRaises(warpcall.Unimplemented):
            self.profile(answers)


def result(name, median, low=0.0, high=0.0, **more):
    return _proto.BenchmarkResult(implementation=name, median_ns=median, median_low_ns=low, median_high_ns=high,
                                    **more)


class ComparisonTest(unittest.TestCase):
    def compare(self, before, after):
        reports = []
        for results in (before, after):
            reports.append(warpcall.Benchmark("gelu", "float32"))
            reports[-1].add("4x4", _proto.BenchmarkResponse(tuple(results), "cpu", 1.0))
        return warpcall.compare(*reports)

    def test_each_pair_has_its_verdict(self):
        gone = dict(error="gone")
        before = [result("faster", 100, 98, 103), result("slower", 100, 98, 103), result("alike", 100, 98, 103),
                  result("meets", 100, 98, 103), result("noisy", 100, 98, 103), result("old", 100),
                  result("ends", 100, 98, 103),
                  result("begins", 0, **gone), result("never", 0, **gone), result("gone", 100, 98, 103)]
        after = [result("faster", 50, 49, 52), result("slower", 110, 104, 115), result("alike", 102, 103, 105),
                 result("meets", 98, 96, 99), result("noisy", 300, 299, 301, unstable=True),
                 result("old", 50, 49, 52), result("ends", 0, **gone),
                 result("begins", 100, 98, 103), result("never", 0, **gone), result("new", 1)]
        comparison = self.compare(before, after)
        self.assertEqual({row.implementation: row.verdict for row in comparison.rows}, {
            "faster": "faster", "slower": "slower", "alike": "no difference seen", "meets": "no difference seen",
            "noisy": "unstable",
            "old": "no interval known", "ends": "no longer runs", "begins": "did not run before",
            "never": "did not run", "new": "only after", "gone": "only before"})
        first = comparison.rows[0]
        self.assertEqual((first.ratio, first.ratio_low, first.ratio_high), (0.5, 49 / 103, 52 / 98))
        lines = {line.split()[1]: line for line in repr(comparison).splitlines()[3:]}
        self.assertEqual(lines["faster"].split()[2:],
                         ["100", "ns", "-2.0", "+3.0", "50", "ns", "-2.0", "+4.0", "0.500", "faster"])
        self.assertEqual(lines["gone"].split()[2:], ["100", "ns", "-2.0", "+3.0", "-", "-", "-", "only", "before"])
        data = json.loads(json.dumps(comparison.to_dict()), parse_constant=self.fail)
        rows = {row["implementation"]: row for row in data["rows"]}
        self.assertEqual((rows["faster"]["ratio"], rows["new"]["ratio"], rows["old"]["ratio_low"]), (0.5, None, None))
        self.assertTrue(math.isnan(comparison.rows[-1].ratio))

    def test_a_row_goes_with_one_other(self):
        comparison = self.compare([result("a", 1), result("a", 2)], [result("a", 4), result("a", 8), result("a", 16)])
        self.assertEqual([(row.before_ns, row.after_ns) for row in comparison.rows[:2]], [(1, 4), (2, 8)])
        self.assertEqual(comparison.rows[2].verdict, "only after")


if __name__ == "__main__":
    main()
