#!/usr/bin/env python3
"""Cost of scraping /metrics for the requests beside it: `warpcall load` with identity of 4 KiB from
several connections, in windows with and without scrapes by turns.

    scrape_bench.py BIN_FOLDER [--seconds S] [--pairs N] [--scrapes N]

Exit status 1 when a scrape or a request fails. The scraper and the load share the machine with the
server, so the figures include their cost, too.
"""

import argparse
import gzip
import pathlib
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
# In a clone; in tests/gpu's pack it lies beside this file.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "deploy"))

import processes  # noqa: E402
from processes import Failure  # noqa: E402

LOAD = ["identity:1024", "--concurrency", "4", "--warmup", "0.1"]
RATIO_MIN = 0.97  # relative to the rate without scrapes
IDLE_SCRAPES = 300
PAUSES = {"10 a second": 0.1, "back to back": 0}


def scrape(address):
    """The text of /metrics, asked for as Prometheus does."""
    request = urllib.request.Request(f"http://{address}/metrics",
                                     headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        body = reply.read()
        text = gzip.decompress(body) if reply.headers["Content-Encoding"] == "gzip" else body
    if b"\nprocess_threads " not in text:  # the last family
        raise Failure(f"a scrape was cut short: {text[-100:]}")
    return text.decode()


class Scraper(threading.Thread):
    """Scrapes, with `pause` seconds between starts, until the end of its block, which fails as it
    did."""

    def __init__(self, address, pause):
        super().__init__()
        self.address, self.pause, self.done, self.failure = address, pause, 0, None
        self.stopped = threading.Event()

    def run(self):
        start = time.monotonic()
        try:
            while not self.stopped.wait(start + self.done * self.pause - time.monotonic()):
                scrape(self.address)
                self.done += 1
        except (OSError, Failure) as failure:
            self.failure = failure

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def requests_per_second(warpcall, server, seconds):
    report = processes.load(warpcall, server, LOAD + ["--duration", str(seconds)])["all"]
    if report["failed"]:
        raise Failure(f"requests failed: {report['statuses']}")
    return report["requests_per_second"]


def compare(name, pause, options, measure, metrics):
    """Prints a line of the table; how many scrapes there were."""
    figures, scrapes = {True: [], False: []}, 0
    for pair in range(options.pairs):
        for scraping in (pair % 2 == 1, pair % 2 == 0):
            if not scraping:
                figures[False].append(measure())
                continue
            with Scraper(metrics, pause) as scraper:
                figures[True].append(measure())
            scrapes += scraper.done
    ratios = sorted(with_ / without for with_, without in zip(figures[True], figures[False]))
    ratio = statistics.median(ratios)
    print(f"| {name} | {scrapes / options.pairs / options.seconds:.0f} "
          f"| {statistics.median(figures[False]):.0f} | {statistics.median(figures[True]):.0f} "
          f"| {ratio:.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} "
          f"| {'yes' if ratio >= RATIO_MIN else 'NO'} |", flush=True)
    return scrapes


def cpu_seconds(metrics):
    return float(re.search(r"^process_cpu_seconds_total (\S+)$", scrape(metrics), re.MULTILINE)[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1, help="of each window")
    parser.add_argument("--pairs", type=int, default=10, help="of windows")
    parser.add_argument("--scrapes", type=int, default=1000, help="at least so many in all")
    options = parser.parse_args()
    warpcall = options.folder / "warpcall"
    with tempfile.TemporaryDirectory() as folder, processes.warpcalld(
            options.folder / "warpcalld", pathlib.Path(folder), "--devices=cpu") as addresses:
        server, metrics = addresses

        def measure():
            return requests_per_second(warpcall, server, options.seconds)

        measure()  # warm-up
        print(f"| scrapes | a second | requests/s without | with | ratio, median of {options.pairs} "
              f"| from, to | at least {RATIO_MIN} |\n|---|---|---|---|---|---|---|")
        done = sum(compare(name, pause, options, measure, metrics)
                   for name, pause in PAUSES.items())
        while done < options.scrapes:
            with Scraper(metrics, 0) as scraper:
                measure()
            done += scraper.done
        print(f"\n{done} scrapes of {len(scrape(metrics))} bytes, none failed")
        # Cost of a scrape on an idle server, which other work on the machine hardly changes.
        before = cpu_seconds(metrics)
        for _ in range(IDLE_SCRAPES):
            scrape(metrics)
        cost_ms = 1e3 * (cpu_seconds(metrics) - before) / (IDLE_SCRAPES + 1)
        print(f"{cost_ms:.2f} ms of the server's CPU a scrape")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"scrape_bench: {failure}")
