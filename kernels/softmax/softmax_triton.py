"""softmax over the last axis in Triton's language: several rows a program while they are short, then one,
and rows too long for a program's registers read twice."""

import triton
import triton.language as tl

from variant import Argument, Variant, pointer

LOG2_E = tl.constexpr(1.4426950408889634)

# Columns that a program has room for, rows it takes, and its warps: 16 to 64 elements a thread.
ROW_TILES = ((32, 64, 4), (64, 32, 4), (128, 16, 4), (128, 32, 4), (256, 8, 4), (256, 16, 4), (512, 4, 4),
             (512, 8, 4), (1024, 2, 4), (1024, 4, 4), (2048, 1, 4), (2048, 2, 4), (4096, 1, 4), (4096, 1, 8),
             (8192, 1, 8), (8192, 1, 16), (16384, 1, 8), (16384, 1, 16), (32768, 1, 16), (32768, 1, 32))
# Columns that the program of a longer row takes at a time, and its warps.
LOOP_TILES = ((4096, 8), (8192, 16))


@triton.jit
def softmax_rows(x, y, rows, n, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < n)
    at = row * n + column
    values = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    # A NaN that the maximum passes over makes its power, and so the sum, NaN. So does infinity - infinity.
    greatest = tl.max(values, axis=1, keep_dims=True)
    powers = tl.exp2((values - greatest) * LOG2_E)
    share = 1.0 / tl.sum(powers, axis=1, keep_dims=True)
    tl.store(y + at, (powers * share).to(y.dtype.element_ty), mask=inside)


@triton.jit
def softmax_loop(x, y, n, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    column = tl.arange(0, COLUMNS)
    # Each lane keeps the greatest value that it saw, and its sum relative to that.
    greatest = tl.full([COLUMNS], float("-inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, n, COLUMNS):
        inside = column < n - first
        values = tl.load(x + row + first + column, mask=inside, other=float("-inf")).to(tl.float32)
        risen = tl.maximum(greatest, values)
        # While a lane saw nothing but -infinity, 0 stands for it: -infinity - -infinity would be NaN.
        finite = tl.where(risen == float("-inf"), 0.0, risen)
        total = (total * tl.exp2((greatest - finite) * LOG2_E) +
                 tl.exp2((values - finite) * LOG2_E))
        greatest = risen
    summit = tl.max(greatest, axis=0)
    share = 1.0 / tl.sum(total * tl.exp2((greatest - summit) * LOG2_E), axis=0)
    for first in range(0, n, COLUMNS):
        inside = column < n - first
        values = tl.load(x + row + first + column, mask=inside, other=float("-inf")).to(tl.float32)
        powers = tl.exp2((values - summit) * LOG2_E)
        tl.store(y + row + first + column, (powers * share).to(y.dtype.element_ty), mask=inside)


def variants(data_type):
    tensors = {"x": pointer(data_type), "y": pointer(data_type)}
    for divisor, suffix in ((16, " by 16"), (1, "")):
        n = Argument("i32", divisor)
        for columns, rows, warps in ROW_TILES:
            tile = f"{columns}x{rows}/{warps}"
            yield Variant(name=tile + suffix, tile=tile, kernel=softmax_rows,
                          arguments={**tensors, "rows": Argument("i64"), "n": n},
                          constants={"COLUMNS": columns, "ROWS": rows}, warps=warps,
                          grid=("ceil(rows / ROWS)",), requires=("n <= COLUMNS",))
        for columns, warps in LOOP_TILES:
            tile = f"loop:{columns}/{warps}"
            # Indices of columns have 32 bits.
            yield Variant(name=tile + suffix, tile=tile, kernel=softmax_loop,
                          arguments={**tensors, "n": n}, constants={"COLUMNS": columns}, warps=warps,
                          given=("rows",), grid=("rows",), requires=("n + COLUMNS <= 2147483647",))
