#!/usr/bin/env python3
"""The Python client beside a bare grpcio call with ready-made bytes and beside protobuf's messages,
on identity of float32, all in one run against one server and in turns: ratios count, not times.

    python_client.py BUILD_FOLDER [SECONDS]      SECONDS: for each size, 10 by default

Bars: 4 KiB p50 at most 1.1 times bare; 1 and 16 MiB at least 0.85 of bare's speed and twice
protobuf's; asyncio with 64 calls of 4 KiB under way at least 0.9 of grpcio.aio's alone.
"""

import asyncio
import os
import statistics
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path[:0] = [os.path.join(ROOT, "client", "python"), os.path.join(ROOT, "tests", "differential")]
sys.dont_write_bytecode = True

import grpc
import grpc.aio
import numpy as np

import warpcall
from differential import SERVICE, Server, load_messages

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB]
IN_FLIGHT = 64
SAMPLES_MIN = 5
# As many calls of one kind follow each other: the first ones after another kind find cold caches.
RUN_SECONDS = 0.05
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def text_of(count):
    return f"{count // MIB} MiB" if count >= MIB else f"{count // KIB} KiB"


def contenders(client, channel, messages, x):
    """Calls to be timed, by name; the first makes the request's bytes beforehand."""
    method = channel.unary_unary(SERVICE + "Execute")

    def request():
        message = messages.ExecuteRequest(kernel="identity")
        message.inputs.add(data_type=1, shape=x.shape, data=x.tobytes())
        return message.SerializeToString()

    ready = request()

    def protobuf():
        response = messages.ExecuteResponse.FromString(method(request()))
        output = response.outputs[0]
        return np.frombuffer(output.data, np.float32).reshape(output.shape)

    return {"bare": lambda: method(ready), "warpcall": lambda: client.identity(x),
            "protobuf": protobuf}


def measure(calls, seconds):
    """Median seconds of each call, in turns and in an order that changes."""
    samples = {name: [] for name in calls}
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
    return {name: statistics.median(taken) for name, taken in samples.items()}


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
    message = messages.ExecuteRequest(kernel="identity")
    message.inputs.add(data_type=1, shape=x.shape, data=x.tobytes())
    ready = message.SerializeToString()
    rates = {"bare": [], "warpcall": []}
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel, \
            warpcall.aio.connect(address) as client:
        method = channel.unary_unary(SERVICE + "Execute")
        for _ in range(5):
            rates["bare"].append(await in_flight(lambda: method(ready), seconds / 10))
            rates["warpcall"].append(await in_flight(lambda: client.identity(x), seconds / 10))
    return {name: statistics.median(taken) for name, taken in rates.items()}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    seconds = float(sys.argv[2]) if len(sys.argv) == 3 else 10
    messages = load_messages(sys.argv[1])
    print(f"grpcio {grpc.__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]},"
          f" {os.cpu_count()} cores; medians")
    print(f"{'':>8}  {'bare':>10}  {'warpcall':>10}  {'protobuf':>10}  {'of bare':>8}  of protobuf")
    with Server(sys.argv[1], "--devices=cpu") as server, \
            grpc.insecure_channel(server.address, options=OPTIONS) as channel, \
            warpcall.connect(server.address) as client:
        for size in SIZES:
            x = np.random.default_rng(0).standard_normal(size // 4, np.float32)
            times = measure(contenders(client, channel, messages, x), seconds)
            cells = "  ".join(f"{times[name] * 1e6:>7.0f} µs" for name in times)
            print(f"{text_of(size):>8}  {cells}  {times['bare'] / times['warpcall']:>8.2f}"
                  f"  {times['protobuf'] / times['warpcall']:>8.2f}", flush=True)
        rates = asyncio.run(measure_asyncio(server.address, messages, seconds))
        print(f"asyncio, {IN_FLIGHT} of 4 KiB under way: bare {rates['bare']:.0f}/s, warpcall"
              f" {rates['warpcall']:.0f}/s, {rates['warpcall'] / rates['bare']:.2f} of bare")


if __name__ == "__main__":
    main()
