"""Tensors that stay on a GPU, seen by an independent client: grpcio and NumPy, no code of this project.

    residents_check.py PACK [DEVICE [CALLS]]    whole tensors there and back; kernels with operands that stay; CALLS
                                                (20 000) with puts and frees, after which memory is what it was; rates

Prints its measurements; exit status 1 when a check fails.
"""

import random
import statistics
import sys
import time

import grpc
import numpy as np

from differential import BFLOAT16, CHUNK_BYTES, FLOAT32, Client, Server, load_messages

MIXED_CALLS = 20_000
# Handles that the mixed calls hold at any time.
HELD_MAX = 40
SIZES = (0, 4, 4096, CHUNK_BYTES, (16 << 20) - 4, 16 << 20, (16 << 20) + 4, 100 << 20)
RATE_BYTES = 1 << 30
RATE_RUNS = 5


def bytes_of(rng, count):
    return rng.integers(0, 1 << 62, (count + 7) // 8, dtype=np.int64).tobytes()[:count]


def bfloat16_of(rng, *shape):
    values = (rng.standard_normal(shape) * 0.05).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def resident_metrics(server, device):
    metrics = server.metrics()
    return tuple(int(metrics[name]) for name in (
        f'warpcall_resident_bytes{{device="{device}",state="used"}}', f'warpcall_resident_tensors{{device="{device}"}}'))


def memory_mib(server, device):
    metrics = server.metrics()
    return {state: round(metrics[f'warpcall_device_memory_bytes{{device="{device}",state="{state}"}}'] / 2**20)
            for state in ("used", "reserved")}


def check_round_trips(client, server, device, rng):
    """Every size comes back as it was put; afterwards nothing is held."""
    ok = True
    for count in SIZES:
        data = bytes_of(rng, count)
        put = client.put(FLOAT32, [count // 4], data, device=device)
        ok = ok and put.device == device and client.get(put.handle) == data
        ok = ok and resident_metrics(server, device) == (count, 1)
        ok = ok and client.free(put.handle).bytes == count
        if not ok:
            print(f"FAILED: {count} bytes")
            return False
    left = resident_metrics(server, device)
    print(f"{len(SIZES)} sizes went there and back; bytes and tensors left: {left}")
    return left == (0, 0)


def linear(client, m, weight, rng, device):
    request = client.messages.ExecuteRequest(kernel="linear", device=device)
    request.inputs.add(data_type=BFLOAT16, shape=[m, 4096], data=bfloat16_of(rng, m, 4096))
    for name, shape in (("w", [4096, 4096]), ("b", [4096])):
        if isinstance(weight[name], str):
            request.inputs.add(handle=weight[name])
        else:
            request.inputs.add(data_type=BFLOAT16, shape=shape, data=weight[name])
    return request


def check_linear(client, device, rng):
    """The same bits with weights by handle as with weights sent; times of both in turns."""
    sent = {"w": bfloat16_of(rng, 4096, 4096), "b": bfloat16_of(rng, 4096)}
    kept = {"w": client.put(BFLOAT16, [4096, 4096], sent["w"], device=device).handle,
            "b": client.put(BFLOAT16, [4096], sent["b"]).handle}
    ok = True
    for m in (1, 512):
        seed = int(rng.integers(1 << 30))
        requests = [linear(client, m, weight, np.random.default_rng(seed), device) for weight in (sent, kept)]
        keep = client.messages.ExecuteRequest()
        keep.CopyFrom(requests[1])
        keep.keep_outputs = True
        echo = client.messages.ExecuteRequest(kernel="identity", device="cpu")
        echo.inputs.add(data_type=BFLOAT16, shape=[m, 4096], data=requests[0].inputs[0].data)
        rows = {"sent": (requests[0], 60), "by handle": (requests[1], 600), "identity on the CPU": (echo, 600)}
        answers = {}
        for name, (request, count) in rows.items():
            for _ in range(20):
                client.execute(request, timeout=60)
            times, kernels = [], []
            for _ in range(count):
                start = time.perf_counter()
                answers[name] = client.execute(request, timeout=60)
                times.append(time.perf_counter() - start)
                kernels.append(answers[name].timing.kernel_ns)
            t = answers[name].timing
            print(f"linear bfloat16 {m}x4096x4096, {name:20}: p50 {statistics.median(times) * 1e6:8.1f} us, kernel p50 "
                  f"{statistics.median(kernels) / 1e3:7.2f} us; last: queue {t.queue_ns / 1e3:.1f} copy_in "
                  f"{t.copy_in_ns / 1e3:.1f} h2d {t.h2d_ns / 1e3:.1f} d2h {t.d2h_ns / 1e3:.1f} total "
                  f"{t.total_ns / 1e3:.1f} us, {answers[name].launch.variant}, resident "
                  f"{answers[name].resident_bytes}")
        same = answers["sent"].outputs[0].data == answers["by handle"].outputs[0].data
        output = client.execute(keep, timeout=60).outputs[0]
        same = same and client.get(output.handle) == answers["sent"].outputs[0].data
        client.free(output.handle)
        ok = ok and same
        print("" if same else "FAILED: ", f"{m} rows: the outputs are {'' if same else 'not '}the same", sep="")
    client.free(*kept.values())
    return ok


def check_mixed(client, server, device, seed, calls):
    """Puts, uses, kept outputs and frees at random, each answer checked; nothing is left, and memory is flat."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    held = {}
    memory = []
    for i in range(calls):
        if i % (calls // 10) == 0:
            memory.append(memory_mib(server, device))
        kind = rng.random()
        if kind < 0.3 or not held:
            count = rng.choice((1, 17, 1024, 65536, 1 << 20))
            data = bytes_of(numbers, 4 * count)
            held[client.put(FLOAT32, [count], data, device=device).handle] = data
        elif kind < 0.6:
            handle = rng.choice(list(held))
            request = client.messages.ExecuteRequest(kernel="identity", keep_outputs=rng.random() < 0.5)
            request.inputs.add(handle=handle)
            output = client.execute(request, timeout=60).outputs[0]
            if request.keep_outputs:
                held[output.handle] = held[handle]
            elif output.data != held[handle]:
                print(f"FAILED: call {i}: identity of {handle} gave other bytes")
                return False
        elif kind < 0.8:
            handle = rng.choice(list(held))
            if client.get(handle) != held[handle]:
                print(f"FAILED: call {i}: Get gave other bytes")
                return False
        if len(held) > HELD_MAX or kind >= 0.8:
            handle = rng.choice(list(held))
            freed = client.free(handle)
            if freed.bytes != len(held.pop(handle)) or freed.unknown:
                print(f"FAILED: call {i}: Free: {freed}")
                return False
    expected = (sum(map(len, held.values())), len(held))
    ok = resident_metrics(server, device) == expected
    client.free(*held)
    left = resident_metrics(server, device)
    memory.append(memory_mib(server, device))
    flat = device == "cpu" or memory[-1]["used"] <= memory[0]["used"]
    print(f"{calls} mixed calls; device memory, MiB, at each tenth and the end: {memory}; left {left}")
    return ok and left == (0, 0) and flat


def check_gone(client, device):
    """A freed handle is told, in the status and in its trailer."""
    handle = client.put(FLOAT32, [4], bytes(16), device=device).handle
    client.free(handle)
    try:
        client.get(handle)
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata())
        ok = error.code() == grpc.StatusCode.NOT_FOUND and trailers.get("warpcall-lost-handles") == f"{handle} freed"
        print(f"{'' if ok else 'FAILED: '}{error.details()} {trailers}")
        return ok
    print("FAILED: a freed tensor came back")
    return False


def measure_rates(client, device, rng):
    data = bytes_of(rng, RATE_BYTES // 4)
    for name in ("Put", "Get"):
        rates = []
        for _ in range(RATE_RUNS):
            start = time.perf_counter()
            put = client.put(FLOAT32, [len(data) // 4], data, device=device)
            if name == "Get":
                start = time.perf_counter()
                client.get(put.handle)
            rates.append(len(data) / (time.perf_counter() - start) / 1e9)
            client.free(put.handle)
        print(f"{name} of {len(data) >> 20} MiB by grpcio: {statistics.median(rates):.2f} GB/s, the median of {RATE_RUNS}")
    return True


def main():
    pack = sys.argv[1]
    device = sys.argv[2] if len(sys.argv) > 2 else "cuda:0"
    calls = int(sys.argv[3]) if len(sys.argv) > 3 else MIXED_CALLS
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    with Server(pack, f"--devices={device},cpu" if device != "cpu" else "--devices=cpu").await_rows() as server:
        client = Client(server.address, load_messages(pack))
        ok = check_round_trips(client, server, device, rng)
        ok = check_gone(client, device) and ok
        ok = check_linear(client, device, rng) and ok
        ok = check_mixed(client, server, device, seed, calls) and ok
        ok = measure_rates(client, device, rng) and ok
        code = server.stop()
    print(f"the server ended with {code}")
    sys.exit(0 if ok and code == 0 else 1)


if __name__ == "__main__":
    main()
