#!/usr/bin/env python3
"""The dashboard as its readers see it: a real Prometheus watches a real server without a GPU that serves a
mixed load, refuses some, is inspected and restarted; every panel's expression is evaluated over all of that
time, and drawn on one page.

    dashboard_page_test.py WARPCALLD WARPCALL [PAGE.svg]

No panel is empty without saying why, no series has NaN, legends are whole, short, and name what ran. Exit
status 77: skipped, there is no Prometheus.
"""

import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import time
import traceback
import xml.etree.ElementTree

sys.dont_write_bytecode = True

import page  # noqa: E402
import processes  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
# MIX has entries with and without a choice, of several types; one is refused. BURST has more of a slow kind at once
# than the queue holds.
MIX = ",".join([
    "identity:65536=10", "gelu:4096=20", "gelu[implementation=library]:16384:f16=10",
    "softmax:64x1024:bf16=15", "softmax[implementation=manual]:64x1024=5",
    "matmul:64x128*128x64=10", "matmul[implementation=cpu]:64x128*128x64:bf16=5",
    "fused[expression=gelu(x0 + x1)]:64x256*256=10", "layernorm:64x256*256*256=5",
    "rmsnorm:64x256*256=5", "gelu[approximate=wrong]:64=3",
])
LOAD = [MIX, "--warmup", "0", "--rate", "150", "--concurrency", "8", "--duration"]
BURST = ["matmul[implementation=reference]:128x128*128x128", "--warmup", "0", "--concurrency", "24",
         "--duration", "3"]
# On a machine with a GPU, too.
FLAGS = ["--queue_limit=8", "--devices=cpu"]
INSPECTIONS = [["bench", "gelu", "--shape", "64x1024", "--type", "f32"],
               ["describe", "softmax", "--shape", "64x64"],
               ["profile", "softmax", "--shape", "256x1024"]]
INSPECTION_SECONDS_MAX = 120
# Everybody may do all of this: Tune is kept out.
POLICIES = {"default": {"methods": ["Execute", "ExecuteStream", "ListKernels", "ListDevices", "ServerInfo",
                                    "BenchmarkStream", "Describe", "Profile"]}}
# Empty where all is well, or on a machine that runs all that its build has.
NOTHING_TO_SHOW = ("Alerts", "Unavailable implementations", "Implementations that failed here")

LEGENDS_MAX = 20
WINDOW = "15s"  # $__rate_interval; Grafana takes four scrapes at least, and a busy machine leaves some out
VARIABLES = {"$__rate_interval": WINDOW, "$job": ".*", "$namespace": ".*", "$instance": ".*", "$kernel": ".*",
             "$implementation": ".*", "$device": ".*"}


def check(condition, message):
    if not condition:
        raise Failure(message)


def valued(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    check("$" not in expression, f"a variable has no value: {expression}")
    return expression


def legend_of(target, labels):
    """Grafana's legend; a label that is missing or empty fails the test."""
    def value(match):
        check(labels.get(match[1]), f"the legend {target['legendFormat']} lacks {match[1]}: {labels}")
        return labels[match[1]]
    return re.sub(r"{{(\w+)}}", value, target["legendFormat"])


class Watch:
    """Data for the checks, when all is over and Prometheus has seen it."""

    def __init__(self, api, span):
        self.api, self.span = api, span
        self.dashboard = processes.dashboard()
        self.graphs = [panel for panel in self.dashboard["panels"] if panel["type"] != "row"]
        self.values = {panel["id"]: [series for target in panel["targets"]
                                     for series in self.series(panel, target)] for panel in self.graphs}
        mark, = self.dashboard["annotations"]["list"]
        self.marks = [min(seconds for seconds, _ in points)
                      for _, points in self.range(valued(mark["expr"]))]

    def range(self, expression):
        data = self.api.get("/api/v1/query_range", query=expression, start=self.span.begin,
                            end=self.span.end, step=self.span.step)
        return [(found["metric"], [(float(at), float(value)) for at, value in found["values"]])
                for found in data["result"]]

    def series(self, panel, target):
        expression = valued(target["expr"])
        if target.get("instant"):
            found = [(labels, [(self.span.end, value)]) for labels, value in self.api.query(expression)]
        else:
            found = self.range(expression)
        for labels, points in found:
            bad = [value for _, value in points if not math.isfinite(value)]
            check(not bad, f"{panel['title']} has {bad[:1]} for {labels}: {expression}")
            yield page.Series(legend_of(target, labels), labels, points)


def check_nothing_is_empty_without_a_word(watch):
    for panel in watch.graphs:
        word = panel["fieldConfig"]["defaults"].get("noValue", "")
        if not watch.values[panel["id"]]:
            check("no GPU on this server" in word or panel["title"] in NOTHING_TO_SHOW,
                  f"{panel['title']} is empty, and says: {word!r}")


def check_legends(watch):
    for panel in watch.graphs:
        if panel["type"] == "heatmap":
            continue  # which has an axis of buckets instead
        legends = [series.legend for series in watch.values[panel["id"]]]
        check(len(legends) <= LEGENDS_MAX, f"{panel['title']} has {len(legends)} series: {legends}")
        check(len(legends) == len(set(legends)) or panel["type"] == "table",
              f"{panel['title']} has two series of one name: {legends}")


def check_only_what_ran_is_shown(watch):
    """Every shown series with a kernel and an implementation has counted requests."""
    ran = {(labels.get("kernel"), labels.get("implementation")) for labels, _ in watch.api.query(
        "max_over_time(warpcall_requests_total[1h]) > 0")}
    check(len(ran) >= 10, f"only {ran} ran")
    for panel in watch.graphs:
        for series in watch.values[panel["id"]]:
            pair = series.labels.get("kernel"), series.labels.get("implementation")
            check(None in pair or "refused" in pair or pair in ran,
                  f"{panel['title']} shows {pair}, which never ran")


def check_the_restart_is_marked(watch):
    starts = {value for _, points in watch.range("process_start_time_seconds") for _, value in points}
    check(len(starts) == 2, f"{len(starts)} starts were seen, expected 2")
    check(len(watch.marks) == 1 and 0 <= watch.marks[0] - max(starts) < 60,
          f"marks at {watch.marks}, but the server started at {starts}")


def check_the_page(watch):
    text = page.draw(watch.dashboard, watch.values, watch.marks, watch.span)
    shown = [element.text for element in xml.etree.ElementTree.fromstring(text).iter()
             if element.tag.endswith("text")]
    for panel in watch.dashboard["panels"]:
        check(panel["title"] in shown, f"the page lacks {panel['title']}")
    check(any(word and word.startswith("gelu cpu") for word in shown), "the page has no gelu cpu")
    if len(sys.argv) > 3:
        pathlib.Path(sys.argv[3]).write_text(text, encoding="utf-8")


CHECKS = [check_the_page, check_nothing_is_empty_without_a_word, check_legends,
          check_only_what_ran_is_shown, check_the_restart_is_marked]


# ---- the run ---------------------------------------------------------------------------------------

def inspect(warpcall, grpc):
    for arguments in INSPECTIONS:
        result = subprocess.run([warpcall, "--server", grpc, *arguments], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, check=False, timeout=INSPECTION_SECONDS_MAX)
        check(result.returncode == 0, f"warpcall {arguments}: {result.stdout}{result.stderr}")


def keep_out(warpcall, grpc):
    result = subprocess.run([warpcall, "--server", grpc, "tune", "gelu", "--shape", "64"], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=False, timeout=INSPECTION_SECONDS_MAX)
    check("PERMISSION_DENIED" in result.stdout + result.stderr, f"tune was let in: {result}")


def damage(policies, api):
    """Until Prometheus has seen that the server could not read it again."""
    policies.write_text("{", encoding="utf-8")
    processes.wait_until("the damaged file to be counted", lambda: [
        value for _, value in api.query("warpcall_reload_failures_total") if value > 0], processes.START_SECONDS_MAX)


def await_scrape(api, since, what):
    def scraped():
        times = [value for _, value in api.query("timestamp(warpcall_build_info)")]
        return times and min(times) > since
    processes.wait_until(what, scraped, processes.START_SECONDS_MAX)


def observe(binaries, folder, stack):
    """Runs everything and returns the checks' data; Prometheus lives as long as the stack."""
    prometheus, warpcalld, warpcall = binaries
    grpc, metrics = processes.free_addresses(2)
    ports = (f"--listen={grpc}", f"--metrics_listen={metrics}")
    api = stack.enter_context(processes.prometheus(
        prometheus, folder, processes.deployed_folder() / "prometheus", (metrics, None)))
    begin = time.time()
    policies = folder / "policies.json"
    policies.write_text(json.dumps(POLICIES), encoding="utf-8")
    flags = [*FLAGS, f"--policy_file={policies}"]
    with processes.warpcalld(warpcalld, folder, *flags, ports=ports):
        await_scrape(api, begin, "the server to be scraped")
        # It measures its own when it has nothing to do.
        processes.wait_until("the bandwidth ceiling", lambda: api.query(
            "warpcall_device_bandwidth_ceiling_bytes_per_second > 0"), processes.START_SECONDS_MAX)
        processes.load(warpcall, grpc, [*LOAD, "8"])
        inspect(warpcall, grpc)
        keep_out(warpcall, grpc)
        damage(policies, api)
        report = processes.load(warpcall, grpc, BURST)
        check("RESOURCE_EXHAUSTED" in report["all"]["statuses"], f"nothing was refused: {report['all']}")
        await_scrape(api, time.time(), "a scrape after the burst")
    policies.write_text(json.dumps(POLICIES), encoding="utf-8")
    restarted = time.time()
    with processes.warpcalld(warpcalld, folder, *flags, ports=ports):
        await_scrape(api, restarted, "the second server to be scraped")
        processes.load(warpcall, grpc, [*LOAD, "5"])
        loaded = time.time()
        await_scrape(api, loaded + 1, "a scrape after the load")
        return Watch(api, page.Span(begin, time.time(), 1))


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print("skipped: there is no prometheus (Debian: package prometheus)")
        return SKIPPED
    try:
        binaries = [prometheus, *sys.argv[1:3]]
        failures = processes.run_checks(
            CHECKS, lambda folder, stack: observe(binaries, folder, stack))
        return 1 if failures else 0
    except Failure:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
