#!/usr/bin/env python3
"""Calls and compares each answer with NumPy's until standard input ends; then reports.

    chaos_client.py KIND SOURCE SEED ADDRESS...

KIND: `python` (the client, by grpcio), `fast` (the same by the module warpcall_fast), `stream` (calls that go
by ExecuteStream), `infer` (ModelInfer of the Open Inference Protocol by grpcio alone, tried again while it is
UNAVAILABLE or broken off), `hasty` (`python` with a deadline that a server which hangs lets pass). One thread
calls at each ADDRESS. The report is a line of JSON: `ok` by address, and of calls that did not end as they should
[Unix time, address, what]: `late` (of `hasty`: by the deadline), `failed`, `wrong`; `stuck`: addresses whose
thread still waits for an answer. Streams go by the last ADDRESS alone, the servers in turns, from both threads:
HAProxy, which the first is, can stop them for good (late_reader.py). WARPCALL_TEST_ATTEMPTS: of a call, the first
included; 12 without it.
"""

import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
KIND, SOURCE, SEED, *ADDRESSES = sys.argv[1:] if __name__ == "__main__" else ("python", ROOT, "0")
if KIND != "fast":
    os.environ["WARPCALL_PURE"] = "1"
sys.path.insert(0, str(pathlib.Path(SOURCE) / "client" / "python"))

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: E402
from warpcall._channel import Target  # noqa: E402

# Patient: a server that is killed is back within seconds, and two others serve meanwhile.
ATTEMPTS_MAX = 12
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.05, 2
PATIENT_SECONDS, HASTY_SECONDS = 60, 4
# Between calls: the run is about faults, and leaves the machine to the servers.
PACE_SECONDS = {"stream": 0.5}
PACE_SECONDS_DEFAULT = 0.02
STOP_SECONDS_MAX = PATIENT_SECONDS + 10
PROBLEMS = 24
STREAM_ELEMENTS = 4 << 20  # 16 MiB: from there on the client streams
# Kernels compute float32 from float32: sums of 64 terms here, and functions that are within a few units.
RELATIVE, ABSOLUTE = 2e-5, 2e-6


class Problem:
    """A call and its answer. `exact`: the answer's bits are known."""

    def __init__(self, kernel, inputs, expected, exact):
        self.kernel, self.inputs, self.expected, self.exact = kernel, inputs, expected, exact

    def check(self, answer):
        """Returns None, or the error of the answer."""
        if answer.shape != self.expected.shape or answer.dtype != np.float32:
            return f"{self.kernel}: {answer.dtype} of {answer.shape}, expected float32 of {self.expected.shape}"
        if self.exact:
            right = answer.view(np.uint32) == self.expected.view(np.uint32)
        else:
            right = np.abs(answer - self.expected) <= ABSOLUTE + RELATIVE * np.abs(self.expected)
        if right.all():
            return None
        at = np.unravel_index(np.argmin(right), right.shape)
        return (f"{self.kernel} of {self.expected.shape}: {np.count_nonzero(~right)} elements are wrong, "
                f"at {[int(i) for i in at]} {answer[at]!r}, expected {self.expected[at]!r}")


def softmax(x):
    exponentials = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype(np.float32)


def gelu(x):
    """gelu by the hyperbolic tangent, the kernel's default."""
    x = x.astype(np.float64)
    return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(np.float32)


def problem(kernel, rng):
    """A small one, of random sizes."""
    rows, columns = (int(n) for n in rng.integers(1, 65, 2))
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    if kernel == "identity":
        large = rng.standard_normal((int(rng.integers(1, 65)), 1024)).astype(np.float32)
        return Problem(kernel, [large], large, exact=True)
    if kernel == "gelu":
        return Problem(kernel, [x], gelu(x), exact=False)
    if kernel == "softmax":
        return Problem(kernel, [x], softmax(x), exact=False)
    # Integers, whose products and sums are exact in any order.
    a = rng.integers(-8, 9, (rows, 64)).astype(np.float32)
    b = rng.integers(-8, 9, (64, columns)).astype(np.float32)
    return Problem(kernel, [a, b], a @ b, exact=True)


def problems(kind, seed):
    rng = np.random.default_rng(seed)
    if kind == "stream":
        x = rng.standard_normal((STREAM_ELEMENTS // 1024, 1024)).astype(np.float32)
        return [Problem("identity", [x], x, exact=True), Problem("softmax", [x], softmax(x), exact=False)]
    kernels = ["identity", "gelu", "softmax", "matmul"]
    return [problem(kernels[i % len(kernels)], rng) for i in range(PROBLEMS)]


class Late(Exception):
    """The call's own deadline passed, as it may."""


class Failed(Exception):
    """The call ended with a status that its caller should not see."""


# ---- ways of calling --------------------------------------------------------------------------------

class WarpcallCalls:
    """Calls by the package."""

    def __init__(self, address, attempts_max):
        self.client = warpcall.connect(
            address, timeout=HASTY_SECONDS if KIND == "hasty" else PATIENT_SECONDS,
            retry=warpcall.Retry(attempts_max=attempts_max, backoff_initial=BACKOFF_SECONDS,
                                 backoff_max=BACKOFF_SECONDS_MAX))

    def call(self, wanted):
        try:
            return np.asarray(self.client.run(wanted.kernel, *wanted.inputs))
        except warpcall.DeadlineExceeded as error:
            raise (Late if KIND == "hasty" else Failed)(str(error)) from None
        except warpcall.Error as error:
            raise Failed(str(error)) from None


class InferCalls:
    """Calls by grpcio and the protocol's messages, like programs that know nothing of Warpcall."""

    INPUTS = {"matmul": ("a", "b")}

    def __init__(self, address, attempts_max):
        self.request, self.response = infer_messages()
        options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2000),
                   ("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
        if address.startswith("ipv4:"):
            options.append(("grpc.service_config", json.dumps(
                {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}})))
        self.attempts_max, self.target = attempts_max, Target(address)
        self.channel = grpc.insecure_channel(address, options)
        self.method = self.channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", self.request.SerializeToString,
            self.response.FromString)

    def call(self, wanted):
        request = self.request(model_name=f"{wanted.kernel}_fp32")
        for name, array in zip(self.INPUTS.get(wanted.kernel, ("x",)), wanted.inputs):
            request.inputs.add(name=name, datatype="FP32", shape=array.shape)
            request.raw_input_contents.append(array.tobytes())
        end = time.monotonic() + PATIENT_SECONDS
        for attempt in range(1, self.attempts_max + 1):
            try:
                answer = self.method(request, timeout=end - time.monotonic())
                return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(answer.outputs[0].shape)
            except grpc.RpcError as error:
                code, message, _ = self.target.refusal(error)
                if code != "UNAVAILABLE" or attempt == self.attempts_max:
                    raise Failed(f"{code}: {message}") from None
            pause = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** (attempt - 1))
            time.sleep(pause * random.uniform(0.8, 1.2))
        raise AssertionError("attempts_max is below 1")


def infer_messages():
    proto = pathlib.Path(SOURCE) / "proto"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "inference.desc"
        subprocess.run(["protoc", f"-I{proto}", "--include_imports", f"--descriptor_set_out={out}",
                        proto / "inference" / "grpc_service.proto"], check=True, timeout=60)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    sys.path.insert(0, str(pathlib.Path(SOURCE) / "tests" / "differential"))
    import differential
    return [differential.class_of(pool.FindMessageTypeByName(f"inference.ModelInfer{part}"), pool)
            for part in ("Request", "Response")]


# ---- the run ----------------------------------------------------------------------------------------

class Caller(threading.Thread):
    """Calls one address again and again."""

    def __init__(self, address, seed):
        super().__init__(daemon=True)
        attempts_max = int(os.environ.get("WARPCALL_TEST_ATTEMPTS", ATTEMPTS_MAX))
        self.calls = (InferCalls if KIND == "infer" else WarpcallCalls)(address, attempts_max)
        self.address, self.stop = address, threading.Event()
        self.problems, self.random = problems(KIND, seed), random.Random(seed)
        self.ok = 0
        self.found = {"late": [], "failed": [], "wrong": []}

    def note(self, what, text, begin):
        now = time.time()
        self.found[what].append([now, self.address, f"{text} (after {now - begin:.1f} s)"])

    def run(self):
        while not self.stop.wait(PACE_SECONDS.get(KIND, PACE_SECONDS_DEFAULT)):
            wanted, begin = self.random.choice(self.problems), time.time()
            try:
                wrong = wanted.check(self.calls.call(wanted))
            except Late as error:
                self.note("late", error, begin)
            except Failed as error:
                self.note("failed", error, begin)
            except Exception as error:  # whatever else the client does is its defect
                self.note("failed", f"{type(error).__name__}: {error}", begin)
            else:
                self.ok += wrong is None
                if wrong is not None:
                    self.note("wrong", wrong, begin)


def main():
    if KIND == "fast" and not warpcall.FAST:
        sys.exit("warpcall_fast can't be imported")
    addresses = ADDRESSES
    if KIND == "stream":
        scheme, _, servers = ADDRESSES[-1].partition(":")
        addresses = [ADDRESSES[-1], f"{scheme}:{','.join(reversed(servers.split(',')))}"]
    callers = [Caller(address, int(SEED) + number) for number, address in enumerate(addresses)]
    for caller in callers:
        caller.start()
    sys.stdin.read()
    for caller in callers:
        caller.stop.set()
    end = time.monotonic() + STOP_SECONDS_MAX
    for caller in callers:
        caller.join(max(0, end - time.monotonic()))
    report = {"ok": {caller.address: caller.ok for caller in callers},
              "stuck": [caller.address for caller in callers if caller.is_alive()]}
    for what in ("late", "failed", "wrong"):
        report[what] = [entry for caller in callers for entry in caller.found[what]]
    print(json.dumps(report), flush=True)
    os._exit(0)  # a thread that is stuck must not keep the report back


if __name__ == "__main__":
    main()
