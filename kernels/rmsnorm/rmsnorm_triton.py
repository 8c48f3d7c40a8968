"""rmsnorm in Triton's language: a row is read once and written once while a program's registers hold it."""

import triton
import triton.language as tl

from norm_triton import normalize_rows, read_long_row, variants_for


@triton.jit
def rmsnorm_rows(x, weight, y, rows, n, root, least, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < n)
    at = row * n + column
    values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    normalized = normalize_rows(values, inside, n, root, least, CENTERED=False)
    by = tl.load(weight + column, mask=column < n, other=0.0).to(tl.float32)
    tl.store(y + at, (normalized * by).to(y.dtype.element_ty), mask=inside)


@triton.jit
def rmsnorm_loop(x, weight, y, n, root, least, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    factor, _, reciprocal = read_long_row(x + row, n, root, least, COLUMNS, CENTERED=False)
    column = tl.arange(0, COLUMNS)
    for first in range(0, n, COLUMNS):
        inside = column < n - first
        values = tl.load(x + row + first + column, mask=inside, other=0.0).to(tl.float32)
        by = tl.load(weight + first + column, mask=inside, other=0.0).to(tl.float32)
        result = values * factor * reciprocal * by
        tl.store(y + row + first + column, result.to(y.dtype.element_ty), mask=inside)


def variants(data_type):
    return variants_for(data_type, (rmsnorm_rows, rmsnorm_loop), ("x", "weight"))
