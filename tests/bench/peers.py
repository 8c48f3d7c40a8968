"""Times of PyTorch, torch.compile, Triton, cuBLAS, QuACK, FlashInfer and flash-attention for the problems of
warpcall_cuda_kernel_bench, in the format of that program's rows.

    peers.py [--settled] [--warm] [PROBLEM...]      as peers_problems.py lists them; default: all

Run it after that program on the same machine, since only figures of one machine at one time compare. The data are
random; every contender of a problem takes turns with a copy of as many bytes, each sample is a CUDA graph of launches
over operands and outputs that pass the L2 five times before they come again, and the rows show medians. A result that
differs from PyTorch's is not reported. --warm compiles everything in several processes and measures nothing, so that
the run after it does not spend its time on compilers. Exit status 1 when a problem had no contender.

With --settled a short burst chooses the fastest contender of each group, and these are measured as `warpcall bench
--method settled` measures rows, in 12 s each. Their lines add the SM clock, the power, the energy of a launch, and
TFLOP/s per GHz. The problems are by default those that power bounds.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import importlib
import multiprocessing
import os
import sys
import time

# Each problem has a kernel or two to compile: a pool of processes would take longer to start.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.nn.functional as F

import peers_load
import peers_problems

# Per contender.
SAMPLES_MAX, MS_MAX, SAMPLES_MIN = 31, 100.0, 5
# Enough to choose the contenders of a settled run, one of each group.
CHOOSING_SAMPLES = 8
GROUPS = [("triton",), ("torch", "torch.compile", "cublaslt"), ("quack",), ("flashinfer",), ("flash_attn",)]
# The relative error (Euclidean) of a right result against PyTorch's in the same type is below this.
ERROR_MAX = {"float32": 2e-3, "float16": 5e-3, "bfloat16": 2e-2}
WARMING_PROCESSES = 12
ACTIVATIONS = {"none": lambda y: y, "relu": F.relu, "gelu": functools.partial(F.gelu, approximate="tanh"),
               "gelu_erf": F.gelu}
QUACK_ACTIVATIONS = {"none": None, "relu": "relu", "gelu": "gelu_tanh_approx"}
# Modules with the kernels of optional packages.
PACKAGES = {"quack": "quack", "flashinfer": "flashinfer.norm", "flash_attn": "flash_attn.ops.triton.layer_norm"}


class NotTaken(Exception):
    """A contender does not take the problem: why."""


def packages():
    """Name -> module, or why there is none."""
    found = {}
    for name, module in {"triton": "peers_triton", **PACKAGES}.items():
        try:
            found[name] = importlib.import_module(module)
        except Exception as error:  # pylint: disable=broad-except
            found[name] = NotTaken(f"{type(error).__name__}: {error}")
    return found


# ---- contenders: problem -> a function of its operands ----------------------------------------------

def eager(problem):
    attributes = problem.attributes
    match problem.kernel:
        case "gelu":
            return functools.partial(F.gelu, approximate=attributes.get("approximate", "tanh"))
        case "softmax":
            return functools.partial(torch.softmax, dim=attributes.get("axis", -1))
        case "layernorm":
            return lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-5)
        case "rmsnorm":
            return lambda x, weight: F.rms_norm(x, weight.shape, weight, 1e-6)
        case "matmul":
            return torch.matmul
        case "linear":
            activation = ACTIVATIONS[attributes["activation"]]
            return lambda x, weight, bias: activation(F.linear(x, weight, bias))
        case "fused":
            outer = {"gelu(x0 + x1)": ACTIVATIONS["gelu"],
                     "softmax(x0 + x1)": functools.partial(torch.softmax, dim=-1)}[attributes["expression"]]
            return lambda x0, x1: outer(x0 + x1)
    raise NotTaken(f"PyTorch has no {problem.kernel}")


def compiled(problem):
    torch._dynamo.reset()  # or else, after eight problems, a function would not be compiled again
    function = eager(problem)
    return torch.compile(lambda *operands: function(*operands), dynamic=False)


def in_triton(kernels, problem):
    attributes = problem.attributes
    match problem.kernel:
        case "gelu":
            return functools.partial(kernels.gelu, erf=attributes.get("approximate") == "none")
        case "softmax" if attributes.get("axis", -1) == -1:
            return kernels.softmax
        case "layernorm":
            return functools.partial(kernels.norm, epsilon=1e-5)
        case "rmsnorm":
            return functools.partial(kernels.norm, bias=None, epsilon=1e-6)
        case "matmul":
            return functools.partial(kernels.product, precision=attributes.get("precision", "ieee"))
        case "linear" if attributes["activation"] in ("none", "gelu"):
            return lambda x, weight, bias: kernels.product(x, weight.t(), bias, attributes["activation"])
        case "fused":
            return {"gelu(x0 + x1)": kernels.gelu, "softmax(x0 + x1)": kernels.softmax}[attributes["expression"]]
    raise NotTaken("there is no such kernel in peers_triton.py")


def by_cublaslt(problem):
    """cuBLASLt as PyTorch exposes it, with the bias and gelu as its epilogue; see `preferring`."""
    if problem.kernel not in peers_problems.PRODUCTS:
        raise NotTaken("it only multiplies")
    if problem.kernel == "linear" and problem.attributes["activation"] == "gelu":
        return lambda x, weight, bias: torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
    return eager(problem)


def by_quack(quack, problem):
    attributes = problem.attributes
    match problem.kernel:
        case "softmax" if attributes.get("axis", -1) == -1:
            return quack.softmax
        case "layernorm":  # which takes weights in float32 only
            return functools.partial(importlib.import_module("quack.rmsnorm").layernorm_fwd, eps=1e-5)
        case "rmsnorm":
            return functools.partial(quack.rmsnorm, eps=1e-6)
        case "matmul" if problem.data_type != "float32":
            return importlib.import_module("quack.gemm_interface").gemm
        case "linear" if problem.data_type != "float32" and attributes["activation"] in QUACK_ACTIVATIONS:
            products = importlib.import_module("quack.gemm_interface")
            activation = QUACK_ACTIVATIONS[attributes["activation"]]
            if activation is None:
                return lambda x, weight, bias: products.gemm(x, weight.t(), bias=bias)
            return lambda x, weight, bias: products.gemm_act(x, weight.t(), bias=bias, activation=activation,
                                                             store_preact=False)[1]
    raise NotTaken("QuACK has no such kernel")


def by_flashinfer(norm, problem):
    match problem.kernel:
        case "layernorm":
            return functools.partial(norm.layernorm, eps=1e-5)
        case "rmsnorm":
            return functools.partial(norm.rmsnorm, eps=1e-6)
    raise NotTaken("FlashInfer has no such kernel")


def by_flash_attention(module, problem):
    match problem.kernel:
        case "layernorm":
            return functools.partial(module.layer_norm_fn, eps=1e-5)
        case "rmsnorm":
            return functools.partial(module.rms_norm_fn, bias=None, eps=1e-6)
    raise NotTaken("flash-attention has no such kernel")


def contenders(problem, found):
    """Name -> maker of its function."""
    made = {"torch": eager, "torch.compile": compiled, "cublaslt": by_cublaslt}
    for name, maker in (("triton", in_triton), ("quack", by_quack), ("flashinfer", by_flashinfer),
                        ("flash_attn", by_flash_attention)):
        if not isinstance(found[name], NotTaken):
            made[name] = functools.partial(maker, found[name])
    return {name: functools.partial(maker, problem) for name, maker in made.items()}


@contextlib.contextmanager
def preferring(name, problem):
    """While a contender is warmed up, captured or run: the library and the precision that it multiplies with."""
    library = torch.backends.cuda.preferred_blas_library()
    if name == "cublaslt":
        torch.backends.cuda.preferred_blas_library("cublaslt")
    torch.backends.cuda.matmul.allow_tf32 = problem.attributes.get("precision") == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.preferred_blas_library(library)
        torch.backends.cuda.matmul.allow_tf32 = False


# ---- measuring --------------------------------------------------------------------------------------

def operands_of(problem, sets):
    """So many copies of the inputs, N(0, 1), each of its own."""
    data_type = getattr(torch, problem.data_type)
    return [[torch.randn(shape, device="cuda", dtype=data_type) for shape in problem.shapes]
            for _ in range(sets)]


def elapsed_ms(function):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


class Contender:
    """A warm and captured contender: sample() is the time of one launch in a burst, steady() runs without a rest."""

    def __init__(self, name, function, problem, sets):
        self.name, self.function, self.problem, self.sets = name, function, problem, sets
        self.replays = None  # of a steady sample
        with preferring(name, problem), torch.no_grad():
            for _ in range(2):  # compilers, handles, the choice of algorithms
                function(*sets[0])
            torch.cuda.synchronize()
            # Launched one by one, small kernels take as long as the CPU needs for them.
            self.capture(peers_problems.launches_for(elapsed_ms(lambda: function(*sets[0]))))
            launches = peers_problems.launches_for(self.sample())
            if launches > 1.5 * self.launches:
                self.capture(launches)

    def capture(self, launches):
        function, sets = self.function, self.sets
        self.launches, self.graph = launches, torch.cuda.CUDAGraph()
        # Outputs stay until their turn comes again, so that none is written where the L2 still has it.
        outputs = [None] * len(sets)
        with torch.cuda.graph(self.graph):
            for i in range(launches):
                outputs[i % len(sets)] = None
                outputs[i % len(sets)] = function(*sets[i % len(sets)])
        self.sample()

    def sample(self):
        return elapsed_ms(self.graph.replay) / self.launches

    def steady(self):
        """Runs peers_load.SAMPLE_MS of launches. Their number, and the milliseconds of one."""
        if self.replays is None:
            with preferring(self.name, self.problem), torch.no_grad():
                self.capture(peers_problems.launches_for(self.sample(), peers_load.SAMPLE_MS))
            self.replays = max(1, round(peers_load.SAMPLE_MS / (self.sample() * self.launches)))
        launches = self.replays * self.launches
        return launches, elapsed_ms(lambda: [self.graph.replay() for _ in range(self.replays)]) / launches


class Copies:
    """Copies of as many bytes as a problem moves: large ones are slower in a graph, small ones outside."""

    def __init__(self, problem, sets):
        half = problem.bytes // 2
        self.pairs = [[torch.randint(0, 127, (half,), device="cuda", dtype=torch.int8) for _ in range(2)]
                      for _ in range(sets)]
        self.captured = Contender("copy", torch.Tensor.copy_, problem, self.pairs)
        self.launches = self.captured.launches
        self.sample = min((self.captured.sample, self.sample_launched), key=lambda way: min(way(), way(), way()))

    def copy(self):
        for i in range(self.launches):
            to, source = self.pairs[i % len(self.pairs)]
            to.copy_(source)

    def sample_launched(self):
        return elapsed_ms(self.copy) / self.launches


def check(problem, name, function, operands, expected):
    """Raises NotTaken when the result is not PyTorch's."""
    with preferring(name, problem), torch.no_grad():
        result = function(*operands)
    if result.shape != expected.shape:
        raise NotTaken(f"its shape is {tuple(result.shape)}; it must be {tuple(expected.shape)}")
    error = (torch.linalg.vector_norm((result - expected).flatten(), dtype=torch.float32)
             / torch.linalg.vector_norm(expected.flatten(), dtype=torch.float32)).item()
    if not error <= ERROR_MAX[problem.data_type]:
        raise NotTaken(f"wrong: |y - PyTorch's| / |PyTorch's| is {error:.2g}; it must be at most "
                       f"{ERROR_MAX[problem.data_type]:.2g}")


def reason_of(error):
    return error if isinstance(error, NotTaken) else f"{type(error).__name__}: {error}"


def ready(problem, found, sets):
    """Contenders by name, and the reasons of those that are none."""
    with preferring("torch", problem), torch.no_grad():
        expected = eager(problem)(*sets[0])
    taking, refused = {}, {}
    for name, make in contenders(problem, found).items():
        try:
            function = make()
            check(problem, name, function, sets[0], expected)
            taking[name] = Contender(name, function, problem, sets)
        except Exception as error:  # pylint: disable=broad-except
            refused[name] = reason_of(error)
    return taking, refused


def measure(contenders_by_name, samples_max=SAMPLES_MAX):
    """Milliseconds of each one's launches, sample by sample in turns."""
    samples = {name: [] for name in contenders_by_name}
    spent = dict.fromkeys(contenders_by_name, 0.0)
    for turn in range(samples_max):
        for name, contender in contenders_by_name.items():
            if spent[name] > MS_MAX and turn >= SAMPLES_MIN:
                continue
            samples[name].append(contender.sample())
            took_ms = samples[name][-1] * contender.launches
            spent[name] += took_ms
            time.sleep(took_ms * 1e-3)  # like the benchmark, whose rows must not find another clock
    return samples


def fastest_of_groups(samples):
    """Names of the fastest of each group."""
    medians = {name: peers_problems.quantile(values, 0.5) for name, values in samples.items()}
    groups = [[name for name in group if name in medians] for group in GROUPS]
    return [min(group, key=medians.get) for group in groups if group]


def reader_of(device):
    """Reads the device's conditions; None, and says why, where nothing does."""
    try:
        return peers_load.Nvml(device.uuid)
    except (OSError, AttributeError) as error:
        print(f"missing: nvml ({error})")
        return None


def run(line, found, settle=None):
    """Prints one problem's results; whether there was one. `settle`: measures contenders by name by the settled
    method, and returns their samples and loads; None: the method is burst."""
    problem = peers_problems.parse(line)
    count = problem.sets(torch.cuda.get_device_properties(0).L2_cache_size)
    sets = operands_of(problem, count)
    taking, refused = ready(problem, found, sets)
    copies = Copies(problem, count)
    samples = measure({"copy": copies, **taking}, CHOOSING_SAMPLES if settle else SAMPLES_MAX)
    copied = 2 * (problem.bytes // 2) / peers_problems.quantile(samples["copy"], 0.5) * 1e3
    loads = {}
    if settle:
        samples, loads = settle({name: taking[name] for name in fastest_of_groups(samples)})
    print(line)
    for name, values in samples.items():
        print(peers_problems.result_line(name, values, problem, copied)
              + peers_problems.load_text(loads.get(name), values, problem))
    for name, reason in refused.items():
        print(peers_problems.refusal_line(name, reason))
    sys.stdout.flush()
    return bool(taking)


def run_all(lines, found, settled=False):
    device = torch.cuda.get_device_properties(0)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    versions |= {name: getattr(sys.modules[name], "__version__", "of no version") for name in ("triton", *PACKAGES)
                 if not isinstance(found[name], NotTaken)}
    print("peers: " + ", ".join([device.name, *(f"{name} {version}" for name, version in versions.items())]))
    for name, module in found.items():
        if isinstance(module, NotTaken):
            print(f"missing: {name} ({str(module).splitlines()[0]})")
    print(f"method: {'settled' if settled else 'burst'}")
    settle = functools.partial(peers_load.settle, reader=reader_of(device)) if settled else None
    measured = 0
    for line in lines:
        try:
            measured += run(line, found, settle)
        except Exception as error:  # pylint: disable=broad-except
            print(f"{line}\n{peers_problems.refusal_line('(all)', reason_of(error))}", flush=True)
        torch.cuda.empty_cache()
    print(f"{measured} of {len(lines)} problems were measured")
    return 0 if measured == len(lines) else 1


def warm(lines):
    """Compiles the code for these problems, into the caches of Triton and Inductor."""
    found = packages()
    for line in lines:
        problem = peers_problems.parse(line)
        operands = operands_of(problem, 1)[0]
        for name, make in contenders(problem, found).items():
            try:
                with preferring(name, problem), torch.no_grad():
                    make()(*operands)
            except Exception:  # pylint: disable=broad-except
                pass  # The run that measures says why.
        torch.cuda.synchronize()


def warm_all(lines):
    os.environ.setdefault("QUACK_COMPILE_WORKERS", "2")  # of each process
    pieces = [lines[i::WARMING_PROCESSES] for i in range(WARMING_PROCESSES)]
    with concurrent.futures.ProcessPoolExecutor(
            WARMING_PROCESSES, multiprocessing.get_context("spawn")) as processes:
        list(processes.map(warm, [piece for piece in pieces if piece]))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settled", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM")
    arguments = parser.parse_args()
    lines = arguments.problems or peers_problems.lines_for(arguments.settled)
    torch.manual_seed(os.getpid())
    if not arguments.warm:
        # QuACK would keep the choices that it made while other processes used the GPU.
        os.environ.setdefault("QUACK_FORCE_CACHE_UPDATE", "1")
    return warm_all(lines) if arguments.warm else run_all(lines, packages(), arguments.settled)


if __name__ == "__main__":
    sys.exit(main())
