#!/usr/bin/env python3
"""What perf_analyzer_bench.py reads and concludes, without perf_analyzer."""

import unittest

import perf_analyzer_bench as bench
from perf_analyzer_bench import Measured

SAID = """\
Request concurrency: 4
  Pass [1] throughput: 5593.93 infer/sec. Avg latency: 710 usec (std 270 usec). 
  Pass [2] throughput: 7523.69 infer/sec. Avg latency: 527 usec (std 408 usec). 
  Client: 
    Request count: 22958
    Throughput: 5773.68 infer/sec
    Avg latency: 685 usec (standard deviation 766 usec)
  Server: 
    Inference count: 22962
    Execution count: 22961
    Successful request count: 22960
    Avg request latency: 16 usec (overhead 7 usec + queue 2 usec + compute input 3 usec + compute infer 4 usec + compute output 5 usec)
"""
MEANS = {"queue": 2.5, "compute_input": 3.9, "compute_infer": 4.0, "compute_output": 0.2}
CUT = {"queue": 2, "compute_input": 3, "compute_infer": 4, "compute_output": 0}


class PerfAnalyzerBenchTest(unittest.TestCase):
    def test_what_perf_analyzer_says_is_read(self):
        report = bench.perf_analyzer.read_report(SAID)
        self.assertEqual(report.counts, {"Request": 22958, "Inference": 22962, "Execution": 22961,
                                         "Successful request": 22960})
        self.assertEqual(report.passes, [(5593.93, 710), (7523.69, 527)])
        self.assertEqual(report.server_us, {"queue": 2, "compute_input": 3, "compute_infer": 4, "compute_output": 5})

    def test_our_mean_latency_is_that_of_closed_loops(self):
        line = "| TCP | 4 | 65536 | peer {} | 493.6 | 5.0 | 6.0 | {} | 0.334 | – | – | – |\n"
        stub, raw = bench.read_ours(line.format("identity (ModelInfer)", "1.0")
                                    + line.format("gelu (ModelInfer)", "10000.0")
                                    + line.format("gelu (ModelInfer, generated code)", "8000.0"), 4)
        self.assertEqual((stub.rate, stub.latency_us), (8000, 500))
        self.assertEqual((raw.rate, raw.latency_us), (10000, 400))

    def test_medians_are_of_each_figure_that_is_there(self):
        rounds = [Measured(rate, 10 * rate, dict(MEANS, queue=rate)) for rate in (1, 5, 3)]
        self.assertEqual(bench.median(rounds), Measured(3, 30, dict(MEANS, queue=3)))
        self.assertEqual(bench.median([Measured(None, None, MEANS)]), Measured(None, None, MEANS))
        self.assertIsNone(bench.median([Measured(1, 1, None)]).server_us)

    def test_ratios_are_of_rounds(self):
        rounds = [(Measured(theirs, 1 / theirs, CUT), Measured(None, None, MEANS), Measured(ours, 1 / ours, None),
                   Measured(1, 1, None)) for theirs, ours in ((10, 20), (50, 40), (30, 30))]
        figures = bench.figures_of(rounds)
        self.assertEqual((figures.theirs.rate, figures.stub.rate), (30, 30))
        self.assertEqual(bench.figures_of(rounds[:1]).ratios, [0.5, 2])
        self.assertAlmostEqual(figures.ratios[0], 1)
        self.assertEqual([row[:4] for row in bench.rows(4, figures)][:3],
                         [["4", "requests/s", "30", "30"], ["4", "mean latency, us", "0", "0"],
                          ["4", "queue on the server, mean us", "2", "2.50"]])

    def test_a_tenth_is_agreed_on_and_more_is_not(self):
        def said(concurrency=1, rate=1000, latency_us=1000, **server_us):
            return list(bench.disagreements(concurrency, bench.figures_of(
                [(Measured(rate, latency_us, {**CUT, **server_us}), Measured(None, None, MEANS),
                  Measured(1000, 1000, None), Measured(2000, 500, None))])))

        self.assertEqual(said(), [])
        self.assertEqual(said(rate=1100, latency_us=1100), [])
        self.assertEqual(said(rate=910, latency_us=910), [])
        self.assertEqual(said(rate=1101), ["rate, 1 at a time: perf_analyzer's is 1.10 of ours"])
        self.assertEqual(len(said(rate=909, latency_us=1101)), 2)
        # A third more CPU for a request, on cores that are full.
        self.assertEqual(said(concurrency=4, rate=700, latency_us=1400), [])
        self.assertEqual(len(said(concurrency=4, rate=660, latency_us=1510)), 2)
        for concurrency in (1, 4):
            self.assertEqual(said(concurrency, compute_infer=5),
                             [f"compute_infer, {concurrency} at a time: perf_analyzer says 5 us, the server 4.00"])
            self.assertEqual(len(said(concurrency, queue=1, compute_input=5, compute_output=1)), 3)


if __name__ == "__main__":
    unittest.main()
