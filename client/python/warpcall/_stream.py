"""Calls that send or return tensors in windows: ExecuteStream, Put and Get."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np

from . import _wire as wire
from ._arrays import ITEM_BYTES, Array, Operand, check_out, copy_into, empty, plain
from ._execute import (
    Response,
    encode_header,
    parse_chunk,
    split_stream_response,
    stream_chunk,
    stream_header,
)
from ._messages import decode, encode
from ._proto import GetRequest, PutResponse, TensorSpec
from ._request import Blocks, Input, Put, Request
from ._residents import ResidentBase
from ._result import Result, bad_response
from .errors import InvalidArgument

# Tensor data in a message: servers take 4 MiB by default, including the fields around the data. A
# whole multiple of 256, so that no window cuts an element or a cache line.
WINDOW_BYTES = (4 << 20) - 1024

_HEADER, _CHUNK, _DONE = 1, 2, 3
Value = TypeVar("Value")


def _windows(array: Array) -> Iterator[memoryview]:
    if array.size == 0:
        return
    data = array.reshape(-1).view(np.uint8).data
    for at in range(0, len(data), WINDOW_BYTES):
        yield data[at : at + WINDOW_BYTES]


class _Input:
    """An input, as far as it has been sent."""

    def __init__(self, item: Operand | Blocks) -> None:
        self.bytes = item.nbytes if isinstance(item, Blocks) else item.data.nbytes
        self.elements = math.prod(item.shape)
        self.sent = 0
        arrays = item.arrays() if isinstance(item, Blocks) else iter([item.data])
        self._pieces = (piece for array in arrays for piece in _windows(array))

    @property
    def share(self) -> float:
        return self.sent / self.bytes

    def next(self) -> memoryview:
        """The next window. Raises InvalidArgument when blocks are not as long as was said."""
        piece = next(self._pieces, None)
        if piece is None:
            raise InvalidArgument(f"blocks of {self.sent} bytes for an input of {self.bytes}")
        if self.sent + len(piece) > self.bytes:
            raise InvalidArgument(f"blocks of more than the {self.bytes} bytes of their input")
        return piece

    def check_end(self) -> None:
        if next(self._pieces, None) is not None:
            raise InvalidArgument(f"blocks of more than the {self.bytes} bytes of their input")


class _Output:
    """An output's memory, and which of its bytes have come."""

    def __init__(self, memory: Array, view: memoryview) -> None:
        self.memory = memory
        self._bytes: Array = np.frombuffer(view, np.uint8) if len(view) else np.empty(0, np.uint8)
        self._came: list[tuple[int, int]] = []

    def put(self, data: bytes, span: tuple[int, int], offset: int) -> None:
        length = span[1] - span[0]
        if not 0 <= offset <= self._bytes.size - length:
            raise bad_response(
                f"{length} bytes at offset {offset} of an output of {self._bytes.size}"
            )
        if length:
            self._bytes[offset : offset + length] = np.frombuffer(data, np.uint8, length, span[0])
            self._came.append((offset, offset + length))

    def check_end(self) -> None:
        end = 0
        for begin, stop in sorted(self._came):
            if begin != end:
                at = min(begin, end)
                raise bad_response(f"bytes of an output missing or twice at offset {at}")
            end = stop
        if end != self._bytes.size:
            raise bad_response(f"it ends after {end} of the {self._bytes.size} bytes of an output")


class Session(Generic[Value]):
    """The messages sent and received for one call. `messages` and `take` may be called from two
    threads at the same time."""

    def __init__(self, first: bytes, items: Sequence[Input]) -> None:
        """`first`: the message before the bytes of `items`."""
        self._first, self._items = first, items
        self.failure: BaseException | None = None
        """The exception that the caller's blocks raised and that ended sending."""
        self._decided = threading.Event()
        self._dropped = False

    def begin(self) -> None:
        """A call exists, and somebody will end it: `messages` may continue."""
        self._decided.set()

    def drop(self) -> None:
        """Unless it has begun, nothing is sent."""
        self._dropped = not self._decided.is_set()
        self._decided.set()

    def messages(self) -> Iterator[bytes]:
        """The requests. Never raises: see `failure`."""
        self._decided.wait()
        if self._dropped:
            return
        yield self._first
        inputs = {
            number: _Input(item)
            for number, item in enumerate(self._items)
            if not isinstance(item, ResidentBase)
        }
        try:
            # The server computes a part when it has it of every input, and holds back only so much
            # until then: so of inputs with as many elements, that of which the smallest share was
            # sent comes next. Those with fewer elements are what all parts share, or nothing is
            # divided: they come first.
            while rest := [number for number, item in inputs.items() if item.sent < item.bytes]:
                number = min(rest, key=lambda each: (inputs[each].elements, inputs[each].share))
                chosen = inputs[number]
                data = chosen.next()
                yield stream_chunk(number, chosen.sent, data)
                chosen.sent += len(data)
            for item in inputs.values():
                item.check_end()
        except Exception as error:
            self.failure = error

    def take(self, data: bytes) -> None:
        """A response. Raises Internal for one that contradicts the others, and InvalidArgument when
        `out` does not fit the result."""
        try:
            self._read(data)
        except (wire.WireError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise bad_response(error) from None

    def _read(self, data: bytes) -> None:
        raise NotImplementedError

    def check_failure(self) -> None:
        """Raises what the caller's blocks raised, if they did."""
        failure, self.failure = self.failure, None
        if failure is not None:
            try:
                raise failure from None
            finally:
                del failure  # its traceback leads here

    def result(self) -> Value:
        """Once the call has ended well. Raises Internal when the answer did not."""
        self.check_failure()
        value = self._value()
        if value is None:
            raise bad_response("it ended too soon")
        return value

    def _value(self) -> Value | None:
        """What came; None: not all that there has to be."""
        raise NotImplementedError


class StreamSession(Session[Result]):
    """A request on ExecuteStream."""

    def __init__(self, request: Request) -> None:
        super().__init__(stream_header(encode_header(request.call, request.inputs)), request.inputs)
        self._request = request
        self._outputs: list[_Output] = []
        self._out: Array | None = None
        self._header: Response | None = None
        self._result: Result | None = None

    def _read(self, data: bytes) -> None:
        kind, at, end = split_stream_response(data)
        if kind == 0:
            return
        if self._result is not None:
            raise bad_response("a message after its end")
        if (kind == _HEADER) != (self._header is None):
            raise bad_response("a second header" if kind == _HEADER else "it has no header")
        if kind == _HEADER:
            self._begin(Response(data, at, end))
        elif kind == _CHUNK:
            chunk = parse_chunk(data, at, end)
            if not 0 <= chunk.number < len(self._outputs):
                raise bad_response(f"bytes of output {chunk.number} of {len(self._outputs)}")
            self._outputs[chunk.number].put(data, chunk.span, chunk.offset)
        else:
            self._end(Response(data, at, end))

    def _begin(self, header: Response) -> None:
        self._header = header
        if self._request.keeps:
            return  # no bytes follow, and the handles come at the end
        for number, spec in enumerate(header.specs()):
            out = self._request.out_for(spec.shape) if number == 0 else None
            if out is None:
                self._outputs.append(_Output(*empty(spec)))
                continue
            self._out = out
            check_out(out, spec, self._request.misfit)
            whole = out.flags.c_contiguous and out.dtype.isnative
            if whole and (out is not self._request.out or self._request.out_takes_parts()):
                base = plain(out)
                flat = base.view(np.uint16) if base.dtype.itemsize == 2 else base
                view = flat.reshape(-1).view(np.uint8).data
                self._outputs.append(_Output(out, view))
            else:
                self._outputs.append(_Output(*empty(spec)))

    def _end(self, done: Response) -> None:
        if self._header is not None:
            done.take_request_id(self._header)
        if self._request.keeps:
            self._result = self._request.finisher.kept(done)
            return
        for output in self._outputs:
            output.check_end()
        arrays = [output.memory for output in self._outputs]
        if self._out is not None and arrays[0] is not self._out:
            copy_into(self._out, arrays[0])
            arrays[0] = self._out
        self._result = self._request.finisher.made_of(done, arrays)

    def _value(self) -> Result | None:
        return self._result


class PutSession(Session[PutResponse]):
    """A tensor that is put on a server."""

    def __init__(self, put: Put, *, question: bool = False) -> None:
        """`question`: sends the digest of the content alone."""
        super().__init__(stream_header(encode(put.header)), [] if question else [put.item])
        self._response: PutResponse | None = None

    def _read(self, data: bytes) -> None:
        self._response = decode(PutResponse, data)
        if not self._response.handle:
            raise bad_response("a tensor without a handle")

    def _value(self) -> PutResponse | None:
        return self._response


class GetSession(Session[Array]):
    """A tensor that a server returns."""

    def __init__(self, handle: str) -> None:
        super().__init__(encode(GetRequest(handle)), [])
        self._output: _Output | None = None

    def _read(self, data: bytes) -> None:
        kind, at, end = split_stream_response(data)
        if kind == _HEADER:
            spec = decode(TensorSpec, data[at:end])
            if self._output is not None or spec.data_type not in ITEM_BYTES:
                raise bad_response(f"a second header, or one of a {spec.data_type}")
            self._output = _Output(*empty(spec))
        elif kind == _CHUNK:
            chunk = parse_chunk(data, at, end)
            if self._output is None:
                raise bad_response("it has no header")
            self._output.put(data, chunk.span, chunk.offset)

    def _value(self) -> Array | None:
        if self._output is None:
            return None
        self._output.check_end()
        return self._output.memory
