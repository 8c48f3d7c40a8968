#!/usr/bin/env python3
"""A real Prometheus, configured as in deploy/, watches a real warpcalld under load.

    prometheus_load_test.py WARPCALLD WARPCALL

Every expression of every rule, alert and panel must give data; counters must equal the load
generator's, and percentiles must agree with its own clock. A simulated GPU, scraped beside the
server, gives the metrics that only GPUs have. Exit status 77: skipped, there is no Prometheus.
"""

import datetime
import math
import re
import shutil
import sys
import time
import traceback

sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
JOB = "warpcall"
# Every entry that runs names its implementation, so that the series that count it are known. One is refused, for
# an attribute.
MIX = ",".join([
    "identity[implementation=cpu]:65536=15",
    "gelu[implementation=cpu]:4096=20",
    "gelu[implementation=library]:16384=15",
    "softmax[implementation=cpu]:64x1024:bf16=20",
    "matmul[implementation=library]:64x128*128x64=20",
    "matmul[implementation=manual]:192x192*192x192=8",
    "gelu[approximate=wrong]:64=5",
])
# Each worker sends when it has its answer: with a schedule, a machine that cannot keep up adds waits that the server
# does not see.
LOAD = [MIX, "--requests", "8000", "--warmup", "0", "--concurrency", "4"]
# Family whose requests take so long in the server that the client's clock sees little else.
LONG = "manual"
REFUSED_LABELS = {"INVALID_ARGUMENT": ("gelu", "")}

# No CPU without TLS has these; a rule that is made of one is named as well.
GPU_ONLY = re.compile(r"warpcall_gpu_|warpcall_certificate_|warpcall_kernel_(occupancy|wave)|warpcall_cuda_errors|warpcall_compile_")

# The window holds the whole run: rates of counters that stood still before and after.
VARIABLES = {"$__rate_interval": "2m", "$job": ".*", "$namespace": ".*", "$kernel": ".*", "$implementation": ".*",
             "$device": ".*"}
# Panels that this load does not fill: dashboard_page_test.py and dashboard_test.py see them.
SEEN_ELSEWHERE = {"Alerts", "Choices of auto", "Implementations that failed here"}
BUCKET_FACTOR = 2
FIRST_BUCKET_SECONDS = 1e-6


def check(condition, message):
    if not condition:
        raise Failure(message)


def check_equal(what, actual, expected):
    check(actual == expected, f"{what}: {actual}, expected {expected}")


def close(a, b, relative):
    return math.isclose(a, b, rel_tol=relative)


class Watch:
    """Data for the checks, when the load has ended and Prometheus has seen its end."""

    def __init__(self, api, addresses, report):
        self.api = api
        self.server, self.gpu = addresses
        self.entries = report["entries"]
        self.all = report["all"]
        self.ran = [entry for entry in self.entries if entry["ok"] > 0]

    def value(self, expression):
        result = self.api.query(expression)
        check(len(result) == 1, f"{expression}: {len(result)} series, expected 1")
        return result[0][1]

    def by(self, labels, expression):
        """{label values: value} where the value is not 0."""
        return {tuple(found.get(label, "") for label in labels): value
                for found, value in self.api.query(expression) if value != 0}

    def data(self, expression):
        """Finite values from their source: the server, or, for metrics that only a GPU has, the
        simulated one."""
        gpu = GPU_ONLY.search(expression) is not None
        unwanted = JOB if gpu else "simulated_gpu"
        return [value for labels, value in self.api.query(expression)
                if labels.get("job") != unwanted and math.isfinite(value)]

    def address_of(self, expression):
        return self.gpu if GPU_ONLY.search(expression) else self.server


# ---- expressions ----------------------------------------------------------------------------------

def check_rules_give_data(watch):
    rules = watch.api.rules()
    check(len(rules) >= 20, f"{len(rules)} rules are loaded, expected at least 20")
    for rule in rules:
        name = rule["name"]
        check_equal(f"health of {name} ({rule.get('lastError', '')})", rule["health"], "ok")
        # An alert compares, and is silent while all is well: its operands must exist.
        expression = re.sub(r" (>|<|==) [0-9.]+", "", rule["query"])
        if rule["type"] == "alerting":
            check(expression != rule["query"], f"{name} compares with no number: {expression}")
        check(watch.data(expression), f"rule {name} gives no data: {expression}")
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    for name in recorded:
        check(watch.data(name), f"no series {name} was recorded")


def check_panels_give_data(watch):
    targets = [(panel["title"], target["expr"]) for panel in processes.dashboard()["panels"]
               for target in panel.get("targets", [])]
    check(len(targets) >= 30, f"{len(targets)} expressions in the dashboard, expected at least 30")
    for title, expression in targets:
        if title in SEEN_ELSEWHERE:
            continue
        # A panel may hide values that never came about, but their count must exist. If one of two lines is drawn, the
        # deciding one must exist.
        expression = re.sub(r" (<=|>) 0\.1$", "", expression.removesuffix(" > 0"))
        variables = VARIABLES | {"$instance": re.escape(watch.address_of(expression))}
        for variable, value in variables.items():
            expression = expression.replace(variable, value.replace("\\", "\\\\"))
        check("$" not in expression, f"panel {title} has a variable without a value: {expression}")
        check(watch.data(expression), f"panel {title} gives no data: {expression}")


def check_variables_offer_values(watch):
    for metric, label in [("warpcall_build_info", "job"), ("warpcall_build_info", "instance"),
                          ("warpcall_queue_depth", "device"), ("warpcall_requests_total", "kernel"),
                          ("warpcall_requests_total", "implementation")]:
        values = watch.api.get(f"/api/v1/label/{label}/values", **{"match[]": metric})
        check([value for value in values if value], f"{metric} has no label {label}")


# ---- totals ---------------------------------------------------------------------------------------

def expected_counts(entries):
    counts = {}
    for entry in entries:
        for code, status in entry["statuses"].items():
            pair = (entry["kernel"], entry["implementation"]) if code == "OK" else (
                REFUSED_LABELS[code])
            counts[(*pair, code)] = counts.get((*pair, code), 0) + status["count"]
    return counts


def check_requests_are_what_was_sent(watch):
    check_equal("codes", set(watch.all["statuses"]), {"OK", *REFUSED_LABELS})
    expected = expected_counts(watch.entries)
    check_equal("requests expected", sum(expected.values()), watch.all["sent"])
    selector = f'{{job="{JOB}"}}'
    labels = ["kernel", "implementation", "code"]
    check_equal("warpcall_requests_total",
                watch.by(labels, f"warpcall_requests_total{selector}"), expected)
    ran = {key[:2]: count for key, count in expected.items() if key[2] == "OK"}
    check_equal("warpcall_kernel_duration_seconds_count",
                watch.by(labels[:2], "sum by (kernel, implementation) "
                         f"(warpcall_kernel_duration_seconds_count{selector})"), ran)
    durations = watch.value(f"sum(warpcall_request_duration_seconds_count{selector})")
    check_equal("warpcall_request_duration_seconds_count", durations, watch.all["sent"])
    by_kernel = {}
    for (kernel, _), count in ran.items():
        by_kernel[(kernel,)] = by_kernel.get((kernel,), 0) + count
    for phase in watch.all["phases"].keys() - {"total"}:
        check_equal(f"warpcall_phase_duration_seconds_count of {phase}", watch.by(
            ["kernel"], f'warpcall_phase_duration_seconds_count{{job="{JOB}", phase="{phase}"}}'),
            by_kernel)


def check_bytes_are_what_was_sent(watch):
    copied = watch.by(["where"], f'warpcall_host_copy_bytes_total{{job="{JOB}"}}')
    check_equal("warpcall_host_copy_bytes_total", copied,
                {("copy_in",): watch.all["input_bytes"]})
    # All kernels here move inputs and outputs once at least.
    moved = {(entry["kernel"], entry["implementation"]): entry["input_bytes"]
             + entry["output_bytes"] for entry in watch.ran}
    check_equal("warpcall_kernel_bytes_total",
                watch.by(["kernel", "implementation"],
                         f'warpcall_kernel_bytes_total{{job="{JOB}"}}'), moved)


def check_achieved_rates(watch):
    rates = watch.by(["kernel", "implementation"],
                     f'warpcall:kernel_achieved_bytes_per_second:rate5m{{job="{JOB}"}}')
    check_equal("rows with an achieved bandwidth", len(rates), len(watch.ran))
    for entry in watch.ran:
        kernel = entry["phases"]["kernel"]
        expected = ((entry["input_bytes"] + entry["output_bytes"])
                    / (kernel["mean_ns"] * kernel["count"] * 1e-9))
        actual = rates[(entry["kernel"], entry["implementation"])]
        check(close(actual, expected, 0.01),
              f"{entry['name']} achieved {actual} B/s, by the load generator {expected}")
    ceiling = watch.value('warpcall:kernel_of_bandwidth_ceiling:ratio_rate5m{job="simulated_gpu"}')
    check(close(ceiling, processes.GPU_OF_CEILING, 0.01),
          f"the simulated GPU reaches {ceiling} of its ceiling, not {processes.GPU_OF_CEILING}")


# ---- percentiles ----------------------------------------------------------------------------------

def bucket_of(seconds):
    return max(0, math.ceil(math.log(seconds / FIRST_BUCKET_SECONDS, BUCKET_FACTOR) - 1e-9))


def check_percentiles(watch):
    """Against the client's clock, which knows nothing of the server's: no request can be faster for
    its client than the server says it took, and long ones not much slower."""
    for quantile, key in [("0.5", "p50_ns"), ("0.9", "p90_ns"), ("0.99", "p99_ns")]:
        found = watch.by(["kernel", "implementation"],
                         "warpcall:request_duration_seconds:quantile_rate5m"
                         f'{{job="{JOB}", quantile="{quantile}"}}')
        for entry in watch.ran:
            # With fewer, the requests next to the percentile may lie buckets apart.
            check(entry["ok"] >= 500, f"only {entry['ok']} requests of {entry['name']}")
            seen = bucket_of(entry["latency"][key] * 1e-9)
            estimate = bucket_of(found[(entry["kernel"], entry["implementation"])])
            text = (f"quantile {quantile} of {entry['name']}: bucket {estimate} by Prometheus, "
                    f"{seen} by the client")
            check(estimate <= seen + 1, text)
            # Beyond the median, other work on the machine delays clients in its own way.
            if entry["implementation"] == LONG and quantile == "0.5":
                check(estimate >= seen - 1, text)


CHECKS = [check_rules_give_data, check_panels_give_data, check_variables_offer_values,
          check_requests_are_what_was_sent, check_bytes_are_what_was_sent, check_achieved_rates,
          check_percentiles]


# ---- the run --------------------------------------------------------------------------------------

def scraped_since(api, moment):
    times = [value for _, value in api.query("timestamp(warpcall_build_info)")]
    return len(times) == 2 and min(times) > moment


def evaluated_since(api, moment):
    return all(datetime.datetime.fromisoformat(rule["lastEvaluation"]).timestamp() > moment
               for rule in api.rules())


def observe(binaries, folder, stack):
    """Runs everything and returns the checks' data; the servers live as long as the stack."""
    prometheus, warpcalld, warpcall = binaries
    policies = folder / "policies.json"  # a file to read again: only then its failures are counted
    policies.write_text('{"default": {}}')
    grpc, metrics = stack.enter_context(processes.warpcalld(
        warpcalld, folder, f"--policy_file={policies}"))
    gpu = stack.enter_context(processes.gpu_metrics())
    api = stack.enter_context(processes.prometheus(
        prometheus, folder, processes.deployed_folder() / "prometheus", (metrics, gpu)))
    # Rates count the growth after a first sample.
    processes.wait_until("both targets to be scraped",
                         lambda: len(api.query("warpcall_build_info")) == 2, processes.START_SECONDS_MAX)
    # The server measures its own while it has nothing to do.
    processes.wait_until(
        "both bandwidth ceilings",
        lambda: len(api.query("warpcall_device_bandwidth_ceiling_bytes_per_second > 0")) == 2,
        processes.START_SECONDS_MAX)
    report = processes.load(warpcall, grpc, LOAD)
    end = time.time()
    processes.wait_until("a scrape after the load", lambda: scraped_since(api, end), processes.START_SECONDS_MAX)
    scraped = time.time()
    processes.wait_until("the rules after that scrape", lambda: evaluated_since(api, scraped),
                         processes.START_SECONDS_MAX)
    return Watch(api, (metrics, gpu), report)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print("skipped: there is no prometheus (Debian: package prometheus)")
        return SKIPPED
    try:
        binaries = [prometheus, *sys.argv[1:]]
        failures = processes.run_checks(
            CHECKS, lambda folder, stack: observe(binaries, folder, stack))
        return 1 if failures else 0
    except Failure:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
