#!/usr/bin/env python3
"""deploy/grafana: the files of the dashboard match its panels, Grafana can load and show it, and compose puts it where
Grafana reads it."""

import itertools
import json
import re
import shutil
import sys
import unittest

sys.dont_write_bytecode = True

import processes  # noqa: E402

DEPLOY = processes.deployed_folder()
GRAFANA = DEPLOY / "grafana"
GRID_COLUMNS = 24
# Units of the panels. Grafana shows a misspelt one as a suffix and does not complain.
GRAFANA_UNITS = {"Bps", "bytes", "celsius", "dateTimeFromNow", "flops", "percentunit", "reqps", "s",
                 "short", "watt"}
BUILT_IN_VARIABLES = {"__rate_interval"}


def overlap(a, b):
    return (a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
            and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"])


class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dashboard = processes.dashboard()
        cls.panels = cls.dashboard["panels"]
        cls.graphs = [panel for panel in cls.panels if panel["type"] != "row"]

    def test_it_names_itself_and_the_schema_of_grafana_10(self):
        self.assertEqual(self.dashboard["uid"], "warpcall")
        self.assertTrue(self.dashboard["title"])
        self.assertIn(self.dashboard["schemaVersion"], range(37, 40))

    def test_ids_and_titles_are_unique(self):
        for key in ("id", "title"):
            values = [panel[key] for panel in self.panels]
            self.assertEqual(len(values), len(set(values)), values)

    def test_every_panel_says_what_it_shows_and_in_which_unit(self):
        for panel in self.graphs:
            with self.subTest(panel["title"]):
                self.assertIn(panel["type"], ("timeseries", "heatmap", "stat", "table"))
                self.assertTrue(panel["title"])
                # A description says what the panel shows and what to do: more than a phrase.
                self.assertGreater(len(panel["description"]), 60)
                defaults = panel["fieldConfig"]["defaults"]
                self.assertIn(defaults["unit"], GRAFANA_UNITS)
                # Why it is empty when it is, and not that it is.
                self.assertGreater(len(defaults["noValue"]), 10)
                self.assertNotIn("no data", defaults["noValue"].lower())

    def test_the_overview_comes_first_and_lists_alerts(self):
        self.assertEqual((self.panels[0]["type"], self.panels[0]["title"]), ("row", "Overview"))
        following = itertools.takewhile(lambda panel: panel["type"] != "row", self.panels[1:])
        overview = list(following)
        self.assertGreater([panel["type"] for panel in overview].count("stat"), 5)
        alerts = [panel for panel in overview if panel["type"] == "table"]
        self.assertEqual(len(alerts), 1)
        self.assertIn("ALERTS{", alerts[0]["targets"][0]["expr"])
        self.assertTrue(alerts[0]["targets"][0]["instant"])

    def test_starts_of_servers_are_marked(self):
        marks = self.dashboard["annotations"]["list"]
        self.assertEqual(len(marks), 1)
        self.assertIn("changes(process_start_time_seconds", marks[0]["expr"])
        self.assertEqual(marks[0]["datasource"], self.graphs[0]["datasource"])

    def test_advice_names_what_people_have(self):
        """Advice names no program that only a build with tests has."""
        for panel in self.graphs:
            words = re.findall(r"\bwarpcall\w*", panel["description"])
            self.assertLessEqual(set(words), {"warpcall", "warpcalld"}, panel["title"])

    def test_every_panel_asks_the_chosen_data_source(self):
        for panel in self.graphs:
            with self.subTest(panel["title"]):
                self.assertTrue(panel["targets"])
                for source in [panel, *panel["targets"]]:
                    self.assertEqual(source["datasource"],
                                     {"type": "prometheus", "uid": "${datasource}"})
                identifiers = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(identifiers), len(set(identifiers)))
                for target in panel["targets"]:
                    self.assertTrue(target["expr"].strip())
                    self.assertTrue(target["legendFormat"])

    def test_the_file_is_made_of_the_panels(self):
        sys.path.insert(0, str(GRAFANA))
        import dashboard
        self.assertEqual(dashboard.FILE.read_text(encoding="utf-8"), dashboard.text(),
                         "the file is not what panels.py says: python3 deploy/grafana/dashboard.py write")

    def test_legends_tell_series_apart(self):
        """Holds for several servers, too: a legend names each label that the expression leaves."""
        for panel in self.graphs:
            if panel["type"] != "timeseries":
                continue
            for target in panel["targets"]:
                expression = target["expr"]
                found = re.search(r"\b(?:sum|min|max|avg|count)\b(?: by \(([^)]*)\))? ?\(", expression)
                left = {"instance", *re.findall(r"\bdevice(?==~)", expression)}
                if found is not None:
                    left = set(filter(None, re.split(", ", found[1] or ""))) - {"job", "namespace", "le"}
                named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                self.assertLessEqual(left, named, (panel["title"], expression))

    def test_operators_find_servers_and_faults(self):
        asked = " ".join(target["expr"] for panel in self.graphs for target in panel["targets"])
        for metric in ("warpcall_auth_refusals_total", "warpcall_reload_failures_total", "warpcall_rows_unavailable",
                       "warpcall_auto_choices_total", "changes(process_start_time_seconds"):
            self.assertIn(metric, asked)

    def test_expressions_use_variables_that_there_are_and_every_one_is_used(self):
        declared = {entry["name"] for entry in self.dashboard["templating"]["list"]}
        self.assertLessEqual({"datasource", "device", "kernel", "implementation"}, declared)
        expressions = " ".join(target["expr"] for panel in self.graphs
                               for target in panel["targets"])
        used = set(re.findall(r"\$\{?(\w+)", expressions)) - BUILT_IN_VARIABLES
        self.assertEqual(used, declared - {"datasource"})

    def test_variables_offer_all_values(self):
        for entry in self.dashboard["templating"]["list"]:
            with self.subTest(entry["name"]):
                if entry["type"] == "datasource":
                    self.assertEqual(entry["query"], "prometheus")
                    continue
                self.assertEqual(entry["type"], "query")
                self.assertRegex(entry["query"]["query"], rf"^label_values\(.*, {entry['name']}\)$")
                self.assertTrue(entry["multi"] and entry["includeAll"])
                self.assertNotIn(f"${entry['name']}", entry["query"]["query"])
                self.assertEqual(entry["allValue"], ".*")

    def test_panels_lie_on_the_grid_and_on_no_other(self):
        for panel in self.panels:
            position = panel["gridPos"]
            self.assertTrue(all(isinstance(position[key], int) for key in "xywh"), position)
            self.assertGreater(min(position["w"], position["h"]), 0)
            self.assertGreaterEqual(min(position["x"], position["y"]), 0)
            self.assertLessEqual(position["x"] + position["w"], GRID_COLUMNS, panel["title"])
        for a, b in itertools.combinations(self.panels, 2):
            self.assertFalse(overlap(a["gridPos"], b["gridPos"]), (a["title"], b["title"]))


class ExpressionsTest(unittest.TestCase):
    """Panels over made-up series, by promtool's tests of expressions."""

    INTERVAL = "4m"  # $__rate_interval; the series' is a minute

    @classmethod
    def setUpClass(cls):
        if shutil.which("promtool") is None:
            raise unittest.SkipTest("there is no promtool (Debian: package prometheus)")
        cls.targets = {panel["title"]: panel["targets"] for panel in processes.dashboard()["panels"]
                       if panel["type"] != "row"}

    def expressions(self, title, chosen):
        """Expressions of a panel, with the variables that are `chosen`, and all of the others."""
        for target in self.targets[title]:
            expression = target["expr"].replace("$__rate_interval", self.INTERVAL)
            for variable, value in chosen.items():
                expression = expression.replace(f"${variable}", value)
            yield re.sub(r"\$\w+", ".*", expression)

    def check(self, title, series, expected, **chosen):
        """`series`: {series: its values}; `expected`: [(minute, query, {labels: rounded value})]."""
        expressions = list(self.expressions(title, chosen))
        tests = {"rule_files": [], "evaluation_interval": "1m", "tests": [{
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{
                "expr": f"round({expressions[query]}, 0.01)", "eval_time": f"{minute}m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in shown.items()],
            } for minute, query, shown in expected]}]}
        status, said = processes.promtool(["test", "rules"], tests)
        self.assertEqual(status, 0, said)

    def test_error_ratios_are_of_the_chosen_deployments(self):
        ratios = {f'warpcall:request_errors:ratio_rate{window}{{job="{job}", namespace="{namespace}"}}': value
                  for window in ("5m", "1h", "6h")
                  for job, namespace, value in [("warpcall", "well", "0x5"), ("warpcall", "ill", "0.5x5"),
                                                ("other", "ill", "0.7x5")]}
        self.check("Error budget burn", ratios, [(1, query, {"{}": 0}) for query in range(3)],
                   job="warpcall", namespace="well")
        self.check("Error budget burn", ratios, [(1, query, {"{}": 500}) for query in range(3)],
                   job="warpcall")
        self.check("Errors", ratios, [(1, 0, {"{}": 0.5})], job="warpcall")
        name = 'warpcall:requests_refused:ratio_rate5m{{job="warpcall", namespace="{}", instance="{}"}}'
        refused = {name.format("well", "a"): "0x5", name.format("well", "b"): "0.1x5",
                   name.format("ill", "a"): "0.2x5"}
        self.check("Refused", refused, [(1, 0, {"{}": 0.1})], namespace="well")
        self.check("Refused", refused, [(1, 0, {"{}": 0})], namespace="well", instance="a")

    def test_servers_of_one_address_are_told_apart_by_their_namespaces(self):
        labels = 'job="warpcall", namespace="{}", instance="i", device="cpu", kernel="k", implementation="r"'
        series = {}
        for namespace, rate in [("a", 60), ("b", 180)]:
            name = labels.format(namespace)
            series[f"warpcall_kernel_bytes_total{{{name}}}"] = f"0+{rate}x9"
            series[f'warpcall_kernel_duration_seconds_sum{{{name}, data_type="t"}}'] = "0+60x9"
        self.check("Achieved bandwidth", series,
                   [(9, 0, {f'{{{labels.format("a")}}}': 1, f'{{{labels.format("b")}}}': 3})])

    def test_a_kernels_first_runs_are_in_what_it_achieved(self):
        name = 'instance="i", device="cpu", kernel="k", implementation="r"'
        self.check("Achieved bandwidth",
                   {f"warpcall_kernel_bytes_total{{{name}}}": "0x9 60x2 66x9",
                    f'warpcall_kernel_duration_seconds_sum{{{name}, data_type="t"}}': "_x10 10x2 11x9"},
                   [(9, 0, {}), (11, 0, {f"{{{name}}}": 6}), (13, 0, {f"{{{name}}}": 6})])

    def test_the_first_inspection_of_its_code_is_shown(self):
        self.check("Inspections",
                   {'warpcall_inspections_total{instance="i", method="tune", code="NOT_FOUND"}': "_x10 1x9"},
                   [(9, 0, {}), (10, 0, {'{method="tune", code="NOT_FOUND"}': 1}), (15, 0, {})])

    def test_the_first_error_of_its_kind_is_shown(self):
        """The server has no series of events that never happened; the others are seen from the first scrape on."""
        xid = 'warpcall_gpu_xid_errors_total{{instance="i", device="cuda:0", xid="{}"}}'
        cuda = 'warpcall_cuda_errors_total{{instance="i", code="{}"}}'
        shown = {query: [f'{{instance="i", device="cuda:0", xid="{name}"}}' if query == 0 else
                         f'{{instance="i", code="{name}"}}' for name in ("first", "again", "old")]
                 for query in (0, 1)}
        series = {kind.format(name): values for kind in (xid, cuda)
                  for name, values in [("first", "_x20 1x5 3x20"), ("again", "_x10 2x40"), ("old", "1x50")]}
        expected = []
        for query, (first, again, _) in shown.items():
            # Counts from the first sample, at minute 20 and 10, for the interval; then the growth after it.
            expected += [(9, query, {}), (10, query, {again: 2}), (13, query, {again: 2}), (14, query, {}),
                         (20, query, {first: 1}), (23, query, {first: 1}), (24, query, {})]
            expected += [(27, query, {first: 2}), (31, query, {})]
        self.check("Errors of GPU and CUDA", series, expected)

    def test_servers_and_what_ails_them(self):
        """Two servers' requests; one server's starts, first failures and choices."""
        a, b = ('job="j", instance="{}"'.format(name) for name in "ab")
        self.check("Requests by server", {
            f'warpcall_requests_total{{{server}, kernel="{kernel}"}}': f"0+{rate}x9"
            for server, rates in [(a, (60, 120)), (b, (30, 0))] for kernel, rate in zip("kl", rates)},
            [(9, 0, {'{instance="a"}': 3, '{instance="b"}': 0.5})])
        starts = {f"process_start_time_seconds{{{a}}}": "0x4 240x60", f"process_start_time_seconds{{{b}}}": "0x64",
                  f"warpcall_build_info{{{a}}}": "1x64", f"warpcall_build_info{{{b}}}": "1x64"}
        self.check("Starts of servers", starts, [(minute, 0, {f"{{{a}}}": 1, f"{{{b}}}": 0}) for minute in (9, 60)])
        self.check("Files not read again", {f'warpcall_reload_failures_total{{{a}, flag="tls_cert"}}': "0x9 1x9",
                                            f'warpcall_reload_failures_total{{{b}, flag="tls_cert"}}': "0x20"},
                   [(9, 0, {}), (11, 0, {'{instance="a", flag="tls_cert"}': 1}), (18, 0, {})])
        self.check("Calls kept out", {f'warpcall_auth_refusals_total{{{a}, reason="wrong_token"}}': "0+60x9",
                                      f'warpcall_auth_refusals_total{{{b}, reason="wrong_token"}}': "0x9"},
                   [(9, 0, {'{instance="a", reason="wrong_token"}': 1})])
        chosen = 'instance="a", device="cpu", kernel="k", implementation="r", why="tuned"'
        self.check("Choices of auto", {f"warpcall_auto_choices_total{{{chosen}}}": "_x10 2x9"},
                   [(9, 0, {}), (10, 0, {f"{{{chosen}}}": 2}), (15, 0, {})])

    def test_implementations_that_a_server_lacks_are_counted_and_named(self):
        row = '{}, kernel="k", implementation="{}", device_kind="cuda", reason="{}"'
        failed = row.format('instance="a"', "r", "self_test")
        series = {f"warpcall_rows_unavailable{{{failed}}}": "1x9"}
        for name, reason, value in [("s", "driver", 1), ("t", "driver", 1), ("u", "self_test", 0)]:
            labels = row.format('instance="b"', name, reason)
            series[f"warpcall_rows_unavailable{{{labels}}}"] = f"{value}x9"
        kind = '{{instance="{}", device_kind="cuda", reason="{}"}}'
        self.check("Unavailable implementations", series,
                   [(5, 0, {kind.format("a", "self_test"): 1, kind.format("b", "driver"): 2})])
        self.check("Implementations that failed here", series, [(5, 0, {f"{{{failed}}}": 1})])


class ProvisioningTest(unittest.TestCase):
    """compose.yml, Prometheus' configuration and Grafana's name the same places."""

    @classmethod
    def setUpClass(cls):
        cls.compose = (DEPLOY / "compose" / "compose.yml").read_text(encoding="utf-8")
        cls.scrape = (DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
        provisioning = GRAFANA / "provisioning"
        cls.source = (provisioning / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
        cls.provider = (provisioning / "dashboards" / "warpcall.yml").read_text(encoding="utf-8")

    def only(self, pattern, text):
        found = re.findall(pattern, text, re.MULTILINE)
        self.assertEqual(len(found), 1, f"{pattern} in: {text}")
        return found[0]

    def service(self, name):
        return self.only(rf"^  {name}:\n((?:    .*\n|\n)+)", self.compose)

    def mounts(self, name):
        """Mounts of a service: where -> (what, ":ro" or "")."""
        found = re.findall(r"^ +- (.+?):(/[^:\n]+)(:ro)?$", self.service(name), re.MULTILINE)
        return {where: (what, mode) for what, where, mode in found}

    def test_mounted_paths_exist(self):
        paths = [what for name in ("prometheus", "grafana")
                 for what, _ in self.mounts(name).values() if what.startswith(".")]
        self.assertEqual(len(paths), 3)
        for path in paths:
            self.assertTrue((DEPLOY / "compose" / path).exists(), path)

    def test_the_dashboard_lies_where_grafana_reads_it(self):
        folder = self.only(r"^ +path: (.*)$", self.provider)
        file = self.only(r"HOME_DASHBOARD_PATH: (.*)$", self.compose)
        self.assertEqual(file.rpartition("/")[0], folder)
        source, mode = self.mounts("grafana")[file]
        self.assertEqual(mode, ":ro")
        text = (DEPLOY / "compose" / source).read_text(encoding="utf-8")
        self.assertEqual(json.loads(text), processes.dashboard())

    def test_services_are_asked_by_their_names(self):
        self.assertEqual(self.only(r"url: (.*)$", self.source), "http://prometheus:9090")
        self.assertEqual(self.only(r'targets: \["(.*)"\]', self.scrape), "warpcalld:9470")
        for line in ("\n  prometheus:\n", "\n  warpcalld:\n", "--metrics_listen=0.0.0.0:9470\n"):
            self.assertEqual(self.compose.count(line), 1, line)

    def test_grafana_knows_the_scrape_interval(self):
        self.assertEqual(self.only(r"timeInterval: (.*)$", self.source),
                         self.only(r"scrape_interval: (.*)$", self.scrape))


if __name__ == "__main__":
    unittest.main()
