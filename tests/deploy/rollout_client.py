#!/usr/bin/env python3
"""Calls at a steady rate by the Python client until standard input ends; then a report as `warpcall load` gives one.

    rollout_client.py KIND ATTEMPTS RATE ADDRESS

KIND: `blocking` or `asyncio`. ATTEMPTS: of a call, the first included. A call that waits holds up no other. Says
"begun" when the first call has its answer.
"""

import asyncio
import collections
import concurrent.futures
import json
import os
import pathlib
import sys
import threading
import time

sys.dont_write_bytecode = True
os.environ["WARPCALL_PURE"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))

import numpy as np  # noqa: E402
import warpcall  # noqa: E402
import warpcall.aio  # noqa: E402

SECONDS_MAX = 60
THREADS = 64
X = np.zeros(64, np.float32)


class Tally:
    """Outcomes of calls. Thread-safe."""

    def __init__(self):
        self.statuses, self.lock = collections.Counter(), threading.Lock()

    def add(self, status):
        with self.lock:
            if status == "OK" and not self.statuses[status]:
                print("begun", flush=True)
            self.statuses[status] += 1

    def report(self):
        ok = self.statuses.pop("OK", 0)
        print(json.dumps({"ok": ok, "failed": self.statuses.total(), "statuses": self.statuses}))


def told_to_end():
    """An event, set when standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    return ended


def blocking(address, retry, rate, tally):
    def call(client):
        try:
            client.gelu(X)
            tally.add("OK")
        except warpcall.Error as error:
            tally.add(str(error))

    ended = told_to_end()
    with warpcall.connect(address, timeout=SECONDS_MAX, retry=retry) as client, \
            concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        due = time.monotonic()
        while not ended.wait(max(0, due - time.monotonic())):
            pool.submit(call, client)
            due += 1 / rate
        pool.shutdown()


async def by_asyncio(address, retry, rate, tally):
    async def call(client):
        try:
            await client.gelu(X)
            tally.add("OK")
        except warpcall.Error as error:
            tally.add(str(error))

    ended, tasks = told_to_end(), set()
    async with warpcall.aio.connect(address, timeout=SECONDS_MAX, retry=retry) as client:
        due = time.monotonic()
        while not ended.is_set():
            task = asyncio.create_task(call(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += 1 / rate
            await asyncio.sleep(max(0, due - time.monotonic()))
        await asyncio.gather(*tasks)


def main():
    kind, attempts, rate, address = sys.argv[1:]
    tally, retry = Tally(), warpcall.Retry(attempts_max=int(attempts))
    if kind == "asyncio":
        asyncio.run(by_asyncio(address, retry, float(rate), tally))
    else:
        blocking(address, retry, float(rate), tally)
    tally.report()


if __name__ == "__main__":
    main()
