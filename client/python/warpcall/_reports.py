"""Results of Benchmark, Profile and Describe, as tables and pictures."""

from __future__ import annotations

import dataclasses
import html
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from ._format import (
    binary_bytes,
    bytes_per_second,
    flops_per_second,
    nanoseconds,
    table,
    variant_name,
)
from ._messages import Message, decode
from ._plot import bars
from ._proto import BenchmarkResponse, BenchmarkResult, DescribeResponse, RunStamp
from ._residents import ResidentBase
from ._result import bad_response
from ._wire import WireError

Value = TypeVar("Value")
# A table's header and rows.
Cells: TypeAlias = "tuple[list[str], list[list[str]]]"


class Table:
    """A report that prints as a table."""

    def _cells(self) -> Cells:
        raise NotImplementedError

    def _tables(self) -> list[Cells]:
        return [self._cells()]

    def _title(self) -> str:
        raise NotImplementedError

    def _notes(self) -> list[str]:
        """Returns the notes needed to read the table."""
        return []

    def __repr__(self) -> str:
        tables = [table(header, rows) for header, rows in self._tables()]
        return "\n".join(["\n\n".join([self._title(), *tables]), *self._notes()])

    def _repr_html_(self) -> str:
        title = "".join(f"<p>{html.escape(line)}</p>" for line in self._title().splitlines())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"{title}{''.join(map(_html_table, self._tables()))}{notes}"


def _html_table(cells: Cells) -> str:
    header, rows = cells
    lines = ["".join(f"<th>{html.escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


_SHARE_MAX = 1.05
"""Shares of a memory ceiling up to here are the noise of both measurements."""


@dataclasses.dataclass(frozen=True)
class BenchmarkRow(BenchmarkResult):
    """A BenchmarkResult and its problem: "4096x1024"."""

    problem: str = ""

    @classmethod
    def of(cls, result: BenchmarkResult, problem: str) -> BenchmarkRow:
        values = {f.name: getattr(result, f.name) for f in dataclasses.fields(BenchmarkResult)}
        return cls(**values, problem=problem)

    @property
    def name(self) -> str:
        """The implementation that ran: "cuda:two_pass"."""
        return variant_name(self.implementation, self.launch.variant)


class Benchmark(Table):
    """Times of a kernel's implementations, side by side."""

    def __init__(self, kernel: str, dtype: str) -> None:
        self.kernel, self.dtype = kernel, dtype
        self.device = ""
        self.rows: list[BenchmarkRow] = []
        """Rows by problem; within a problem in order of arrival, about the fastest first."""
        self.ceilings: dict[str, float] = {}
        """By problem: bytes per second of a copy measured in the same run, read plus written."""
        self.flops_ceilings: dict[str, float] = {}
        """By problem: multiply-adds in the same run, FLOP/s; 0 where it does not apply."""
        self.read_ceilings: dict[str, float] = {}
        """By problem: bytes per second of reads alone in the same run. The rows' shares are of
        these, or of the copy where they are 0."""
        self.stamps: dict[str, RunStamp] = {}
        """By problem: place and conditions of the measurement."""

    def add(self, problem: str, response: BenchmarkResponse) -> list[BenchmarkRow]:
        """Adds an answer for a problem, or part of one. Returns the rows that came with it.

        Facts about the whole run may come with any part; the last part has all of them."""
        self.device = response.device or self.device
        _keep(self.ceilings, problem, response.ceiling_bytes_per_second, 0.0)
        _keep(self.flops_ceilings, problem, response.flops_ceiling, 0.0)
        _keep(self.read_ceilings, problem, response.read_ceiling_bytes_per_second, 0.0)
        _keep(self.stamps, problem, response.stamp, RunStamp())
        rows = [BenchmarkRow.of(result, problem) for result in response.results]
        self.rows += rows
        return rows

    def rank(self, first: int, verdicts: Mapping[str, str]) -> None:
        """Fills in, for the rows from `first` on, the facts known only when a problem is complete:
        verdicts, and the ceiling behind the rows' shares."""
        for index, row in enumerate(self.rows[first:], first):
            reads = self.read_ceilings.get(row.problem, 0.0)
            ceiling = reads or self.ceilings.get(row.problem, 0.0)
            self.rows[index] = dataclasses.replace(
                row,
                verdict=verdicts.get(row.name, verdicts.get(row.implementation, ""))
                if verdicts
                else row.verdict,
                fraction_of_ceiling=row.bytes_per_second / ceiling
                if ceiling > 0
                else row.fraction_of_ceiling,
            )

    def __iter__(self) -> Iterator[BenchmarkRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict for JSON."""
        return {
            "kernel": self.kernel,
            "dtype": self.dtype,
            "device": self.device,
            "ceilings": dict(self.ceilings),
            "flops_ceilings": dict(self.flops_ceilings),
            "read_ceilings": dict(self.read_ceilings),
            "stamps": {name: dataclasses.asdict(stamp) for name, stamp in self.stamps.items()},
            "rows": [finite(dataclasses.asdict(row)) for row in self.rows],
        }

    def _title(self) -> str:
        return f"{self.kernel} of {self.dtype} on {self.device}, medians of one launch"

    def _cells(self) -> Cells:
        # Where some problems have reads for a ceiling, each share says of what it is.
        any_reads = any(ceiling > 0 for ceiling in self.read_ceilings.values())
        of = "of ceiling" if any_reads else "of copy"
        header = [
            *("problem", "implementation", "median", "min", "noise", "n", "B/s", of),
            *("FLOP/s", "error", "verdict"),
        ]
        rows: list[list[str]] = []
        for row in self.rows:
            if row.error:
                rows.append([row.problem, row.name, *[""] * 8, row.error])
                continue
            over = "!" if row.fraction_of_ceiling > _SHARE_MAX else ""
            if any_reads:
                over += " of reads" if self.read_ceilings.get(row.problem, 0.0) > 0 else " of copy"
            rows.append(
                [
                    row.problem,
                    row.name,
                    nanoseconds(row.median_ns),
                    nanoseconds(row.min_ns),
                    f"{100 * row.noise:.1f} %" if row.median_high_ns else "",
                    str(row.iterations),
                    bytes_per_second(row.bytes_per_second),
                    f"{100 * row.fraction_of_ceiling:.1f} %{over}",
                    flops_per_second(row.flops_per_second),
                    f"{row.relative_error:.1e}",
                    row.verdict or ("unstable" if row.unstable else ""),
                ]
            )
        return header, rows

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if any(row.fraction_of_ceiling > _SHARE_MAX for row in self.rows):
            notes.append(
                "! faster than copying, or reading, was in the same run: its data stay in caches,"
                " or the copy met more load"
            )
        if any(row.unstable and not row.verdict for row in self.rows):
            notes.append("unstable: too noisy, or of more than one speed, to be ranked")
        return notes

    def plot(self, path: str | None = None, *, ax: Any = None) -> Any:
        """Returns an SVG with bars of the median times, by problem, and writes it to `path` if
        given. With `ax`, axes of matplotlib, draws there and returns the axes."""
        return _plot([self], [""], self._title(), path, ax)


def _keep(values: dict[str, Value], problem: str, value: Value, unsaid: Value) -> None:
    """Notes a value of a problem, unless it was not said and there is one."""
    if value != unsaid or problem not in values:
        values[problem] = value


def plot(*reports: Benchmark, path: str | None = None, ax: Any = None) -> Any:
    """Draws the median times of several benchmarks in one picture: kernels, types or devices side
    by side. Takes and returns the same as Benchmark.plot."""
    several = [{getattr(report, name) for report in reports} for name in _APART]
    names = [name for name, values in zip(_APART, several, strict=True) if len(values) > 1]
    prefixes = ["".join(f"{getattr(report, name)} " for name in names) for report in reports]
    common = [", ".join(sorted(values)) for values in several]
    title = f"{common[0]} of {common[1]} on {common[2]}, medians of one launch"
    return _plot(reports, prefixes, title, path, ax)


# Attributes in which benchmarks of one picture may differ.
_APART = ("kernel", "dtype", "device")


def _plot(
    reports: Sequence[Benchmark], prefixes: Sequence[str], title: str, path: str | None, ax: Any
) -> Any:
    ran = [
        (f"{prefix}{row.problem} {row.name}", row.median_ns)
        for prefix, report in zip(prefixes, reports, strict=True)
        for row in report.rows
        if not row.error
    ]
    labels, values = [label for label, _ in ran], [median_ns / 1e3 for _, median_ns in ran]
    if ax is not None:
        ax.barh(labels[::-1], values[::-1])
        ax.set_xlabel("median, µs")
        ax.set_title(title)
        return ax
    return bars(title, labels, values, [nanoseconds(ns) for _, ns in ran]).saved(path)


@dataclasses.dataclass(frozen=True, repr=False)
class Description(Table, DescribeResponse):
    """The implementation that would run for a problem, its launch and the reason."""

    kernel: str = ""
    problem: str = ""

    def source(self, language: str) -> str:
        """Returns the concatenated source files in a language; empty if there is none."""
        return "\n".join(file.text for file in self.files if file.language == language)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict for JSON."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        _, rows = self._cells()
        return "\n".join([self._title(), "", *(f"{fact:20}  {value}" for fact, value in rows)])

    def _title(self) -> str:
        name = variant_name(self.implementation, self.launch.variant)
        return f"{self.kernel} {self.problem} by {name} on {self.device}"

    def _cells(self) -> Cells:
        launch = self.launch
        rows = [["family", self.family], ["chosen because", self.chosen_because]]
        if self.grid:
            rows += [
                ["grid", f"{self.grid} blocks of {self.block} threads"],
                ["waves", f"{launch.waves:.2f}"],
                ["occupancy", f"{100 * launch.theoretical_occupancy:.1f} %"],
                ["registers a thread", str(self.registers_per_thread)],
                ["shared bytes a block", str(self.shared_memory_bytes)],
                ["local bytes a thread", str(self.local_memory_bytes)],
            ]
        rows += [
            ["workspace bytes", str(self.workspace_bytes)],
            ["bytes moved", str(launch.bytes_moved)],
            ["FLOP", str(launch.flops)],
            ["tolerance", self.tolerance],
            ["files", " ".join(file.name for file in self.files)],
        ]
        return ["fact", "value"], rows


Tensor = TypeVar("Tensor", bound=ResidentBase)


class Tensors(Table, list[Tensor]):
    """Tensors that stay on the server, oldest first."""

    def _title(self) -> str:
        total = binary_bytes(sum(tensor.nbytes for tensor in self))
        return f"{len(self)} tensors of {total} stay on the server"

    def _cells(self) -> Cells:
        header = [
            *("handle", "label", "device", "type", "shape", "bytes", "uses", "expires in"),
            "evictable",
        ]
        now_ns = time.time_ns()
        rows = [
            [
                tensor.handle,
                tensor.label,
                tensor.device,
                tensor.dtype_name,
                "x".join(map(str, tensor.shape)),
                binary_bytes(tensor.nbytes),
                str(tensor.info.uses),
                nanoseconds(max(0, tensor.info.expires_unix_ns - now_ns)),
                "yes" if tensor.info.evictable else "",
            ]
            for tensor in self
        ]
        return header, rows


def finite(values: dict[str, Any]) -> dict[str, Any]:
    """None for infinity and NaN, which JSON has none of, and a wrong row's errors may be."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


# ---- calls --------------------------------------------------------------------------------------


def take_description(kernel: str, label: str, data: bytes) -> Description:
    """The Description in an answer."""
    response = decoded(DescribeResponse, data)
    values = {f.name: getattr(response, f.name) for f in dataclasses.fields(response)}
    return Description(**values, kernel=kernel, problem=label)


def decoded(cls: type[Message], data: bytes) -> Message:
    """A message of a server's answer. Raises Internal for bytes that are none."""
    try:
        return decode(cls, data)
    except WireError as error:
        raise bad_response(error) from None
