"""GPUs that are lost, run out of memory, or whose worker is killed, seen by an independent client.

    fault_check.py PACK fault      a device that is lost, and one that runs out of memory
    fault_check.py PACK restart    two GPUs and more: a worker that is killed

Prints its measurements; exit status 1 when a check fails.
"""

import collections
import os
import random
import signal
import sys
import threading
import time

import grpc
import numpy as np

from differential import FLOAT32, Client, Problem, Server, load_messages
from workers_check import await_healthy, gpus_of, softmax_request, worker_of

HEALTHY_AGAIN_SECONDS_MAX = 3


# ---- faults ---------------------------------------------------------------------------------------

def fault_request(messages, kind, device):
    request = messages.ExecuteRequest(kernel="fault", device=device)
    request.inputs.add(data_type=FLOAT32, shape=[1], data=b"\0\0\0\0")
    request.attributes["kind"].string_value = kind
    return request


def code_of(call, *arguments):
    try:
        call(*arguments, timeout=30)
        return "OK"
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


def check_out_of_memory(client, messages):
    code = code_of(client.execute, fault_request(messages, "out_of_memory", "cuda:0"))
    print(f"out of memory: {code}")
    after = code_of(client.execute, Problem("gelu", random.Random(1), np.random.default_rng(1))
                    .request(messages, device="cuda:0"))
    print(f"the next request on the same device: {after}; health {client.health(b'')}")
    return code.startswith("RESOURCE_EXHAUSTED") and after == "OK" and client.health(b"") == 1


def lose(server, client, messages, gpu, failures):
    """Breaks the GPU so often, waiting between; returns True if each request got its error."""
    told = True
    for failure in range(failures):
        code = code_of(client.execute, fault_request(messages, "trap", gpu))
        told = told and code.startswith("UNAVAILABLE")
        back = await_healthy(server, gpu, failure + 1) if failure + 1 < failures else None
        print(f"trap on {gpu}: {code}; serves again after {back} s")
        told = told and (back is not None or failure + 1 == failures)
    return told


def check_fault(pack):
    messages = load_messages(pack)
    server = Server(pack, "--test_fault_injection", "--self_test_row_seconds=2").await_rows()
    client = Client(server.address, messages)
    gpus = gpus_of(client, messages)
    ok = check_out_of_memory(client, messages)
    for index, gpu in enumerate(gpus):
        last = index == len(gpus) - 1
        # A GPU beside others has a worker, which is started again twice within a minute.
        ok = lose(server, client, messages, gpu, 3 if len(gpus) > 1 else 1) and ok
        if last:
            break
        healthy = {device.name: device.healthy for device in
                   client.list_devices(messages.ListDevicesRequest()).devices}
        gauge = {name: value for name, value in server.metrics().items()
                 if name.startswith("warpcall_device_healthy")}
        named = code_of(client.execute, Problem("gelu", random.Random(1), np.random.default_rng(1))
                        .request(messages, device=gpu))
        problem = Problem("matmul", random.Random(2), np.random.default_rng(2))
        response = client.execute(problem.request(messages, "cuda"), timeout=30)
        print(f"  healthy {healthy}; {gauge}; service health {client.health(b'')}; by name: {named}; "
              f"a request without a name ran on {response.device}: {problem.check(response) or 'right'}")
        ok = ok and not healthy[gpu] and client.health(b"") == 1 and response.device == gpus[index + 1]
        ok = ok and problem.check(response) is None and named.startswith("UNAVAILABLE")
        ok = ok and gauge[f'warpcall_device_healthy{{device="{gpu}"}}'] == 0
    start = time.monotonic()
    status = server.process.wait(timeout=60)
    print(f"the server ended by itself {time.monotonic() - start:.1f} s later with status {status}")
    print("\n".join([line for line in server.log_text().splitlines() if "lost" in line][-3:]))
    # README documents status 1; a crash would give -11.
    return ok and status == 1


# ---- restarts -----------------------------------------------------------------------------------------

class Steady(threading.Thread):
    """A client of one device, or of any, until stopped; keeps the outcomes of its requests."""

    def __init__(self, address, messages, device):
        super().__init__()
        self.client, self.stopped, self.codes = Client(address, messages), False, collections.Counter()
        self.request = softmax_request(messages)
        self.request.device = device

    def run(self):
        while not self.stopped:
            try:
                self.client.execute(self.request, timeout=30)
                self.codes["OK"] += 1
            except grpc.RpcError as error:
                self.codes[error.code().name] += 1

    def stop(self):
        self.stopped = True
        self.join()
        return self.codes


def check_restart(pack):
    """kill -9 under load: the others serve on, the GPU's calls end with UNAVAILABLE, it is back soon."""
    server = Server(pack).await_rows()
    messages = load_messages(pack)
    client = Client(server.address, messages)
    gpus = gpus_of(client, messages)
    if len(gpus) < 2:
        print("restart: skipped, there is one GPU, which has no worker")
        return server.stop() == 0
    ok = True
    for gpu in gpus[:2]:
        other = next(name for name in gpus if name != gpu)
        clients = [Steady(server.address, messages, device) for device in (gpu, other, "")]
        for each in clients:
            each.start()
        time.sleep(1)
        os.kill(worker_of(server, gpu), signal.SIGKILL)
        back = await_healthy(server, gpu, 1)
        time.sleep(1)
        codes = [dict(each.stop()) for each in clients]
        request = softmax_request(messages)
        request.device = gpu
        after = code_of(client.execute, request)
        print(f"kill -9 of {gpu}'s worker: serves again after {back} s, then {after}; clients of "
              f"{gpu}: {codes[0]}, of {other}: {codes[1]}, of any: {codes[2]}; health "
              f"{client.health(b'')}")
        ok = ok and back is not None and back <= HEALTHY_AGAIN_SECONDS_MAX and after == "OK"
        ok = ok and set(codes[0]) <= {"OK", "UNAVAILABLE"} and set(codes[1]) == {"OK"}
        ok = ok and client.health(b"") == 1
    return server.stop() == 0 and ok


def main():
    pack, mode = sys.argv[1], sys.argv[2]
    checks = {"fault": check_fault, "restart": check_restart}
    sys.exit(0 if checks[mode](pack) else 1)


if __name__ == "__main__":
    main()
