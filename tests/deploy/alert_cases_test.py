#!/usr/bin/env python3
"""Each alert of deploy/prometheus has a case in alerts_test.yml in which it fires and one in which it does not,
though all that it looks at is there. Exit status 77: skipped, there is no python3-yaml."""

import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-yaml)")
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
# Metrics, and recording rules made from them.
NAME = re.compile(r"\b(?:warpcall|process)[a-z0-9_:]+|\bup\b")
# Expressions that list all firing alerts, and perhaps the pending ones.
LISTS = {"ALERTS", 'ALERTS{alertstate="firing"}'}


def rules_of(name):
    groups = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def metrics_of(expression, recorded):
    """The names of the series that it comes from, without histograms' suffixes."""
    names = set()
    for name in NAME.findall(re.sub(r'"[^"]*"', "", expression)):
        names |= metrics_of(recorded[name], recorded) if name in recorded else {name}
    return names


def cases(tests):
    """For each list of all firing alerts: the metrics of its test, and its alerts."""
    for test in tests:
        given = {re.match(r"[a-z0-9_:]+", series["series"])[0] for series in test["input_series"]}
        for asked in test.get("promql_expr_test", []):
            if asked["expr"] in LISTS:
                yield given, {re.search(r'alertname="(\w+)"', sample["labels"])[1]
                              for sample in asked["exp_samples"]
                              if 'alertstate="firing"' in sample["labels"]}


class AlertCasesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rules = rules_of("rules.yml") + rules_of("alerts.yml")
        cls.recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
        cls.alerts = {rule["alert"]: rule for rule in rules if "alert" in rule}
        tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
        cls.cases = list(cases(tests))

    def test_there_are_alerts_and_lists(self):
        self.assertGreater(len(self.alerts), 20)
        self.assertGreater(len(self.cases), 50)

    def test_each_fires(self):
        firing = set().union(*(alerts for _, alerts in self.cases))
        self.assertEqual(self.alerts.keys() - firing, set(), "they fire in no test")
        self.assertEqual(firing - self.alerts.keys(), set(), "there are no such alerts")

    def test_each_is_silent_where_it_has_what_it_looks_at(self):
        for name, rule in self.alerts.items():
            with self.subTest(name):
                needed = metrics_of(rule["expr"], self.recorded)
                self.assertTrue(needed)
                self.assertTrue([given for given, alerts in self.cases if needed <= given and name not in alerts],
                                f"no list without it in a test that gives {sorted(needed)}")

    def test_each_says_who_is_to_look_and_what_to_do(self):
        for name, rule in self.alerts.items():
            with self.subTest(name):
                self.assertIn(rule["labels"]["severity"], ("page", "ticket"))
                self.assertLess(10, len(rule["annotations"]["summary"]))
                self.assertLess(60, len(rule["annotations"]["description"]))


if __name__ == "__main__":
    unittest.main()
