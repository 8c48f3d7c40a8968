"""A call as the user made it, on its way to becoming bytes; the same for both kinds of client."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from ._arrays import ITEM_BYTES, Array, Operand, check_meaning, to_operand, type_name
from ._execute import MESSAGE_BYTES_MAX, Call, encode_request
from ._fuse import with_expressions
from ._messages import DATA_TYPE_NUMBERS
from ._proto import DATA_TYPES, FreeRequest, PutHeader, PutResponse, TensorInfo, TensorSpec
from ._residents import ResidentBase, ttl_ns
from ._result import Ceiling, Finisher, MakeResident, Result, make_none, read_response
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


# An input of a call.
Input: TypeAlias = "Operand | Blocks | ResidentBase"
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
    keep = keep_ttl_ns(rest.pop("keep", False), rest.pop("keep_ttl", None))
    return Call(kernel, implementation, device, request_id, rest, keep), own


def keep_ttl_ns(keep: bool, ttl: float | None) -> int | None:
    """Call.keep_ttl_ns of these arguments of `run`."""
    if ttl is not None and not keep:
        raise InvalidArgument(f"keep_ttl is {ttl} s; it takes keep=True")
    return ttl_ns("keep_ttl", ttl) if keep else None


@dataclasses.dataclass(frozen=True)
class Put:
    """A tensor that is to be put on a server."""

    item: Operand | Blocks
    header: PutHeader
    keep_source: bool

    @property
    def repeatable(self) -> bool:
        """True if the tensor can be sent a second time."""
        return isinstance(self.item, Operand)

    @property
    def source(self) -> Put | None:
        """What may put the tensor again; None: nothing."""
        return self if self.keep_source and self.repeatable else None

    def info(self, response: PutResponse) -> TensorInfo:
        """The tensor on the server, new."""
        header = self.header
        return TensorInfo(
            response.handle,
            header.label,
            response.device,
            header.tensor.data_type,
            header.tensor.shape,
            response.bytes,
            expires_unix_ns=response.expires_unix_ns,
            evictable=header.evictable,
        )

    def pinned(self, device: str) -> Put:
        """To the device, unless it names one of its own."""
        return self if self.header.device else self.moved(device)

    def moved(self, device: str) -> Put:
        return dataclasses.replace(self, header=dataclasses.replace(self.header, device=device))


def put_of(
    x: object,
    dtype: object,
    device: str,
    ttl: float | None,
    label: str,
    evictable: bool,
    sha256: bool,
    keep_source: bool,
) -> Put:
    """From the arguments of Client.put. Raises InvalidArgument for what no server could take."""
    item: Operand | Blocks = x if isinstance(x, Blocks) else to_operand(x, dtype)
    digest = b""
    if isinstance(item, Operand):
        # A tensor never changes, but the caller may write to the array.
        if keep_source and not item.is_own and not _is_read_only(x):
            item = item._replace(data=item.data.copy())
        if sha256:
            digest = hashlib.sha256(item.data.reshape(-1).view(np.uint8).data).digest()
    elif sha256:
        raise InvalidArgument("sha256 takes an array: Blocks are read once, while they are sent")
    spec = TensorSpec(DATA_TYPES[item.data_type], item.shape)
    header = PutHeader(spec, device, ttl_ns("ttl", ttl), label, digest, evictable)
    return Put(item, header, keep_source)


def _is_read_only(x: object) -> bool:
    """False for other objects than arrays: NumPy's view of one may be read-only when the object is
    not."""
    return isinstance(x, np.ndarray) and not x.flags.writeable


class Request:
    """A call that is ready to be sent. Keeps the inputs, and so their memory, alive."""

    __slots__ = (
        "_place",
        "call",
        "finisher",
        "inputs",
        "keeps",
        "misfit",
        "nbytes",
        "out",
        "residents",
        "streams",
        "timeout",
    )

    def __init__(
        self,
        call: Call,
        inputs: Sequence[object],
        options: Options,
        ceiling: Ceiling,
        resident: MakeResident = make_none,
    ) -> None:
        """Raises InvalidArgument for what no server could take."""
        self.call = with_expressions(call, len(inputs))
        self.keeps = call.keep_ttl_ns is not None
        dtype = options.dtype
        self.inputs: list[Input] = _inputs_of(inputs, dtype)
        self.residents = [item for item in self.inputs if isinstance(item, ResidentBase)]
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
            elif isinstance(item, Operand):
                self.nbytes += item.data.nbytes
                is_scalar = is_scalar or item.is_scalar
        self.streams = self.streams or self.nbytes >= STREAM_BYTES
        if self.out is not None and not isinstance(self.out, np.ndarray):
            raise InvalidArgument(f"out is a {type(self.out).__name__}; it must be a NumPy array")
        if self.out is not None:
            check_meaning(self.out, "an out")
        if self.out is not None and self.keeps:
            raise InvalidArgument("out and keep=True exclude each other: kept results are not sent")
        is_scalar = is_scalar and all(isinstance(x, Operand) and x.is_scalar for x in self.inputs)
        self.finisher = Finisher(call.kernel, ceiling, is_scalar, resident)

    @classmethod
    def of_stripe(cls, call: Call, operands: Sequence[Input], place: Place) -> Request:
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
        if self.keeps:
            return self.finisher.kept(read_response(data))
        return self.finisher(data, self.out_for, self.misfit)

    @property
    def stays(self) -> bool:
        """True if some operands are or remain on a device: such a call goes to one server whole."""
        return self.keeps or bool(self.residents)

    @property
    def restorable(self) -> Sequence[ResidentBase]:
        """Residents that may be put again for the request, after which it is sent once more."""
        return self.residents if self.repeatable else ()

    @property
    def repeatable(self) -> bool:
        """True if the request can be sent a second time."""
        return not any(isinstance(item, Blocks) for item in self.inputs)

    def encode(self) -> bytes:
        """An ExecuteRequest, of a call that does not stream."""
        sent = [item for item in self.inputs if not isinstance(item, Blocks)]
        data = encode_request(self.call, sent)
        assert len(data) <= MESSAGE_BYTES_MAX  # what is larger streams
        return data


def _input_of(x: object, dtype: object) -> Input:
    if isinstance(x, Result) and x.residents:
        x = x.residents[0]
    return x if isinstance(x, (Blocks, Operand, ResidentBase)) else to_operand(x, dtype)


def _inputs_of(inputs: Sequence[object], dtype: object) -> list[Input]:
    """Raises InvalidArgument, which names the input by its number where there are several."""
    items: list[Input] = []
    try:
        items.extend(_input_of(x, dtype) for x in inputs)
    except InvalidArgument as error:
        if len(inputs) == 1:
            raise
        raise InvalidArgument(f"input {len(items)}: {error.message}") from None
    return items


def free_request(tensors: Sequence[object]) -> FreeRequest:
    """Of Residents, kept results and handles. No call uses such a Resident from now on."""
    handles: list[str] = []
    for tensor in tensors:
        if isinstance(tensor, Result) and tensor.residents:
            handles += [resident.end() for resident in tensor.residents]
        elif isinstance(tensor, ResidentBase):
            handles.append(tensor.end())
        elif isinstance(tensor, str):
            handles.append(tensor)
        else:
            name = type(tensor).__name__
            raise InvalidArgument(f"a {name} to free; it must be a Resident or a handle")
    return FreeRequest(tuple(handles))


def inputs_of(batch: Any) -> tuple[Any, ...]:
    """Returns the inputs of one batch for map: `batch` itself if it is a tuple."""
    return batch if _is_tuple(batch) else (batch,)


@contextlib.contextmanager
def of_batch(number: int) -> Generator[None, None, None]:
    """InvalidArgument that is raised meanwhile names the batch of map."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"batch {number}: {error.message}") from None


def are_the_callers(batches: object) -> bool:
    """True if all batches exist already, so that no batch is made in the memory of another."""
    return isinstance(batches, (list, tuple, np.ndarray))


def _is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)
