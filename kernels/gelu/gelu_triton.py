"""gelu in Triton's language: one pass, several vectors of 16 bytes a thread, the formula in float32."""

import triton
import triton.language as tl

from variant import Argument, Variant, pointer

# Elements a program takes, and its warps: two or four vectors a thread in float32; of 16 bits, one or two.
TILES = ((1024, 4), (2048, 4), (2048, 8), (4096, 8))


@triton.jit
def tanh_form(x):
    # 0.5 (1 + tanh(a)) = 1 / (1 + exp(-2a)): nothing here overflows to infinity / infinity, as the quotient
    # of exponentials does that tanh is often written as. 2^u is infinite from -32 on down, where y is -0; on
    # the other side x^2 may overflow, and 2^-infinity is 0. gelu_cuda_vector.cu derives the numbers.
    bounded = tl.maximum(x, -32.0, propagate_nan=tl.PropagateNan.ALL)
    u = bounded * (bounded * bounded * -0.102943239 - 2.30220819)
    return bounded / (1.0 + tl.exp2(u))


@triton.jit
def erf_form(x):
    # y = max(x, 0) - s Phi(-s), s = |x|, and Phi(-s) = 2^P(s), with the P that gelu_cuda_vector.cu fits.
    s = tl.minimum(tl.abs(x), 16.0, propagate_nan=tl.PropagateNan.ALL)
    p = s * -1.12249802e-6 + 1.90048322e-5
    p = s * p - 9.22289328e-5
    p = s * p - 3.51257040e-4
    p = s * p + 0.00731929950
    p = s * p - 0.0526514240
    p = s * p - 0.459165871
    p = s * p - 1.15110886
    p = s * p - 1.0
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) - s * tl.exp2(p)


@triton.jit
def apply_form(x, TANH: tl.constexpr):
    wide = x.to(tl.float32)
    if TANH:
        y = tanh_form(wide)
    else:
        y = erf_form(wide)
    return y.to(x.dtype)


@triton.jit
def gelu(x, y, count, BLOCK: tl.constexpr, TANH: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    at = tl.arange(0, BLOCK)
    # Whole blocks go without a mask, whose end would have to be known as a multiple of a vector.
    if first + BLOCK <= count:
        tl.store(y + first + at, apply_form(tl.load(x + first + at), TANH))
    else:
        inside = at < count - first
        tl.store(y + first + at, apply_form(tl.load(x + first + at, mask=inside), TANH), mask=inside)


def variants(data_type):
    for form in ("none", "tanh"):
        for block, warps in TILES:
            yield Variant(name=f"{form} {block}/{warps}", tile=f"{block}/{warps}", kernel=gelu, warps=warps,
                          arguments={"x": pointer(data_type), "y": pointer(data_type),
                                     "count": Argument("i64")},
                          constants={"BLOCK": block, "TANH": form == "tanh"},
                          traits={"form": form}, grid=("ceil(count / BLOCK)",))
