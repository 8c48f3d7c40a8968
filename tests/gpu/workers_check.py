"""Two GPUs and more, each served by a worker process, seen by an independent client.

    workers_check.py PACK spread     mixed requests spread over the GPUs, and a device's name is honoured
    workers_check.py PACK balance    requests that name no device, closed and open loop
    workers_check.py PACK hop        what a worker costs a small request
    workers_check.py PACK residents  a tensor on each of two GPUs, one of whose workers is killed

Prints its measurements; exit status 1 when a check fails. With one GPU: skipped.
"""

import collections
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time

import grpc
import numpy as np

from differential import FLOAT32, Client, Mix, Problem, Server, load_messages, run_clients
from service_check import CLIENTS, WARM_REQUESTS, gelu_request

# Largest ratio of the most served to the least.
BALANCE_MAX = 1.15
SECONDS = 5


def softmax_request(messages):
    """1 MiB of float32."""
    data = np.random.default_rng(1).standard_normal((256, 1024), dtype=np.float32).tobytes()
    request = messages.ExecuteRequest(kernel="softmax", implementation="cuda")
    request.inputs.add(data_type=FLOAT32, shape=[256, 1024], data=data)
    return request


def gpus_of(client, messages):
    return [device.name for device in
            client.list_devices(messages.ListDevicesRequest()).devices if device.kind == "cuda"]


def worker_of(server, gpu):
    """The process that serves the GPU."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{entry}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
        except (OSError, ValueError, IndexError):
            continue
        if parent == server.process.pid and "worker" in words and f"--device={gpu}" in words:
            return int(entry)
    raise RuntimeError(f"{gpu} has no worker")


def await_healthy(server, gpu, restarts):
    """Seconds until the GPU's worker was started again so often and serves; None after ten."""
    start = time.monotonic()
    while time.monotonic() - start < 10:
        metrics = server.metrics()
        if (metrics[f'warpcall_worker_restarts_total{{device="{gpu}"}}'] >= restarts
                and metrics[f'warpcall_device_healthy{{device="{gpu}"}}'] == 1):
            return time.monotonic() - start
        time.sleep(0.01)
    return None


def check_spread(pack):
    """Two GPUs and more: requests without a device's name spread evenly; a name is honoured."""
    server = Server(pack).await_rows()
    messages = load_messages(pack)
    client = Client(server.address, messages)
    gpus = gpus_of(client, messages)
    if len(gpus) < 2:
        print("spread over several GPUs: skipped, there is one")
        return server.stop() == 0
    named = [client.execute(Problem("gelu", random.Random(i), np.random.default_rng(i)).request(
        messages, device=gpu)).device == gpu for i in range(20) for gpu in gpus]
    before = server.metrics()
    tally = run_clients(pack, server, Mix(CLIENTS, 2 * WARM_REQUESTS, seed=77))
    after = server.metrics()
    key = 'warpcall_device_busy_seconds_total{device="%s"}'
    busy = {gpu: after[key % gpu] - before[key % gpu] for gpu in gpus}
    counts = [tally.devices[gpu] for gpu in gpus]
    print(f"requests by device: {dict(tally.devices)}; busy seconds {busy}; names honoured: {all(named)}")
    even = max(counts) <= 1.2 * min(counts)
    return server.stop() == 0 and all(named) and not tally.failures and even


# ---- balance ----------------------------------------------------------------------------------------

def closed_loop_main(pack, address, seconds, results):
    """Sends when the answer is there."""
    messages = load_messages(pack)
    client = Client(address, messages)
    request, devices = softmax_request(messages), collections.Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        devices[client.execute(request, timeout=60).device] += 1
    results.put(devices)


def open_loop_main(pack, address, seconds, rate, seed, results):
    """Sends at random times, on average `rate` a second, whatever has been answered."""
    messages = load_messages(pack)
    client = Client(address, messages)
    request, rng, pending = softmax_request(messages), random.Random(seed), []
    due = time.monotonic()
    end = due + seconds
    while due < end:
        due += rng.expovariate(rate)
        time.sleep(max(0, due - time.monotonic()))
        pending.append(client.execute.future(request, timeout=60))
    results.put(collections.Counter(future.result().device for future in pending))


def answers_of(target, arguments):
    """Number of all clients' answers, by device."""
    results = multiprocessing.Queue()
    clients = [multiprocessing.Process(target=target, args=(*arguments(i), results))
               for i in range(CLIENTS)]
    for client in clients:
        client.start()
    devices = sum((results.get(timeout=120) for _ in clients), collections.Counter())
    for client in clients:
        client.join()
    return devices


def is_even(what, devices, gpus):
    counts = [devices[gpu] for gpu in gpus]
    ratio = max(counts) / max(1, min(counts))
    verdict = "" if ratio <= BALANCE_MAX else f"; FAILED: more than {BALANCE_MAX}"
    print(f"{what}: {dict(devices)}, most to least {ratio:.3f}{verdict}")
    return ratio <= BALANCE_MAX


def check_balance(pack):
    server = Server(pack).await_rows()
    messages = load_messages(pack)
    gpus = gpus_of(Client(server.address, messages), messages)
    if len(gpus) < 2:
        print("balance: skipped, there is one GPU")
        return server.stop() == 0
    # Cold: kernels are loaded while the first requests come.
    closed = answers_of(closed_loop_main, lambda i: (pack, server.address, SECONDS))
    ok = is_even(f"{CLIENTS} clients of 1 MiB softmax, closed loop", closed, gpus)
    for share in (0.1, 0.5):
        rate = share * sum(closed.values()) / SECONDS / CLIENTS
        opened = answers_of(open_loop_main,
                            lambda i, rate=rate: (pack, server.address, SECONDS, rate, i))
        ok = is_even(f"open loop at {share} of that rate", opened, gpus) and ok
    return server.stop() == 0 and ok


# ---- the hop ------------------------------------------------------------------------------------------

def round_trips_main(pack, address, device, count, results):
    messages = load_messages(pack)
    client = Client(address, messages)
    request = gelu_request(messages, 1 << 10, "")
    request.implementation, request.device = "", device
    times = []
    for i in range(count):
        start = time.perf_counter()
        client.execute(request, timeout=60)
        if i >= count // 5:
            times.append(time.perf_counter() - start)
    results.put(times)


def check_hop(pack):
    """4 KiB gelu through a worker beside the CPU device, which is in the server's process."""
    server = Server(pack).await_rows()
    messages = load_messages(pack)
    gpus = gpus_of(Client(server.address, messages), messages)
    for clients in (1, CLIENTS):
        for device in ("cpu", *gpus, "cpu", *gpus):
            results = multiprocessing.Queue()
            processes = [multiprocessing.Process(target=round_trips_main, args=(
                pack, server.address, device, 3000, results)) for _ in range(clients)]
            for process in processes:
                process.start()
            times = sorted(sum((results.get(timeout=120) for _ in processes), []))
            for process in processes:
                process.join()
            print(f"gelu 4 KiB, {clients} client(s), {device:7}: p50 "
                  f"{statistics.median(times) * 1e6:7.1f} us, p99 "
                  f"{times[len(times) * 99 // 100] * 1e6:7.1f} us")
    return server.stop() == 0


# ---- tensors that stay --------------------------------------------------------------------------------

def check_residents(pack):
    """A tensor is lost with its GPU's worker, and that alone."""
    server = Server(pack).await_rows()
    messages = load_messages(pack)
    client = Client(server.address, messages)
    gpus = gpus_of(client, messages)[:2]
    if len(gpus) < 2:
        print("tensors that stay with workers: skipped, there is one GPU")
        return server.stop() == 0
    whole = softmax_request(messages)
    tensor = whole.inputs[0]
    expected = np.frombuffer(client.execute(whole, timeout=60).outputs[0].data, np.float32)

    def outcome(handle, gpu):
        """Of a request with the handle: "right", another GPU or result, or the error."""
        request = messages.ExecuteRequest(kernel="softmax", implementation="cuda")
        request.inputs.add(handle=handle)
        try:
            response = client.execute(request, timeout=60)
        except grpc.RpcError as error:
            lost = dict(error.trailing_metadata() or ()).get("warpcall-lost-handles", "")
            return f"{error.code().name} {lost}".strip()
        if response.device != gpu or response.resident_bytes != len(tensor.data):
            return f"on {response.device}, {response.resident_bytes} bytes did not travel"
        result = np.frombuffer(response.outputs[0].data, np.float32)
        return "right" if np.allclose(result, expected, rtol=1e-5, atol=1e-7) else "wrong"

    def put(gpu):
        return client.put(FLOAT32, tensor.shape, tensor.data, device=gpu).handle

    handles = [put(gpu) for gpu in gpus]
    before = [outcome(handle, gpu) for handle, gpu in zip(handles, gpus)]
    os.kill(worker_of(server, gpus[0]), signal.SIGKILL)
    back = await_healthy(server, gpus[0], 1)
    after = [outcome(handle, gpu) for handle, gpu in zip(handles, gpus)]
    metrics = server.metrics()
    lost = [metrics[f'warpcall_resident_ended_total{{device="{gpu}",why="lost"}}'] for gpu in gpus]
    used = [metrics[f'warpcall_resident_bytes{{device="{gpu}",state="used"}}'] for gpu in gpus]
    again = outcome(put(gpus[0]), gpus[0])
    print(f"tensors on {gpus}: {before}; {gpus[0]}'s worker was killed and back after {back} s: "
          f"{after}, lost {lost}, bytes {used}; put again: {again}")
    return (server.stop() == 0 and back is not None and before == ["right", "right"]
            and after == [f"NOT_FOUND {handles[0]} lost", "right"] and lost == [1, 0]
            and used == [0, len(tensor.data)] and again == "right")


def main():
    pack, mode = sys.argv[1], sys.argv[2]
    checks = {"spread": check_spread, "balance": check_balance, "hop": check_hop,
              "residents": check_residents}
    sys.exit(0 if checks[mode](pack) else 1)


if __name__ == "__main__":
    main()
