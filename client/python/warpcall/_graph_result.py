"""The answer to a graph's call, its outputs as results, and what would run for a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _wire as wire
from ._arrays import Array
from ._execute import TensorView, read_tensor
from ._format import binary_bytes, nanoseconds, variant_name
from ._messages import decode
from ._proto import DescribedStep, DescribeResponse, GraphStepResult, LaunchInfo, Timing
from ._reports import Cells, Table, decoded
from ._result import Ceiling, Result, bad_response, output_text, unknown_ceiling
from ._wire import WireError

# Fields of an ExecuteGraphResponse.
_OUTPUTS, _STEPS, _DEVICE, _TIMING, _REQUEST_ID = range(1, 6)
_RESIDENT_BYTES, _INTERMEDIATE_BYTES, _REPLAYED = range(6, 9)


@dataclasses.dataclass(frozen=True)
class GraphStepRow(GraphStepResult):
    """A GraphStepResult and the step's kernel."""

    kernel: str = ""

    @property
    def implementation_name(self) -> str:
        """The implementation that ran, with its variant: "cuda:two_pass"."""
        return variant_name(self.implementation, self.launch.variant)


class GraphSteps(Table, list[GraphStepRow]):
    """The steps of a graph's call, in the order in which they ran; prints as a table."""

    def __init__(self, rows: Sequence[GraphStepRow], title: str) -> None:
        super().__init__(rows)
        self._text = title

    def _title(self) -> str:
        return self._text

    def _cells(self) -> Cells:
        header = ["step", "kernel", "implementation", "time"]
        rows = [
            [
                row.name,
                row.kernel,
                row.implementation_name,
                nanoseconds(row.kernel_ns) if row.kernel_ns else "",
            ]
            for row in self
        ]
        return header, rows

    def _notes(self) -> list[str]:
        if any(row.kernel_ns for row in self):
            return []
        return ["step_times=True times each step by itself"]


class GraphAnswer:
    """All of an ExecuteGraphResponse but its outputs. Messages are decoded on use."""

    __slots__ = ("_kernels", "_numbers", "_parts", "_steps")

    def __init__(self, data: bytes, kernels: Mapping[str, str]) -> None:
        """`kernels`: by the names of their steps. Raises WireError for bytes that are no such
        message."""
        self._kernels = dict(kernels)
        self._numbers: dict[int, int] = {}
        self._parts: dict[int, bytes] = {}
        self._steps: list[bytes] = []
        for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
            if wire_type == wire.VARINT:
                if number >= _RESIDENT_BYTES:
                    self._numbers[number] = wire.signed(value)
            elif wire_type != wire.BYTES or number == _OUTPUTS:
                continue
            elif number == _STEPS:
                self._steps.append(data[value:stop])
            elif number == _TIMING:  # encodings one after the other are that of both merged
                self._parts[number] = self._parts.get(number, b"") + data[value:stop]
            elif number <= _REQUEST_ID:
                self._parts[number] = data[value:stop]

    def _text(self, number: int) -> str:
        return self._parts.get(number, b"").decode(errors="replace")

    @property
    def device(self) -> str:
        return self._text(_DEVICE)

    @property
    def request_id(self) -> str:
        return self._text(_REQUEST_ID)

    @property
    def resident_bytes(self) -> int:
        return self._numbers.get(_RESIDENT_BYTES, 0)

    @property
    def intermediate_bytes(self) -> int:
        return self._numbers.get(_INTERMEDIATE_BYTES, 0)

    @property
    def replayed(self) -> bool:
        return bool(self._numbers.get(_REPLAYED, 0))

    @property
    def implementation(self) -> str:
        return ", ".join(dict.fromkeys(row.implementation for row in self.steps()))

    def timing(self) -> Timing:
        return decode(Timing, self._parts.get(_TIMING, b""))

    def launch(self) -> LaunchInfo:
        launches = [row.launch for row in self.steps()]
        return LaunchInfo(
            bytes_moved=sum(launch.bytes_moved for launch in launches),
            flops=sum(launch.flops for launch in launches),
            gpu_kernels=sum(launch.gpu_kernels for launch in launches),
        )

    def steps(self) -> list[GraphStepRow]:
        rows: list[GraphStepRow] = []
        for data in self._steps:
            step = decode(GraphStepResult, data)
            kernel = self._kernels.get(step.name, "")
            rows.append(
                GraphStepRow(step.name, step.implementation, step.kernel_ns, step.launch, kernel)
            )
        return rows


class GraphResult(Result):
    """An output of a graph's call: a Result whose facts are those of the whole graph.

    `kernel` is the name of the output. `implementation` names each one that ran, once. `timing` is
    the whole call's, its `kernel_ns` the time of all steps together; `launch` adds up their work,
    without occupancy and waves."""

    __slots__ = ()

    def __init__(
        self,
        name: str,
        answer: GraphAnswer,
        outputs: list[Array],
        ceiling: Ceiling,
        residents: Sequence[Any] = (),
    ) -> None:
        super().__init__(name, answer, outputs, ceiling, residents=residents)

    @property
    def _graph_answer(self) -> GraphAnswer:
        answer: Any = self._answer
        said: GraphAnswer = answer
        return said

    @property
    def steps(self) -> GraphSteps:
        """The steps with their implementations, launches and, with `step_times=True`, times on the
        device; prints as a table."""
        try:
            rows = self._graph_answer.steps()
        except WireError as error:
            raise bad_response(error) from None
        replayed = ", replayed" if self.replayed else ""
        kernel = nanoseconds(self.timing.kernel_ns)
        return GraphSteps(rows, f"{_count(len(rows))} on {self.device}: {kernel}{replayed}")

    @property
    def intermediate_bytes(self) -> int:
        """Device memory of the results that only later steps read."""
        return self._graph_answer.intermediate_bytes

    @property
    def replayed(self) -> bool:
        """True if the device replayed a recording of the whole graph."""
        return self._graph_answer.replayed

    def __reduce__(self) -> tuple[Any, ...]:
        if self.residents:
            raise TypeError("a result that stays on the server is neither copied nor pickled")
        return GraphResult, (self.kernel, self._answer, list(self.outputs), unknown_ceiling)

    def __repr__(self) -> str:
        timing = self.timing
        kept = " (kept)" if self.residents else ""
        replayed = ", replayed" if self.replayed else ""
        return (
            f"<warpcall.GraphResult {self.kernel} -> {output_text(self._first)}{kept} by"
            f" {_count(len(self.steps))} on {self.device}: kernels"
            f" {nanoseconds(timing.kernel_ns)}{replayed}, server {nanoseconds(timing.total_ns)}>"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class GraphDescription(Table):
    """Says what would run for a graph, step by step; prints as a table."""

    problem: str
    """The shapes of the call's inputs: "x=3x8"."""
    device: str
    steps: tuple[DescribedStep, ...]
    """In their order. `fuses_with` names a later step that could compute the result of this one
    itself, both as one step of the kernel `fused`; that saves `fused_saves_bytes` to and from
    device memory."""
    launch: LaunchInfo
    """Sums of the steps' bytes and FLOP."""
    workspace_bytes: int
    intermediate_bytes: int
    """Device memory of the results that only later steps read."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict for JSON."""
        return dataclasses.asdict(self)

    def _title(self) -> str:
        return f"{' '.join(filter(None, ['graph', self.problem]))} on {self.device}, not run"

    def _cells(self) -> Cells:
        header = [
            *("step", "kernel", "implementation", "result", "intermediate", "fused saves", "with")
        ]
        rows = [
            [
                step.name,
                step.kernel,
                variant_name(step.implementation, step.launch.variant),
                binary_bytes(step.result_bytes),
                "yes" if step.is_intermediate else "no",
                binary_bytes(step.fused_saves_bytes) if step.fuses_with else "-",
                step.fuses_with or "-",
            ]
            for step in self.steps
        ]
        return header, rows

    def _notes(self) -> list[str]:
        return [f"intermediates take {binary_bytes(self.intermediate_bytes)} of device memory"]


def read_description(problem: str, data: bytes) -> GraphDescription:
    """A DescribeResponse of a graph. Raises Internal for one that is none."""
    said = decoded(DescribeResponse, data)
    return GraphDescription(
        problem,
        said.device,
        said.steps,
        said.launch,
        said.workspace_bytes,
        said.intermediate_bytes,
    )


def _count(steps: int) -> str:
    return f"{steps} step{'s' if steps != 1 else ''}"


def read_outputs(data: bytes) -> list[TensorView]:
    """The outputs of an ExecuteGraphResponse. Raises WireError."""
    return [
        read_tensor(data, value, stop)
        for number, wire_type, value, stop in wire.fields(data, 0, len(data))
        if number == _OUTPUTS and wire_type == wire.BYTES
    ]
