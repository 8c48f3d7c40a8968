#!/usr/bin/env python3
"""Metrics of a server without a GPU before its first request: few, but every counter that rules and alerts use, since
Prometheus sees no increase in a series' first value.

    idle_metrics_test.py WARPCALLD
"""

import collections
import re
import sys
import unittest

sys.dont_write_bytecode = True

import processes  # noqa: E402

BYTES_MAX = 60_000
LINES_MAX = 700
# Codes that a rule's expression names, as in code=~"INTERNAL|UNAVAILABLE".
CODES = re.compile(r'\bcode=~?"([A-Z|_]+)"')
# A server without GPUs has none of their errors.
GPU_ONLY = re.compile(r"warpcall_gpu_|warpcall_cuda_")


class IdleMetricsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = processes.idle_metrics(WARPCALLD)
        cls.series = collections.defaultdict(list)  # label texts by name
        for line in cls.text.splitlines():
            if not line.startswith("#"):
                series, _, _ = line.rpartition(" ")
                name, _, labels = series.partition("{")
                cls.series[name].append(labels)
        rules = processes.deployed_folder() / "prometheus"
        cls.rules = "".join(line for name in ("rules.yml", "alerts.yml")
                            for line in (rules / name).read_text(encoding="utf-8").splitlines(keepends=True)
                            if not line.lstrip().startswith("#"))

    def test_it_is_short(self):
        self.assertLessEqual(len(self.text.encode()), BYTES_MAX)
        self.assertLessEqual(self.text.count("\n"), LINES_MAX)

    def test_counters_that_rules_count_are_there(self):
        counters = set(re.findall(r"\bwarpcall_[a-z_]+_total\b", self.rules))
        self.assertGreaterEqual(len(counters), 8)
        absent = {counter for counter in counters if counter not in self.series}
        self.assertEqual(absent, {counter for counter in counters if GPU_ONLY.match(counter)})

    def test_codes_that_rules_count_are_there_wherever_ok_is(self):
        codes = {code for found in CODES.findall(self.rules) for code in found.split("|")}
        self.assertLessEqual({"INTERNAL", "UNAVAILABLE"}, codes)
        counted = collections.Counter(re.search(r'code="(\w+)"', labels)[1]
                                      for labels in self.series["warpcall_requests_total"])
        self.assertGreater(counted["OK"], 30)
        self.assertEqual(counted, {code: counted["OK"] for code in codes | {"OK"}})

    def test_histograms_come_with_their_first_observation(self):
        self.assertEqual([name for name in self.series if name.endswith("_bucket")], [])


if __name__ == "__main__":
    WARPCALLD = sys.argv.pop(1)
    unittest.main()
