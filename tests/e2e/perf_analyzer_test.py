#!/usr/bin/env python3
"""NVIDIA's perf_analyzer, unchanged, against the real server: it starts, measures, and its requests and the server's
times in its report equal the server's counts.

    perf_analyzer_test.py BUILD

Exit status 77: skipped, for the reason that is printed.
"""

import pathlib
import re
import sys
import tempfile
import unittest

import inference_protocol as support
import perf_analyzer
import pinned

BUILD = pathlib.Path(sys.argv[1]).resolve()

import differential  # noqa: E402

REQUESTS = 2000
# Sums of seconds, read as text.
SUM_SECONDS_MAX = 1e-6


class PerfAnalyzerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off", "--allow_shared_memory"))

    def measure(self, model, *arguments, note=lambda: None):
        """Returns `note`'s result before a run, and the run's output. If a run has all its answers and does not end,
        repeats both: one of some hundreds did not end, and nothing told whose fault that was."""
        for is_last in (False, True):
            answered, noted = self.counted(""), note()
            try:
                return noted, perf_analyzer.run(PROGRAM, self.server.address, "-m", model, "--request-count",
                                                str(REQUESTS), "-z", *arguments)
            except perf_analyzer.Late as late:
                print(late, self.state(), flush=True)
                self.assertGreaterEqual(self.counted(""), answered + REQUESTS, "the server owes answers")
                self.assertFalse(is_last, "twice it did not end")

    def state(self):
        """The server's waiting and answered requests."""
        return {name: value for name, value in self.server.metrics().items()
                if value and re.match("warpcall_(requests_total|queue_)", name)}

    def counted(self, kernel):
        return support.total(self.server, "warpcall_requests_total", f'kernel="{kernel}', 'code="OK"')

    def check(self, kernel, model, *arguments):
        before = self.counted(kernel)
        _, printed = self.measure(model, *arguments)
        self.assertRegex(printed, r"Inference count: [1-9]")  # by the server's statistics
        self.assertRegex(printed, r"compute infer \d+ usec")
        self.assertGreaterEqual(self.counted(kernel), before + REQUESTS)
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

    def seconds(self, metrics):
        """Sums of gelu's durations in the metrics, by the statistics' names."""
        def phases(*names):
            return sum(metrics[f'warpcall_phase_duration_seconds_sum{{kernel="gelu",phase="{name}"}}']
                       for name in names)

        return {"queue": phases("queue"), "compute_input": phases("copy_in", "h2d"),
                "compute_infer": phases("kernel"), "compute_output": phases("d2h"),
                "success": sum(value for name, value in metrics.items()
                               if name.startswith('warpcall_request_duration_seconds_sum{kernel="gelu"'))}

    def test_what_it_tells_is_what_the_server_counted(self):
        """gelu of 64 KiB: no check depends on the machine's speed."""
        with tempfile.TemporaryDirectory() as folder, perf_analyzer.Statistics(
                self.server.address, "gelu_fp32", folder) as statistics:
            for concurrency in ("1", "4"):
                with self.subTest(concurrency=concurrency):
                    (began, counted, before), printed = self.measure(
                        "gelu_fp32", "--shape", "x:16384", "--concurrency-range", concurrency,
                        note=lambda: (statistics.read(), self.counted("gelu"), self.seconds(self.server.metrics())))
                    report = perf_analyzer.read_report(printed)
                    grown = perf_analyzer.grown(began, statistics.read())
                    support.eventually(lambda: self.counted("gelu") >= counted + REQUESTS)
                    after = self.seconds(self.server.metrics())
                    self.check_counts(report, grown, self.counted("gelu") - counted)
                    for name, seconds in after.items():
                        count, ns = grown[name]
                        self.assertEqual(count, REQUESTS, name)
                        self.assertAlmostEqual(ns * 1e-9, seconds - before[name], delta=SUM_SECONDS_MAX, msg=name)
                    self.check_means(report, grown)

    def check_counts(self, report, grown, counted):
        self.assertEqual((counted, grown["success"][0], grown["fail"][0]), (REQUESTS, REQUESTS, 0))
        self.assertEqual(report.counts["Request"], REQUESTS)
        # Requests that had ended when it first read the statistics are not in its differences.
        self.assertLessEqual(report.counts["Inference"], REQUESTS)
        self.assertGreater(report.counts["Inference"], 0)
        self.assertEqual(report.counts["Execution"], report.counts["Inference"])
        self.assertEqual(report.counts["Successful request"], report.counts["Inference"])

    def check_means(self, report, grown):
        """Means are of sums that are at most those of all requests, and of just those where none is left out."""
        for name, mean_us in report.server_us.items():
            of_all_us = grown[name][1] // report.counts["Inference"] // 1000
            self.assertLessEqual(mean_us, of_all_us, name)
            if report.counts["Inference"] == REQUESTS:
                self.assertEqual(mean_us, of_all_us, name)


if __name__ == "__main__":
    try:
        PROGRAM = perf_analyzer.fetch(BUILD / "perf_analyzer")
    except pinned.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(support.SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
