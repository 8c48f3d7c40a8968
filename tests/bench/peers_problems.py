"""The problems on which peers are measured beside warpcall_cuda_kernel_bench, and how their results are written.

Needs nothing but Python: peers.py, which needs PyTorch and a GPU, and tests/gpu/peers_table.py read it. As a
program it prints the problems as `warpcall_cuda_kernel_bench --problems` takes them:

    peers_problems.py [--settled]      --settled: only those that power bounds
"""

import dataclasses
import math
import sys

# warpcall_cuda_kernel_bench's names, and the tables' names.
PROBLEMS = [
    ("gelu float32 268435456", "gelu tanh, 2^28 float32"),
    ("gelu bfloat16 268435456", "gelu tanh, 2^28 bfloat16"),
    ("gelu float16 268435456", "gelu tanh, 2^28 float16"),
    ("gelu bfloat16 268435456 approximate=none", "gelu none, 2^28 bfloat16"),
    ("gelu bfloat16 16777216", "gelu tanh, 2^24 bfloat16"),
    ("gelu bfloat16 1048576", "gelu tanh, 2^20 bfloat16"),
    ("softmax float32 65536x256", "softmax 65536×256 float32"),
    ("softmax float32 32768x4096", "softmax 32768×4096 float32"),
    ("softmax bfloat16 65536x256", "softmax 65536×256 bfloat16"),
    ("softmax bfloat16 65536x1024", "softmax 65536×1024 bfloat16"),
    ("softmax bfloat16 32768x4096", "softmax 32768×4096 bfloat16"),
    ("softmax bfloat16 16384x16384", "softmax 16384×16384 bfloat16"),
    ("softmax bfloat16 4096x65536", "softmax 4096×65536 bfloat16"),
    ("softmax bfloat16 8x262144", "softmax 8×262144 bfloat16"),
    ("softmax bfloat16 16384x4096 axis", "softmax 16384×4096 bfloat16, axis 0"),
    ("layernorm float32 32768x4096 4096 4096", "layernorm 32768×4096 float32"),
    ("layernorm bfloat16 65536x1024 1024 1024", "layernorm 65536×1024 bfloat16"),
    ("layernorm bfloat16 16384x8192 8192 8192", "layernorm 16384×8192 bfloat16"),
    ("rmsnorm bfloat16 65536x1024 1024", "rmsnorm 65536×1024 bfloat16"),
    ("rmsnorm bfloat16 16384x8192 8192", "rmsnorm 16384×8192 bfloat16"),
    ("fused bfloat16 65536x4096 4096 expression=gelu(x0 + x1)", "fused gelu(x0 + x1) bfloat16"),
    ("fused bfloat16 65536x4096 4096 expression=softmax(x0 + x1)", "fused softmax(x0 + x1) bfloat16"),
    ("matmul float32 2048x2048 2048x2048", "matmul 2048³ float32"),
    ("matmul float32 4096x4096 4096x4096", "matmul 4096³ float32"),
    ("matmul float32 4096x4096 4096x4096 precision=tf32", "matmul 4096³ tf32"),
    ("matmul float16 4096x4096 4096x4096", "matmul 4096³ float16"),
    ("matmul bfloat16 1024x1024 1024x1024", "matmul 1024³ bfloat16"),
    ("matmul bfloat16 2048x2048 2048x2048", "matmul 2048³ bfloat16"),
    ("matmul bfloat16 4096x4096 4096x4096", "matmul 4096³ bfloat16"),
    ("matmul bfloat16 8192x8192 8192x8192", "matmul 8192³ bfloat16"),
    ("matmul bfloat16 4095x4095 4095x4095", "matmul 4095³ bfloat16"),
    ("matmul bfloat16 16x4096 4096x4096", "matmul 16×4096×4096 bfloat16"),
    ("matmul bfloat16 1x8192 8192x8192", "matmul 1×8192×8192 bfloat16"),
    ("linear float32 4096x4096 4096x4096 4096 activation=gelu", "linear with gelu 4096³ float32"),
    ("linear bfloat16 4096x4096 4096x4096 4096 activation=none", "linear 4096³ bfloat16"),
    ("linear bfloat16 4096x4096 4096x4096 4096 activation=gelu", "linear with gelu 4096³ bfloat16"),
]
# The problems that power bounds, which the settled method measures.
POWER_BOUND = [
    "matmul float32 4096x4096 4096x4096",
    "matmul float32 4096x4096 4096x4096 precision=tf32",
    "matmul float16 4096x4096 4096x4096",
    "matmul bfloat16 2048x2048 2048x2048",
    "matmul bfloat16 4096x4096 4096x4096",
    "matmul bfloat16 8192x8192 8192x8192",
    "linear bfloat16 4096x4096 4096x4096 4096 activation=none",
    "linear bfloat16 4096x4096 4096x4096 4096 activation=gelu",
]
ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
PRODUCTS = ("matmul", "linear")
# Like warpcall_cuda_kernel_bench: operands pass the L2 so many times before they come again.
L2_PASSES, SETS_MAX = 5, 64
# A sample is a graph of launches of at least this long.
SAMPLE_MS, LAUNCHES_MIN, LAUNCHES_MAX = 1.0, 2, 400


@dataclasses.dataclass(frozen=True)
class Problem:
    line: str
    kernel: str
    data_type: str
    shapes: tuple
    attributes: dict

    @property
    def output(self):
        """Its shape."""
        if self.kernel == "matmul":
            return (self.shapes[0][0], self.shapes[1][1])
        if self.kernel == "linear":
            return (self.shapes[0][0], self.shapes[1][0])
        return self.shapes[0]

    @property
    def bytes(self):
        """The least that must move: inputs read once, outputs written once."""
        return ELEMENT_BYTES[self.data_type] * sum(math.prod(shape) for shape in (*self.shapes, self.output))

    @property
    def flops(self):
        """Operations of products, two for each term; 0 for problems not measured by arithmetic."""
        if self.kernel not in PRODUCTS:
            return 0
        return 2 * math.prod(self.output) * self.shapes[0][1]

    def sets(self, l2_bytes):
        """Number of copies of the operands that take turns."""
        return min(SETS_MAX, L2_PASSES * l2_bytes // self.bytes + 1)


def parse(line):
    """Reads "softmax float32 65536x256 axis": kernel, type, shapes, then attributes. The last attribute's text may
    contain blanks."""
    kernel, data_type, *words = line.split(" ")
    if data_type not in ELEMENT_BYTES:
        raise ValueError(f"{line!r}: the type is {data_type!r}; it must be one of {', '.join(ELEMENT_BYTES)}")
    shapes, attributes = [], {}
    while words and words[0][:1].isdigit():
        shapes.append(tuple(int(dimension) for dimension in words.pop(0).split("x")))
    if not shapes:
        raise ValueError(f"{line!r} has no shape after its type")
    if words:
        name, equals, text = " ".join(words).partition("=")
        # Numbers are not written: the one axis but the last that is measured is 0.
        if not equals and name != "axis":
            raise ValueError(f"{line!r}: {name!r} has no value; only axis needs none, and is 0")
        attributes[name] = text if equals else 0
    return Problem(line, kernel, data_type, tuple(shapes), attributes)


def launches_for(launch_ms, sample_ms=SAMPLE_MS):
    """Number of launches in a sample, each of which takes so long."""
    return max(LAUNCHES_MIN, min(LAUNCHES_MAX, int(sample_ms / max(launch_ms, 1e-9)) + 1))


def quantile(values, q):
    """Quantile as in warpcall_cuda_kernel_bench: the nearest value, not one between two."""
    ordered = sorted(values)
    return ordered[int(q * (len(ordered) - 1) + 0.5)]


def lines_for(settled):
    return POWER_BOUND if settled else [line for line, _ in PROBLEMS]


def result_line(name, samples_ms, problem, copy_bytes_per_second):
    """One peer's result, in the format of warpcall_cuda_kernel_bench's rows. `samples_ms`: times of one launch."""
    median, low, high = (quantile(samples_ms, q) * 1e3 for q in (0.5, 0.1, 0.9))
    rate = problem.bytes / median * 1e6
    return (f"  {name:<22} {median:10.2f} us  (p10 {low:.2f} p90 {high:.2f}) {rate * 1e-9:8.0f} GB/s "
            f"{100 * rate / copy_bytes_per_second:5.1f} % of copy {problem.flops / median * 1e-6:8.2f} TFLOP/s")


def load_text(load, samples_ms, problem):
    """The figures that warpcall_cuda_kernel_bench --settled adds to a row; empty for a load of None."""
    if load is None:
        return ""
    tflops = problem.flops / quantile(samples_ms, 0.5) * 1e-9
    return (f"  {load.mhz:5.0f} MHz {load.watts:6.1f} W {load.mj:9.3f} mJ {tflops / load.mhz * 1e3:7.4f} "
            "TFLOP/s per GHz")


def refusal_line(name, reason):
    """Row of a peer that did not take the problem: the reason's first line, cut."""
    first = (str(reason).strip().splitlines() or ["no reason was given"])[0]
    return f"  {name:<22} not measured: {first[:120]}"


if __name__ == "__main__":
    print("\n".join(lines_for(sys.argv[1:] == ["--settled"])))
