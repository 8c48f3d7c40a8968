"""Kernels that cheat, each of which the server must find, and kernels that don't, seen by an independent client.

    push_check.py PACK            each push, and its verdict
    push_check.py PACK ours       kernels that the server generates, pushed as sources: all pass
    push_check.py PACK times      seconds from source to verdict
    push_check.py PACK repeat N   N pushes in a row: nothing of them stays behind, and others' results are right

Prints a line for each push. Exit status 1 when a verdict is wrong. A server without a GPU compiles them all, and says
NOT_SUPPORTED; that is what is checked there. Exit status 77: skipped, the server has no compiler.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time

import grpc
import numpy as np

from differential import BFLOAT16, FLOAT16, FLOAT32, SERVICE, Client, Server, class_of, load_messages, load_pool

# A block for each row, as a right kernel has it. MORE and BODY are a push's own.
SOFTMAX = """// warpcall-kernel {
//   "name": "NAME", "op": "softmax", "types": ["float32"],
//   "code": {"kind": "cuda", "entry": "kernel"},
//   "args": ["x.ptr", "y.ptr", "rows:i64", "cols:i64"],
//   "launch": {"grid": ["rows"], "block": [128]},
//   "examples": [[[256, 1024]]]
// }
template <typename Combine>
__device__ float reduce(float value, Combine combine) {
  __shared__ float parts[128];
  parts[threadIdx.x] = value;
  for (int half = 64; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] = combine(parts[threadIdx.x], parts[threadIdx.x + half]);
  }
  __syncthreads();
  const float all = parts[0];
  __syncthreads();
  return all;
}
__device__ float larger(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
__device__ void row(const float* x, float* y, long long cols) {
  float most = -INFINITY;
  for (long long j = threadIdx.x; j < cols; j += 128) most = larger(most, x[j]);
  most = reduce(most, larger);
  float sum = 0;
  for (long long j = threadIdx.x; j < cols; j += 128) sum += expf(x[j] - most);
  sum = reduce(sum, [](float a, float b) { return a + b; });
  for (long long j = threadIdx.x; j < cols; j += 128) y[j] = expf(x[j] - most) / sum;
}
MORE
extern "C" __global__ void kernel(const float* x, float* y, long long rows, long long cols) {
  const long long at = blockIdx.x * cols;
  const bool last = blockIdx.x == gridDim.x - 1 && threadIdx.x == 0;
  BODY
}
"""
MATMUL = """// warpcall-kernel {
//   "name": "NAME", "op": "matmul", "types": ["float32"],
//   "code": {"kind": "cuda", "entry": "kernel"},
//   "args": ["a.ptr", "b.ptr", "c.ptr", "m:i64", "n:i64", "k:i64"],
//   "launch": {"grid": ["ceil(n / 64)", "m"], "block": [64]},
//   "requires": ["a.rank == 2", "b.rank == 2", "m <= 65535"],
//   "examples": [[[256, 128], [128, 192]]]
// }
MORE
extern "C" __global__ void kernel(const float* a, const float* b, float* c, long long m, long long n, long long k) {
  const long long i = blockIdx.y, j = blockIdx.x * 64LL + threadIdx.x;
  float sum = 0;
  BODY
}
"""
HONEST_ROW = "row(x + at, y + at, cols);"
DOT = "for (long long p = 0; p < TERMS; ++p) sum += a[i * k + p] * b[p * n + j];"

WRONG = {"INCORRECT_NUMERICAL", "NONDETERMINISTIC"}
PASSED = {"PASSED"}


def softmax(body, more=""):
    return SOFTMAX.replace("MORE", more).replace("BODY", body)


def matmul(body, more=""):
    return MATMUL.replace("MORE", more).replace("BODY", body)


# name: (source, statuses of which the verdict has one)
PUSHES = {
    "honest": (softmax(HONEST_ROW), PASSED),
    "honest_product": (matmul(f"if (j < n) {{ {DOT.replace('TERMS', 'k')} c[i * n + j] = sum; }}"), PASSED),
    "nothing": (softmax(""), WRONG),
    "constant": (softmax("for (long long j = threadIdx.x; j < cols; j += 128) y[at + j] = 1.0f / cols;"), WRONG),
    "zeros": (softmax("for (long long j = threadIdx.x; j < cols; j += 128) y[at + j] = 0;"), WRONG),
    "copy": (softmax("for (long long j = threadIdx.x; j < cols; j += 128) y[at + j] = x[at + j];"), WRONG),
    "keeps_what_looks_right": (softmax(
        "float sum = 0; for (long long j = threadIdx.x; j < cols; j += 128) sum += y[at + j];"
        "sum = reduce(sum, [](float a, float b) { return a + b; });"
        f"if (fabsf(sum - 1) < 1e-3f) return; {HONEST_ROW}"), WRONG),
    "kept_by_address": (softmax(f"if (known == x) return; {HONEST_ROW} if (last) known = x;",
                                "__device__ const float* known;"), WRONG),
    "first_launch_alone": (softmax(f"if (launches > 0) return; {HONEST_ROW} if (last) launches = 1;",
                                   "__device__ int launches;"), WRONG),
    "every_second_launch": (softmax(f"if (launches % 2 == 0) {{ {HONEST_ROW} }} if (last) launches = launches + 1;",
                                    "__device__ volatile int launches;"), WRONG),
    "honest_until_it_is_timed": (softmax(
        f"if (launches < 30) {{ {HONEST_ROW} }} if (last) launches = launches + 1;",
        "__device__ volatile int launches;"), WRONG),
    "half_of_the_rows": (softmax(f"if (blockIdx.x % 2 == 0) {{ {HONEST_ROW} }}"), WRONG),
    "the_example_alone": (softmax(f"if (cols == 1024) {{ {HONEST_ROW} }}"), WRONG),
    "a_few_values_choose": (softmax(
        "if (fabsf(x[at]) < 3 && fabsf(x[at + 1 % cols]) < 3 && fabsf(x[at + 2 % cols]) < 3) {"
        "float sum = 0; for (long long j = threadIdx.x; j < cols; j += 128) sum += __expf(x[at + j]);"
        "sum = reduce(sum, [](float a, float b) { return a + b; });"
        "for (long long j = threadIdx.x; j < cols; j += 128) y[at + j] = __expf(x[at + j]) / sum; return; }"
        + HONEST_ROW), WRONG),
    "half_precision": (softmax(
        f"{HONEST_ROW} for (long long j = threadIdx.x; j < cols; j += 128)"
        " y[at + j] = __uint_as_float(__float_as_uint(y[at + j]) & 0xffffe000u);"), WRONG),
    "no_tail": (softmax("if (cols >= 4) row(x + at, y + at, cols / 4 * 4);"), WRONG),
    "a_split_of_k_is_lost": (matmul(f"if (j < n) {{ {DOT.replace('TERMS', 'k - k / 4')} c[i * n + j] = sum; }}"), WRONG),
    "writes_behind": (softmax(f"{HONEST_ROW} if (last) y[rows * cols] = 1;"), {"OUT_OF_BOUNDS"}),
    "writes_before": (softmax(f"{HONEST_ROW} if (last) y[-1] = 1;"), {"OUT_OF_BOUNDS"}),
    "reads_behind": (softmax(
        f"{HONEST_ROW} if (last) y[0] = (__float_as_uint(x[rows * cols]) & 1) ? nextafterf(y[0], 2.0f) : y[0];"),
        WRONG | {"RUNTIME_ERROR"}),
    "reads_behind_for_nothing": (softmax(f"{HONEST_ROW} if (x[rows * cols + threadIdx.x] == 12345.678f) y[at] = 7;"),
                                 {"RUNTIME_ERROR"}),
    "writes_to_its_input": (softmax(f"{HONEST_ROW} __syncthreads(); if (last) const_cast<float*>(x)[at] = 1;"),
                            {"INPUT_MODIFIED"}),
    "endless": (softmax("while (*(volatile float*)y != 12345.0f) {}"), {"TIMEOUT"}),
    "traps": (softmax('asm volatile("trap;");'), {"RUNTIME_ERROR"}),
    "a_wild_address": (softmax("*(volatile float*)(0x1234567800000000ull + at) = 1;"), {"RUNTIME_ERROR"}),
    "deep_recursion": (softmax(
        "y[at] = deep(cols + 100000, x);",
        "__device__ __noinline__ float deep(long long n, const float* x) {"
        "volatile float kept[64]; kept[n % 64] = x[0]; return n == 0 ? kept[0] : deep(n - 1, x) + kept[n % 64]; }"),
        {"RUNTIME_ERROR", "NOT_SUPPORTED"}),
    "much_local_memory": (softmax(
        "volatile float kept[1 << 17]; kept[cols % (1 << 17)] = x[at]; y[at] = kept[rows % (1 << 17)];"),
        {"NOT_SUPPORTED", "COMPILE_ERROR"}),
    "blind_for_nan": (softmax(
        "float most = -3e38f; for (long long j = threadIdx.x; j < cols; j += 128) most = fmaxf(most, x[at + j]);"
        "most = reduce(most, [](float a, float b) { return fmaxf(a, b); }); float sum = 0;"
        "for (long long j = threadIdx.x; j < cols; j += 128) { const float e = expf(x[at + j] - most);"
        " sum += e == e ? e : 0; } sum = reduce(sum, [](float a, float b) { return a + b; });"
        "for (long long j = threadIdx.x; j < cols; j += 128) y[at + j] = expf(x[at + j] - most) / sum;"), WRONG),
    "looks_for_remains": (softmax(
        "const unsigned remains = __float_as_uint(y[at]);"
        f"if (remains == 0xa5a5a5a5u || remains == 0 || remains == 0x7fc0beefu) {{ {HONEST_ROW} }}"), WRONG),
    "knows_when_it_is_timed": (softmax(f"if (__float_as_uint(y[at]) != 0xffffffffu) {{ {HONEST_ROW} }}"), WRONG),
}


class Pusher:
    def __init__(self, address, pack):
        pool = load_pool(pack)
        message = lambda name: class_of(pool.FindMessageTypeByName("warpcall.v1." + name), pool)
        self.request, event = message("PushRequest"), message("PushEvent")
        channel = grpc.insecure_channel(address)
        self.call = channel.unary_stream(
            SERVICE + "Push", request_serializer=self.request.SerializeToString,
            response_deserializer=event.FromString)
        self.describe_request = message("DescribeRequest")
        self.describe = channel.unary_unary(
            SERVICE + "Describe", request_serializer=self.describe_request.SerializeToString,
            response_deserializer=message("DescribeResponse").FromString)

    def push(self, code, **fields):
        """Returns the events of a push, and its seconds."""
        start = time.monotonic()
        events = list(self.call(self.request(code=code.encode(), **fields)))
        return events, time.monotonic() - start


def judge_all(server, pack):
    pusher = Pusher(server.address, pack)
    has_gpu = True
    failures = 0
    for name, (source, expected) in PUSHES.items():
        events, seconds = pusher.push(source.replace("NAME", name))
        verdict = events[-1].verdict
        if name == "honest" and verdict.status == "NOT_SUPPORTED":
            has_gpu = False
            if "it compiles" not in verdict.reason:
                print("skipped:", verdict.reason)
                sys.exit(77)
        right = verdict.status in (expected if has_gpu else {"NOT_SUPPORTED"})
        failures += not right
        print(f"{'ok   ' if right else 'WRONG'} {name:26} {verdict.status:20} {seconds:6.2f} s  {verdict.reason[:120]}",
              flush=True)
        for event in events:
            if event.HasField("timed"):
                print("      " + times_of(event.timed))
    return failures


# Kernels that the server generates and compiles, which need no file beside them: kernel, the names of its operands,
# shapes of its inputs.
OURS = [
    ("gelu", "xy", [(4096, 1024)]),
    ("softmax", "xy", [(4096, 1024)]),
    ("layernorm", ("x", "weight", "bias", "y"), [(4096, 1024), (1024,), (1024,)]),
    ("rmsnorm", ("x", "weight", "y"), [(4096, 1024), (1024,)]),
]
RUNS = 5  # of each source that is timed
TYPES = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16}


def push_of_ours(pusher, kernel, names, shapes, data_type):
    """The generated source for these shapes, under a manifest for them."""
    problem = pusher.describe_request(kernel=kernel, implementation="compiled")
    for shape in shapes:
        problem.inputs.add(data_type=TYPES[data_type], shape=shape)
    description = pusher.describe(problem, timeout=60)
    # A push's T is the manifest's type, which the generated source calls so, too.
    source = re.sub(r"\bT\b", "Generated", next(file.text for file in description.files if file.language == "cuda"))
    manifest = {
        "name": f"ours-{kernel}", "op": kernel, "types": [data_type],
        "code": {"kind": "cuda", "entry": "warpcall_fused"}, "args": [f"{name}.ptr" for name in names],
        "launch": {"grid": [int(n) for n in description.grid.split("x")],
                   "block": [int(n) for n in description.block.split("x")]},
        "requires": [f"{name}.shape[{i}] == {n}" for name, shape in zip(names, shapes) for i, n in enumerate(shape)],
        "examples": [[list(shape) for shape in shapes]]}
    request = pusher.request(code=source.encode(), manifest_json=json.dumps(manifest))
    request.problems.add().inputs.extend(problem.inputs)
    return request


def judge_ours(server, pack):
    pusher = Pusher(server.address, pack)
    failures = 0
    for kernel, names, shapes in OURS:
        for data_type in TYPES:
            events = list(pusher.call(push_of_ours(pusher, kernel, names, shapes, data_type)))
            verdict = events[-1].verdict
            if verdict.status == "NOT_SUPPORTED":
                print("skipped:", verdict.reason)
                sys.exit(77)
            failures += verdict.status != "PASSED"
            print(f"ours-{kernel:10} {data_type:9} {verdict.status:20} {verdict.reason[:140]}", flush=True)
            for event in events:
                if event.HasField("timed"):
                    print("      " + times_of(event.timed))
    return failures


def times_of(timed):
    return ", ".join(f"{row.implementation} {row.median_ns / 1e3:.1f} us" + (f" ({row.error})" if row.error else "")
                     for row in timed.results) + f", floor {timed.floor_ns / 1e3:.1f}"


def measure_times(server, pack):
    """Medians of seconds from source to verdict, each source new to the server."""
    pusher = Pusher(server.address, pack)
    honest, wrong = PUSHES["honest"][0], softmax("y[at] = nothing;")
    number = iter(range(1_000_000))
    shapes = [(256, 1024), (4096, 128), (64, 4096)]

    def push(source, count):
        request = pusher.request(code=(source.replace("NAME", "honest") + f"// {next(number)}\n").encode())
        for shape in shapes[:count]:
            request.problems.add().inputs.add(data_type=FLOAT32, shape=shape)
        start = time.monotonic()
        events, arrivals = [], []
        for event in pusher.call(request):
            events.append(event)
            arrivals.append(f"{event.WhichOneof('event')} {time.monotonic() - start:.2f}")
        return time.monotonic() - start, events, arrivals

    for name, source, count, goal in [
            ("7 drawn around 256x1024", honest, 0, 2.0),
            ("7 drawn around 4096x1024", honest.replace("[256, 1024]", "[4096, 1024]"), 0, 2.0),
            ("3 named, each timed", honest, 3, 1.2),
            ("compile error", wrong, 0, 0.15),
            ("compile error, with cuda_fp16.h", wrong.replace("template", "#include <cuda_fp16.h>\ntemplate", 1), 0, 0.4)]:
        runs = [push(source, count) for _ in range(RUNS)]
        seconds = sorted(run[0] for run in runs)
        statuses = {run[1][-1].verdict.status for run in runs}
        timed = sum(event.HasField("timed") for event in runs[0][1])
        checked = sum(event.HasField("checked") for event in runs[0][1])
        print(f"{name:32} p50 {statistics.median(seconds):.3f} s (goal {goal}), {seconds[0]:.3f} to {seconds[-1]:.3f}; "
              f"{checked} checked, {timed} timed; {statuses}")
        print("    seconds of the last one's events: " + ", ".join(runs[-1][2]), flush=True)
    return 0


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def children(server):
    """Number of the server's child processes."""
    pid = server.process.pid
    return sum(len(open(f"/proc/{pid}/task/{task}/children", encoding="ascii").read().split())
               for task in os.listdir(f"/proc/{pid}/task"))


def gpu_mib():
    output = subprocess.run("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits || true", shell=True,
                            capture_output=True, text=True, check=False).stdout
    return [int(line) for line in output.split()] or [0]


class OtherClient(threading.Thread):
    """Calls a kernel again and again, and counts the results that are wrong."""

    def __init__(self, server, pack):
        super().__init__(daemon=True)
        messages = load_messages(pack)
        self.client = Client(server.address, messages)
        self.x = np.random.default_rng(1).standard_normal((64, 256)).astype(np.float32)
        e = np.exp(self.x.astype(np.float64) - self.x.max(axis=1, keepdims=True))
        self.expected = e / e.sum(axis=1, keepdims=True)
        self.request = messages.ExecuteRequest(kernel="softmax")
        self.request.inputs.add(data_type=FLOAT32, shape=self.x.shape, data=self.x.tobytes())
        self.stopped = threading.Event()
        self.calls = self.wrong = 0

    def run(self):
        while not self.stopped.is_set():
            try:
                response = self.client.execute(self.request, timeout=30)
                y = np.frombuffer(response.outputs[0].data, np.float32).reshape(self.x.shape)
                self.wrong += not np.allclose(y, self.expected, rtol=1e-5, atol=1e-7)
            except grpc.RpcError as error:
                self.wrong += 1
                print("another client:", error.details())
            self.calls += 1
            time.sleep(0.005)


def repeat(server, pack, count):
    pusher = Pusher(server.address, pack)
    source = PUSHES["honest"][0].replace("NAME", "honest")
    pusher.push(source)
    other = OtherClient(server, pack)
    other.start()
    time.sleep(1)
    before, mib_before, processes_before = descriptors(server), gpu_mib(), children(server)
    took = [pusher.push(source)[1] for _ in range(count)]
    time.sleep(2)
    after, mib_after, processes_after = descriptors(server), gpu_mib(), children(server)
    other.stopped.set()
    other.join()
    print(f"another client: {other.calls} calls, {other.wrong} wrong; child processes {processes_before} to "
          f"{processes_after}")
    print(f"{count} pushes: p50 {statistics.median(took):.2f} s, most {max(took):.2f} s; descriptors {before} to {after}; "
          f"GPU memory {mib_before} to {mib_after} MiB")
    return int(after > before + 2 or max(mib_after) > max(mib_before) + 64 or other.wrong > 0 or other.calls == 0
               or processes_after > processes_before)


def main():
    pack = sys.argv[1]
    with Server(pack) as server:
        server.await_rows()
        step = sys.argv[2] if len(sys.argv) > 2 else "all"
        if step == "repeat":
            failed = repeat(server, pack, int(sys.argv[3]))
        else:
            failed = {"all": judge_all, "ours": judge_ours, "times": measure_times}[step](server, pack)
        if failed:
            print(server.log_text()[-3000:])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
