"""Requests and answers of Execute: header bytes around views of arrays, and arrays around views of
the answer.

A request is joined once, from its pieces; nothing else copies a tensor. Fields may come in any
order, so what is small comes first and the tensors after it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from . import _wire as wire
from ._arrays import (
    ITEM_BYTES,
    NDARRAY,
    READY,
    WIRE_DTYPES,
    Array,
    Operand,
    as_type,
    from_bytes,
)
from ._messages import decode, encode_attributes
from ._proto import DATA_TYPES, LaunchInfo, TensorInfo, TensorSpec, Timing
from ._residents import ResidentBase

# The least that a message of gRPC cannot hold: its length is sent in 32 bits.
MESSAGE_BYTES_MAX = (1 << 32) - 1

# Fields of an ExecuteResponse.
_IMPLEMENTATION, _DEVICE, _TIMING, _LAUNCH, _REQUEST_ID = range(2, 7)
_RESIDENT_BYTES = 7
_SUBMESSAGES = (_TIMING, _LAUNCH)
_SMALL_TAGS = bytes(number << 3 | wire.BYTES for number in range(_IMPLEMENTATION, _REQUEST_ID + 1))


class Call(NamedTuple):
    """Kernel, choices and attributes of a request, beside its tensors."""

    kernel: str
    implementation: str = ""
    device: str = ""
    request_id: str = ""
    attributes: Mapping[str, object] = {}
    keep_ttl_ns: int | None = None
    """For how long outputs stay on the device after their last use, 0: as long as the server's own
    time to live; None: they are sent."""


def tensor_fields(data_type: int, shape: tuple[int, ...], data_bytes: int | None) -> bytes:
    """All of a Tensor but its data, which follow; without them: None."""
    spec = wire.varint_field(1, data_type)
    spec += wire.bytes_field(2, b"".join(map(wire.varint, shape)))
    return spec if data_bytes is None else spec + wire.bytes_prefix(3, data_bytes)


@functools.lru_cache(maxsize=1024)
def _tensor_prefix(data_type: int, shape: tuple[int, ...], data_bytes: int | None) -> bytes:
    """As tensor_fields, of an ExecuteRequest.inputs."""
    spec = tensor_fields(data_type, shape, data_bytes)
    return wire.bytes_prefix(3, len(spec) + (data_bytes or 0)) + spec


@functools.lru_cache(maxsize=1024)
def _names(kernel: str, implementation: str, device: str) -> bytes:
    out = wire.bytes_field(1, kernel.encode())
    if implementation:
        out += wire.bytes_field(2, implementation.encode())
    return out + wire.bytes_field(5, device.encode()) if device else out


def encode_extras(request_id: str, attributes: Mapping[str, object]) -> bytes:
    """Encodes the fields that most calls leave empty."""
    out = encode_attributes(4, attributes)
    return out + wire.bytes_field(6, request_id.encode()) if request_id else out


def _call_bytes(call: Call) -> bytes:
    """Returns all of an ExecuteRequest but its tensors."""
    out = _names(call.kernel, call.implementation, call.device)
    out += encode_extras(call.request_id, call.attributes)
    if call.keep_ttl_ns is not None:
        out += wire.varint_field(7, True) + wire.varint_field(8, call.keep_ttl_ns)
    return out


def handle_field(resident: ResidentBase) -> bytes:
    """A Tensor that is on the server."""
    return wire.bytes_field(4, resident.handle.encode())


def _encode_handle(resident: ResidentBase) -> bytes:
    """An ExecuteRequest.inputs."""
    return wire.bytes_field(3, handle_field(resident))


def encode_request(call: Call, inputs: Sequence[Operand | ResidentBase]) -> bytes:
    """An ExecuteRequest; the one copy of the tensors."""
    pieces: list[Any] = [_call_bytes(call)]
    for item in inputs:
        if isinstance(item, ResidentBase):
            pieces.append(_encode_handle(item))
        else:
            pieces.append(_tensor_prefix(item.data_type, item.shape, item.data.nbytes))
            pieces.append(item.data)
    return b"".join(pieces)


@functools.lru_cache(maxsize=1024)
def _ready_prefix(
    names: tuple[str, str, str] | None, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[bytes, int] | None:
    """(what comes before its data, how many they are) of an array that is sent as it lies; None for
    others. `names`: the kernel's, the implementation's and the device's, for a call's first."""
    if dtype not in READY or not shape:
        return None
    data_bytes = math.prod(shape) * dtype.itemsize
    prefix = _tensor_prefix(READY[dtype], shape, data_bytes)
    return (prefix if names is None else _names(*names) + prefix), data_bytes


def encode_ready(
    names: tuple[str, str, str], extras: bytes, inputs: Sequence[Any], bytes_max: int
) -> bytes | None:
    """As encode_request, by the short way that small calls take: None when some inputs are no
    arrays that are sent as they lie, when there are none, or together they have `bytes_max` or
    more. `extras` as encode_extras returns it."""
    pieces: list[Any] = [extras]
    first: tuple[str, str, str] | None = names
    for x in inputs:
        if type(x) is not NDARRAY or not x.flags.c_contiguous:
            return None
        prefix = _ready_prefix(first, x.dtype, x.shape)
        if prefix is None:
            return None
        first = None
        bytes_max -= prefix[1]
        pieces += prefix[0], x
    return b"".join(pieces) if first is None and bytes_max > 0 else None


def encode_header(call: Call, inputs: Sequence[Any]) -> bytes:
    """The ExecuteRequest that opens a stream: handles, and types and shapes without data.
    `inputs`: Operands, Blocks and Residents."""
    return _call_bytes(call) + b"".join(
        _encode_handle(item)
        if isinstance(item, ResidentBase)
        else _tensor_prefix(item.data_type, item.shape, None)
        for item in inputs
    )


class TensorView(NamedTuple):
    """A tensor that lies within an answer."""

    data_type: int = 0
    shape: tuple[int, ...] = ()
    span: tuple[int, int] = (0, 0)
    handle: str = ""

    def spec(self) -> TensorSpec:
        """Raises ValueError for a type that there is not."""
        if self.data_type not in DATA_TYPES or any(size < 0 for size in self.shape):
            raise ValueError(f"a tensor of data type {self.data_type}, {self.shape}")
        return TensorSpec(DATA_TYPES[self.data_type], self.shape)

    def kept(self, device: str, label: str = "") -> TensorInfo:
        """The tensor, which stays on the device. Raises ValueError for one that has no handle or
        no type."""
        if not self.handle:
            raise ValueError("an output without a handle")
        spec = self.spec()
        return TensorInfo(
            self.handle,
            label,
            device,
            spec.data_type,
            spec.shape,
            math.prod(spec.shape) * ITEM_BYTES[spec.data_type],
        )


def read_tensor(data: bytes, at: int, end: int) -> TensorView:
    data_type, span, handle = 0, (0, 0), ""
    shape: list[int] = []
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if number == 3 and wire_type == wire.BYTES:
            span = (value, stop)
        elif number == 2:
            shape += wire.read_integers(data, wire_type, value, stop)
        elif number == 1 and wire_type == wire.VARINT:
            data_type = wire.signed32(value)
        elif number == 4 and wire_type == wire.BYTES:
            handle = wire.read_text(data, value, stop)
    return TensorView(data_type, tuple(shape), span, handle)


class Response:
    """A view of an encoded ExecuteResponse. Fields other than tensors are decoded on first use."""

    __slots__ = ("_data", "_parts", "resident_bytes", "tensors")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        """Raises WireError for bytes that are no such message."""
        self._data = data
        self.tensors: list[TensorView] = []
        self._parts: dict[int, bytes] = {}
        self.resident_bytes = 0
        self._read(at, len(data) if end is None else end)

    def _read(self, at: int, end: int) -> None:
        parts = self._parts
        for number, wire_type, value, stop in wire.fields(self._data, at, end):
            if wire_type != wire.BYTES:
                if number == _RESIDENT_BYTES and wire_type == wire.VARINT:
                    self.resident_bytes = wire.signed(value)
                continue
            if number == 1:
                self.tensors.append(read_tensor(self._data, value, stop))
            elif number in _SUBMESSAGES and number in parts:
                # Encodings one after the other are the encoding of both merged.
                parts[number] += self._data[value:stop]
            elif number <= _REQUEST_ID:
                parts[number] = self._data[value:stop]

    def _text(self, number: int) -> str:
        return self._parts.get(number, b"").decode(errors="replace")

    @property
    def implementation(self) -> str:
        return self._text(_IMPLEMENTATION)

    @property
    def device(self) -> str:
        return self._text(_DEVICE)

    @property
    def request_id(self) -> str:
        return self._text(_REQUEST_ID)

    def take_request_id(self, other: Response) -> None:
        """Where this one has none."""
        if _REQUEST_ID in other._parts:
            self._parts.setdefault(_REQUEST_ID, other._parts[_REQUEST_ID])

    def arrays(self) -> list[Array]:
        """The outputs, read-only, in the answer's memory. Raises ValueError when bytes, type and
        shape of one do not fit."""
        return [from_bytes(self._data, t.span, t.data_type, t.shape) for t in self.tensors]

    def specs(self) -> list[TensorSpec]:
        """Types and shapes of the outputs. Raises ValueError for a type that there is not."""
        return [tensor.spec() for tensor in self.tensors]

    def kept(self) -> list[TensorInfo]:
        """The outputs, which stay on the device. Raises ValueError for one that has no handle or
        no type."""
        return [tensor.kept(self.device) for tensor in self.tensors]

    def timing(self) -> Timing:
        return decode(Timing, self._parts.get(_TIMING, b""))

    def launch(self) -> LaunchInfo:
        return decode(LaunchInfo, self._parts.get(_LAUNCH, b""))


# Cache of the bytes before the data of an answer's only and last tensor, keyed by the size of those
# bytes and the data: (bytes, NumPy's type, shape, the type's name). Answers to one call differ only
# in what precedes, so the tensor need not be decoded anew.
_heads: dict[int, tuple[bytes, np.dtype[Any], tuple[int, ...], str]] = {}
_HEADS_MAX = 1024


# How to read what an answer says beside its tensors, a type and its arguments: nobody does before
# somebody asks.
Unread: TypeAlias = "tuple[Any, ...]"


def read_answer(data: bytes) -> tuple[Response | Unread, list[Array]]:
    """An ExecuteResponse and its outputs, read-only, in the answer's memory. Raises WireError for
    bytes that are no such message, ValueError when bytes, type and shape of a tensor do not fit."""
    at, end = 0, len(data)
    try:
        # Skips the fields that our server sends first: small, with a tag and a length of one byte.
        while data[at] in _SMALL_TAGS and data[at + 1] < 0x80:
            at += 2 + data[at + 1]
    except IndexError:
        at = end  # no tensor follows
    known = _heads.get(end - at)
    if known is not None and data.startswith(known[0], at):
        array: Array = np.ndarray(known[2], known[1], data, at + len(known[0]))
        if known[3] == "bfloat16":
            array = as_type(array, known[3])
        return (Response, data, 0, at), [array]
    response = Response(data)
    outputs = response.arrays()
    if len(outputs) == 1 and at < response.tensors[0].span[0] and data[at] == 1 << 3 | wire.BYTES:
        _remember(data, at, response.tensors[0])
    return response, outputs


def _remember(data: bytes, at: int, tensor: TensorView) -> None:
    """`at`: where the tensor's field begins. Only of one that ends with its data, and the answer
    with it."""
    if tensor.span[0] < tensor.span[1] == len(data):
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        name = DATA_TYPES[tensor.data_type]
        head = data[at : tensor.span[0]]
        _heads[len(data) - at] = head, WIRE_DTYPES[name], tensor.shape, name


# ---- streams ------------------------------------------------------------------------------------


def stream_header(request: bytes) -> bytes:
    """An ExecuteStreamRequest that opens a request."""
    return wire.bytes_field(1, request)


def stream_chunk(index: int, offset: int, data: memoryview) -> bytes:
    """An ExecuteStreamRequest with bytes of an input; the one copy of them."""
    head = wire.varint_field(1, index) + wire.varint_field(2, offset)
    head += wire.bytes_prefix(3, data.nbytes)
    return b"".join((wire.bytes_prefix(2, len(head) + data.nbytes), head, data))


class Chunk(NamedTuple):
    """Bytes of an output: data[span[0]:span[1]] of the message that they came in."""

    number: int
    offset: int
    span: tuple[int, int]


def split_stream_response(data: bytes) -> tuple[int, int, int]:
    """(1 header, 2 chunk or 3 done, begin, end) of what an ExecuteStreamResponse holds; (0, 0, 0)
    for what a later version of the service says. Raises WireError."""
    found = (0, 0, 0)
    for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
        if wire_type == wire.BYTES and number in (1, 2, 3):
            found = (number, value, stop)
    return found


def parse_chunk(data: bytes, at: int, end: int) -> Chunk:
    """Raises WireError."""
    index, offset, span = 0, 0, (0, 0)
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if number == 3 and wire_type == wire.BYTES:
            span = (value, stop)
        elif number == 2 and wire_type == wire.VARINT:
            offset = wire.signed(value)
        elif number == 1 and wire_type == wire.VARINT:
            index = wire.signed32(value)
    return Chunk(index, offset, span)
