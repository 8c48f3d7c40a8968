"""matmul in Triton's language: a tile of c a program, on tensor cores where the type or the asked precision
allows, tiles in an order that keeps what neighbours read in the second-level cache."""

import triton
import triton.language as tl

from variant import Argument, Variant, pointer

# Rows, columns and depth of a tile, warps, stages of the pipeline that fetches tiles of a and b.
TILES_16_BIT = ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3),
                (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4))
TILES_TF32 = ((128, 256, 32, 8, 3), (128, 128, 32, 4, 4), (64, 64, 32, 4, 4))
TILES_FLOAT32 = ((128, 128, 16, 8, 3), (64, 64, 16, 4, 3))
# Rows of tiles that take turns before the next columns: 8 x 8 tiles share 16 strips of a and b.
GROUP = 8


@triton.jit
def matmul(a, b, c, m, n, k, a_stride, b_stride, a_batch, b_batch, c_batch,
           TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP_M: tl.constexpr,
           A_BY_COLUMN: tl.constexpr, B_BY_COLUMN: tl.constexpr, PRECISION: tl.constexpr):
    tiles_n = tl.cdiv(n, TILE_N)
    tile = tl.program_id(0)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(m, TILE_M) - first, GROUP_M)
    tile_m = first + tile % in_group % height
    tile_n = tile % in_group // height

    batch = tl.program_id(1).to(tl.int64)
    row = tile_m * TILE_M + tl.arange(0, TILE_M)
    column = tile_n * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    row_inside = row[:, None] < m
    column_inside = column[None, :] < n
    # Of each operand one index is adjacent in memory; the other is `stride` elements apart.
    if A_BY_COLUMN:
        a_at = a + batch * a_batch + row[:, None] + depth[None, :].to(tl.int64) * a_stride
        a_step = a_stride * TILE_K
    else:
        a_at = a + batch * a_batch + row[:, None].to(tl.int64) * a_stride + depth[None, :]
        a_step = TILE_K
    if B_BY_COLUMN:
        b_at = b + batch * b_batch + depth[:, None] + column[None, :].to(tl.int64) * b_stride
        b_step = TILE_K
    else:
        b_at = b + batch * b_batch + depth[:, None].to(tl.int64) * b_stride + column[None, :]
        b_step = b_stride * TILE_K

    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for taken in range(0, k, TILE_K):
        # Beyond k both are 0, so that nothing infinite meets a 0 that is no factor.
        a_tile = tl.load(a_at, mask=row_inside & (depth[None, :] < k - taken), other=0.0)
        b_tile = tl.load(b_at, mask=(depth[:, None] < k - taken) & column_inside, other=0.0)
        total = tl.dot(a_tile, b_tile, total, input_precision=PRECISION)
        a_at += a_step
        b_at += b_step

    c_at = c + batch * c_batch + row[:, None].to(tl.int64) * n + column[None, :]
    tl.store(c_at, total.to(c.dtype.element_ty), mask=row_inside & column_inside)


def variant(data_type, tile, layout, precision, divisor):
    tile_m, tile_n, tile_k, warps, stages = tile
    size, stride = Argument("i32", divisor), Argument("i64", divisor)
    shape = f"{tile_m}x{tile_n}x{tile_k}/{warps}/{stages}"
    suffix = (" tf32" if precision == "tf32" else "") + (" by 16" if divisor == 16 else "")
    return Variant(
        name=f"{shape} {layout}{suffix}", tile=shape, kernel=matmul, warps=warps, stages=stages,
        arguments={"a": pointer(data_type), "b": pointer(data_type), "c": pointer(data_type),
                   "m": size if layout[0] == "t" else Argument("i32"), "n": size, "k": size,
                   "a_stride": stride, "b_stride": stride, "a_batch": stride, "b_batch": stride, "c_batch": stride},
        constants={"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "GROUP_M": GROUP,
                   "A_BY_COLUMN": layout[0] == "t", "B_BY_COLUMN": layout[1] == "t",
                   "PRECISION": precision},
        traits={"layout": layout, "precision": precision}, given=("batches",),
        grid=("ceil(m / TILE_M) * ceil(n / TILE_N)", "batches"),
        # Indices have 32 bits.
        requires=("m + TILE_M <= 2147483647", "n + TILE_N <= 2147483647", "k + TILE_K <= 2147483647"))


def variants(data_type):
    for layout in ("nn", "nt", "tn", "tt"):
        if data_type == "float32":
            tables = (("ieee", TILES_FLOAT32), ("tf32", TILES_TF32))
        else:
            tables = (("ieee", TILES_16_BIT),)
        for precision, tiles in tables:
            for tile in tiles:
                yield variant(data_type, tile, layout, precision, 16)
            yield variant(data_type, tiles[-1], layout, precision, 1)
