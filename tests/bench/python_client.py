#!/usr/bin/env python3
"""The Python client, without and with the module warpcall_fast, beside a bare grpcio call with ready-made bytes, beside
protobuf's messages and what tritonclient does for a call, and beside the C++ client; on identity of float32, all in one
run against one server and in turns: ratios count, not times. BENCHMARKS.md says how to install all of them; missing
ones are left out.

    python_client.py BUILD_FOLDER [SECONDS] [--sizes BYTES,...] [--benchmarks_md]

SECONDS: for each size, 10 by default.

Bars: without the module 4 KiB at most 1.1 times bare's time, 1 and 16 MiB at least 0.85 of bare's speed
and twice protobuf's, 64 and 256 MiB at least 0.7 of the C++ client's stream; with it 4 KiB at most 1.35
times the C++ client's time, 16 MiB at least 0.85 of its speed; asyncio with 64 calls of 4 KiB under way
at least 0.9 of grpcio.aio's alone.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "client", "python"), os.path.join(ROOT, "tests", "differential")]
sys.dont_write_bytecode = True
if len(sys.argv) > 1:
    sys.path.append(os.path.join(os.path.abspath(sys.argv[1]), "fast", "module"))

import grpc
import grpc.aio
import numpy as np

import python_ways
import warpcall
from differential import SERVICE, Server, load_messages

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB]
IN_FLIGHT = 64
SAMPLES_MIN = 5
# The C++ client takes its turns after so many parts of the time.
ROUNDS = 3
# Calls of one kind follow each other so long: the first after another kind find cold caches.
RUN_SECONDS = 0.05
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
COLUMNS = ["bare", "warpcall", "fast", "stream", "protobuf", "tritonclient", "C++"]
# Speeds to compare: (column, the two names whose times it compares).
RATIOS = [("warpcall of bare", "bare", "warpcall"), ("of protobuf", "protobuf", "warpcall"),
          ("of stream", "stream", "warpcall"), ("fast of C++", "C++", "fast")]


def text_of(count):
    return f"{count // MIB} MiB" if count >= MIB else f"{count // KIB} KiB"


def measure(calls, seconds, samples):
    """Adds seconds of each call, in turns and in an order that changes."""
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    names = list(calls)
    while time.perf_counter() < end or len(samples[names[-1]]) < SAMPLES_MIN:
        names.append(names.pop(0))
        for name in names:
            until = time.perf_counter() + RUN_SECONDS
            while True:
                begin = time.perf_counter()
                calls[name]()
                now = time.perf_counter()
                samples[name].append(now - begin)
                if now >= until:
                    break


def times_of(build, address, calls, size, seconds):
    """Median seconds by name, the C++ client's among them."""
    samples, cpp = {name: [] for name in calls}, []
    for _ in range(ROUNDS):
        measure(calls, seconds / ROUNDS, samples)
        cpp.append(python_ways.cpp_seconds(build, address, size, seconds / ROUNDS / len(calls)))
    times = {name: statistics.median(taken) for name, taken in samples.items()}
    return {**times, "C++": statistics.median(cpp)}


async def in_flight(call, seconds):
    """Calls per second with IN_FLIGHT under way."""
    end, done = time.perf_counter() + seconds, 0

    async def worker():
        nonlocal done
        while time.perf_counter() < end:
            await call()
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return done / (time.perf_counter() - begin)


async def measure_asyncio(address, messages, seconds):
    """Medians of calls per second, of grpcio.aio alone and of the client, in turns."""
    x = np.zeros(KIB, np.float32)
    ready = python_ways.request_of(messages, x)
    rates = {"bare": [], "warpcall": []}
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel, \
            warpcall.aio.connect(address) as client:
        method = channel.unary_unary(SERVICE + "Execute")
        for _ in range(5):
            rates["bare"].append(await in_flight(lambda: method(ready), seconds / 10))
            rates["warpcall"].append(await in_flight(lambda: client.identity(x), seconds / 10))
    return {name: statistics.median(taken) for name, taken in rates.items()}


def cells_of(size, times):
    yield text_of(size)
    for name in COLUMNS:
        yield f"{times[name] * 1e6:.0f}" if name in times else "–"
    for _, whose, ours in RATIOS:
        yield f"{times[whose] / times[ours]:.2f}" if whose in times and ours in times else "–"


def print_row(cells, benchmarks_md):
    if benchmarks_md:
        print("| " + " | ".join(cells) + " |", flush=True)
    else:
        print("  ".join(f"{cell:>12}" for cell in cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("seconds", type=float, nargs="?", default=10)
    parser.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--benchmarks_md", action="store_true")
    options = parser.parse_args()
    messages = load_messages(options.build)
    names = ["bytes", *(f"{name}, us" for name in COLUMNS), *(title for title, _, _ in RATIOS)]
    print_row(names, options.benchmarks_md)
    if options.benchmarks_md:
        print("|" + "---|" * len(names))
    with Server(options.build, "--devices=cpu") as server, \
            grpc.insecure_channel(server.address, options=OPTIONS) as channel, \
            python_ways.pure_client(server.address) as pure, \
            warpcall.connect(server.address) as fast:
        for size in options.sizes:
            x = np.random.default_rng(0).standard_normal(size // 4, np.float32)
            calls = python_ways.ways(server.address, channel, (pure, fast), messages, x)
            times = times_of(options.build, server.address, calls, size, options.seconds)
            print_row(list(cells_of(size, times)), options.benchmarks_md)
        rates = asyncio.run(measure_asyncio(server.address, messages, options.seconds))
    print(f"\nasyncio, {IN_FLIGHT} of 4 KiB under way: grpcio.aio alone {rates['bare']:.0f}/s, warpcall"
          f" {rates['warpcall']:.0f}/s, {rates['warpcall'] / rates['bare']:.2f} of it."
          f" grpcio {grpc.__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]},"
          f" {os.cpu_count()} cores; medians.")


if __name__ == "__main__":
    main()
