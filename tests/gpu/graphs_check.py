"""Graphs of kernels on a GPU, seen by an independent client: grpcio and NumPy, no code of this project.

    graphs_check.py PACK [DEVICE [CALLS]]    random graphs beside NumPy, launched and replayed; an operand that is freed
                                             between two replays; CALLS (20 000) mixed calls, after which memory is what
                                             it was

Prints its measurements; exit status 1 when a check fails.
"""

import collections
import random
import sys

import grpc
import numpy as np

from differential import Client, Server, load_messages
from graphs import Graph
from residents_check import memory_mib, resident_metrics

GRAPHS = 200
MIXED_CALLS = 20_000
# From the fourth run alike a GPU replays.
RUNS = 6
# Graphs that the mixed calls choose from: more than a lane remembers.
POOL = 100


class Case:
    """A random graph and its resident inputs."""

    def __init__(self, client, device, seed):
        self.client, self.device = client, device
        self.graph = Graph(random.Random(seed), np.random.default_rng(seed))
        self.handles, self.answer = {}, None
        for name in self.graph.resident:
            self.put(name)

    def put(self, name):
        """A resident input stands somewhere else from now on."""
        if name in self.handles:
            self.client.free(self.handles.pop(name))
        self.handles[name] = self.client.put(self.graph.data_type, self.graph.shapes[name], self.graph.data[name],
                                             device=self.device).handle

    def run(self):
        request = self.graph.request(self.client.messages, self.handles)
        request.device = self.device
        return self.client.execute_graph(request, timeout=60)

    def take(self, response):
        """Returns the outputs' bytes, and frees those that are kept."""
        kept = [output.handle for output in response.outputs if output.handle]
        data = [self.client.get(output.handle) if output.handle else output.data for output in response.outputs]
        if kept:
            self.client.free(*kept)
        return [step.implementation for step in response.steps], data

    def is_same(self, response):
        """True if the bytes are those of the first answer by the same implementations."""
        answer = self.take(response)
        if self.answer is None or self.answer[0] != answer[0]:
            self.answer = answer
        return self.answer == answer

    def free(self):
        if self.handles:
            self.client.free(*self.handles.values())


def check_random(client, device, seed):
    """Each graph several times: the first answer beside NumPy, all others beside the first."""
    replayed = steps = 0
    launched = collections.Counter()  # rows of graphs that are not replayed although no step is timed
    for number in range(GRAPHS):
        case = Case(client, device, seed + number)
        for run in range(RUNS):
            response = case.run()
            wrong = case.graph.check(response, client.get) if run in (0, RUNS - 1) else None
            if wrong or not case.is_same(response):
                print(f"FAILED: seed {seed + number}, run {run}, replayed {response.replayed}: "
                      f"{wrong or 'other bytes than before'}")
                return False
        replayed += response.replayed
        if not response.replayed and not case.graph.step_times:
            launched.update({step.launch.variant for step in response.steps})
        steps += len(case.graph.steps)
        case.free()
    print(f"{GRAPHS} random graphs of {steps} steps, {RUNS} times each; at the end {replayed} were replayed; "
          f"rows of those that were not: {dict(launched.most_common(6))}")
    return device == "cpu" or replayed > 0


def check_freed(client, device, seed):
    """Free of an operand between two replays: NOT_FOUND by name, and afterwards the answer as before."""
    while True:
        graph = Graph(random.Random(seed), np.random.default_rng(seed))
        if graph.resident and not graph.step_times:
            break
        seed += 1
    case = Case(client, device, seed)
    ok = all(case.is_same(case.run()) for _ in range(RUNS))
    name = next(iter(case.handles))
    client.free(case.handles[name])
    try:
        case.run()
        ok = False
        print("FAILED: a graph ran with a freed operand")
    except grpc.RpcError as error:
        lost = dict(error.trailing_metadata()).get("warpcall-lost-handles")
        ok = ok and error.code() == grpc.StatusCode.NOT_FOUND and lost == f"{case.handles[name]} freed"
        print(f"{'' if ok else 'FAILED: '}{error.details()}; lost: {lost}")
    del case.handles[name]
    case.put(name)
    ok = all(case.is_same(case.run()) for _ in range(RUNS)) and ok
    print(f"{'' if ok else 'FAILED: '}put again, it answers as before")
    case.free()
    return ok


def check_mixed(client, server, device, seed, calls):
    """Graphs of a pool at random, whose operands move now and then; each answer as before, and memory is flat."""
    rng = random.Random(seed)
    cases = [Case(client, device, seed + number) for number in range(POOL)]
    replayed, memory = 0, []
    for i in range(calls):
        if i % (calls // 10) == 0:
            memory.append(memory_mib(server, device))
        case = cases[min(int(rng.expovariate(8 / POOL)), POOL - 1)]
        if case.handles and rng.random() < 0.05:
            case.put(rng.choice(list(case.handles)))
        response = case.run()
        replayed += response.replayed
        if not case.is_same(response):
            print(f"FAILED: call {i}: other bytes than before; replayed {response.replayed}")
            return False
    for case in cases:
        case.free()
    memory.append(memory_mib(server, device))
    left = resident_metrics(server, device)
    flat = device == "cpu" or memory[-1]["used"] <= memory[1]["used"]
    counted = server.metrics().get(f'warpcall_graph_replays_total{{device="{device}"}}', 0)
    print(f"{calls} mixed calls, {replayed} replayed; device memory, MiB, at each tenth and the end: {memory}; "
          f"left {left}; the server counted {counted:.0f} replays")
    return left == (0, 0) and flat and (device == "cpu" or counted >= replayed > 0)


def main():
    pack = sys.argv[1]
    device = sys.argv[2] if len(sys.argv) > 2 else "cuda:0"
    calls = int(sys.argv[3]) if len(sys.argv) > 3 else MIXED_CALLS
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    with Server(pack, f"--devices={device},cpu" if device != "cpu" else "--devices=cpu").await_rows() as server:
        client = Client(server.address, load_messages(pack))
        ok = check_random(client, device, seed)
        ok = check_freed(client, device, seed) and ok
        ok = check_mixed(client, server, device, seed, calls) and ok
        code = server.stop()
    print(f"the server ended with {code}")
    sys.exit(0 if ok and code == 0 else 1)


if __name__ == "__main__":
    main()
