#!/usr/bin/env python3
"""The reading and the conclusions of perf_analyzer_bench.py, without perf_analyzer."""

import unittest

import perf_analyzer_bench as bench
from perf_analyzer_bench import NONE, Measured

SAID = """\
Request concurrency: 4
  Pass [1] throughput: 5593.93 infer/sec. Avg latency: 710 usec (std 270 usec). 
  Pass [2] throughput: 7523.69 infer/sec. Avg latency: 527 usec (std 408 usec). 
  Client: 
    Request count: 22958
    Throughput: 5773.68 infer/sec
    Avg latency: 685 usec (standard deviation 766 usec)
    p50 latency: 483 usec
  Server: 
    Inference count: 22962
    Execution count: 22961
    Successful request count: 22960
    Avg request latency: 16 usec (overhead 7 usec + queue 2 usec + compute input 3 usec + compute infer 4 usec + compute output 5 usec)
"""
MEANS = {"queue": 2.5, "compute_input": 3.9, "compute_infer": 4.0, "compute_output": 0.2}
COUNTED = NONE._replace(server_us=MEANS)
CUT = {"queue": 2, "compute_input": 3, "compute_infer": 4, "compute_output": 0}


class PerfAnalyzerBenchTest(unittest.TestCase):
    def test_what_perf_analyzer_says_is_read(self):
        report = bench.perf_analyzer.read_report(SAID)
        self.assertEqual(report.counts, {"Request": 22958, "Inference": 22962, "Execution": 22961,
                                         "Successful request": 22960})
        self.assertEqual(report.passes, [(5593.93, 710), (7523.69, 527)])
        self.assertEqual(report.p50_us, 483)
        self.assertEqual(report.server_us, {"queue": 2, "compute_input": 3, "compute_infer": 4, "compute_output": 5})

    def test_our_mean_latency_is_that_of_closed_loops(self):
        line = "| TCP | 4 | 65536 | peer {} | {} | 5.0 | 6.0 | {} | 0.334 | – | – | – |\n"
        stub, raw = bench.read_ours(line.format("identity (ModelInfer)", "1.0", "1.0")
                                    + line.format("gelu (ModelInfer)", "390.5", "10000.0")
                                    + line.format("gelu (ModelInfer, generated code)", "480.5", "8000.0"), 4)
        self.assertEqual(stub, Measured(8000, 500, 480.5, None))
        self.assertEqual(raw, Measured(10000, 400, 390.5, None))

    def test_medians_are_of_each_figure_that_is_there(self):
        rounds = [Measured(rate, 10 * rate, 9 * rate, dict(MEANS, queue=rate)) for rate in (1, 5, 3)]
        self.assertEqual(bench.median(rounds), Measured(3, 30, 27, dict(MEANS, queue=3)))
        self.assertEqual(bench.median([COUNTED]), COUNTED)
        self.assertIsNone(bench.median([Measured(1, 1, 1, None)]).server_us)

    def test_ratios_are_of_rounds(self):
        rounds = [(Measured(theirs, 1 / theirs, 300, CUT), COUNTED, Measured(ours, 1 / ours, 200, None),
                   Measured(1, 1, 1, None)) for theirs, ours in ((10, 20), (50, 40), (30, 30))]
        figures = bench.figures_of(rounds)
        self.assertEqual((figures.theirs.rate, figures.stub.rate), (30, 30))
        self.assertEqual(bench.figures_of(rounds[:1]).ratios, [0.5, 2, 1.5])
        self.assertAlmostEqual(figures.ratios[0], 1)
        self.assertEqual([row[:4] for row in bench.rows(4, figures)][:4],
                         [["4", "requests/s", "30", "30"], ["4", "mean latency, us", "0", "0"],
                          ["4", "median latency, us", "300", "200"],
                          ["4", "queue on the server, mean us", "2", "2.50"]])

    def test_what_is_too_far_off_is_told(self):
        def said(rate=1000, latency_us=1000, **server_us):
            return list(bench.disagreements(4, bench.figures_of(
                [(Measured(rate, latency_us, 900, {**CUT, **server_us}), COUNTED, Measured(1000, 1000, 900, None),
                  Measured(2000, 500, 450, None))])))

        self.assertEqual(said(), [])
        self.assertEqual(said(rate=650, latency_us=1590), [])
        self.assertEqual(said(rate=620), ["requests/s, 4 at a time: perf_analyzer's is 0.62 of ours"])
        self.assertEqual(len(said(rate=1610, latency_us=620)), 2)
        # Means on the server within a tenth, and a microsecond more below.
        self.assertEqual(said(compute_infer=5), ["compute_infer, 4 at a time: perf_analyzer says 5 us, the server 4.00"])
        self.assertEqual(len(said(queue=1, compute_input=5, compute_output=1)), 3)


if __name__ == "__main__":
    unittest.main()
