"""Requests of Benchmark, Profile and Describe, and the problems that they are asked about."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from . import _wire as wire
from ._arrays import type_name
from ._execute import Call, encode_header
from ._fuse import with_expressions
from ._messages import checked, encode, encode_attributes
from ._proto import BenchmarkRequest, TensorSpec
from .errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How often a benchmark measures; 0: the server's defaults."""

    warmup_iterations: int = 0
    iterations: int = 0
    seed: int = 0
    max_noise: float = 0.0
    row_timeout: float | None = None
    """The longest time for one row, in seconds."""
    method: str = ""


# Shapes as a caller may give them: "4096x1024", "64x32*32x16", (4096, 1024), or a tuple such as
# ((64, 32), (32, 16)).
Shapes = Any


# Inputs with a value for each column.
_NORM_WEIGHTS = {"layernorm": 2, "rmsnorm": 1}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Inputs that a server makes."""

    label: str
    inputs: tuple[TensorSpec, ...]


def parse_problem(kernel: str, shapes: Shapes, dtype: object) -> Problem:
    """The inputs of a problem by their shapes: text, inputs parted by "*" and dimensions by "x"; a
    sequence of sizes; or a sequence of such, one for each input. For matmul and linear three sizes
    are MxNxK. A single shape for layernorm or rmsnorm is that of x; weights have its last size.

    Raises InvalidArgument for what is none of these.
    """
    parsed = _parse_text(shapes) if isinstance(shapes, str) else _parse_sizes(shapes)
    label = "*".join("x".join(map(str, shape)) for shape in parsed)
    if kernel == "matmul" and len(parsed) == 1 and len(parsed[0]) == 3:
        m, n, k = parsed[0]
        parsed = [(m, k), (k, n)]
    if kernel == "linear" and len(parsed) == 1 and len(parsed[0]) == 3:
        m, n, k = parsed[0]
        parsed = [(m, k), (n, k), (n,)]
    if kernel in _NORM_WEIGHTS and len(parsed) == 1 and parsed[0]:
        parsed += [parsed[0][-1:]] * _NORM_WEIGHTS[kernel]
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
    call = with_expressions(call, len(problem.inputs))
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
            sampling.method,
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


def encode_runs(options: ProfileOptions) -> bytes:
    """What a ProfileRequest says of its runs, whatever runs."""
    out = b""
    if options.iterations:
        out = wire.varint_field(2, checked("iterations", options.iterations, 32))
    return out + wire.varint_field(3, options.trace)


def encode_profile(problem: Problem, call: Call, options: ProfileOptions) -> bytes:
    """A ProfileRequest whose inputs the server makes."""
    call = with_expressions(call, len(problem.inputs))
    out = wire.bytes_field(1, encode_header(call, [])) + encode_runs(options)
    for spec in problem.inputs:
        out += wire.bytes_field(4, encode(spec))
    out += wire.varint_field(5, checked("seed", options.seed, 64, signed=False))
    return out + wire.varint_field(6, options.request_path)


def encode_describe(problem: Problem, call: Call) -> bytes:
    """A DescribeRequest."""
    call = with_expressions(call, len(problem.inputs))
    out = b""
    for number, text in ((1, call.kernel), (2, call.implementation), (5, call.device)):
        if text:
            out += wire.bytes_field(number, text.encode())
    for spec in problem.inputs:
        out += wire.bytes_field(3, encode(spec))
    return out + encode_attributes(4, call.attributes)
