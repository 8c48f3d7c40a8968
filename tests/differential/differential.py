"""An independent client of the service: grpcio and NumPy, no code of this project. Random problems
over every row that the server lists, each output within a bound per element of float64's.

A PACK is a folder with bin/warpcalld and warpcall.desc (the proto's descriptors, with imports): a
build folder, or tests/gpu/pack.sh's output.
"""

import collections
import concurrent.futures
import dataclasses
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "/warpcall.v1.KernelService/"
# Families that take every problem, on their devices; a single row, and a library, may refuse one.
COMPLETE = {"", "auto", "cuda", "manual", "cpu", "reference"}
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
CALL_SECONDS_MAX = 120
LARGE_ELEMENTS_MAX = 1 << 22


def class_of(descriptor, pool):
    if hasattr(message_factory, "GetMessageClass"):  # protobuf 4.22 and later
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def load_pool(pack):
    """The proto's descriptors."""
    files = descriptor_pb2.FileDescriptorSet()
    with open(os.path.join(pack, "warpcall.desc"), "rb") as file:
        files.ParseFromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


def load_messages(pack):
    """The message classes of the proto, by name."""
    pool = load_pool(pack)
    names = ["ExecuteRequest", "ExecuteResponse", "ListKernelsRequest", "ListKernelsResponse",
             "ListDevicesRequest", "ListDevicesResponse", "PutRequest", "PutResponse", "GetRequest",
             "GetResponse", "FreeRequest", "FreeResponse", "ExecuteGraphRequest",
             "ExecuteGraphResponse", "ProfileRequest", "ProfileResponse", "DescribeRequest",
             "DescribeResponse"]
    types = {name: class_of(pool.FindMessageTypeByName("warpcall.v1." + name), pool)
             for name in names}
    return collections.namedtuple("Messages", names)(**types)


CHUNK_BYTES = 1 << 20


# ---- data types ---------------------------------------------------------------------------------

FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3
TYPE_NAMES = {FLOAT32: "float32", FLOAT16: "float16", BFLOAT16: "bfloat16"}
TYPE_BYTES = {FLOAT32: 4, FLOAT16: 2, BFLOAT16: 2}
# Half a unit in the last place, relative to the value, and at most so much among subnormals.
HALF_UNIT = {FLOAT32: 2.0**-24, FLOAT16: 2.0**-11, BFLOAT16: 2.0**-8}
HALF_SUBNORMAL = {FLOAT32: 2.0**-150, FLOAT16: 2.0**-25, BFLOAT16: 2.0**-134}
# Variants that say in their summary that 16-bit results are rounded a second time.
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


# ---- problems and their truth -------------------------------------------------------------------

def gelu(x, approximate):
    x = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def softmax(x, axis):
    x = x.astype(np.float64)
    if x.size == 0:  # an empty axis has no maximum
        return x
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def random_size(rng, size_max):
    """A size of any order of magnitude alike; half of them lie beside a multiple of what vectors or
    blocks of threads take at once."""
    size = int(2 ** rng.uniform(0, math.log2(size_max)))
    step = 1 << rng.randrange(3, 9)
    if size < step or rng.random() < 0.5:
        return size
    return size // step * step + rng.choice([-1, 0, 1])


def random_dims(rng, elements_max, rank_max=4):
    dims = [random_size(rng, elements_max)]
    while len(dims) < rank_max and rng.random() < 0.5:
        cut = int(2 ** rng.uniform(0, math.log2(max(2, dims[-1]))))
        dims[-1:] = [max(1, dims[-1] // cut), cut]
    return dims


DEFAULTS = {"identity": {}, "gelu": {"approximate": "tanh"}, "softmax": {"axis": -1},
            "matmul": {"transpose_a": False, "transpose_b": False, "precision": "ieee"},
            "fused": {"seed": 0},
            "layernorm": {"epsilon": 1e-5}, "rmsnorm": {"epsilon": 1e-6},
            "linear": {"activation": "none", "precision": "ieee"}}
# Number of different problems, for each kernel, that go to code compiled on request.
COMPILED_PROBLEMS = 48
# fused's expressions, each with its formula in NumPy and its inputs' shapes beside that of x0.
EXPRESSIONS = [
    ("gelu(x0 + x1)", lambda x0, x1: gelu(x0 + x1, "tanh"), lambda dims: [dims[-1:]]),
    ("where(x0 < x1, x0 * 0.5, -x1)", lambda x0, x1: np.where(x0 < x1, x0 * 0.5, -x1),
     lambda dims: [dims]),
    ("softmax(x0) * sigmoid(x1)", lambda x0, x1: softmax(x0, -1) / (1 + np.exp(-x1)),
     lambda dims: [[*dims[:-1], 1]]),
    ("(x0 - mean(x0)) * rsqrt(var(x0) + 1) + max(x0, 0.25)",
     lambda x0: ((x0 - x0.mean(-1, keepdims=True)) / np.sqrt(x0.var(-1, keepdims=True) + 1)
                 + np.maximum(x0, 0.25)), lambda dims: []),
    # Not a sum, which float16 may not hold.
    ("tanh(x0) * exp(-abs(x1)) + mean(x2 * x2)",
     lambda x0, x1, x2: np.tanh(x0) * np.exp(-np.abs(x1)) + (x2 * x2).mean(-1, keepdims=True),
     lambda dims: [[1], dims[-1:]]),
]
# Batch dimensions of matmul's operands, as numpy.matmul broadcasts them.
BATCHES = [([], []), ([], []), ([3], []), ([3], [3]), ([], [2, 2]), ([2, 2], [2, 2]), ([2, 1], [3])]


class Problem:
    """One request's kernel, data type, attributes, inputs and the tolerance of its output."""

    def __init__(self, kernel, rng, numpy_rng, large_elements_max=LARGE_ELEMENTS_MAX):
        self.kernel = kernel
        self.data_type = rng.choice([FLOAT32, FLOAT16, BFLOAT16])
        self.attributes = dict(DEFAULTS[kernel])
        elements_max = large_elements_max if rng.random() < 0.04 else 1 << 16
        if kernel == "gelu":
            self.attributes["approximate"] = rng.choice(["tanh", "none"])
            if self.attributes["approximate"] == "none":
                elements_max = 1 << 14  # math.erf is slow
        self.shapes = [random_dims(rng, elements_max)]
        if rng.random() < 0.03:
            self.shapes[0][rng.randrange(len(self.shapes[0]))] = 0
        if kernel == "softmax":
            self.attributes["axis"] = rng.randrange(-len(self.shapes[0]), len(self.shapes[0]))
        if kernel == "matmul":
            self.shapes = self.matmul_shapes(rng)
        if kernel == "fused":
            text, self.formula, others = rng.choice(EXPRESSIONS)
            self.attributes = {"expression": text, "seed": 0}
            self.shapes += others(self.shapes[0])
        if kernel in ("layernorm", "rmsnorm"):
            self.attributes["epsilon"] = rng.choice([DEFAULTS[kernel]["epsilon"], 0.5, 1e-12])
            self.shapes += [self.shapes[0][-1:]] * (2 if kernel == "layernorm" else 1)
        if kernel == "linear":
            self.attributes["activation"] = rng.choice(["none", "relu", "gelu", "gelu_erf"])
            n = random_size(rng, 256)
            self.shapes = [random_dims(rng, 1 << 13)]
            self.shapes += [[n, self.shapes[0][-1]], [n]]
        self.tensors = [encode(numpy_rng.standard_normal(shape, dtype=np.float32), self.data_type)
                        for shape in self.shapes]
        # Default attributes need not be sent.
        self.sent = {name: value for name, value in self.attributes.items()
                     if value != DEFAULTS[kernel].get(name) or rng.random() < 0.5}

    def matmul_shapes(self, rng):
        m, k, n = (0 if rng.random() < 0.01 else random_size(rng, 256) for _ in range(3))
        batch_a, batch_b = rng.choice(BATCHES)
        for name in ("transpose_a", "transpose_b"):
            self.attributes[name] = rng.random() < 0.3
        if self.data_type == FLOAT32 and rng.random() < 0.2:
            self.attributes["precision"] = "tf32"
        a = [k, m] if self.attributes["transpose_a"] else [m, k]
        b = [n, k] if self.attributes["transpose_b"] else [k, n]
        return [batch_a + a, batch_b + b]

    def __str__(self):
        return f"{self.kernel} {TYPE_NAMES[self.data_type]} {self.shapes} {self.sent}"

    def operands(self):
        """The inputs as they are multiplied, in float64."""
        values = [value.reshape(shape).astype(np.float64)
                  for (_, value), shape in zip(self.tensors, self.shapes)]
        if self.kernel != "matmul":
            return values
        flags = (self.attributes[name] for name in ("transpose_a", "transpose_b"))
        return [np.swapaxes(value, -1, -2) if flag else value for value, flag in zip(values, flags)]

    def truth(self):
        values = self.operands()
        if self.kernel == "identity":
            return values[0]
        if self.kernel == "gelu":
            return gelu(values[0], self.attributes["approximate"])
        if self.kernel == "softmax":
            return softmax(values[0], self.attributes["axis"])
        if self.kernel == "fused":
            return np.broadcast_to(self.formula(*values), np.broadcast_shapes(*self.shapes))
        if self.kernel in ("layernorm", "rmsnorm"):
            normalized, _ = self.normalized(values[0])
            return normalized * values[1] + (values[2] if len(values) > 2 else 0)
        if self.kernel == "linear":
            sums = values[0] @ values[1].T + values[2]
            activation = self.attributes["activation"]
            if activation == "relu":
                return np.maximum(sums, 0)
            return sums if activation == "none" else gelu(
                sums, "tanh" if activation == "gelu" else "none")
        return values[0] @ values[1]

    def normalized(self, x):
        """Rows with a mean square of 1, and their factors."""
        if x.size == 0:
            return x, x
        centered = x - x.mean(axis=-1, keepdims=True) if self.kernel == "layernorm" else x
        square = (centered**2).mean(axis=-1, keepdims=True)
        reciprocal = 1 / np.sqrt(square + self.attributes["epsilon"])
        return centered * reciprocal, reciprocal

    def arithmetic(self, truth):
        """Error bound of float32 arithmetic for each element of the output, without the final
        rounding."""
        if self.kernel == "identity":
            return 0.0
        values = [np.abs(value) for value in self.operands()]
        if self.kernel == "gelu":  # x Phi(x), with a few roundings of Phi relative to 1
            return 8 * 2.0**-24 * np.minimum(values[0], 9) + 2.0**-20 * np.abs(truth)
        if self.kernel == "softmax":  # exp of differences to 12, sums by threads and then by tree
            n = self.shapes[0][self.attributes["axis"]]
            return (128 + n / 128) * 2.0**-24 * truth + 2.0**-125
        if self.kernel == "fused":  # some dozen steps on numbers of up to some ten
            return 2.0**-24 * (256 + 32 * np.abs(truth))
        if self.kernel in ("layernorm", "rmsnorm"):
            if truth.size == 0:
                return truth
            x = self.operands()[0]
            normalized, reciprocal = self.normalized(x)
            sums = (32 + x.shape[-1] / 64) * 2.0**-24  # partial sums, one after another
            off = np.abs(normalized) + reciprocal * values[0].mean(axis=-1, keepdims=True)
            return sums * off * values[1] + 2.0**-24 * np.abs(truth)
        if self.kernel == "linear":  # gelu is steep by 1.13, and off by some 10 units of its input
            x, weight, bias = values
            k = x.shape[-1]
            sums = x @ weight.T + bias
            return 2.0**-24 * (1.2 * min(k, 6 * math.sqrt(k)) + 12) * sums + 2.0**-126
        a, b = values
        k = a.shape[-1]  # N. Higham, T. Mary 2019: lambda sqrt(k) u, lambda = 6
        inputs = 2.0**-9 if self.attributes["precision"] == "tf32" else 0
        return (min(k, 6 * math.sqrt(k)) * 2.0**-24 + inputs) * (a @ b) + 2.0**-126

    def request(self, messages, implementation="", device=""):
        request = messages.ExecuteRequest(kernel=self.kernel, implementation=implementation,
                                          device=device)
        for (data, _), shape in zip(self.tensors, self.shapes):
            request.inputs.add(data_type=self.data_type, shape=shape, data=data)
        for name, value in self.sent.items():
            field = {bool: "bool_value", int: "int_value", float: "double_value",
                     str: "string_value"}[type(value)]
            setattr(request.attributes[name], field, value)
        return request

    def check(self, response):
        """Returns None, or the error."""
        if len(response.outputs) != 1:
            return f"{len(response.outputs)} outputs, not 1"
        truth = self.truth()
        output = response.outputs[0]
        if list(output.shape) != list(truth.shape) or output.data_type != self.data_type:
            return f"shape {list(output.shape)} type {output.data_type}, not {truth.shape}"
        if len(output.data) != truth.size * TYPE_BYTES[self.data_type]:
            return f"{len(output.data)} bytes of {truth.size} {TYPE_NAMES[self.data_type]}"
        moved = sum(len(data) for data, _ in self.tensors) + len(output.data)
        if response.launch.bytes_moved != moved:
            return f"bytes_moved is {response.launch.bytes_moved}, not {moved}"
        actual = decode(output.data, self.data_type).reshape(truth.shape).astype(np.float64)
        roundings = 2 if response.launch.variant in ROUND_TWICE else 1
        bound = self.arithmetic(truth) + roundings * (
            HALF_UNIT[self.data_type] * np.abs(truth) * 1.01 + HALF_SUBNORMAL[self.data_type])
        wrong = ~(np.abs(actual - truth) <= bound)
        if not wrong.any():
            return None
        at = np.unravel_index(np.argmax(wrong), truth.shape)
        return f"{int(wrong.sum())} of {wrong.size} wrong; at {at} {actual[at]}, not {truth[at]}"


# ---- the server ---------------------------------------------------------------------------------

def eventually(what, pause=0.02):
    """Calls `what` again and again; returns True once it is true, False after 90 s."""
    end = time.monotonic() + 90
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


class Server:
    """warpcalld as a child process; in a `with` it is gone at the end, whatever happens."""

    def __init__(self, pack, *flags):
        self.log = tempfile.NamedTemporaryFile(suffix=".log")
        self.process = subprocess.Popen(
            [os.path.join(os.environ.get("WARPCALL_TEST_BIN_DIR", os.path.join(pack, "bin")),
                          "warpcalld"), "--listen", "127.0.0.1:0", "--metrics_listen",
             "127.0.0.1:0", "--lame_duck_seconds", "0", *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        match = re.search(r"serving on (\S+), metrics on (\S+)", line)
        if match is None:
            raise RuntimeError(f"the server did not start: {line}{self.log_text()}")
        self.address, self.metrics_address = match.groups()

    def await_rows(self):
        """Returns the server when it has tried all rows: before that it doesn't offer some, and keeps its devices
        busy."""
        while urllib.request.urlopen(f"http://{self.metrics_address}/readyz").read() != b"ok\n":
            time.sleep(0.1)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def log_text(self):
        with open(self.log.name, encoding="utf-8") as file:
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
    """One connection."""

    def __init__(self, address, messages):
        self.channel = grpc.insecure_channel(address, options=OPTIONS)
        self.messages = messages
        method = lambda name, request, response: self.channel.unary_unary(
            SERVICE + name, request_serializer=request.SerializeToString,
            response_deserializer=response.FromString)
        self.execute = method("Execute", messages.ExecuteRequest, messages.ExecuteResponse)
        self.execute_graph = method("ExecuteGraph", messages.ExecuteGraphRequest,
                                    messages.ExecuteGraphResponse)
        self.profile = method("Profile", messages.ProfileRequest, messages.ProfileResponse)
        self.describe = method("Describe", messages.DescribeRequest, messages.DescribeResponse)
        self.list_kernels = method("ListKernels", messages.ListKernelsRequest,
                                   messages.ListKernelsResponse)
        self.list_devices = method("ListDevices", messages.ListDevicesRequest,
                                   messages.ListDevicesResponse)
        self.put_stream = self.channel.stream_unary(
            SERVICE + "Put", request_serializer=messages.PutRequest.SerializeToString,
            response_deserializer=messages.PutResponse.FromString)
        self.get_stream = self.channel.unary_stream(
            SERVICE + "Get", request_serializer=messages.GetRequest.SerializeToString,
            response_deserializer=messages.GetResponse.FromString)
        self.free_call = method("Free", messages.FreeRequest, messages.FreeResponse)
        health = lambda data: data[1] if data else 0  # HealthCheckResponse{1: status}
        self.health = self.channel.unary_unary("/grpc.health.v1.Health/Check",
                                               request_serializer=lambda data: data,
                                               response_deserializer=health)

    def kernels(self):
        return self.list_kernels(self.messages.ListKernelsRequest()).kernels

    def put(self, data_type, shape, data, **header):
        """Puts a tensor on a device, in chunks; returns the PutResponse."""
        def requests():
            request = self.messages.PutRequest()
            for field, value in header.items():
                setattr(request.header, field, value)
            request.header.tensor.data_type = data_type
            request.header.tensor.shape.extend(shape)
            yield request
            for offset in range(0, len(data), CHUNK_BYTES):
                request = self.messages.PutRequest()
                request.chunk.offset = offset
                request.chunk.data = data[offset:offset + CHUNK_BYTES]
                yield request
        return self.put_stream(requests())

    def get(self, handle):
        """Returns the bytes of a tensor that stays on a device."""
        data = bytearray()
        for response in self.get_stream(self.messages.GetRequest(handle=handle)):
            if response.HasField("chunk"):
                assert response.chunk.offset == len(data), (response.chunk.offset, len(data))
                data += response.chunk.data
        return bytes(data)

    def free(self, *handles):
        return self.free_call(self.messages.FreeRequest(handles=handles))


# ---- mixed requests -----------------------------------------------------------------------------

@dataclasses.dataclass
class Tally:
    """Outcomes of some requests."""
    done: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    """Counts by (kernel, row, data type)."""
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    """UNIMPLEMENTED answers, which a row or a library may give, by (kernel, asked, data type)."""
    devices: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)

    def __add__(self, other):
        return Tally(self.done + other.done, self.refused + other.refused,
                     self.devices + other.devices, self.failures + other.failures)


@dataclasses.dataclass
class Mix:
    """Requests that each of several clients makes, in a process of its own."""
    clients: int
    requests: int
    """Sum over all clients."""
    seed: int
    large_elements_max: int = LARGE_ELEMENTS_MAX
    """Size limit of one request in 25; the others have at most 65536."""


def wrong_in(response, request, problem, families):
    """Returns None, or the error of the answer; `families` of the kernel's variants, by name."""
    asked, variant = request.implementation, response.launch.variant
    family = families.get(variant)
    if response.implementation != family or asked not in ("", variant, family, f"{family}:{variant}"):
        return f"asked for {asked or 'any'}, got {response.implementation or 'no name'}:{variant}"
    if response.request_id != request.request_id:
        return f"request_id {response.request_id}, not {request.request_id}"
    return problem.check(response)


def rng_of_shapes(rng, kernel, rows, asked):
    """Generator for a problem's shapes, type and attributes; `rows`: the kernel's, with families.

    Problems that the server has to compile for come again, as real clients' problems do; otherwise
    a run would measure the compiler.
    """
    compiled = "compiled" in (rows.values() if kernel == "fused" else [rows[asked]])
    return random.Random(f"{kernel} {rng.randrange(COMPILED_PROBLEMS)}") if compiled else rng


def client_main(pack, address, mix, index):
    """One client's share of the mix."""
    seed = mix.seed + index
    rng, numpy_rng = random.Random(seed), np.random.default_rng(seed)
    messages = load_messages(pack)
    client = Client(address, messages)
    kernels = {kernel.name: {variant: row.name for row in kernel.implementations for variant in row.variants}
               for kernel in client.kernels()}
    menu = [(kernel, row) for kernel, rows in kernels.items() for row in rows]
    # Every row in every type once, before chance has its way.
    first = [(kernel.name, variant, data_type) for kernel in client.kernels() for row in kernel.implementations
             for variant in row.variants for data_type in row.data_types][index::mix.clients]
    tally = Tally()
    for number in range(mix.requests // mix.clients):
        if number < len(first):
            kernel, asked, data_type = first[number]
            problem = None
            while problem is None or problem.data_type != data_type:
                problem = Problem(kernel, rng, numpy_rng, mix.large_elements_max)
        else:
            kernel, row = rng.choice(menu)
            problem = Problem(kernel, rng_of_shapes(rng, kernel, kernels[kernel], row), numpy_rng,
                              mix.large_elements_max)
            asked = rng.choice([row, kernels[kernel][row], f"{kernels[kernel][row]}:{row}", ""])
        request = problem.request(messages, asked)
        request.request_id = f"client-{index}-{number}"
        try:
            response = client.execute(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED and asked not in COMPLETE:
                tally.refused[kernel, asked, TYPE_NAMES[problem.data_type]] += 1
                continue
            tally.failures.append(f"{problem} by {asked}: {error.code()} {error.details()}")
            continue
        tally.done[kernel, response.launch.variant, TYPE_NAMES[problem.data_type]] += 1
        tally.devices[response.device] += 1
        wrong = wrong_in(response, request, problem, kernels[kernel])
        if wrong:
            tally.failures.append(f"{problem} by {response.launch.variant}: {wrong}")
    return tally


def run_clients(pack, server, mix):
    """Runs new processes; returns their Tally. gRPC's threads do not survive a fork."""
    with concurrent.futures.ProcessPoolExecutor(
            mix.clients, mp_context=multiprocessing.get_context("spawn")) as pool:
        clients = [pool.submit(client_main, pack, server.address, mix, index)
                   for index in range(mix.clients)]
        return sum((client.result() for client in clients), Tally())
