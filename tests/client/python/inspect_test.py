"""Benchmark, Profile, Describe, their tables and pictures, and the package's command, on the real server."""

import asyncio
import json
import os
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

from support import ROOT, RealServer, before_the_end, main, np
import warpcall
from warpcall import _inspect, _proto

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "client", "python"),
               "PYTHONDONTWRITEBYTECODE": "1"}
QUICK = {"iterations": 3, "warmup_iterations": 1}


def bars_of(svg):
    """Widths of the bars, the background left out."""
    root = xml.etree.ElementTree.fromstring(svg)
    return [float(node.get("width")) for node in root.iter("{http://www.w3.org/2000/svg}rect")][1:]


class InspectTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))
        cls.rows = {kernel.name: [row.name for row in kernel.implementations
                                  if row.device_kind == "cpu"] for kernel in cls.gpu.kernels()}

    # ---- benchmark ----

    def test_every_row_of_every_problem_is_there(self):
        done, told = [], []
        report = self.gpu.benchmark("gelu", ["64x32", (7, 3)], dtype="float32", device="cpu",
                                    approximate="none", **QUICK,
                                    progress=lambda *at: done.append(at), on_row=told.append)
        # Sorted by problem, and within a problem in their order of arrival.
        self.assertEqual([row.problem for row in report.rows],
                         [name for name in ("64x32", "7x3") for _ in self.rows["gelu"]])
        self.assertEqual(
            sorted((row.problem, row.implementation) for row in report.rows),
            sorted((problem, row) for problem in ("64x32", "7x3") for row in self.rows["gelu"]))
        self.assertEqual([row.verdict for row in told], [""] * len(told))
        self.assertEqual(before_the_end(told), before_the_end(report.rows))
        self.assertEqual(done, [(1, 2), (2, 2)])
        for row in report.rows:
            self.assertEqual(row.error, "")
            self.assertGreater(row.median_ns, 0)
            self.assertLess(row.relative_error, 1e-5)
            elements = 64 * 32 if row.problem == "64x32" else 21
            self.assertEqual(row.launch.bytes_moved, 2 * 4 * elements)
        self.assertEqual(report.device, "cpu")
        self.assertGreater(report.ceilings["7x3"], 0)

    def test_a_report_is_a_table_a_dictionary_and_a_picture(self):
        report = self.gpu.benchmark("matmul", "8x4x16", dtype="float16", **QUICK)
        failed = [row for row in report.rows if row.error]
        ran = [row for row in report.rows if not row.error]
        lines = repr(report).splitlines()
        self.assertIn("matmul of float16 on cpu", lines[0])
        self.assertEqual(len(lines), 3 + len(report.rows) + len(report._notes()))
        self.assertEqual(report._repr_html_().count("<tr>"), 1 + len(report.rows))
        data = json.loads(json.dumps(report.to_dict()))
        self.assertEqual([row["implementation"] for row in data["rows"]],
                         [row.implementation for row in report.rows])
        for row in failed:
            self.assertIn(row.error, repr(report))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.svg")
            svg = report.plot(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), svg)
        widths = bars_of(svg)
        self.assertEqual(len(widths), len(ran))
        longest = max(ran, key=lambda row: row.median_ns)
        for row, width in zip(ran, widths):
            share = row.median_ns / longest.median_ns
            self.assertAlmostEqual(width / max(widths), share, delta=0.01)

        class Axes:
            def barh(self, labels, values):
                self.drawn = len(values)

            set_xlabel = set_title = lambda self, text: None

        axes = Axes()
        self.assertIs(report.plot(ax=axes), axes)
        self.assertEqual(axes.drawn, len(ran))

    def test_a_row_says_how_far_it_can_be_trusted(self):
        report = warpcall.Benchmark("gelu", "float32")
        ran = dict(median_ns=100.0, median_low_ns=98.0, median_high_ns=103.0, min_ns=97.0,
                   iterations=60, launches_per_iteration=1)
        report.add("4x4", _proto.BenchmarkResponse(
            (_proto.BenchmarkResult("fast", noise=0.013, verdict="fastest", **ran),
             _proto.BenchmarkResult("noisy", noise=0.2, unstable=True, **ran),
             _proto.BenchmarkResult("cached", noise=0.001, fraction_of_ceiling=1.57, **ran),
             _proto.BenchmarkResult("far", noise=0.2, unstable=True, verdict="fastest", **ran),
             _proto.BenchmarkResult("slow", predicted_ns=4e9, error="skipped: 4 s, ask with x")),
            "cpu", 1e9, _proto.RunStamp(device_description="a chip", started_unix_ns=5), 2e12))
        lines = repr(report).splitlines()
        self.assertEqual(lines[2].split()[2:6], ["median", "min", "noise", "n"])
        self.assertEqual(lines[3].split()[2:9], ["100", "ns", "97", "ns", "1.3", "%", "60"])
        self.assertTrue(lines[3].endswith("fastest"), lines)
        self.assertTrue(lines[4].endswith("unstable"), lines)
        self.assertIn("157.0 %!", lines[5])
        self.assertTrue(lines[6].endswith("fastest"), lines)
        self.assertTrue(lines[7].endswith("skipped: 4 s, ask with x"), lines)
        self.assertEqual([line[:8] for line in lines[8:]], ["! faster", "unstable"])
        self.assertIn("<p>! faster than", report._repr_html_())
        data = json.loads(json.dumps(report.to_dict()))
        self.assertEqual(data["stamps"]["4x4"]["device_description"], "a chip")
        self.assertEqual(data["flops_ceilings"], {"4x4": 2e12})
        self.assertEqual(data["rows"][1]["unstable"], True)
        self.assertEqual(data["rows"][0]["noise"], 0.013)
        self.assertEqual(data["rows"][4]["predicted_ns"], 4e9)

    def test_how_long_a_row_may_take_is_a_time(self):
        for seconds in (-1, 90000, float("nan")):
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                self.gpu.benchmark("gelu", "4x4", row_timeout=seconds)
            self.assertIn("row_timeout", str(raised.exception))
        report = self.gpu.benchmark("gelu", "4x4", implementations="cpu", row_timeout=5.0,
                                    max_noise=0.5, **QUICK)
        self.assertEqual([row.error for row in report.rows], [""] * len(report.rows))

    # ---- tune ----

    def test_what_was_tuned_is_what_runs(self):
        for name, shape in (("client", "37x41"), ("aio", "53x11")):
            with self.subTest(name):
                before = self.gpu.describe("gelu", shape, dtype="float16")
                self.assertEqual(before.chosen_because, "order of preference")
                told = []
                options = dict(dtype="float16", on_row=told.append,
                               implementations=["manual", "reference"], **QUICK)
                report = (self.gpu.tune("gelu", shape, **options) if name == "client"
                          else asyncio.run(self.tune_by_aio(shape, options)))
                self.assertEqual(told, report.rows)
                self.assertEqual((list(report), len(report)), (report.rows, len(told)))
                fastest = min(report.rows, key=lambda row: row.median_ns)
                after = self.gpu.describe("gelu", shape, dtype="float16")
                self.assertEqual(after.implementation, fastest.implementation)
                self.assertNotEqual(after.implementation, before.implementation)
                self.assertTrue(after.chosen_because.startswith("tuned: " + fastest.name))
                listed = (self.gpu.kernels(tuned=True) if name == "client"
                          else asyncio.run(self.kernels_by_aio()))
                found = [tuned for kernel in listed for tuned in kernel.tuned
                         if tuned.chosen_because == after.chosen_because]
                self.assertEqual([tuned.implementation for tuned in found],
                                 [fastest.implementation])
                self.assertIn(shape.replace("x", ","), found[0].problem)
        self.assertFalse(any(kernel.tuned for kernel in self.gpu.kernels()))

    async def kernels_by_aio(self):
        async with warpcall.aio.connect(self.server.address, timeout=60) as client:
            return await client.kernels(tuned=True)

    async def tune_by_aio(self, shape, options):
        async with warpcall.aio.connect(self.server.address, timeout=60) as client:
            return await client.tune("gelu", shape, **options)

    def test_what_cannot_be_tuned_is_refused(self):
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            self.gpu.tune("gelu", "0x4")
        self.assertIn("float32[0,4], has 0 elements; tuning takes 1", str(raised.exception))
        with self.assertRaises(warpcall.NotFound):
            self.gpu.tune("gelu", "4x4", implementations="none")

    # ---- benchmark ----

    def test_several_reports_in_one_picture(self):
        reports = [self.gpu.benchmark("gelu", "8x4", dtype=name, implementations="manual", **QUICK)
                   for name in ("float32", "float16")]
        svg = warpcall.plot(*reports)
        self.assertEqual(len(bars_of(svg)), 2)
        for name in ("float32", "float16"):
            self.assertIn(f">{name} 8x4 ", svg)
        self.assertIn(">gelu of float16, float32 on cpu, ", svg)

    def test_problems(self):
        specs = lambda *arguments: [spec.shape for spec in _inspect.parse_problem(
            *arguments, "float32").inputs]
        self.assertEqual(specs("gelu", "4096x1024"), [(4096, 1024)])
        self.assertEqual(specs("gelu", (4096, 1024)), [(4096, 1024)])
        self.assertEqual(specs("gelu", (5,)), [(5,)])
        self.assertEqual(specs("matmul", "8x16x4"), [(8, 4), (4, 16)])  # MxNxK
        self.assertEqual(specs("matmul", "8x4*4x16"), [(8, 4), (4, 16)])
        self.assertEqual(specs("matmul", ((8, 4), (4, 16))), [(8, 4), (4, 16)])
        self.assertEqual(specs("matmul", ("8x4", "4x16")), [(8, 4), (4, 16)])
        self.assertEqual(specs("linear", "8x16x4"), [(8, 4), (16, 4), (16,)])
        self.assertEqual(specs("linear", "8x4*16x4*16"), [(8, 4), (16, 4), (16,)])
        self.assertEqual(specs("layernorm", "2x8x16"), [(2, 8, 16), (16,), (16,)])
        self.assertEqual(specs("rmsnorm", "8x16"), [(8, 16), (16,)])
        for shapes in ("", "4x", "4x-1", "axb", (), ((),) and (), 5, None, (4, -1), ("4", 5)):
            with self.assertRaises(warpcall.InvalidArgument, msg=shapes):
                _inspect.parse_problem("gelu", shapes, "float32")

    def test_refusals(self):
        with self.assertRaises(warpcall.NotFound):
            self.gpu.benchmark("glue", "4x4")
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.benchmark("gelu", "4x4", dtype="float64")
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.profile("softmax", "4x4", axis=9)

    # ---- profile ----

    def test_a_profile_and_its_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            report = self.gpu.profile("softmax", "64x32", implementation="manual", iterations=2,
                                      trace=path)
            with open(path, encoding="utf-8") as file:
                self.assertTrue(json.load(file))
        self.assertEqual((report.implementation, report.device, report.iterations),
                         ("manual", "cpu", 2))
        self.assertEqual(report.variant, "chain_of_loops")
        self.assertTrue(report.rows)
        self.assertIn("softmax 64x32 by manual:chain_of_loops", repr(report))
        self.assertEqual(len(json.loads(json.dumps(report.to_dict()))["rows"]), len(report.rows))
        self.assertEqual(len(bars_of(report.plot())),
                         sum(row.kind in ("kernel", "copy", "set", "gap") for row in report.rows))
        self.assertIn("thread", {row.kind for row in report.rows})
        self.assertEqual(self.gpu.profile("softmax", "64x32").trace_json, b"")

    def test_integers_are_numpys_too_and_have_room(self):
        report = self.gpu.profile("softmax", "64x32", iterations=np.int64(2), seed=np.uint64(300))
        self.assertEqual(report.iterations, 2)
        for call in (self.gpu.profile, self.gpu.benchmark):
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                call("softmax", "64x32", iterations=(1 << 32) + 1)
            self.assertIn("iterations is 4294967297; it must fit into 32 bits", str(raised.exception))

    # ---- describe ----

    def test_a_description_and_its_source(self):
        plan = self.gpu.describe("gelu", "64x32", dtype="float16", implementation="cpu",
                                 approximate="none")
        self.assertEqual((plan.implementation, plan.family, plan.device, plan.chosen_because),
                         ("cpu", "cpu", "cpu",
                          "order of preference of the variants of cpu, which is named by the request"))
        self.assertEqual(plan.launch.variant, "simd_fused")
        self.assertEqual((plan.launch.bytes_moved, plan.launch.gpu_kernels, plan.grid),
                         (2 * 2 * 64 * 32, 0, ""))
        with open(os.path.join(ROOT, "kernels", "gelu", "gelu_simd.cc"), encoding="utf-8") as file:
            self.assertEqual(plan.files[0],
                             warpcall.SourceFile("kernels/gelu/gelu_simd.cc", "cpp", file.read()))
        self.assertTrue(plan.source("cpp").startswith(plan.files[0].text))
        self.assertEqual(plan.source("sass"), "")
        self.assertIn("gelu 64x32 by cpu:simd_fused on cpu", repr(plan))
        self.assertIn(plan.tolerance, plan._repr_html_().replace("&lt;", "<").replace("&gt;", ">"))
        data = json.loads(json.dumps(plan.to_dict()))
        self.assertEqual(data["files"][0]["language"], "cpp")
        with self.assertRaises(warpcall.NotFound):
            self.gpu.describe("glue", "4")
        with self.assertRaises(warpcall.NotFound):
            self.gpu.describe("gelu", "4", device="nowhere")

    def test_all_from_asyncio(self):
        async def all_of_them():
            async with warpcall.aio.connect(self.server.address, timeout=60) as client:
                report = await client.benchmark("identity", "16", implementations="cpu", **QUICK)
                profile = await client.profile("identity", "16", trace=True)
                plan = await client.describe("identity", "16", implementation="parallel_copy")
                return report, profile, plan

        report, profile, plan = asyncio.run(all_of_them())
        self.assertEqual([row.name for row in report.rows], ["cpu:parallel_copy"])
        self.assertTrue(json.loads(profile.trace_json))
        self.assertEqual(plan.chosen_because, "named by the request")


if __name__ == "__main__":
    main()
