"""A call as the user made it, on its way to becoming bytes; the same for both kinds of client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ._arrays import ITEM_BYTES, Array, Operand, check_meaning, to_operand, type_name
from ._execute import MESSAGE_BYTES_MAX, Call, encode_request
from ._messages import DATA_TYPE_NUMBERS
from ._result import Ceiling, Finisher, Result
from .errors import Error, Internal, InvalidArgument

# From here on a call streams. gRPC's own gathering of a large message costs more than twice as
# much: identity of 16 MiB took 56 ms in one message and 27 ms in windows, of 8 MiB 18 and 14 (two
# cores, grpcio 1.51); with 1.85 65 and 30, 13 and 16.
STREAM_BYTES = 16 << 20


class Blocks:
    """An input that need not be in memory: an iterable of arrays, whose elements in sequence are
    the tensor in row-major order.

    Calls with such an input stream, and are never retried once a block was read.

        y = gpu.gelu(warpcall.Blocks((100_000, 4096), "float32", read_rows()), out=memmap)
    """

    def __init__(self, shape: Sequence[int], dtype: object, blocks: Iterable[object]) -> None:
        """`blocks` are of `dtype`, or are converted to it. Raises InvalidArgument for a negative
        dimension or an unsupported dtype."""
        self.shape = tuple(int(size) for size in shape)
        if any(size < 0 for size in self.shape):
            raise InvalidArgument(f"a tensor of shape {list(self.shape)}")
        self.data_type = DATA_TYPE_NUMBERS[type_name(dtype)]
        self.nbytes = math.prod(self.shape) * ITEM_BYTES[type_name(dtype)]
        self._dtype = type_name(dtype)
        self._blocks = blocks

    def arrays(self) -> Iterator[Array]:
        """The blocks as they are sent."""
        for block in self._blocks:
            yield to_operand(block, self._dtype).data


# Where a result of some shape is to be written.
Place = Callable[[tuple[int, ...]], Array]


class Options(NamedTuple):
    """Options of a call that are not sent to the server as such."""

    timeout: float | None = None
    """Seconds for the whole call, retries included; None: the client's."""
    out: Array | None = None
    dtype: object = None


def call_of(kernel: str, options: Mapping[str, Any]) -> tuple[Call, Options]:
    """From the keyword arguments of `run`."""
    rest = dict(options)
    own = Options(*(rest.pop(name, None) for name in Options._fields))
    implementation, device, request_id = (
        rest.pop(name, "") for name in ("implementation", "device", "request_id")
    )
    return Call(kernel, implementation, device, request_id, rest), own


class Request:
    """A call that is ready to be sent. Keeps the inputs, and so their memory, alive."""

    __slots__ = (
        "_place",
        "call",
        "finisher",
        "inputs",
        "misfit",
        "nbytes",
        "out",
        "streams",
        "timeout",
    )

    def __init__(
        self, call: Call, inputs: Sequence[object], options: Options, ceiling: Ceiling
    ) -> None:
        """Raises InvalidArgument for what no server could take."""
        self.call = call
        dtype = options.dtype
        self.inputs: list[Operand | Blocks] = [
            x if isinstance(x, (Blocks, Operand)) else to_operand(x, dtype) for x in inputs
        ]
        self.misfit: type[Error] = InvalidArgument
        """Raised when the result does not fit `out`."""
        self.timeout, self.out = options.timeout, options.out
        self._place: Place | None = None
        self.nbytes = 0
        self.streams = is_scalar = False
        for item in self.inputs:
            if isinstance(item, Blocks):
                self.streams = True
                self.nbytes += item.nbytes
            else:
                self.nbytes += item.data.nbytes
                is_scalar = is_scalar or item.is_scalar
        self.streams = self.streams or self.nbytes >= STREAM_BYTES
        if self.out is not None and not isinstance(self.out, np.ndarray):
            raise InvalidArgument(f"out is a {type(self.out).__name__}; it must be a NumPy array")
        if self.out is not None:
            check_meaning(self.out, "an out")
        is_scalar = is_scalar and all(isinstance(x, Operand) and x.is_scalar for x in self.inputs)
        self.finisher = Finisher(call.kernel, ceiling, is_scalar)

    @classmethod
    def of_stripe(cls, call: Call, operands: Sequence[Operand | Blocks], place: Place) -> Request:
        """Part of a call. That its result goes to a place was the package's idea."""
        request = cls(call, operands, Options(), lambda device: None)
        request.misfit, request._place = Internal, place
        return request

    def own_inputs(self) -> None:
        """Copies inputs that lie in memory of the caller, who may write to it from now on. Blocks,
        which are read while the call is under way, stay what they are."""
        self.inputs = [
            item._replace(data=item.data.copy())
            if isinstance(item, Operand) and not item.is_own
            else item
            for item in self.inputs
        ]

    def out_takes_parts(self) -> bool:
        """True if `out` may be written while the call may still be sent again: no input shares its
        memory."""
        return self.out is not None and not any(
            isinstance(item, Operand) and np.may_share_memory(self.out, item.data)
            for item in self.inputs
        )

    def out_for(self, shape: tuple[int, ...]) -> Array | None:
        """Returns the memory for the first output, of that shape; None: any memory. For a stripe,
        raises as its place does."""
        return self.out if self._place is None else self._place(shape)

    def finish(self, data: bytes) -> Result:
        """Decodes the result of an answer. Raises as Finisher and out_for."""
        return self.finisher(data, self.out_for, self.misfit)

    @property
    def repeatable(self) -> bool:
        """True if the request can be sent a second time."""
        return not any(isinstance(item, Blocks) for item in self.inputs)

    def encode(self) -> bytes:
        """An ExecuteRequest, of a call that does not stream."""
        operands = [item for item in self.inputs if isinstance(item, Operand)]
        data = encode_request(self.call, operands)
        assert len(data) <= MESSAGE_BYTES_MAX  # what is larger streams
        return data


def inputs_of(batch: Any) -> tuple[Any, ...]:
    """Returns the inputs of one batch for map: `batch` itself if it is a tuple."""
    return batch if _is_tuple(batch) else (batch,)


def are_the_callers(batches: object) -> bool:
    """True if all batches exist already, so that no batch is made in the memory of another."""
    return isinstance(batches, (list, tuple, np.ndarray))


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)
