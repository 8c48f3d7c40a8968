#!/usr/bin/env python3
"""Compares perf_analyzer, NVIDIA's client, with the server's own figures for the same requests and with our own client:
gelu of 64 KiB by ModelInfer, 1 and 4 requests at a time on one connection.

    perf_analyzer_bench.py BUILD_FOLDER [--seconds S] [--rounds N]

prints the table of BENCHMARKS.md: medians of N rounds. In each round perf_analyzer measures three windows of S seconds,
then REQUESTS requests, and then warpcall_transport_bench runs for three times S seconds each, as NVIDIA's client calls
(generated code) and by ByteBuffers. perf_analyzer keeps a copy of each request and answer: its first window, in which
all of that is new memory, is left out.

With WARPCALL_TEST_LATENCIES=1 there are at least five rounds, and the exit status is 1 where perf_analyzer's figures
are off: its means of the server's times, but for the part of a microsecond that it cuts off, by more than a tenth
from the server's; its client's by more than CLIENT_RATIO_MAX from ours by generated code. Exit status 77: skipped,
for the reason that is printed.
"""

import argparse
import array
import functools
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections import namedtuple

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import perf_analyzer  # noqa: E402
import pinned  # noqa: E402
from differential import Server  # noqa: E402

SKIPPED = 77
ELEMENTS = 16 << 10
REQUESTS = 2000
CONCURRENCIES = (1, 4)
# Three windows are measured, however much they differ.
ANY_STABILITY = "10000"
SERVER_RATIO_MAX, CUT_US = 1.1, 1
# perf_analyzer's process takes a third more CPU for a request than ours, 11 us of its latency even of 64 bytes: 0.92
# to 1.41 was seen on two cores beside other work. Worse is no matter of the client.
CLIENT_RATIO_MAX = 1.6
COMPARED_ROUNDS_MIN = 5
CLIENT, CLIENT_NAMES = ("rate", "latency_us", "p50_us"), ("requests/s", "mean latency, us", "median latency, us")
SUMS = ("queue", "compute_input", "compute_infer", "compute_output")
# `server_us`: means by name; our own clients have none.
Measured = namedtuple("Measured", "rate latency_us p50_us server_us")
NONE = Measured(None, None, None, None)
# Figures at one concurrency: perf_analyzer's, the server's, and our clients' by generated code and by ByteBuffers;
# `ratios`: perf_analyzer's over ours by generated code.
Figures = namedtuple("Figures", "theirs counted stub raw ratios")
ROW = re.compile(r"\| TCP \| \d+ \| \d+ \| peer gelu \(ModelInfer(, generated code)?\) \|"
                 r" ([\d.]+) \|(?: [\d.]+ \|){2} ([\d.]+) \|")


def measure_theirs(run, statistics_of, seconds):
    """(perf_analyzer's figures, the server's statistics of the same requests): times on the server come from a counted
    run, as windows leave out requests sent between them."""
    windows = perf_analyzer.read_report(run(
        "--measurement-mode", "time_windows", "--measurement-interval", str(round(seconds * 1e3)),
        "--stability-percentage", ANY_STABILITY))
    rate, latency_us = map(statistics.mean, zip(*windows.passes[1:]))
    before = statistics_of.read()
    counted = perf_analyzer.read_report(run("--request-count", str(REQUESTS)))
    grown = perf_analyzer.grown(before, statistics_of.read())
    means = {name: ns / count * 1e-3 for name, (count, ns) in grown.items() if name in SUMS}
    return (Measured(rate, latency_us, windows.p50_us, counted.server_us), NONE._replace(server_us=means))


def read_ours(output, concurrency):
    """Our clients' figures by generated code, and by ByteBuffers. In closed loops the rate gives the mean latency."""
    found = {bool(row[1]): (float(row[2]), float(row[3])) for row in map(ROW.match, output.splitlines()) if row}
    return [Measured(rate, concurrency / rate * 1e6, p50_us, None)
            for p50_us, rate in (found[generated] for generated in (True, False))]


def measure_ours(build, address, seconds, concurrency):
    done = subprocess.run(
        [build / "tests/bin/warpcall_transport_bench", "--contenders", "peer_stub,peer", "--peer", address,
         "--transports", "tcp", "--one_connection", "--connections", str(concurrency), "--sizes",
         str(ELEMENTS * 4), "--seconds", str(3 * seconds)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"warpcall_transport_bench: {done.stderr}")
    return read_ours(done.stdout, concurrency)


def median(measured):
    """Median of each figure that is there."""
    def of(values):
        return None if None in values else statistics.median(values)

    means = [one.server_us for one in measured]
    figures = (of([getattr(one, name) for one in measured]) for name in CLIENT)
    return Measured(
        *figures, None if None in means else {name: of([mean[name] for mean in means]) for name in SUMS})


def figures_of(rounds):
    """Medians of rounds of (theirs, counted, stub, raw). Ratios are of one round each: other work on the machine hits
    both."""
    ratios = [statistics.median(getattr(theirs, name) / getattr(stub, name) for theirs, _, stub, _ in rounds)
              for name in CLIENT]
    return Figures(*map(median, zip(*rounds)), ratios)


def rows(concurrency, figures):
    for name, figure, ratio in zip(CLIENT_NAMES, CLIENT, figures.ratios):
        values = (getattr(measured, figure) for measured in (figures.theirs, figures.stub, figures.raw))
        yield [str(concurrency), name, *(f"{value:.0f}" for value in values), f"{ratio:.2f}"]
    for name in SUMS:
        yield [str(concurrency), f"{name.replace('_', ' ')} on the server, mean us",
               f"{figures.theirs.server_us[name]:.0f}", f"{figures.counted.server_us[name]:.2f}", "–", "–"]


def disagreements(concurrency, figures):
    """A sentence for each figure of perf_analyzer's that is too far off."""
    for name, ratio in zip(CLIENT_NAMES, figures.ratios):
        if not 1 / CLIENT_RATIO_MAX <= ratio <= CLIENT_RATIO_MAX:
            yield f"{name}, {concurrency} at a time: perf_analyzer's is {ratio:.2f} of ours"
    for name, mean_us in figures.counted.server_us.items():
        said = figures.theirs.server_us[name]
        if not mean_us / SERVER_RATIO_MAX - CUT_US <= said <= mean_us * SERVER_RATIO_MAX:
            yield f"{name}, {concurrency} at a time: perf_analyzer says {said} us, the server {mean_us:.2f}"


def measure(program, options, address, folder):
    """(concurrency, Figures) of each."""
    generator = random.Random(0)
    data = folder / "data"  # with nothing but inputs
    data.mkdir()
    (data / "x").write_bytes(array.array("f", (generator.gauss(0, 1) for _ in range(ELEMENTS))).tobytes())
    with perf_analyzer.Statistics(address, "gelu_fp32", folder) as statistics_of:
        for concurrency in CONCURRENCIES:
            run = functools.partial(
                perf_analyzer.run, program, address, "-m", "gelu_fp32", "--shape", f"x:{ELEMENTS}", "--input-data",
                data, "--concurrency-range", str(concurrency))
            yield concurrency, figures_of([
                (*measure_theirs(run, statistics_of, options.seconds),
                 *measure_ours(options.build, address, options.seconds, concurrency))
                for _ in range(options.rounds)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    comparing = os.environ.get("WARPCALL_TEST_LATENCIES") == "1"
    if comparing:
        options.rounds = max(options.rounds, COMPARED_ROUNDS_MIN)
    program = perf_analyzer.fetch(options.build / "perf_analyzer")
    load, wrong = os.getloadavg()[0], []
    names = ["at a time", "figure", "perf_analyzer", "ours (generated code; the server's statistics)",
             "ours (ByteBuffers)", "perf_analyzer of ours"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    with tempfile.TemporaryDirectory() as folder, Server(
            str(options.build), "--devices=cpu", "--self_test=off") as server:
        for concurrency, figures in measure(program, options, server.address, pathlib.Path(folder)):
            for row in rows(concurrency, figures):
                print(f"| {' | '.join(row)} |", flush=True)
            wrong += disagreements(concurrency, figures)
    print(f"\nperf_analyzer of tritonclient 2.51.0; {os.cpu_count()} cores, load average {load:.1f} before; medians of "
          f"{options.rounds} rounds of 2 × {options.seconds:g} s.")
    if wrong and comparing:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    try:
        main()
    except pinned.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
