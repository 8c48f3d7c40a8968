"""Requests of a benchmark, and the report that their answers fill: one stream for each problem,
whose parts bring the new rows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

from ._arrays import type_name
from ._execute import Call
from ._format import nanoseconds, variant_name
from ._inspect import Sampling, encode_benchmark, parse_problem
from ._progress import Counter, Progress, counting
from ._proto import BenchmarkResponse
from ._reports import Benchmark, BenchmarkRow, decoded
from ._result import bad_response

# Is called with each row as it comes.
OnRow: TypeAlias = "Callable[[BenchmarkRow], object] | None"


@dataclasses.dataclass(frozen=True)
class BenchmarkCalls:
    """The requests that fill a Benchmark, one for each problem. Raises InvalidArgument for shapes
    or a dtype that are none."""

    kernel: str
    shapes: Any
    """Text or a tuple for one problem, a list of them for several."""
    dtype: object
    implementations: Sequence[str]
    device: str
    sampling: Sampling
    attributes: Mapping[str, object]

    def requests(self) -> list[tuple[str, bytes]]:
        """(the problem, its BenchmarkRequest)."""
        items = self.shapes if _is_list(self.shapes) else [self.shapes]
        problems = [parse_problem(self.kernel, item, self.dtype) for item in items]
        call = Call(self.kernel, device=self.device, attributes=self.attributes)
        names = self.implementations
        names = (names,) if isinstance(names, str) else names
        return [(p.label, encode_benchmark(p, call, names, self.sampling)) for p in problems]

    @contextlib.contextmanager
    def run(self, progress: Progress, on_row: OnRow) -> Generator[BenchmarkRun, None, None]:
        """An exception that ends the run early carries the rows measured so far as its `report`."""
        requests = self.requests()
        report = Benchmark(self.kernel, type_name(self.dtype))
        with counting(progress, len(requests), self.kernel) as counter:
            try:
                yield BenchmarkRun(report, requests, counter, on_row)
            except BaseException as error:
                error.report = report  # type: ignore[attr-defined]
                raise


class BenchmarkRun:
    """A report that is being filled."""

    def __init__(
        self, report: Benchmark, requests: list[tuple[str, bytes]], counter: Counter, on_row: OnRow
    ) -> None:
        self.report = report
        self._requests, self._counter, self._on_row = requests, counter, on_row

    def calls(self) -> Iterator[tuple[bytes, Callable[[bytes], None]]]:
        """(a problem's request, what takes the parts of its answer), one after the other."""
        for problem, message in self._requests:
            yield message, self._taker(problem)
            self._counter()

    def _taker(self, problem: str) -> Callable[[bytes], None]:
        known: set[str] = set()
        first = len(self.report.rows)

        def take(data: bytes) -> None:
            response = decoded(BenchmarkResponse, data)
            for result in response.results:
                name = variant_name(result.implementation, result.launch.variant)
                if name in known:
                    raise bad_response(f"a second result of {name}")
                known.add(name)
            for row in self.report.add(problem, response):
                self._counter.note(_news(row))
                if self._on_row is not None:
                    self._on_row(row)
            self.report.rank(first, response.verdicts)

        return take


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _news(row: BenchmarkRow) -> str:
    if row.predicted_ns > 0:
        return f"{row.name} skipped"
    if row.error:
        return f"{row.name} did not run"
    return f"{row.name} {nanoseconds(row.median_ns)}"
