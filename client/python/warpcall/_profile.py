"""Profiles: what they ask of the server, and what they say."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

from . import _channel
from ._execute import Call
from ._format import (
    binary_bytes,
    bytes_per_second,
    cut_middle,
    digits_or_whole,
    flops_per_second,
    nanoseconds,
    variant_name,
)
from ._inspect import (
    Problem,
    ProfileOptions,
    Sampling,
    encode_benchmark,
    encode_describe,
    encode_profile,
    parse_problem,
)
from ._plot import Svg, bars
from ._proto import (
    BenchmarkResponse,
    DescribeResponse,
    DeviceInfo,
    ListDevicesResponse,
    ProfileResponse,
    ProfileRow,
)
from ._reports import Cells, Table, decoded, finite
from ._residents import ResidentBase
from ._verdict import Profiled, figures_of, judge, percent
from .errors import Error

GRAPH = "graph"
"""The kernel of a graph's profile."""
_BESIDE = ("host", "thread", "counter")
"""Kinds of rows outside the device's sequence of kernels, copies and gaps."""
_ABOVE_MEMORY = 1.05
_NAME_WIDTH = 36
"""Of a kernel's name in tables: a template's would be longer than a line."""


class Profile(Table):
    """The device's work for a kernel or a graph, and the bound of its speed."""

    def __init__(self, kernel: str, problem: str, profiled: Profiled) -> None:
        response = profiled.response
        self.kernel, self.problem = kernel, problem
        """Of a graph "graph", and the shapes of the call's inputs by their names: "x=3x8"."""
        self.rows: Sequence[ProfileRow] = response.rows
        self.implementation, self.variant = response.implementation, response.variant
        self.device = response.device
        self.iterations = response.iterations
        self.counters_unavailable = response.counters_unavailable
        self.plan_missing = profiled.plan_missing
        """Reason why the least bytes and FLOP are unknown; empty if they are known."""
        self.trace_json = response.trace_json
        """Chrome's trace event format, which ui.perfetto.dev opens; empty unless asked for."""
        self.figures = figures_of(profiled)
        """Averages for one run."""
        self.verdict = judge(profiled, self.figures)
        """The bound of the kernel's speed, its reason, and advice."""
        self._is_cpu = profiled.is_cpu

    def to_dict(self) -> dict[str, Any]:
        """Returns the profile without its trace, as a dict for JSON."""
        return {
            "kernel": self.kernel,
            "problem": self.problem,
            "implementation": self.implementation,
            "variant": self.variant,
            "device": self.device,
            "iterations": self.iterations,
            "counters_unavailable": self.counters_unavailable,
            "plan_missing": self.plan_missing,
            "figures": finite(dataclasses.asdict(self.figures)),
            "verdict": {**dataclasses.asdict(self.verdict), "advice": list(self.verdict.advice)},
            "rows": [dataclasses.asdict(row) for row in self.rows],
        }

    def _title(self) -> str:
        return "\n".join(
            [self._heading(), str(self.verdict), *map("- {}".format, self.verdict.advice)]
        )

    def _heading(self) -> str:
        runs = "iteration" if self.iterations == 1 else "iterations"
        words = [self.kernel, self.problem] if self.problem else [self.kernel]
        if self.kernel != GRAPH:
            words.append(f"by {variant_name(self.implementation, self.variant)}")
        return f"{' '.join(words)} on {self.device}, {self.iterations} {runs}"

    def _tables(self) -> list[Cells]:
        tables = [self._of_run(), self._of_device(), self._of_launches()]
        tables += [self._of_host(), self._of_threads(), self._of_counters()]
        return [cells for cells in tables if cells[1]]

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if self.counters_unavailable and not self._is_cpu:
            notes.append(f"no counters (occupancy, SM, DRAM): {self.counters_unavailable}")
        if self._is_cpu and not any(r.name == "cache misses" for r in self._of("counter")):
            notes.append(f"hardware counters: {self.counters_unavailable}")
        if self.plan_missing:
            notes.append(f"the least bytes and FLOP are not known: {self.plan_missing}")
        return notes

    def _of(self, *kinds: str) -> list[ProfileRow]:
        rows = [row for row in self.rows if row.kind in kinds]
        return sorted(rows, key=lambda row: -row.total_ns)

    def _device_rows(self) -> list[ProfileRow]:
        return self._of(*{row.kind for row in self.rows}.difference(_BESIDE))

    def _of_run(self) -> Cells:
        figures = self.figures
        copy_ns = figures.kernel_ns * figures.fraction_of_ceiling
        passes = f"<= {figures.passes_max:.2f}" if figures.passes_max >= 0 else "-"
        if figures.passes >= 0:
            passes = f"{figures.passes:.2f}"
        header = [
            "kernels",
            "time",
            "as a copy",
            "least bytes",
            "passes",
            "B/s",
            "of copy",
            "FLOP/s",
        ]
        cells = [
            f"{figures.kernels:.4g}",
            nanoseconds(figures.kernel_ns),
            _known(nanoseconds, copy_ns),
            _known(binary_bytes, figures.least_bytes),
            passes,
            _known(bytes_per_second, figures.bytes_per_second),
            percent(figures.fraction_of_ceiling),
            _known(flops_per_second, figures.flops_per_second),
        ]
        return header, [cells]

    def _of_device(self) -> Cells:
        rows = [
            [
                cut_middle(row.name, _NAME_WIDTH),
                row.kind,
                str(row.calls),
                nanoseconds(row.total_ns),
                nanoseconds(row.mean_ns),
                percent(row.fraction),
                bytes_per_second(row.bytes * 1e9 / row.total_ns)
                if row.bytes and row.total_ns
                else "-",
            ]
            for row in self._device_rows()
        ]
        header = ["name", "kind", "calls", "total", "mean", "share", "B/s"]
        return self._with_steps(header, rows, self._device_rows())

    def _of_launches(self) -> Cells:
        kernels = self._of("kernel")
        header = ["launch", "registers", "shared", "grid", "block", "occupancy", "SM", "DRAM"]
        if not any(row.grid for row in kernels):
            return header, []
        rows = [
            [
                cut_middle(row.name, _NAME_WIDTH),
                *(str(row.registers_per_thread), binary_bytes(row.shared_memory_bytes)),
                *(row.grid or "-", row.block or "-", percent(row.achieved_occupancy)),
                *(percent(row.sm_throughput), percent(row.dram_throughput)),
            ]
            for row in kernels
        ]
        return self._with_steps(header, rows, kernels)

    def _with_steps(
        self, header: list[str], rows: list[list[str]], of: Sequence[ProfileRow]
    ) -> Cells:
        """The cells of these rows, behind those of their steps if there are any."""
        if not any(row.step for row in self.rows):
            return header, rows
        cells = [[row.step or "-", *texts] for row, texts in zip(of, rows, strict=True)]
        return ["step", *header], cells

    def _of_host(self) -> Cells:
        rows = [
            [row.name, str(row.calls), nanoseconds(row.total_ns), nanoseconds(row.mean_ns)]
            for row in self._of("host")
        ]
        return ["host phase", "calls", "total", "mean"], rows

    def _of_threads(self) -> Cells:
        rows = [
            # Time that all threads spent waiting together has no share.
            [
                row.name,
                nanoseconds(row.total_ns),
                percent(row.fraction) if row.fraction > 0 else "-",
            ]
            for row in self._of("thread")
        ]
        return ["thread", "worked", "of the time"], rows

    def _of_counters(self) -> Cells:
        rows = [
            [
                *(row.name, str(row.calls), digits_or_whole(row.calls / max(self.iterations, 1))),
                binary_bytes(row.bytes) if row.bytes > 0 else "-",
            ]
            for row in self._of("counter")
        ]
        return ["counter", "total", "per run", "bytes"], rows

    def plot(self, path: str | None = None) -> Svg:
        """Returns an SVG with bars of the device's time, and writes it to `path` if given."""
        device = self._device_rows()
        values = [row.total_ns / 1e3 for row in device]
        texts = [nanoseconds(row.total_ns) for row in device]
        return bars(self._heading(), [row.name for row in device], values, texts).saved(path)


def _known(text: Callable[[float], str], value: float) -> str:
    return text(value) if value > 0 else "-"


# ---- calls --------------------------------------------------------------------------------------

# True keeps a trace in the result; a path writes it there.
Trace: TypeAlias = "bool | str | os.PathLike[str]"

# (method, request) to be made, whose answer is sent back, or the error that it ended with. The
# request is encoded for each attempt, since a tensor may be put again under another handle.
Steps: TypeAlias = "Generator[tuple[str, Callable[[], bytes]], bytes | Error, Profile]"


class Subject(Protocol):
    """Something to profile. `kernel` and `problem` are those of its Profile."""

    @property
    def kernel(self) -> str: ...

    @property
    def problem(self) -> str: ...

    @property
    def residents(self) -> Sequence[ResidentBase]:
        """The inputs that are on the server."""
        ...

    def encode_profile(self, options: ProfileOptions) -> bytes:
        """A ProfileRequest."""
        ...

    def encode_describe(self, ran: ProfileResponse) -> bytes:
        """A DescribeRequest of what ran."""
        ...


class KernelSubject:
    """A kernel, and inputs that the server makes."""

    residents = ()

    def __init__(self, call: Call, problem: Problem) -> None:
        self._call, self._problem = call, problem
        self.kernel, self.problem = call.kernel, problem.label

    def encode_profile(self, options: ProfileOptions) -> bytes:
        return encode_profile(self._problem, self._call, options)

    def encode_describe(self, ran: ProfileResponse) -> bytes:
        call = self._call._replace(implementation=ran.implementation, device=ran.device)
        return encode_describe(self._problem, call)


@dataclasses.dataclass(frozen=True)
class ProfileCalls:
    """The calls that a profile takes: after the first, what the server tells of the row and its
    device; a server, or a policy, may refuse to."""

    subject: Subject
    options: ProfileOptions
    trace: Trace

    def steps(self) -> Steps:
        subject = self.subject
        said = yield _channel.PROFILE, lambda: subject.encode_profile(self.options)
        if isinstance(said, Error):
            raise said
        response = decoded(ProfileResponse, said)
        if isinstance(self.trace, (str, os.PathLike)):
            with open(self.trace, "wb") as file:
                file.write(response.trace_json)
        said = yield _channel.DESCRIBE, lambda: subject.encode_describe(response)
        plan, missing = DescribeResponse(), ""
        if isinstance(said, Error):
            missing = f"Describe: {said.message}"
        else:
            plan = decoded(DescribeResponse, said)
        said = yield _channel.LIST_DEVICES, bytes
        device = DeviceInfo()
        if not isinstance(said, Error):
            devices = decoded(ListDevicesResponse, said).devices
            device = next((d for d in devices if d.name == response.device), device)
        profiled = Profiled(response, device, plan, missing)
        bandwidth = device.measured_bandwidth_bytes_per_second
        # The server measures a copy when a device has been quiet for a while: not yet, or while the
        # machine was not.
        if device.name and not (
            bandwidth > 0 and figures_of(profiled).fraction_of_ceiling <= _ABOVE_MEMORY
        ):
            copy = _copy_request(device.name)
            said = yield _channel.BENCHMARK, lambda: copy
            if not isinstance(said, Error):
                bandwidth = max(
                    bandwidth, decoded(BenchmarkResponse, said).ceiling_bytes_per_second
                )
            device = dataclasses.replace(device, measured_bandwidth_bytes_per_second=bandwidth)
        return Profile(
            subject.kernel, subject.problem, dataclasses.replace(profiled, device=device)
        )


def _copy_request(device: str) -> bytes:
    """A benchmark of next to nothing, which measures a copy beside it."""
    once = Sampling(warmup_iterations=1, iterations=1)
    problem = parse_problem("identity", (1,), "float32")
    return encode_benchmark(problem, Call("identity", device=device), (), once)
