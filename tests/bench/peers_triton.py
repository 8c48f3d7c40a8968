"""Kernels in Triton's language as its tutorials teach them, one program a block of elements, a row or a tile: kernels
that one writes in an afternoon. Warpcall's family triton, measured beside them, has tuned ones."""

import torch
import triton
import triton.language as tl

# The longest row that a program holds.
COLUMNS_MAX = 65536


@triton.jit
def gelu_of(x, ERF: tl.constexpr):
    if ERF:
        y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        # 0.5 (1 + tanh(a)) is sigmoid(2 a).
        y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return y


@triton.jit
def gelu_kernel(x, row, y, count, n, ERF: tl.constexpr, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    values = tl.load(x + at, mask=inside).to(tl.float32)
    if ADDS:
        values += tl.load(row + at % n, mask=inside).to(tl.float32)
    tl.store(y + at, gelu_of(values, ERF), mask=inside)


@triton.jit
def softmax_kernel(x, row, y, n, ADDS: tl.constexpr, COLUMNS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * n
    column = tl.arange(0, COLUMNS)
    values = tl.load(x + first + column, mask=column < n, other=float("-inf")).to(tl.float32)
    if ADDS:
        values += tl.load(row + column, mask=column < n, other=0.0).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + first + column, powers / tl.sum(powers, axis=0), mask=column < n)


@triton.jit
def norm_kernel(x, weight, bias, y, n, epsilon, CENTRES: tl.constexpr, COLUMNS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * n
    column = tl.arange(0, COLUMNS)
    inside = column < n
    values = tl.load(x + first + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRES:
        values = tl.where(inside, values - tl.sum(values, axis=0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + epsilon)
    values = values * scale * tl.load(weight + column, mask=inside).to(tl.float32)
    if CENTRES:
        values += tl.load(bias + column, mask=inside).to(tl.float32)
    tl.store(y + first + column, values, mask=inside)


@triton.jit
def product_kernel(a, b, bias, c, M, N, K, b_k, b_n, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
                   TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr):
    # Programs go down GROUP tiles of rows before they go on to the next of columns, for the L2's sake.
    tiles_n = tl.cdiv(N, TILE_N)
    group = tl.program_id(0) // (GROUP * tiles_n)
    rows = min(tl.cdiv(M, TILE_M) - group * GROUP, GROUP)
    tile_m = group * GROUP + tl.program_id(0) % (GROUP * tiles_n) % rows
    tile_n = tl.program_id(0) % (GROUP * tiles_n) // rows
    m = tile_m * TILE_M + tl.arange(0, TILE_M)
    n = tile_n * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    at_a = a + (m % M)[:, None] * K + k[None, :]
    at_b = b + k[:, None] * b_k + (n % N)[None, :] * b_n
    sums = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for first in range(0, K, TILE_K):
        left = tl.load(at_a, mask=k[None, :] < K - first, other=0.0)
        right = tl.load(at_b, mask=k[:, None] < K - first, other=0.0)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
        at_a += TILE_K
        at_b += TILE_K * b_k
    if ACTIVATION != "product":
        sums += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "gelu":
        sums = gelu_of(sums, False)
    tl.store(c + m[:, None] * N + n[None, :], sums, mask=(m < M)[:, None] & (n < N)[None, :])


def gelu(x, row=None, erf=False):
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, x if row is None else row, y, x.numel(), x.shape[-1],
                                                 ERF=erf, ADDS=row is not None, BLOCK=1024)
    return y


def columns_of(x):
    """A power of two, and warps for it."""
    if x.shape[-1] > COLUMNS_MAX:
        raise ValueError(f"a row has {x.shape[-1]} columns; a program holds at most {COLUMNS_MAX}")
    columns = triton.next_power_of_2(x.shape[-1])
    return {"COLUMNS": columns, "num_warps": min(16, max(4, columns // 1024))}


def softmax(x, row=None):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, x if row is None else row, y, x.shape[-1], ADDS=row is not None,
                                  **columns_of(x))
    return y


def norm(x, weight, bias, epsilon):
    """layernorm, or with no bias rmsnorm."""
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, weight, weight if bias is None else bias, y, x.shape[-1], epsilon,
                               CENTRES=bias is not None, **columns_of(x))
    return y


# Rows, columns, terms of a tile, warps, stages: of 16 bits as large as a multiprocessor holds; of float32, whose
# "ieee" products are no tensor core's, smaller ones. Few rows of a get smaller tiles.
TILES = {"wide": (128, 256, 64, 8, 3), "tf32": (128, 128, 32, 8, 3), "ieee": (64, 64, 16, 4, 3),
         "few": (16, 64, 128, 4, 4)}


def product(a, b, bias=None, activation="product", precision="ieee"):
    """a[m, k] x b[k, n], whatever the strides of b."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    name = "few" if m < 64 else precision if a.dtype == torch.float32 else "wide"
    tile_m, tile_n, tile_k, warps, stages = TILES[name]
    product_kernel[(triton.cdiv(m, tile_m) * triton.cdiv(n, tile_n),)](
        a, b, a if bias is None else bias, c, m, n, k, b.stride(0), b.stride(1), PRECISION=precision,
        ACTIVATION=activation, TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, GROUP=8, num_warps=warps,
        num_stages=stages)
    return c
