"""Times of PyTorch, torch.compile and cuBLASLt in a captured CUDA graph for the graphs of warpcall_graph_bench, as rows
of its table.

    graph_peers.py

Run it after that program on the same machine, since only figures of one machine at one time compare. "device": one call
after a pause, as a server's requests come, between CUDA events, less what lies between two events with nothing between
them. "in a row": one of CALLS calls, by events, which hides what a CPU needs to launch them wherever that takes less time
than the GPU. "call": one call by the clock, until the GPU is done. Contenders take turns; the figures are medians. A
result that differs from PyTorch's is not reported.
"""

import statistics
import time

import torch
import torch.nn.functional as F

ROUNDS, CALLS = 20, 50
# As long as a client of the server takes from one call to the next.
PAUSE_SECONDS = 500e-6
WARMUP_CALLS = 5
# The relative error (Euclidean) of a right result against PyTorch's is below this.
ERROR_MAX = 2e-2
GELU = {"approximate": "tanh"}


def tensors(*shapes):
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) / shape[-1] ** 0.5 for shape in shapes]


def layers():
    x = torch.randn(128, 1024, device="cuda", dtype=torch.bfloat16)
    weights = [tensors((1024, 1024), (1024,)) for _ in range(8)]

    def run(x):
        for w, b in weights:
            x = F.gelu(F.linear(x, w, b), **GELU)
        return x

    def by_cublaslt(x):
        for w, b in weights:
            x = torch._addmm_activation(b, x, w.t(), use_gelu=True)
        return x

    return "8 × linear with gelu, 128×1024", x, run, by_cublaslt


def block():
    x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
    w0, b0, w1, b1, scale, shift = tensors((4096, 1024), (4096,), (1024, 4096), (1024,), (1024,), (1024,))

    def run(x):
        h = F.gelu(F.linear(x, w0, b0), **GELU)
        return F.layer_norm(x + F.linear(h, w1, b1), (1024,), scale, shift, 1e-5)

    def by_cublaslt(x):
        h = torch._addmm_activation(b0, x, w0.t(), use_gelu=True)
        return F.layer_norm(x + torch.addmm(b1, h, w1.t()), (1024,), scale, shift, 1e-5)

    return "512 × (1024 → 4096 → 1024), residual, layernorm", x, run, by_cublaslt


def small_steps():
    x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
    scale, = tensors((1024,))

    def run(x):
        y = F.gelu(F.rms_norm(F.gelu(x, **GELU), (1024,), scale, 1e-6), **GELU)
        return F.gelu(torch.softmax(y, dim=-1), **GELU)

    return "5 small steps, 64×1024", x, run, None


def captured(function, x):
    """A CUDA graph of the function's launches."""
    with torch.no_grad():
        for _ in range(WARMUP_CALLS):
            function(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = function(x)

    def replay(_):
        graph.replay()
        return y

    return replay


def contenders(x, run, by_cublaslt):
    made = {"torch": run, "torch.compile": torch.compile(run, dynamic=False),
            "torch.compile, reduce-overhead": torch.compile(run, dynamic=False, mode="reduce-overhead"),
            "torch in a CUDA graph": captured(run, x)}
    if by_cublaslt is not None:
        made["cuBLASLt in a CUDA graph"] = captured(by_cublaslt, x)
    return made


def events_us(function, x, calls):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        function(x)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / max(calls, 1)


def device_us(function, x):
    """One call after a pause, and two events without one."""
    times = []
    for calls in (1, 0):
        torch.cuda.synchronize()
        time.sleep(PAUSE_SECONDS)
        times.append(events_us(function, x, calls))
    return times


def call_us(function, x):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6


def measure(name, x, run, by_cublaslt):
    functions = contenders(x, run, by_cublaslt)
    expected = run(x).float()
    for contender in list(functions):
        for _ in range(WARMUP_CALLS):
            result = functions[contender](x)
        error = (torch.linalg.vector_norm(result.float() - expected) / torch.linalg.vector_norm(expected)).item()
        if not error <= ERROR_MAX:
            print(f"{name}: {contender} is wrong: |y - PyTorch's| / |PyTorch's| is {error:.2g}")
            del functions[contender]
    times = {contender: ([], [], [], []) for contender in functions}
    for _ in range(ROUNDS):
        for contender, function in functions.items():
            for _ in range(WARMUP_CALLS):
                function(x)
            device, nothing, row, call = times[contender]
            for _ in range(5):
                for samples, us in zip((device, nothing), device_us(function, x), strict=True):
                    samples.append(us)
                call.append(call_us(function, x))
            row.append(events_us(function, x, CALLS))
    for contender, samples in times.items():
        device, nothing, row, call = map(statistics.median, samples)
        print(f"| {name} | {contender} | {device - nothing:.1f} | {row:.1f} | – | {call:.1f} |", flush=True)


def main():
    torch.manual_seed(1)
    torch.backends.cuda.preferred_blas_library("cublaslt")
    with torch.no_grad():
        for graph in (layers, block, small_steps):
            measure(*graph())


if __name__ == "__main__":
    main()
