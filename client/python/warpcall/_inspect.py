"""Messages of Benchmark, Profile and Describe, and the problems that they are asked about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import _wire as wire
from ._arrays import type_name
from ._execute import Call, encode_header
from ._messages import TABLE, Field, LaunchInfo, TensorSpec, checked, encode
from .errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class BenchmarkResult:
    """What one implementation took: times of one launch, by the device's clock, in nanoseconds."""

    implementation: str = ""
    family: str = ""
    mean_ns: float = 0.0
    median_ns: float = 0.0
    min_ns: float = 0.0
    p90_ns: float = 0.0
    bytes_per_second: float = 0.0
    flops_per_second: float = 0.0
    fraction_of_ceiling: float = 0.0
    """Of a copy in the same run."""
    relative_error: float = 0.0
    """|out - ref| / |ref| against a float64 reference."""
    launch: LaunchInfo = dataclasses.field(default_factory=LaunchInfo)
    error: str = ""
    """Why it did not run; empty when it did."""
    iterations: int = 0
    """Samples: as asked for, or fewer when the row was exact enough or its time was up."""
    launches_per_iteration: int = 0
    checked_elements: int = 0
    p10_ns: float = 0.0
    median_low_ns: float = 0.0
    """With median_high_ns the 95 % confidence interval of the median."""
    median_high_ns: float = 0.0
    verdict: str = ""
    """"fastest", "not distinguishable from the fastest", "slower by N %"; empty when it did not
    run or is unstable and not the fastest beyond doubt."""
    max_error: float = 0.0
    """Largest |out - ref| over the bound of its tolerance: right is at most 1."""
    noise: float = 0.0
    """The relative standard error of the median."""
    unstable: bool = False
    """The row cannot be ranked: too noisy, or of more than one speed."""
    predicted_ns: float = 0.0
    """Of a row that was skipped as too slow; `error` says how to ask for it."""


@dataclasses.dataclass(frozen=True)
class RunStamp:
    """Where and under which conditions a benchmark ran; what is of a GPU is empty or 0 on the
    CPU."""

    device_description: str = ""
    driver: str = ""
    cuda: str = ""
    server_version: str = ""
    seed: int = 0
    sm_clock_mhz_min: int = 0
    sm_clock_mhz_max: int = 0
    memory_clock_mhz: int = 0
    temperature_celsius: int = 0
    power_watts: float = 0.0
    throttle_reasons: tuple[str, ...] = ()
    samples_dropped: int = 0
    """Taken below 75 % of the default clock."""
    started_unix_ns: int = 0


@dataclasses.dataclass(frozen=True)
class BenchmarkResponse:
    results: tuple[BenchmarkResult, ...] = ()
    device: str = ""
    ceiling_bytes_per_second: float = 0.0
    stamp: RunStamp = dataclasses.field(default_factory=RunStamp)
    flops_ceiling: float = 0.0
    verdicts: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """By implementation; BenchmarkStream's last response has them, its results have none."""


@dataclasses.dataclass(frozen=True)
class BenchmarkRequest:
    kernel: str = ""
    implementations: tuple[str, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    device: str = ""
    warmup_iterations: int = 0
    iterations: int = 0
    seed: int = 0
    max_noise: float = 0.0
    timeout_ns: int = 0


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How often a benchmark measures; 0: the server's defaults."""

    warmup_iterations: int = 0
    iterations: int = 0
    seed: int = 0
    max_noise: float = 0.0
    row_timeout: float | None = None
    """The longest time for one row, in seconds."""


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """What the device did under one name, all iterations together."""

    name: str = ""
    calls: int = 0
    total_ns: int = 0
    mean_ns: float = 0.0
    fraction: float = 0.0
    """Of the device's time from first to last; of "host" none."""
    registers_per_thread: int = 0
    shared_memory_bytes: int = 0
    grid: str = ""
    block: str = ""
    achieved_occupancy: float = 0.0
    """-1 where the counters can't be read, as sm_throughput and dram_throughput."""
    kind: str = ""
    """"kernel", "copy", "set", "gap" or "host"."""
    sm_throughput: float = 0.0
    dram_throughput: float = 0.0
    bytes: int = 0


@dataclasses.dataclass(frozen=True)
class ProfileResponse:
    rows: tuple[ProfileRow, ...] = ()
    trace_json: bytes = b""
    implementation: str = ""
    device: str = ""
    iterations: int = 0
    counters_unavailable: str = ""
    inconclusive: str = ""
    """Why the times do not tell what the kernel takes ("other work took 88 % of the threads'
    time"); empty when they do. Of a GPU: gaps and the host's copies alone."""


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """What people can read of an implementation."""

    name: str = ""
    language: str = ""
    """"cuda", "triton", "cpp", "ptx", "sass" or "expression"."""
    text: str = ""
    """Or a comment that says why there is none."""


@dataclasses.dataclass(frozen=True)
class DescribeResponse:
    """Of several GPU kernels, registers, memory, grid and block are those of the one that counts; 0
    or empty where there is no grid."""

    implementation: str = ""
    family: str = ""
    device: str = ""
    launch: LaunchInfo = dataclasses.field(default_factory=LaunchInfo)
    registers_per_thread: int = 0
    shared_memory_bytes: int = 0
    """Per block."""
    local_memory_bytes: int = 0
    """Per thread: spills."""
    workspace_bytes: int = 0
    """Of device memory, beside the operands."""
    files: tuple[SourceFile, ...] = ()
    tolerance: str = ""
    """The bound that the row's results are checked against, of each element."""
    chosen_because: str = ""
    """"order of preference", "named by the request"."""
    grid: str = ""
    """"132x1x1"."""
    block: str = ""


@dataclasses.dataclass(frozen=True)
class DescribeRequest:
    kernel: str = ""
    implementation: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    attributes: Mapping[str, object] = dataclasses.field(default_factory=dict[str, object])
    device: str = ""


def _fields(*fields: tuple[int, str, Any]) -> list[Field]:
    return [Field(*field) for field in fields]


TABLE[BenchmarkResult] = _fields(
    (1, "implementation", "text"),
    (2, "family", "text"),
    (3, "mean_ns", "double"),
    (4, "median_ns", "double"),
    (5, "min_ns", "double"),
    (6, "p90_ns", "double"),
    (7, "bytes_per_second", "double"),
    (8, "flops_per_second", "double"),
    (9, "fraction_of_ceiling", "double"),
    (10, "relative_error", "double"),
    (11, "launch", LaunchInfo),
    (12, "error", "text"),
    (13, "iterations", "int"),
    (14, "launches_per_iteration", "int"),
    (15, "checked_elements", "int"),
    (16, "p10_ns", "double"),
    (17, "median_low_ns", "double"),
    (18, "median_high_ns", "double"),
    (19, "verdict", "text"),
    (20, "max_error", "double"),
    (21, "noise", "double"),
    (22, "unstable", "bool"),
    (23, "predicted_ns", "double"),
)
TABLE[RunStamp] = [
    Field(1, "device_description", "text"),
    Field(2, "driver", "text"),
    Field(3, "cuda", "text"),
    Field(4, "server_version", "text"),
    Field(5, "seed", "uint"),
    Field(6, "sm_clock_mhz_min", "int32"),
    Field(7, "sm_clock_mhz_max", "int32"),
    Field(8, "memory_clock_mhz", "int32"),
    Field(9, "temperature_celsius", "int32"),
    Field(10, "power_watts", "double"),
    Field(11, "throttle_reasons", "text", True),
    Field(12, "samples_dropped", "int"),
    Field(13, "started_unix_ns", "int"),
]
TABLE[BenchmarkResponse] = [
    Field(1, "results", BenchmarkResult, True),
    Field(2, "device", "text"),
    Field(3, "ceiling_bytes_per_second", "double"),
    Field(4, "stamp", RunStamp),
    Field(5, "flops_ceiling", "double"),
    Field(6, "verdicts", "texts"),
]
TABLE[BenchmarkRequest] = [
    Field(1, "kernel", "text"),
    Field(2, "implementations", "text", True),
    Field(3, "inputs", TensorSpec, True),
    Field(4, "attributes", "attributes"),
    Field(5, "device", "text"),
    Field(6, "warmup_iterations", "int32"),
    Field(7, "iterations", "int32"),
    Field(8, "seed", "uint"),
    Field(9, "max_noise", "double"),
    Field(10, "timeout_ns", "int"),
]
TABLE[ProfileRow] = _fields(
    (1, "name", "text"),
    (2, "calls", "int"),
    (3, "total_ns", "int"),
    (4, "mean_ns", "double"),
    (5, "fraction", "double"),
    (6, "registers_per_thread", "int32"),
    (7, "shared_memory_bytes", "int"),
    (8, "grid", "text"),
    (9, "block", "text"),
    (10, "achieved_occupancy", "double"),
    (11, "kind", "text"),
    (12, "sm_throughput", "double"),
    (13, "dram_throughput", "double"),
    (14, "bytes", "int"),
)
TABLE[ProfileResponse] = [
    Field(1, "rows", ProfileRow, True),
    Field(2, "trace_json", "bytes"),
    *_fields((3, "implementation", "text"), (4, "device", "text"), (5, "iterations", "int32")),
    *_fields((6, "counters_unavailable", "text"), (7, "inconclusive", "text")),
]

TABLE[SourceFile] = _fields((1, "name", "text"), (2, "language", "text"), (3, "text", "text"))
TABLE[DescribeResponse] = [
    *_fields((1, "implementation", "text"), (2, "family", "text"), (3, "device", "text")),
    *_fields((4, "launch", LaunchInfo), (5, "registers_per_thread", "int32")),
    *_fields((6, "shared_memory_bytes", "int"), (7, "local_memory_bytes", "int")),
    Field(8, "workspace_bytes", "int"),
    Field(9, "files", SourceFile, True),
    *_fields((10, "tolerance", "text"), (11, "chosen_because", "text")),
    *_fields((12, "grid", "text"), (13, "block", "text")),
]
TABLE[DescribeRequest] = [
    *_fields((1, "kernel", "text"), (2, "implementation", "text")),
    Field(3, "inputs", TensorSpec, True),
    *_fields((4, "attributes", "attributes"), (5, "device", "text")),
]

# What a caller can say for a problem: "4096x1024", "64x32*32x16", (4096, 1024), ((64, 32),
# (32, 16)).
Shapes = Any


@dataclasses.dataclass(frozen=True)
class Problem:
    """Inputs that a server makes."""

    label: str
    inputs: tuple[TensorSpec, ...]


def parse_problem(kernel: str, shapes: Shapes, dtype: object) -> Problem:
    """The inputs of a problem by their shapes: text, inputs parted by "*" and dimensions by "x"; a
    sequence of sizes; or a sequence of such, one for each input. For matmul three sizes are MxNxK.

    Raises InvalidArgument for what is none of these.
    """
    parsed = _parse_text(shapes) if isinstance(shapes, str) else _parse_sizes(shapes)
    label = "*".join("x".join(map(str, shape)) for shape in parsed)
    if kernel == "matmul" and len(parsed) == 1 and len(parsed[0]) == 3:
        m, n, k = parsed[0]
        parsed = [(m, k), (k, n)]
    name = type_name(dtype)
    return Problem(label, tuple(TensorSpec(name, shape) for shape in parsed))


def _parse_text(text: str) -> list[tuple[int, ...]]:
    try:
        parsed = [tuple(int(size) for size in part.split("x")) for part in text.split("*")]
    except ValueError:
        parsed = [(-1,)]
    if any(size < 0 for shape in parsed for size in shape):
        raise InvalidArgument(f'shape "{text}"; it must be like 4096x1024, or 64x32*32x16')
    return parsed


def _parse_sizes(shapes: Shapes) -> list[tuple[int, ...]]:
    try:
        if shapes and all(isinstance(item, str) for item in shapes):
            return [shape for item in shapes for shape in _parse_text(item)]
        if shapes and all(hasattr(item, "__index__") for item in shapes):
            shapes = [shapes]
        parsed = [tuple(int(size) for size in shape) for shape in shapes]
    except TypeError:
        parsed = []
    if not parsed or any(size < 0 for shape in parsed for size in shape):
        raise InvalidArgument(f"shapes {shapes!r}; they must be sizes, or a shape for each input")
    return parsed


_ROW_SECONDS_MAX = 86400


def encode_benchmark(
    problem: Problem, call: Call, implementations: Sequence[str], sampling: Sampling
) -> bytes:
    """A BenchmarkRequest. Raises InvalidArgument for a row_timeout that is no time."""
    seconds = 0.0 if sampling.row_timeout is None else sampling.row_timeout
    if not 0 <= seconds <= _ROW_SECONDS_MAX:
        raise InvalidArgument(f"row_timeout is {seconds}; it must be 0 to {_ROW_SECONDS_MAX} s")
    return encode(
        BenchmarkRequest(
            call.kernel,
            tuple(implementations),
            problem.inputs,
            call.attributes,
            call.device,
            sampling.warmup_iterations,
            sampling.iterations,
            sampling.seed,
            sampling.max_noise,
            round(seconds * 1e9),
        )
    )


@dataclasses.dataclass(frozen=True)
class ProfileOptions:
    iterations: int = 0
    """0: the server's default, 3."""
    trace: bool = False
    seed: int = 0
    request_path: bool = False
    """Profile the path of a request with such inputs, copies included, not the kernel whole."""


def encode_profile(problem: Problem, call: Call, options: ProfileOptions) -> bytes:
    """A ProfileRequest whose inputs the server makes."""
    out = wire.bytes_field(1, encode_header(call, []))
    if options.iterations:
        out += wire.varint_field(2, checked("iterations", options.iterations, 32))
    out += wire.varint_field(3, options.trace)
    for spec in problem.inputs:
        out += wire.bytes_field(4, encode(spec))
    out += wire.varint_field(5, checked("seed", options.seed, 64, signed=False))
    return out + wire.varint_field(6, options.request_path)


def encode_describe(problem: Problem, call: Call) -> bytes:
    """A DescribeRequest."""
    return encode(
        DescribeRequest(
            call.kernel, call.implementation, problem.inputs, call.attributes, call.device
        )
    )
