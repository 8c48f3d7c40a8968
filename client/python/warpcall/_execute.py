"""Requests and answers of Execute: header bytes around views of arrays, and arrays around views of
the answer.

A request is joined once, from its pieces; nothing else copies a tensor. Fields may come in any
order, so what is small comes first and the tensors after it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _wire as wire
from ._arrays import Array, Operand, from_bytes
from ._messages import DATA_TYPES, LaunchInfo, TensorSpec, Timing, decode, encode_attributes

# The least that a message of gRPC cannot hold: its length is sent in 32 bits.
MESSAGE_BYTES_MAX = (1 << 32) - 1

# Fields of an ExecuteResponse.
_IMPLEMENTATION, _DEVICE, _TIMING, _LAUNCH, _REQUEST_ID = range(2, 7)
_SUBMESSAGES = (_TIMING, _LAUNCH)
_SMALL_TAGS = bytes(number << 3 | wire.BYTES for number in range(_IMPLEMENTATION, _REQUEST_ID + 1))


class Call(NamedTuple):
    """What a request asks for, beside its tensors."""

    kernel: str
    implementation: str = ""
    device: str = ""
    request_id: str = ""
    attributes: Mapping[str, object] = {}


@functools.lru_cache(maxsize=1024)
def _tensor_prefix(data_type: int, shape: tuple[int, ...], data_bytes: int | None) -> bytes:
    """All of an ExecuteRequest.inputs but its data, which follow; without them: None."""
    spec = wire.varint_field(1, data_type)
    spec += wire.bytes_field(2, b"".join(map(wire.varint, shape)))
    if data_bytes is None:
        return wire.bytes_field(3, spec)
    spec += wire.bytes_prefix(3, data_bytes)
    return wire.bytes_prefix(3, len(spec) + data_bytes) + spec


@functools.lru_cache(maxsize=1024)
def _names(kernel: str, implementation: str, device: str) -> bytes:
    out = wire.bytes_field(1, kernel.encode())
    if implementation:
        out += wire.bytes_field(2, implementation.encode())
    return out + wire.bytes_field(5, device.encode()) if device else out


def _call_bytes(call: Call) -> bytes:
    out = _names(call.kernel, call.implementation, call.device)
    if call.attributes:
        out += encode_attributes(4, call.attributes)
    if call.request_id:
        out += wire.bytes_field(6, call.request_id.encode())
    return out


def encode_request(call: Call, operands: Sequence[Operand]) -> bytes:
    """An ExecuteRequest; the one copy of the tensors."""
    pieces: list[Any] = [_call_bytes(call)]
    for operand in operands:
        data = operand.data
        pieces.append(_tensor_prefix(operand.data_type, operand.shape, data.nbytes))
        pieces.append(data)
    return b"".join(pieces)


def encode_header(call: Call, specs: Sequence[tuple[int, tuple[int, ...]]]) -> bytes:
    """The ExecuteRequest that opens a stream: types and shapes without data."""
    return _call_bytes(call) + b"".join(_tensor_prefix(*spec, None) for spec in specs)


class TensorView(NamedTuple):
    """A tensor that lies within an answer."""

    data_type: int = 0
    shape: tuple[int, ...] = ()
    span: tuple[int, int] = (0, 0)


# What comes before the data of tensors that have been read, by the tensors' length: taking it apart
# anew costs as much as all the rest of a small answer. (Those bytes, data type, shape.)
_heads: dict[int, tuple[bytes, int, tuple[int, ...]]] = {}
_HEADS_MAX = 1024


def _tensor_view(data: bytes, at: int, end: int) -> TensorView:
    known = _heads.get(end - at)
    if known is not None and data.startswith(known[0], at):
        return TensorView(known[1], known[2], (at + len(known[0]), end))
    view = _read_tensor(data, at, end)
    if view.span[1] == end and view.span[0] < end:  # the data are the tensor's last field
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        _heads[end - at] = data[at : view.span[0]], view.data_type, view.shape
    return view


def _read_tensor(data: bytes, at: int, end: int) -> TensorView:
    data_type, shape, span = 0, [], (0, 0)
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if number == 3 and wire_type == wire.BYTES:
            span = (value, stop)
        elif number == 2:
            shape += wire.read_integers(data, wire_type, value, stop)
        elif number == 1 and wire_type == wire.VARINT:
            data_type = wire.signed32(value)
    return TensorView(data_type, tuple(shape), span)


class Response:
    """An ExecuteResponse where it lies. What is no tensor is taken apart when asked for."""

    __slots__ = ("_data", "_parts", "tensors")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        """Raises WireError for bytes that are no such message."""
        self._data = data
        self.tensors: list[TensorView] = []
        self._parts: dict[int, bytes] = {}
        parts = self._parts
        end = len(data) if end is None else end
        # What a server of ours sends first: small fields, each with a tag and a length of one byte.
        # Read here, without a call for each, they cost half of what they do below.
        while at + 1 < end:
            number, stop = data[at] >> 3, at + 2 + data[at + 1]
            if data[at] not in _SMALL_TAGS or stop - at > 129 or stop > end or number in parts:
                break
            parts[number] = data[at + 2 : stop]
            at = stop
        for number, wire_type, value, stop in wire.fields(data, at, end):
            if wire_type != wire.BYTES:
                continue
            if number == 1:
                self.tensors.append(_tensor_view(data, value, stop))
            elif number in _SUBMESSAGES and number in parts:
                # Encodings one after the other are the encoding of both merged.
                parts[number] += data[value:stop]
            elif number <= _REQUEST_ID:
                parts[number] = data[value:stop]

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
        for tensor in self.tensors:
            if tensor.data_type not in DATA_TYPES or any(size < 0 for size in tensor.shape):
                raise ValueError(f"a tensor of data type {tensor.data_type}, {tensor.shape}")
        return [TensorSpec(DATA_TYPES[t.data_type], t.shape) for t in self.tensors]

    def timing(self) -> Timing:
        return decode(Timing, self._parts.get(_TIMING, b""))

    def launch(self) -> LaunchInfo:
        return decode(LaunchInfo, self._parts.get(_LAUNCH, b""))


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
