"""linear in Triton's language: matmul's tiles, whose sums get bias and activation before they are rounded."""

import triton
import triton.language as tl

from gelu_triton import erf_form, tanh_form
from variant import Argument, Variant, pointer

# Rows, columns and depth of a tile, warps, stages, as in matmul_triton.py: those that were fastest there.
TILES_16_BIT = ((128, 256, 64, 8, 3), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4))
TILES_FLOAT32 = ((64, 64, 16, 4, 3),)
GROUP = 8


@triton.jit
def activate(sums, activation):
    # One number for all programs, as matmul::Activation has them: not a kernel each.
    if activation == 1:
        sums = tl.maximum(sums, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif activation == 2:
        sums = tanh_form(sums)
    elif activation == 3:
        sums = erf_form(sums)
    return sums


@triton.jit
def linear(x, weight, bias, y, m, n, k, activation,
           TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(n, TILE_N)
    tile = tl.program_id(0)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(m, TILE_M) - first, GROUP_M)
    tile_m = first + tile % in_group % height
    tile_n = tile % in_group // height

    row = tile_m * TILE_M + tl.arange(0, TILE_M)
    column = tile_n * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    row_inside = row[:, None] < m
    column_inside = column[None, :] < n
    x_at = x + row[:, None].to(tl.int64) * k + depth[None, :]
    weight_at = weight + column[None, :].to(tl.int64) * k + depth[:, None]
    sums = tl.zeros((TILE_M, TILE_N), tl.float32)
    for taken in range(0, k, TILE_K):
        # Beyond k both are 0, so that nothing infinite meets a 0 that is no factor.
        x_tile = tl.load(x_at, mask=row_inside & (depth[None, :] < k - taken), other=0.0)
        weight_tile = tl.load(weight_at, mask=(depth[:, None] < k - taken) & column_inside, other=0.0)
        sums = tl.dot(x_tile, weight_tile, sums, input_precision="ieee")
        x_at += TILE_K
        weight_at += TILE_K

    sums += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    y_at = y + row[:, None].to(tl.int64) * n + column[None, :]
    tl.store(y_at, activate(sums, activation).to(y.dtype.element_ty), mask=row_inside & column_inside)


def variant(data_type, tile, divisor):
    tile_m, tile_n, tile_k, warps, stages = tile
    size = Argument("i32", divisor)
    shape = f"{tile_m}x{tile_n}x{tile_k}/{warps}/{stages}"
    return Variant(
        name=shape + (" by 16" if divisor == 16 else ""), tile=shape, kernel=linear, warps=warps, stages=stages,
        arguments={**{name: pointer(data_type) for name in ("x", "weight", "bias", "y")},
                   "m": Argument("i32"), "n": size, "k": size, "activation": Argument("i32")},
        constants={"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP_M": GROUP},
        grid=("ceil(m / TILE_M) * ceil(n / TILE_N)",),
        # Indices have 32 bits.
        requires=("m + TILE_M <= 2147483647", "n + TILE_N <= 2147483647", "k + TILE_K <= 2147483647"))


def variants(data_type):
    tiles = TILES_FLOAT32 if data_type == "float32" else TILES_16_BIT
    for tile in tiles:
        yield variant(data_type, tile, 16)
    yield variant(data_type, tiles[-1], 1)
