"""The real server on a GPU, seen by an independent client: grpcio and NumPy, no code of this project.

    service_check.py PACK service    mixed (18 000 requests from 8 clients, each checked; growth of memory) and
                                     latency (inside the server, and the rate of large requests)

Prints its measurements; exit status 1 when a check fails.
"""

import multiprocessing
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np

from differential import (FLOAT32, Client, Mix, Server, Tally, decode, gelu, load_messages,
                          run_clients)

CLIENTS = 8
WARM_REQUESTS = 8_000
PHASE_REQUESTS = 2_000
# Each round sends the same requests, phase by phase, and the growth in the last round counts. The rounds before it fill
# the caches for shapes seen before, staging, which is touched late, the CPU lanes' workspaces, and kernels of the
# vendor's libraries, each loaded by the first problem that takes it.
ROUND_PHASES = 3
ROUNDS = 3
# "used" is memory handed out by the GPUs' pools, including workspaces, and goes back with each job. A pool holds the
# most that was ever under way at once, in steps of 32 MiB, which eight clients' chance goes on raising. The driver's
# memory comes beside the pool. "resident" is the server's own, including the CPU lanes' workspaces and libraries'
# allocations, at 4 KiB for each request of the round; the system may take back pages of files.
GROWTH_BYTES_MAX = {"pinned": 0, "used": 0, "pool": 256 << 20, "driver": 16 << 20,
                    "resident": (4 << 10) * ROUND_PHASES * PHASE_REQUESTS}
# The server gives back malloc's memory once it has rested for a second, and looks once a second.
REST_SECONDS = 3
REST_SECONDS_MAX = 30


# ---- 18 000 mixed requests ------------------------------------------------------------------------

def device_memory_bytes():
    """Used memory of all GPUs together, as the driver counts; 0 without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return 0
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    return sum(int(line) for line in text.split()) << 20


def resident_bytes(server):
    """Resident memory by kind, as proc(5) calls them: RssAnon, RssFile, RssShmem."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return {kind: int(kib) << 10 for kind, kib in re.findall(r"^(Rss\w+):\s+(\d+) kB$", status.read(), re.M)}


def await_rest(server):
    """Until resident memory has not gone down for REST_SECONDS."""
    end = time.monotonic() + REST_SECONDS_MAX
    least, since = resident_bytes(server)["RssAnon"], time.monotonic()
    while time.monotonic() < min(end, since + REST_SECONDS):
        time.sleep(0.2)
        now = resident_bytes(server)["RssAnon"]
        if now < least:
            least, since = now, time.monotonic()


def memory_of(server):
    await_rest(server)
    metrics = server.metrics()
    sum_of = lambda prefix: sum(v for name, v in metrics.items() if name.startswith(prefix))

    def memory_in(state):
        return sum(v for name, v in metrics.items() if name.startswith("warpcall_device_memory_bytes{")
                   and f'state="{state}"' in name and 'device="cpu"' not in name)

    pool = memory_in("reserved")
    resident = resident_bytes(server)
    return {"resident": resident["RssAnon"],
            "files": resident["RssFile"] + resident["RssShmem"],
            "pinned": sum(v for name, v in metrics.items()
                          if name.startswith("warpcall_staging_bytes") and 'state="total"' in name),
            "used": memory_in("used"),
            "pool": pool,
            "driver": device_memory_bytes() - pool,
            "requests": sum_of("warpcall_requests_total")}


def check_growth(memory):
    """`memory` after the warm-up and each phase; False if the last round added more than it may."""
    for what in [*GROWTH_BYTES_MAX, "files"]:
        print(f"{what} MiB after {WARM_REQUESTS} requests and every {PHASE_REQUESTS} more: "
              f"{[round(each[what] / 2**20) for each in memory]}")
    # The least of a round: malloc may keep up to 32 MiB for a while, after one phase and not after another.
    least = lambda phases, what: min(each[what] for each in phases)
    last, before = memory[-ROUND_PHASES:], memory[-2 * ROUND_PHASES:-ROUND_PHASES]
    grown = {what: least(last, what) - least(before, what) for what in GROWTH_BYTES_MAX}
    still = all(grown[what] <= limit for what, limit in GROWTH_BYTES_MAX.items())
    print(f"{'' if still else 'FAILED: memory grew: '}the last {ROUND_PHASES * PHASE_REQUESTS} requests, which came for "
          f"the third time, added {grown} bytes, allowed {GROWTH_BYTES_MAX}")
    return still


def check_mixed(pack):
    """Shapes are random, so the caches for shapes seen before fill up first; then the shapes come again, and nothing
    may grow."""
    server = Server(pack).await_rows()
    seed = int(os.environ.get("WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"seed {seed}")
    failures = run_clients(pack, server, Mix(CLIENTS, WARM_REQUESTS, seed)).failures
    memory = [memory_of(server)]
    tally = Tally()
    seconds = 0
    for phase in range(ROUNDS * ROUND_PHASES):
        start = time.monotonic()
        tally += run_clients(pack, server, Mix(CLIENTS, PHASE_REQUESTS, seed + 1000 * (phase % ROUND_PHASES + 1)))
        seconds += time.monotonic() - start
        memory.append(memory_of(server))
    failures += tally.failures
    for name, count in sorted(tally.done.items()):
        print(f"  {'/'.join(name):40} {count}")
    print(f"refused by a single row: { {'/'.join(name): n for name, n in tally.refused.items()} }")
    print(f"devices: {dict(tally.devices)}; {sum(tally.done.values())} answered in {seconds:.1f} s")
    for failure in failures[:20]:
        print("FAILED", failure)
    still = check_growth(memory)
    code = server.stop()
    print(f"{len(failures)} failures; the server ended with {code}")
    return not failures and code == 0 and still


# ---- latency and large requests -------------------------------------------------------------------

def device_ns_of(server, request_prefix):
    pattern = re.compile(r'request_id="?(%s[^" ]*)"?.* device_ns=(\d+)' % request_prefix)
    return [int(match.group(2)) for match in map(pattern.search, server.log_text().splitlines())
            if match]


def gelu_request(messages, elements, request_id):
    data = np.random.default_rng(1).standard_normal(elements, dtype=np.float32).tobytes()
    request = messages.ExecuteRequest(kernel="gelu", implementation="cuda", request_id=request_id)
    request.inputs.add(data_type=FLOAT32, shape=[elements], data=data)
    return request


def small_client_main(pack, address, prefix, count):
    """Sends one shape again and again, which the server replays; checks the last replies."""
    messages = load_messages(pack)
    client = Client(address, messages)
    request = gelu_request(messages, 1 << 10, prefix)
    for i in range(count):
        x = np.random.default_rng(i).standard_normal(1 << 10, dtype=np.float32)
        request.inputs[0].data = x.tobytes()
        response = client.execute(request, timeout=60)
        if i >= count - 100:
            y = decode(response.outputs[0].data, FLOAT32)
            truth = gelu(x, "tanh")
            if (np.abs(y - truth) > 2.0**-20 * (np.abs(x) + np.abs(truth))).any():
                sys.exit(1)


def check_small(pack, server):
    """4 KiB gelu, by one client and by eight."""
    ok = True
    for clients in (1, CLIENTS):
        prefix = f"small-{clients}-"
        workers = [multiprocessing.Process(target=small_client_main, args=(
            pack, server.address, f"{prefix}{i}", 2000)) for i in range(clients)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        ok = ok and all(worker.exitcode == 0 for worker in workers)
        inside = device_ns_of(server, prefix)[1000:]
        median = statistics.median(inside)
        print(f"gelu float32 4 KiB, {clients} client(s): enqueued -> seen complete "
              f"{median / 1e3:.1f} us median of {len(inside)}")
        ok = ok and median <= 15_000
    print("" if ok else "FAILED: more than 15 us, or a wrong reply")
    return ok


def check_latency(pack):
    """Enqueued -> seen complete, as the server's log has it, by size."""
    messages = load_messages(pack)
    server = Server(pack, "--log_level", "debug", "--devices", "cuda:0", "--staging_mib", "2048").await_rows()
    client = Client(server.address, messages)
    ok = check_small(pack, server)
    for name, elements, count in (("64KiB", 1 << 14, 500), ("1MiB", 1 << 18, 300),
                                  ("16MiB", 1 << 22, 50), ("64MiB", 1 << 24, 20),
                                  ("256MiB", 1 << 26, 8)):
        request = gelu_request(messages, elements, "")
        round_trips = []
        for i in range(count):
            request.request_id = f"{name}-{i}"
            start = time.perf_counter()
            response = client.execute(request, timeout=60)
            round_trips.append(time.perf_counter() - start)
        median = statistics.median(device_ns_of(server, name + "-")[count // 5:])
        t = response.timing
        print(f"gelu float32 {name:>7}: enqueued -> seen complete {median / 1e3:9.1f} us "
              f"({8 * elements / median:6.1f} GB/s both ways), round trip "
              f"{statistics.median(round_trips) * 1e6:9.0f} us; last: queue {t.queue_ns / 1e3:.1f} "
              f"copy_in {t.copy_in_ns / 1e3:.1f} h2d {t.h2d_ns / 1e3:.1f} kernel "
              f"{t.kernel_ns / 1e3:.1f} d2h {t.d2h_ns / 1e3:.1f} total {t.total_ns / 1e3:.1f} us")
    return server.stop() == 0 and ok


def main():
    pack, mode = sys.argv[1], sys.argv[2]
    checks = {"service": [check_mixed, check_latency], "latency": [check_latency], "mixed": [check_mixed]}
    sys.exit(0 if all([check(pack) for check in checks[mode]]) else 1)


if __name__ == "__main__":
    main()
