"""Two benchmarks side by side, by the rules of `warpcall compare`
(client/cli/bench/comparison.cc)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from ._format import nanoseconds
from ._reports import Benchmark, BenchmarkRow, Cells, Table, finite

_UNKNOWN = math.nan


@dataclasses.dataclass(frozen=True)
class ComparedRow:
    """One problem and implementation in two benchmarks. Values that one of them lacks are NaN."""

    problem: str
    implementation: str
    before_ns: float = _UNKNOWN
    """The median."""
    after_ns: float = _UNKNOWN
    before_low_ns: float = _UNKNOWN
    """Low end of the median's 95 % confidence interval; before_high_ns is the high end."""
    before_high_ns: float = _UNKNOWN
    after_low_ns: float = _UNKNOWN
    after_high_ns: float = _UNKNOWN
    verdict: str = ""
    """"faster" or "slower" when the intervals do not meet, "no difference seen" when they do;
    "unstable", "no interval known", or the one of the two that did not run."""

    @property
    def ratio(self) -> float:
        """The second median divided by the first: below 1 is faster."""
        return self.after_ns / self.before_ns

    @property
    def ratio_low(self) -> float:
        """Lowest ratio within both intervals; ratio_high is the highest."""
        return self.after_low_ns / self.before_high_ns

    @property
    def ratio_high(self) -> float:
        return self.after_high_ns / self.before_low_ns


class Comparison(Table):
    """Two benchmarks side by side."""

    def __init__(self, before: Benchmark, after: Benchmark) -> None:
        self.kernel = after.kernel
        self.rows = _compared(before.rows, after.rows)
        """Rows of `after` in order, then those that only `before` has."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as a dict for JSON."""
        ratios = ("ratio", "ratio_low", "ratio_high")
        rows = [
            finite({**dataclasses.asdict(row), **{name: getattr(row, name) for name in ratios}})
            for row in self.rows
        ]
        return {"kernel": self.kernel, "rows": rows}

    def _title(self) -> str:
        return f"{self.kernel}: medians before and after"

    def _cells(self) -> Cells:
        rows = [
            [
                *(row.problem, row.implementation),
                *(
                    _time(row.before_ns),
                    _interval(row.before_ns, row.before_low_ns, row.before_high_ns),
                ),
                *(
                    _time(row.after_ns),
                    _interval(row.after_ns, row.after_low_ns, row.after_high_ns),
                ),
                *("-" if math.isnan(row.ratio) else f"{row.ratio:.3f}", row.verdict),
            ]
            for row in self.rows
        ]
        header = [
            "problem",
            "implementation",
            "before",
            "95 %",
            "after",
            "95 %",
            "ratio",
            "verdict",
        ]
        return header, rows


def compare(before: Benchmark, after: Benchmark) -> Comparison:
    """Compares the common rows of two benchmarks: the same server before and after a change, two
    types, two devices. A row is "faster" or "slower" only if the 95 % intervals of its medians do
    not overlap."""
    return Comparison(before, after)


def _compared(before: Iterable[BenchmarkRow], after: Iterable[BenchmarkRow]) -> list[ComparedRow]:
    """Pairs each row of `before` with at most one of `after`."""
    left: dict[tuple[str, str], list[BenchmarkRow]] = {}
    for row in before:
        left.setdefault((row.problem, row.name), []).append(row)
    rows: list[ComparedRow] = []
    for row in after:
        same = left.get((row.problem, row.name))
        rows.append(_pair(same.pop(0) if same else None, row))
    return rows + [_pair(row, None) for same in left.values() for row in same]


def _pair(before: BenchmarkRow | None, after: BenchmarkRow | None) -> ComparedRow:
    either = after or before
    assert either is not None
    before_ns, before_low, before_high = _measured(before)
    after_ns, after_low, after_high = _measured(after)
    return ComparedRow(
        *(either.problem, either.name),
        *(before_ns, after_ns, before_low, before_high, after_low, after_high),
        _verdict(before, after),
    )


def _has_time(row: BenchmarkRow) -> bool:
    return not row.error and math.isfinite(row.median_ns) and row.median_ns > 0


def _has_interval(row: BenchmarkRow) -> bool:
    return 0 < row.median_low_ns <= row.median_high_ns


def _measured(row: BenchmarkRow | None) -> tuple[float, float, float]:
    """(median, its low and its high end)."""
    if row is None or not _has_time(row):
        return _UNKNOWN, _UNKNOWN, _UNKNOWN
    if not _has_interval(row):
        return row.median_ns, _UNKNOWN, _UNKNOWN
    return row.median_ns, row.median_low_ns, row.median_high_ns


def _verdict(before: BenchmarkRow | None, after: BenchmarkRow | None) -> str:
    if before is None:
        return "only after"
    if after is None:
        return "only before"
    if not _has_time(before):
        return "did not run before" if _has_time(after) else "did not run"
    if not _has_time(after):
        return "no longer runs"
    if before.unstable or after.unstable:
        return "unstable"
    if not _has_interval(before) or not _has_interval(after):
        return "no interval known"
    if after.median_high_ns < before.median_low_ns:
        return "faster"
    return "slower" if after.median_low_ns > before.median_high_ns else "no difference seen"


def _time(ns: float) -> str:
    return "-" if math.isnan(ns) else nanoseconds(ns)


def _interval(median: float, low: float, high: float) -> str:
    """In percent of the median, "-1.2 +0.8"."""
    if math.isnan(low):
        return "-"
    return f"-{100 * (1 - low / median):.1f} +{100 * (high / median - 1):.1f}"
