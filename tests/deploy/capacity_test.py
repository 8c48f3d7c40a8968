#!/usr/bin/env python3
"""The formulas of docs/CAPACITY.md, as they stand there, against running servers.

    capacity_test.py WARPCALLD WARPCALL

Exit status 77: skipped, there is no promtool.
"""

import collections
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True

import facts  # noqa: E402
import processes  # noqa: E402

SKIPPED = 77
DOCUMENT = processes.deployed_folder().parent / "docs/CAPACITY.md"
SMALL = {"staging_mib": 64, "queue_mib": 96, "reception_mib": 80, "max_message_mib": 16}
# Two rows that come in one type each, one that the server chooses, one that is refused.
MIX = ",".join(["softmax[implementation=manual]:1024x1024=4", "linear[implementation=manual]:256x256*256x256*256=4",
                "gelu:4096=4", "gelu[approximate=wrong]:64=2"])
SMALL_MIX = "softmax:64x64=4,linear:64x64*64x64*64=4,gelu:4096=4,gelu[approximate=wrong]:64=2"
USED = {"used_rows": 3, "used_types": 1, "used_kernels": 3}
CONCURRENCY = 8
# The largest request of MIX: softmax by loops, with one intermediate result.
REQUEST = {"inputs_mib": 4, "outputs_mib": 4, "workspace_mib": 4}
# Scrapes whose samples Prometheus stores, at its own interval of 15 s, and a sufficient number of series.
SCRAPES, INTERVAL_SECONDS = 240, 15
# A formula may say so much more than there is: it is for planning, and metrics are added.
OVER_MAX = 1.5

WARPCALLD, WARPCALL = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


def formulas():
    """{name: Python's expression}."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return dict(line.split(" = ", 1) for block in re.findall(r"^```formula\n(.*?)```", text, re.M | re.S)
                for line in block.splitlines())


def evaluate(name, values):
    """A formula's value, of the values and of the formulas that it names."""
    def value(word):
        return values[word] if word in values else evaluate(word, values)
    expression = formulas()[name]
    names = set(re.findall(r"[a-z_]+", expression)) - {"ceil", "min"}
    return eval(expression, {"__builtins__": {}, "ceil": math.ceil, "min": min},  # noqa: S307  (the document's own)
                {word: value(word) for word in names})


class Server:
    """A running server and its metrics."""

    def __init__(self, folder, address, metrics):
        self.folder, self.address, self.metrics_address = folder, address, metrics

    def text(self, accept="text/plain"):
        request = urllib.request.Request(f"http://{self.metrics_address}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read().decode()

    def samples(self):
        """{series: value}."""
        return {series: float(value) for series, _, value in
                (line.rpartition(" ") for line in self.text().splitlines() if not line.startswith("#"))}

    def sum(self, name, *labels):
        return sum(value for series, value in self.samples().items()
                   if series.partition("{")[0] == name and all(label in series for label in labels))

    def log(self, pattern):
        (found,) = re.findall(pattern, (self.folder / "warpcalld.log").read_text(encoding="utf-8"))
        return found

    def load(self, mix, requests):
        """The report, when all that was sent is counted."""
        before = self.sum("warpcall_requests_total")
        report = processes.load(WARPCALL, self.address, [mix, "--requests", str(requests), "--warmup", "0",
                                                         "--concurrency", str(CONCURRENCY)])
        processes.wait_until("the counts", lambda: self.sum("warpcall_requests_total") == before + requests,
                             processes.START_SECONDS_MAX)
        return report


class CapacityTest(unittest.TestCase):
    def serve(self, *flags):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        return Server(folder, *self.enterContext(processes.warpcalld(WARPCALLD, folder, "--devices=cpu", *flags)))

    def serve_with(self, settings, *flags):
        return self.serve(*(f"--{name}={value}" for name, value in settings.items()), *flags)

    def of_flags(self, settings):
        """All values that a formula may want of a server on the CPU, by its flags."""
        defaults = facts.flags_of(WARPCALLD)
        names = [*SMALL, "benchmark_mib", "resident_mib"]
        return {name: int(settings.get(name, defaults[name])) for name in names} | {
            "devices": 1, "gpus": 0, "processes": 1}

    def test_the_hosts_memory_is_what_the_server_says(self):
        for settings in ({}, SMALL):
            server = self.serve_with(settings)
            host_mib = evaluate("host_mib", self.of_flags(settings))
            self.assertEqual(int(server.log(r"\bsum_mib=(\d+)")), host_mib)
            self.assertEqual(int(server.log(r'msg="connection limits" connections=(\d+)')),
                             evaluate("connections", self.of_flags(settings)))

    def test_a_servers_memory_stays_below_the_limit(self):
        server = self.serve_with(SMALL, "--inspect=off")
        server.load(MIX, 100)
        limit_mib = evaluate("limit_mib", self.of_flags(SMALL) | {"benchmark_mib": 0})
        resident_mib = server.sum("process_resident_memory_bytes") / facts.MIB
        self.assertLessEqual(resident_mib, limit_mib)
        # The staging memory of one request is the least.
        self.assertGreater(resident_mib, REQUEST["inputs_mib"] + REQUEST["outputs_mib"])

    def test_a_devices_memory_stays_below_its_formula(self):
        """On the CPU device, by the code that asks a GPU for workspaces."""
        server = self.serve("--lanes_per_device=2")
        server.load("softmax[implementation=manual]:1024x1024", 40)
        used_mib = server.sum("warpcall_device_memory_bytes", 'state="used"') / facts.MIB
        self.assertGreaterEqual(used_mib, REQUEST["workspace_mib"])
        self.assertLessEqual(used_mib, evaluate("gpu_mib", REQUEST | {"lanes_per_device": 2}) - 1024)

    def test_device_seconds_are_those_of_requests_on_it(self):
        """While work of several lanes overlaps, the device is busy once."""
        server = self.serve("--lanes_per_device=2")
        begin = time.monotonic()
        server.load(MIX, 100)
        elapsed = time.monotonic() - begin
        samples = {"busy_seconds": server.sum("warpcall_device_busy_seconds_total"),
                   "requests": server.sum("warpcall_requests_total")}
        on_device = sum(server.sum("warpcall_phase_duration_seconds_sum", f'phase="{phase}"')
                        for phase in ("h2d", "kernel", "d2h"))
        total = evaluate("device_seconds", samples) * samples["requests"]
        self.assertGreater(total, 0)
        self.assertLessEqual(total, min(elapsed, on_device * 1.01))
        self.assertGreaterEqual(total * 2, on_device * 0.99)
        # A device serves 70 % of its capacity of one second; one more request needs one more device.
        most = 0.7 / evaluate("device_seconds", samples)
        self.assertEqual([evaluate("devices", samples | {"requests_per_second": rate * most})
                          for rate in (0.5, 0.999, 1.001, 3.5)], [1, 1, 2, 4])

    def test_series_are_counted(self):
        server = self.serve()
        listed = json.loads(subprocess.run([WARPCALL, "--server", server.address, "--json", "kernels"], check=True,
                                           stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout)["kernels"]
        rows = [row for kernel in listed for row in kernel["implementations"]]
        values = {"rows": sum(row["device_kind"] == "cpu" for row in rows), "rows_listed": sum(len(row["variants"]) for row in rows),
                  "kernels": len(listed), "devices": 1}
        self.assertIn(f"| `kernels` | {len(listed)} |", DOCUMENT.read_text(encoding="utf-8"))
        self.check_close(len(server.samples()), evaluate("idle_series", values))
        server.load(MIX, 60)
        self.check_close(len(server.samples()), evaluate("series", values | USED))

    def check_close(self, actual, formula):
        self.assertLessEqual(actual, formula)
        self.assertGreaterEqual(actual * OVER_MAX, formula)

    def test_samples_take_no_more_than_that_on_prometheus_disk(self):
        """Scrapes of a server under load, as Prometheus stores them."""
        scrapes = self.scrapes_under_load(self.serve())
        samples = sum(not line.startswith("#") for text in scrapes for line in text.splitlines())
        taken_mib = self.stored_bytes(scrapes) / facts.MIB
        # The formula's days have 86400 s, with a scrape every 15 s.
        days = SCRAPES * INTERVAL_SECONDS / 86400
        values = {"servers": 1, "series": samples / SCRAPES, "days": days}
        self.assertAlmostEqual(evaluate("samples_per_day", values) * days, samples)
        self.assertLessEqual(taken_mib, evaluate("disk_mib", values))

    def scrapes_under_load(self, server):
        """SCRAPES of them; the server counts requests between any two."""
        done = threading.Event()

        def send():
            while not done.is_set():
                processes.load(WARPCALL, server.address, [SMALL_MIX, "--requests", "2000", "--warmup", "0"])
        thread = threading.Thread(target=send)
        thread.start()
        found, last = [], None

        def grown():
            nonlocal last
            text = server.text("application/openmetrics-text")
            counts = [line for line in text.splitlines() if line.startswith("warpcall_requests_total")]
            grew, last = counts != last, counts
            return text if grew else ""
        try:
            while len(found) < SCRAPES:
                found.append(processes.wait_until("requests to be counted", grown, processes.START_SECONDS_MAX))
        finally:
            done.set()
            thread.join()
        return found

    def stored_bytes(self, scrapes):
        """Size of promtool's database for the scrapes, INTERVAL_SECONDS apart: chunks and index."""
        lines = collections.defaultdict(list)
        for number, text in enumerate(scrapes):
            for line in text.splitlines():
                if not line.startswith("#"):
                    series, value = line.partition(" # ")[0].rsplit(" ", 1)
                    lines[series].append(f"{series} {value} {1_700_000_000 + number * INTERVAL_SECONDS}\n")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "scrapes").write_text("".join("".join(each) for each in lines.values()) + "# EOF\n", encoding="utf-8")
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "scrapes", "data"], cwd=folder,
                       check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
        return sum(path.stat().st_size for path in (folder / "data").rglob("*")
                   if path.parent.name == "chunks" or path.name == "index")


if __name__ == "__main__":
    if shutil.which("promtool") is None:
        print("skipped: there is no promtool (Debian: package prometheus)")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
