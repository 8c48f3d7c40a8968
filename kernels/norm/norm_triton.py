"""What layernorm and rmsnorm in Triton's language share: rows brought to a mean square of 1, around their mean
or around 0. Several rows a program while they are short, then one, and rows too long for a program's registers read
twice.

`root` is the square root of epsilon: epsilon x factor^2 stays within float32 where its factors do not. `least` is
what that is at least: 0 for an epsilon of 0, otherwise the smallest normal number, which is all that keeps the
square of a row above 0 that is the same throughout. norm_range.h has the same rules.
"""

import triton
import triton.language as tl

from variant import Argument, Variant, pointer

# Columns that a program has room for, rows it takes, and its warps: 16 or 32 elements a thread.
ROW_TILES = ((64, 32, 4), (256, 8, 4), (1024, 2, 4), (2048, 1, 4), (4096, 1, 8), (8192, 1, 8), (16384, 1, 16),
             (32768, 1, 32))
# Of rows that 16 does not divide, which go element by element.
ODD_ROW_TILES = ((64, 32, 4), (256, 8, 4), (1024, 2, 4), (4096, 1, 8), (32768, 1, 32))
# Columns that the program of a longer row takes at a time, and its warps.
LOOP_TILE = (8192, 16)

# Within these a sum of squares neither overflowed nor lost what matters beside itself or epsilon.
SQUARES_MOST = tl.constexpr(2.0 ** 127)
SQUARES_LEAST = tl.constexpr(2.0 ** -100)
ROOT_MOST = tl.constexpr(2.0 ** 50)
ROOT_LEAST = tl.constexpr(2.0 ** -30)


@triton.jit
def out_of_range(squares, root):
    """1 where squares of x itself do not tell what they should, NaN among them; else 0."""
    in_range = ((squares <= SQUARES_MOST) & (root <= ROOT_MOST) &
                ((squares >= SQUARES_LEAST) | (root >= ROOT_LEAST)))
    return tl.where(in_range, 0, 1)


@triton.jit
def factor_for(largest, root):
    """The power of two that brings the greater of the largest |x| and the root to [2^-2, 2^-1); 1 for infinity,
    of which NaN and 0 become anyway."""
    greater = tl.maximum(largest, root)
    exponent = 125 - (greater.to(tl.int32, bitcast=True) >> 23)
    exponent = tl.minimum(tl.maximum(exponent, -126), 126)
    factor = ((exponent + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where((greater > 0) & (largest < float("inf")), factor, 1.0)


@triton.jit
def reciprocal_of(mean_square, factor, root, least):
    scaled = root * factor
    return tl.div_rn(1.0, tl.sqrt_rn(mean_square + tl.maximum(scaled * scaled, least)))


@triton.jit
def add_both(a, b, c, d):
    return a + c, b + d


@triton.jit
def distances_of(values, inside, n, CENTERED: tl.constexpr):
    """Of each row's values from what they are brought around, and the mean of their squares."""
    distances = values
    if CENTERED:
        mean = tl.div_rn(tl.sum(values, axis=1, keep_dims=True), n)
        distances = tl.where(inside, values - mean, 0.0)
        # They tell how far the mean is off (Chan, Golub and LeVeque, 1983): of a row of one value that is all that
        # they are. They are rounded too, those of one binade all in one direction, by up to 2^-24 of their size: a
        # mean that seems to be off by less is better left alone.
        total, squares = tl.reduce((distances, distances * distances), 1, add_both, keep_dims=True)
        off = tl.div_rn(total, n)
        told = off * 16777216.0
        off = tl.where(told * told * n <= squares, 0.0, off)
        distances = tl.where(inside, values - (mean + off), 0.0)
        mean_square = tl.div_rn(squares, n) - off * off
        mean_square = tl.where(mean_square < 0, 0.0, mean_square)  # and NaN stays
    else:
        mean_square = tl.div_rn(tl.sum(values * values, axis=1, keep_dims=True), n)
    return distances, mean_square


@triton.jit
def normalize_rows(values, inside, n, root, least, CENTERED: tl.constexpr):
    """Of whole rows of float32, 0 outside."""
    length = n.to(tl.float32)
    distances, mean_square = distances_of(values, inside, length, CENTERED)
    factor = tl.full(mean_square.shape, 1.0, tl.float32)
    wrong = out_of_range(mean_square * length, root)
    if tl.max(tl.max(wrong, axis=1), axis=0) > 0:
        # A NaN that the maximum passes over comes back with the sums. Rows in range stay as they are.
        largest = tl.max(tl.abs(values), axis=1, keep_dims=True)
        factor = tl.where(wrong > 0, factor_for(largest, root), 1.0)
        distances, mean_square = distances_of(values * factor, inside, length, CENTERED)
    return distances * reciprocal_of(mean_square, factor, root, least)


@triton.jit
def read_row(x, n, factor, COLUMNS: tl.constexpr, CENTERED: tl.constexpr):
    """The mean of a row x factor, 0 unless it is centred, and the mean of the squares around it."""
    column = tl.arange(0, COLUMNS)
    # Each lane has a mean and squares around it (Welford, 1962), which meet at the end.
    mean = tl.zeros([COLUMNS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    seen = 0.0
    for first in range(0, n, COLUMNS):
        inside = column < n - first
        values = tl.load(x + first + column, mask=inside, other=0.0).to(tl.float32) * factor
        if CENTERED:
            seen += 1.0
            distance = tl.where(inside, values - mean, 0.0)
            mean += distance * (1.0 / seen)
            squares += distance * tl.where(inside, values - mean, 0.0)
        else:
            squares += values * values
    length = n.to(tl.float32)
    row_mean = 0.0
    if CENTERED:
        count = ((n - column + COLUMNS - 1) // COLUMNS).to(tl.float32)
        row_mean = tl.div_rn(tl.sum(mean * count, axis=0), length)
        # The lanes' distances from it tell what rounding has cost it.
        row_mean += tl.div_rn(tl.sum((mean - row_mean) * count, axis=0), length)
        squares += (mean - row_mean) * (mean - row_mean) * count
    return row_mean, tl.div_rn(tl.sum(squares, axis=0), length)


@triton.jit
def largest_of(x, n, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    largest = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, n, COLUMNS):
        values = tl.load(x + first + column, mask=column < n - first, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(values))
    return tl.max(largest, axis=0)


@triton.jit
def read_long_row(x, n, root, least, COLUMNS: tl.constexpr, CENTERED: tl.constexpr):
    """What its elements are multiplied by, the mean of those products, and what normalises their distances."""
    mean, mean_square = read_row(x, n, 1.0, COLUMNS, CENTERED)
    factor = 1.0
    if out_of_range(mean_square * n.to(tl.float32), root) > 0:
        factor = factor_for(largest_of(x, n, COLUMNS), root)
        mean, mean_square = read_row(x, n, factor, COLUMNS, CENTERED)
    return factor, mean, reciprocal_of(mean_square, factor, root, least)


def variants_for(data_type, kernels, inputs):
    """Of the kernels of an op for whole and for long rows, and its inputs."""
    rows_kernel, loop_kernel = kernels
    floats = {"root": Argument("fp32"), "least": Argument("fp32")}
    tensors = {name: pointer(data_type) for name in (*inputs, "y")}
    for divisor, suffix, tiles in ((16, " by 16", ROW_TILES), (1, "", ODD_ROW_TILES)):
        n = Argument("i32", divisor)
        for columns, rows, warps in tiles:
            tile = f"{columns}x{rows}/{warps}"
            yield Variant(name=tile + suffix, tile=tile, kernel=rows_kernel,
                          arguments={**tensors, **floats, "rows": Argument("i64"), "n": n},
                          constants={"COLUMNS": columns, "ROWS": rows}, warps=warps,
                          grid=("ceil(rows / ROWS)",), requires=("n <= COLUMNS",))
        columns, warps = LOOP_TILE
        tile = f"loop:{columns}/{warps}"
        # Indices of columns have 32 bits.
        yield Variant(name=tile + suffix, tile=tile, kernel=loop_kernel,
                      arguments={**tensors, **floats, "n": n}, constants={"COLUMNS": columns}, warps=warps,
                      given=("rows",), grid=("rows",), requires=("n + COLUMNS <= 2147483647",))
