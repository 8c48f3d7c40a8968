"""How a large call is cut into calls that run beside each other: as client/cpp/calls/stripes.cc.

What the server says of a kernel's independence decides. A stripe is some of the parts that depend
on no other, of every split input and of the output, and all of the inputs that parts share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ._arrays import Array, Operand
from ._messages import KernelInfo, LaunchInfo, Timing
from ._request import Blocks, Place, Request
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
    first input elements [begin, begin + product of shape)."""

    begin_part: int
    begin: int
    shape: tuple[int, ...]

    def of(self, array: Array, kernel: KernelInfo) -> Array:
        """This stripe's parts of a C-contiguous array, where they lie."""
        shape = self.shape if kernel.independence != "rows" else (self.shape[0], array.shape[-1])
        begin = self.begin_part * math.prod(shape[1:])
        return array.reshape(-1)[begin : begin + math.prod(shape)].reshape(shape)


def is_large_enough(request: Request) -> bool:
    """Whether it would fill two stripes: only then is it worth while to know the kernel."""
    return request.nbytes >= 2 * STRIPE_BYTES_MIN and request.repeatable


def plan_stripes(request: Request, kernel: KernelInfo, stripes_max: int) -> list[Stripe]:
    """One stripe for each of at most `stripes_max` connections. Empty when the call is to be sent
    whole: it is too small, or has more in shared inputs than a stripe in others, the kernel's
    problems are one piece, or the call is not one that the kernel can mean, which the server then
    says in its own words."""
    parts = _parts_of(request.inputs, request.call.attributes, kernel)
    if parts is None:
        return []
    count, part = parts
    operands = [item for item in _split(request.inputs, kernel) if isinstance(item, Operand)]
    split_bytes = sum(item.data.nbytes for item in operands)
    # What is shared goes with every stripe.
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


def _is_shared(kernel: KernelInfo, number: int) -> bool:
    return kernel.input_roles[number : number + 1] == ("shared",)


def _split(inputs: Sequence[Operand | Blocks], kernel: KernelInfo) -> list[Operand | Blocks]:
    return [item for number, item in enumerate(inputs) if not _is_shared(kernel, number)]


def _parts_of(
    inputs: Sequence[Operand | Blocks], attributes: Mapping[str, object], kernel: KernelInfo
) -> tuple[int, tuple[int, ...]] | None:
    """How many independent parts there are, and the shape of each; None when there are none."""
    if _is_shared(kernel, 0) or not {*kernel.input_roles} <= {"split", "shared"}:
        return None
    rows = kernel.independence == "rows"
    if any(not item.shape or len(item.shape) > _RANK_MAX for item in inputs):
        return None
    split = _split(inputs, kernel)
    if len({item.shape[:-1] if rows else item.shape for item in split}) != 1:
        return None
    shape = split[0].shape
    if rows:
        return math.prod(shape[:-1]), (shape[-1],)
    if kernel.independence == "elements":
        return math.prod(shape), ()
    axis = _axis_of(attributes, kernel, len(shape))
    if kernel.independence != "before_axis" or axis is None:
        return None
    inner = math.prod(shape[axis + 1 :])
    return math.prod(shape[:axis]), (shape[axis], inner) if inner > 1 else (shape[axis],)


def _axis_of(attributes: Mapping[str, object], kernel: KernelInfo, rank: int) -> int | None:
    """The dimension that the attribute names, given or by default; None: there is no such one."""
    defaults = {attribute.name: attribute.default_value for attribute in kernel.attributes}
    axis = attributes.get(_AXIS, defaults.get(_AXIS)) if _AXIS in defaults else None
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
        return None
    return int(axis) % rank if -rank <= axis < rank else None


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
    operands = []
    for number, item in enumerate(request.inputs):
        if isinstance(item, Operand) and not _is_shared(kernel, number):
            data = stripe.of(item.data.reshape(item.shape), kernel)
            item = Operand(item.data_type, data.shape, data)
        operands.append(item)
    call = request.call._replace(attributes=attributes)
    return Request.of_stripe(call, operands, place)


class StripedResponse:
    """What the answers to all stripes say together: the phases of `timing` and the amounts of
    `launch` are sums, the work of all devices together, and total_ns is the largest; all else is
    the first stripe's."""

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
        )
