"""The real server on a GPU, seen by an independent client: grpcio and NumPy, no code of this project.

    service_check.py PACK service    mixed (10 000 requests from 8 clients, each checked; growth of memory) and
                                     latency (inside the server, and the rate of large requests)

Prints what it measured; exit status 1 when something is not as it must be.
"""

import collections
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CLIENTS = 8
REQUESTS = 10_000
WARM_REQUESTS = 1_000
PHASES = 5
# From the second phase on. Until then the allocator's arenas, staging that is touched late, and what is
# kept for shapes seen before fill up; a leak of a request's tensors, plan or graph would show after.
GROWTH_BYTES_MAX = {"pinned": 0, "pool": 64 << 20, "driver": 16 << 20, "resident": 48 << 20}
SERVICE = "/warpcall.v1.KernelService/"
# What takes every problem; a single row, and the vendor's library, may refuse a shape.
COMPLETE = {"", "auto", "cuda", "manual", "cpu", "reference"}
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def load_messages(pack):
    files = descriptor_pb2.FileDescriptorSet()
    with open(os.path.join(pack, "warpcall.desc"), "rb") as file:
        files.ParseFromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    names = ["ExecuteRequest", "ExecuteResponse", "ListKernelsRequest", "ListKernelsResponse",
             "ListDevicesRequest", "ListDevicesResponse"]
    types = {name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName("warpcall.v1." + name)) for name in names}
    return collections.namedtuple("Messages", names)(**types)


# ---- data types -----------------------------------------------------------------------------------

FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3
TYPE_NAMES = {FLOAT32: "float32", FLOAT16: "float16", BFLOAT16: "bfloat16"}
# Half a unit in the last place, relative to the value, and at most so much among subnormals.
HALF_UNIT = {FLOAT32: 2.0**-24, FLOAT16: 2.0**-11, BFLOAT16: 2.0**-8}
HALF_SUBNORMAL = {FLOAT32: 2.0**-150, FLOAT16: 2.0**-25, BFLOAT16: 2.0**-134}
# Rows that say in their summary that 16-bit results are rounded a second time.
ROUND_TWICE = {"cudnn_softmax", "cudnn_pointwise", "onednn_softmax"}


def encode(values, data_type):
    """float32 array -> (bytes, the values that these bytes stand for)."""
    if data_type == FLOAT32:
        return values.tobytes(), values
    if data_type == FLOAT16:
        halves = values.astype(np.float16)
        return halves.tobytes(), halves.astype(np.float32)
    bits = values.view(np.uint32)
    upper = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return upper.tobytes(), (upper.astype(np.uint32) << 16).view(np.float32)


def decode(data, data_type):
    if data_type == FLOAT32:
        return np.frombuffer(data, np.float32)
    if data_type == FLOAT16:
        return np.frombuffer(data, np.float16).astype(np.float32)
    return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)


# ---- problems and their truth ---------------------------------------------------------------------

def gelu(x, approximate):
    x = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def softmax(x, axis):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def random_dims(rng, elements_max, rank_max=4):
    dims = [int(2 ** rng.uniform(0, math.log2(elements_max)))]
    while len(dims) < rank_max and rng.random() < 0.5:
        cut = int(2 ** rng.uniform(0, math.log2(max(2, dims[-1]))))
        dims[-1:] = [max(1, dims[-1] // cut), cut]
    return dims


class Problem:
    """One request's kernel, data type, attributes, inputs and the tolerance of its output."""

    def __init__(self, kernel, rng, numpy_rng):
        self.kernel = kernel
        self.data_type = rng.choice([FLOAT32, FLOAT16, BFLOAT16])
        self.attributes = {}
        elements_max = 1 << 22 if rng.random() < 0.04 else 1 << 16
        if kernel == "gelu":
            self.attributes["approximate"] = rng.choice(["tanh", "none"])
            if self.attributes["approximate"] == "none":
                elements_max = 1 << 14  # math.erf is slow
        shapes = [random_dims(rng, elements_max)]
        if kernel == "softmax":
            self.attributes["axis"] = rng.randrange(-len(shapes[0]), len(shapes[0]))
        if kernel == "matmul":
            shapes = self.matmul_shapes(rng)
        self.tensors = [encode(numpy_rng.standard_normal(shape, dtype=np.float32), self.data_type)
                        for shape in shapes]
        self.shapes = shapes

    def matmul_shapes(self, rng):
        m, k, n = (int(2 ** rng.uniform(0, 8)) for _ in range(3))
        batch = rng.choice([[], [], [3], [2, 2]])
        self.attributes["transpose_a"] = rng.random() < 0.3
        self.attributes["transpose_b"] = rng.random() < 0.3
        a = [k, m] if self.attributes["transpose_a"] else [m, k]
        b = [n, k] if self.attributes["transpose_b"] else [k, n]
        return [batch + a, rng.choice([[], batch]) + b]

    def truth(self):
        values = [value.reshape(shape) for (_, value), shape in zip(self.tensors, self.shapes)]
        if self.kernel == "identity":
            return values[0]
        if self.kernel == "gelu":
            return gelu(values[0], self.attributes["approximate"])
        if self.kernel == "softmax":
            return softmax(values[0], self.attributes["axis"])
        a, b = (value.astype(np.float64) for value in values)
        a = np.swapaxes(a, -1, -2) if self.attributes["transpose_a"] else a
        b = np.swapaxes(b, -1, -2) if self.attributes["transpose_b"] else b
        return a @ b

    def arithmetic(self, truth):
        """What float32 arithmetic may be off by, for each element of the output; the final rounding
        is not part of it."""
        if self.kernel == "identity":
            return 0.0
        values = [np.abs(value.astype(np.float64)).reshape(shape)
                  for (_, value), shape in zip(self.tensors, self.shapes)]
        if self.kernel == "gelu":  # x Phi(x), with a few roundings of Phi relative to 1
            return 8 * 2.0**-24 * np.minimum(values[0], 9) + 2.0**-20 * np.abs(truth)
        if self.kernel == "softmax":  # exp of differences to 12, sums by threads and then by tree
            n = self.shapes[0][self.attributes["axis"]]
            return (128 + n / 128) * 2.0**-24 * truth + 2.0**-125
        a, b = values
        a = np.swapaxes(a, -1, -2) if self.attributes["transpose_a"] else a
        b = np.swapaxes(b, -1, -2) if self.attributes["transpose_b"] else b
        k = a.shape[-1]  # N. Higham, T. Mary 2019: lambda sqrt(k) u, lambda = 6
        return min(k, 6 * math.sqrt(k)) * 2.0**-24 * (a @ b) + 2.0**-126

    def request(self, messages, implementation="", device=""):
        request = messages.ExecuteRequest(kernel=self.kernel, implementation=implementation,
                                          device=device)
        for (data, _), shape in zip(self.tensors, self.shapes):
            request.inputs.add(data_type=self.data_type, shape=shape, data=data)
        for name, value in self.attributes.items():
            field = {bool: "bool_value", int: "int_value", str: "string_value"}[type(value)]
            setattr(request.attributes[name], field, value)
        return request

    def check(self, response):
        truth = self.truth()
        output = response.outputs[0]
        if list(output.shape) != list(truth.shape) or output.data_type != self.data_type:
            return f"shape {list(output.shape)} type {output.data_type}, not {truth.shape}"
        actual = decode(output.data, self.data_type).reshape(truth.shape).astype(np.float64)
        roundings = 2 if response.implementation in ROUND_TWICE else 1
        bound = self.arithmetic(truth) + roundings * (
            HALF_UNIT[self.data_type] * np.abs(truth) * 1.01 + HALF_SUBNORMAL[self.data_type])
        wrong = ~(np.abs(actual - truth) <= bound)
        if not wrong.any():
            return None
        at = np.unravel_index(np.argmax(wrong), truth.shape)
        return f"{int(wrong.sum())} of {wrong.size} wrong; at {at} {actual[at]}, not {truth[at]}"


# ---- the server -----------------------------------------------------------------------------------

class Server:
    """warpcalld as a child process."""

    def __init__(self, pack, *flags):
        self.log_path = tempfile.mktemp(suffix=".log")
        self.log = open(self.log_path, "wb")
        self.process = subprocess.Popen(
            [os.path.join(pack, "bin/warpcalld"), "--listen", "127.0.0.1:0", "--metrics_listen",
             "127.0.0.1:0", "--lame_duck_seconds", "0", *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        match = re.search(r"serving on (\S+), metrics on (\S+)", line)
        if match is None:
            raise RuntimeError(f"the server did not start: {line}{self.log_text()}")
        self.address, self.metrics_address = match.groups()

    def log_text(self):
        with open(self.log_path, encoding="utf-8") as file:
            return file.read()

    def metrics(self):
        text = urllib.request.urlopen(f"http://{self.metrics_address}/metrics").read().decode()
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


class Client:
    def __init__(self, address, messages):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.messages = messages
        method = lambda name, request, response: self.channel.unary_unary(
            SERVICE + name, request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)
        self.execute = method("Execute", messages.ExecuteRequest, messages.ExecuteResponse)
        self.list_kernels = method("ListKernels", messages.ListKernelsRequest,
                                   messages.ListKernelsResponse)
        self.list_devices = method("ListDevices", messages.ListDevicesRequest,
                                   messages.ListDevicesResponse)
        health = lambda data: data[1] if data else 0  # HealthCheckResponse{1: status}
        self.health = self.channel.unary_unary("/grpc.health.v1.Health/Check",
                                               request_serializer=lambda _: b"",
                                               response_deserializer=health)


def device_memory_bytes():
    """Of all GPUs together, as the driver counts; 0 without one."""
    if shutil.which("nvidia-smi") is None:
        return 0
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout
    return sum(int(line) for line in text.split()) << 20


# ---- 10 000 mixed requests ------------------------------------------------------------------------

def client_main(pack, address, seed, count, results):
    rng, numpy_rng = random.Random(seed), np.random.default_rng(seed)
    messages = load_messages(pack)
    client = Client(address, messages)
    menu = [(kernel.name, row) for kernel in client.list_kernels(messages.ListKernelsRequest()).kernels
            for row in kernel.implementations]
    done, failures, refused, devices = collections.Counter(), [], collections.Counter(), \
        collections.Counter()
    for _ in range(count):
        kernel, row = rng.choice(menu)
        problem = Problem(kernel, rng, numpy_rng)
        asked = rng.choice([row.name, row.family, ""])
        try:
            response = client.execute(problem.request(messages, asked), timeout=120)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED and asked not in COMPLETE:
                refused[f"{kernel}/{asked}"] += 1
                continue
            failures.append(f"{kernel} {asked} {TYPE_NAMES[problem.data_type]} {problem.shapes} "
                            f"{problem.attributes}: {error.code()} {error.details()}")
            continue
        problem_text = problem.check(response)
        done[f"{kernel}/{response.implementation}"] += 1
        devices[response.device] += 1
        if problem_text:
            failures.append(f"{kernel} {response.implementation} {TYPE_NAMES[problem.data_type]} "
                            f"{problem.shapes} {problem.attributes}: {problem_text}")
    results.put((done, failures, refused, devices))


def run_clients(pack, server, count, seed):
    results = multiprocessing.Queue()
    workers = [multiprocessing.Process(target=client_main, args=(
        pack, server.address, seed + i, count // CLIENTS, results)) for i in range(CLIENTS)]
    for worker in workers:
        worker.start()
    collected = [results.get(timeout=500) for _ in workers]
    for worker in workers:
        worker.join()
    done, refused, devices = (sum((c[i] for c in collected), collections.Counter())
                              for i in (0, 2, 3))
    return done, [f for c in collected for f in c[1]], refused, devices


def memory_of(server):
    metrics = server.metrics()
    sum_of = lambda prefix: sum(v for name, v in metrics.items() if name.startswith(prefix))
    return {"resident": metrics["process_resident_memory_bytes"],
            "pinned": sum(v for name, v in metrics.items()
                          if name.startswith("warpcall_staging_bytes") and 'state="total"' in name),
            "pool": sum(v for name, v in metrics.items()
                        if name.startswith("warpcall_device_memory_bytes")
                        and 'state="reserved"' in name),
            "driver": device_memory_bytes(),
            "requests": sum_of("warpcall_requests_total")}


def check_mixed(pack):
    """Shapes are random, so what is kept for shapes seen before fills up first; then nothing may grow."""
    server = Server(pack)
    seed = int(os.environ.get("WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"seed {seed}")
    _, failures, _, _ = run_clients(pack, server, WARM_REQUESTS, seed)
    memory = [memory_of(server)]
    done, refused, devices = (collections.Counter() for _ in range(3))
    start = time.monotonic()
    for phase in range(PHASES):
        results = run_clients(pack, server, REQUESTS // PHASES, seed + 1000 * (phase + 1))
        done += results[0]
        failures += results[1]
        refused += results[2]
        devices += results[3]
        memory.append(memory_of(server))
    seconds = time.monotonic() - start
    for name, count in sorted(done.items()):
        print(f"  {name:40} {count}")
    print(f"refused by a single row: {dict(refused)}")
    print(f"devices: {dict(devices)}; {sum(done.values())} answered in {seconds:.1f} s")
    for what in ("pinned", "pool", "driver", "resident"):
        print(f"{what} MiB after {WARM_REQUESTS} requests and every {REQUESTS // PHASES} more: "
              f"{[round(each[what] / 2**20) for each in memory]}")
    for failure in failures[:20]:
        print("FAILED", failure)
    code = server.stop()
    print(f"{len(failures)} failures; the server ended with {code}")
    grown = {what: memory[-1][what] - memory[2][what] for what in GROWTH_BYTES_MAX}
    still = all(grown[what] <= limit for what, limit in GROWTH_BYTES_MAX.items())
    if not still:
        print(f"FAILED: memory grew: {grown}, allowed {GROWTH_BYTES_MAX}")
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
    """The same shape again and again, which the server replays; the last replies are checked."""
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
    server = Server(pack, "--log_level", "debug", "--devices", "cuda:0", "--staging_mib", "2048")
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
