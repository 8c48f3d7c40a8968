"""How a large call is cut into calls that run beside each other: as client/cpp/calls/stripes.cc.

What the server says of a kernel's independence decides. A stripe is some of the parts that depend
on no other, of every split input and of the output, and all of the inputs that parts share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from ._arrays import Array, Operand
from ._proto import KernelInfo, LaunchInfo, Timing
from ._request import Input, Place, Request
from ._result import Result

# The least that a stripe carries of a call's inputs, as the C++ client's.
STRIPE_BYTES_MIN = 1 << 20

_AXIS = "axis"
# The contract's; a stripe of a tensor that the server refuses could be one that it takes.
_RANK_MAX = 8
# Stripes begin on cache lines and vectors of every device when they can.
_ALIGNMENT_BYTES = 256


class Stripe(NamedTuple):
    """Parts [begin_part, begin_part + shape[0]) of every split input and of the output; of the
    first split input elements [begin, begin + product of shape)."""

    begin_part: int
    begin: int
    shape: tuple[int, ...]

    def of(self, array: Array, kernel: KernelInfo) -> Array:
        """This stripe's parts of a C-contiguous array, where they lie."""
        kept = len(self.shape) - 1
        shape = self.shape
        if has_rows(kernel):
            shape = (self.shape[0], *array.shape[array.ndim - kept :])
        begin = self.begin_part * math.prod(shape[1:])
        return array.reshape(-1)[begin : begin + math.prod(shape)].reshape(shape)


class Division(NamedTuple):
    """How a call falls into independent parts."""

    kept: int
    """Number of last dimensions kept in every split input; those before become one."""
    shared: tuple[bool, ...]
    """For each input: true if every part has all of it."""

    def split(self, inputs: Sequence[Input]) -> list[Input]:
        return [item for item, shared in zip(inputs, self.shared, strict=True) if not shared]


def has_rows(kernel: KernelInfo) -> bool:
    """True if split inputs and the output have last dimensions of their own."""
    return kernel.independence in ("rows", "broadcast_rows", "product_rows")


def is_large_enough(request: Request) -> bool:
    """True if the request would fill two stripes. Fetch the kernel's description only then."""
    return request.nbytes >= 2 * STRIPE_BYTES_MIN and request.repeatable


def plan_stripes(request: Request, kernel: KernelInfo, stripes_max: int) -> list[Stripe]:
    """One stripe for each of at most `stripes_max` connections. Empty when the call is to be sent
    whole: it is too small, or has more in shared inputs than a stripe in others, the kernel's
    problems are one piece, or the call is not one that the kernel can mean, which the server then
    says in its own words."""
    division = division_of(request.inputs, request.call.attributes, kernel)
    if division is None:
        return []
    split = division.split(request.inputs)
    shape = split[0].shape
    outer = len(shape) - division.kept
    count, part = math.prod(shape[:outer]), shape[outer:]
    if kernel.independence == "before_axis":
        inner = math.prod(part[1:])
        part = (part[0], inner) if inner > 1 else part[:1]
    operands = [item for item in split if isinstance(item, Operand)]
    split_bytes = sum(item.data.nbytes for item in operands)
    # Every stripe carries all shared inputs.
    stripe_bytes = max(STRIPE_BYTES_MIN, request.nbytes - split_bytes)
    stripes = min(stripes_max, split_bytes // stripe_bytes, count)
    if stripes < 2:
        return []
    part_elements = math.prod(part)
    unit = _aligned_parts(operands, count)
    if count // unit < stripes:
        unit = 1
    # Whole units, spread evenly; the last stripe has what is left over as well.
    ends = [count // unit * number // stripes * unit for number in range(stripes)] + [count]
    return [
        Stripe(begin, begin * part_elements, (end - begin, *part))
        for begin, end in itertools.pairwise(ends)
    ]


def division_of(
    inputs: Sequence[Input], attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    """None: the call is one piece, or not one that the kernel can mean."""
    if not {*kernel.input_roles} <= {"split", "shared"}:
        return None
    if not inputs or any(not item.shape or len(item.shape) > _RANK_MAX for item in inputs):
        return None
    shapes = [tuple(item.shape) for item in inputs]
    division = _DIVISIONS.get(kernel.independence, _in_one_piece)(shapes, attributes, kernel)
    if division is None or all(division.shared):
        return None
    # For before_axis the dimensions behind the axis must be equal as well.
    kept = 0 if kernel.independence == "before_axis" else division.kept
    split = [shape for shape, shared in zip(shapes, division.shared, strict=True) if not shared]
    if any(len(shape) < kept for shape in split):
        return None
    if len({shape[: len(shape) - kept] for shape in split}) != 1:
        return None
    return division


_Shapes = Sequence[tuple[int, ...]]


def _in_one_piece(
    shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    return None


def _by_roles(shapes: _Shapes, kept: int, kernel: KernelInfo) -> Division | None:
    roles = kernel.input_roles
    shared = [roles[number : number + 1] == ("shared",) for number in range(len(shapes))]
    return None if shared[0] else Division(kept, tuple(shared))


def _elements(
    shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    return _by_roles(shapes, 0, kernel)


def _before_axis(
    shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    rank = len(shapes[0])
    axis = _axis_of(attributes, kernel, rank)
    return None if axis is None else _by_roles(shapes, rank - axis, kernel)


def _rows(shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo) -> Division | None:
    return _by_roles(shapes, 1, kernel)


def _broadcast_rows(
    shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    if "dropout" in str(attributes.get("expression", "dropout")):
        return None
    shared = tuple(math.prod(shape[:-1]) == 1 for shape in shapes)
    ranks = [len(shape) for shape, one_row in zip(shapes, shared, strict=True) if not one_row]
    # With more dimensions than the split ones, one row gives the output as many.
    if not ranks or ranks[0] != max(map(len, shapes)):
        return None
    return Division(1, shared)


def _product_rows(
    shapes: _Shapes, attributes: Mapping[str, object], kernel: KernelInfo
) -> Division | None:
    if len(shapes) != 2:
        return None
    transposed = attributes.get("transpose_a", False)
    if not isinstance(transposed, (bool, np.bool_)):
        return None
    if len(shapes[1]) == 2 and not transposed:
        return Division(1, (False, True))
    return Division(2, (False, False)) if len(shapes[1]) > 2 else None


_DIVISIONS = {
    "elements": _elements,
    "before_axis": _before_axis,
    "rows": _rows,
    "broadcast_rows": _broadcast_rows,
    "product_rows": _product_rows,
}


def _axis_of(attributes: Mapping[str, object], kernel: KernelInfo, rank: int) -> int | None:
    """The dimension that the attribute names, given or by default; None: there is no such one."""
    defaults = {attribute.name: attribute.default_value for attribute in kernel.attributes}
    axis = attributes.get(_AXIS, defaults.get(_AXIS)) if _AXIS in defaults else None
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
        return None
    number = int(cast("int", axis))
    return number % rank if -rank <= number < rank else None


def _aligned_parts(operands: Sequence[Operand], count: int) -> int:
    """The least number of parts, of `count`, that are a multiple of _ALIGNMENT_BYTES in each."""
    parts = 1
    for operand in operands:
        part_bytes = operand.data.nbytes // count
        parts = math.lcm(parts, _ALIGNMENT_BYTES // math.gcd(_ALIGNMENT_BYTES, part_bytes))
    return parts


def stripe_request(request: Request, kernel: KernelInfo, stripe: Stripe, place: Place) -> Request:
    """The call for one stripe, whose result goes where `place` says."""
    attributes = dict(request.call.attributes)
    if kernel.independence == "before_axis":
        attributes[_AXIS] = 1
    division = division_of(request.inputs, request.call.attributes, kernel)
    assert division is not None  # there are stripes
    operands: list[Input] = []
    for item, shared in zip(request.inputs, division.shared, strict=True):
        if isinstance(item, Operand):
            data = item.data.reshape(item.shape)
            if not shared:
                data = stripe.of(data, kernel)
            elif kernel.independence == "broadcast_rows":
                # With more dimensions than the split inputs' two, the output would have as many.
                data = data.reshape(-1)
            item = Operand(item.data_type, data.shape, data)
        operands.append(item)
    call = request.call._replace(attributes=attributes)
    return Request.of_stripe(call, operands, place)


class StripedResponse:
    """Sums up the answers to all stripes: the phases of `timing` and the amounts of
    `launch` are sums over all devices, total_ns is the largest; all else is the first
    stripe's."""

    resident_bytes = 0  # calls with Residents are not striped

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        first = results[0]
        self.implementation, self.device = first.implementation, first.device
        self.request_id = first.request_id

    def timing(self) -> Timing:
        each = [result.timing for result in self._results]
        return Timing(
            sum(timing.queue_ns for timing in each),
            sum(timing.copy_in_ns for timing in each),
            sum(timing.h2d_ns for timing in each),
            sum(timing.kernel_ns for timing in each),
            sum(timing.d2h_ns for timing in each),
            max(timing.total_ns for timing in each),
        )

    def launch(self) -> LaunchInfo:
        each = [result.launch for result in self._results]
        return LaunchInfo(
            sum(launch.bytes_moved for launch in each),
            sum(launch.flops for launch in each),
            each[0].theoretical_occupancy,
            each[0].waves,
            sum(launch.gpu_kernels for launch in each),
            each[0].variant,
        )
