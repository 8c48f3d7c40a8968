"""Calls by the C++ client, where its module is installed: `pip install 'warpcall[fast]'`.

The module, warpcall_fast, makes Execute's calls, with their retries, stripes and streams. Pure
Python makes all others: other methods, inputs that are Blocks or Residents instead of arrays, calls
that keep their outputs, clients with TLS, a token or a session, and those for asyncio except for
their large calls.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import re
import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._arrays import NDARRAY, WIRE_DTYPES, Array, array_type_name, as_type, copy_into, plain
from ._aside import is_main_thread
from ._calls import CLOSED, Calls, Terms, check_timeout
from ._channel import Target, call_metadata
from ._futures import Cancellation
from ._messages import DATA_TYPE_NUMBERS, encode_attributes
from ._proto import DATA_TYPES, LaunchInfo, Timing
from ._request import Request
from ._result import NO_OUTPUTS, Ceiling, Result, bad_response
from ._retry import Retry, Schedule
from ._version import CHECKOUT, VERSION
from .errors import Cancelled, Refusal, make_error

# Inputs of this size or more use ExecuteStream with one connection: results then come back while
# inputs are on their way. With several connections each has a stripe, up to the largest message of
# the service.
STREAM_BYTES = 64 << 20
_STRIPED_BYTES_MAX = 1 << 30
# A call that has a future has a thread; further calls wait for a thread.
_THREADS_MAX = 256
# Keeps a deadline that has passed from looking like no deadline at all.
_SECONDS_MIN = 1e-9
# Matches gRPC's messages for a connection that was lost during a call.
_BROKEN_OFF = re.compile(
    r"Socket closed|recvmsg:|sendmsg:|Connection reset|Broken pipe|keepalive|ping timeout"
    r"|the call was broken off"
)
_DTYPES = {number: WIRE_DTYPES[name] for number, name in DATA_TYPES.items()}


def _load() -> Any:
    """The module, or None: there is none, it is refused, or does not belong to this package."""
    if os.environ.get("WARPCALL_PURE", "") not in ("", "0"):
        return None
    if importlib.util.find_spec("warpcall_fast") is None:
        return None
    try:
        module = importlib.import_module("warpcall_fast")
    except ImportError as error:  # built for another machine
        warnings.warn(f"warpcall goes on without warpcall_fast: {error}", stacklevel=2)
        return None
    if VERSION not in (CHECKOUT, module.__version__):
        warnings.warn(
            f"warpcall {VERSION} goes on without warpcall_fast, which is {module.__version__}:"
            f" pip install 'warpcall[fast]=={VERSION}'",
            stacklevel=2,
        )
        return None
    return module


_module: Any = _load()
FAST: bool = _module is not None
"""True if warpcall_fast makes the calls."""


def open_calls(target: Target, timeout: float | None, retry: Retry) -> Calls:
    """Returns the calls of a client, in the fastest available form."""
    if not FAST or target.tls is not None or target.token is not None or target.session:
        return Calls(target, timeout, retry)
    return FastCalls(target, timeout, retry)


class FastResponse:
    """Fields of an answer beside its outputs."""

    __slots__ = ("_answer",)

    resident_bytes = 0  # calls with Residents are not the module's

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    @property
    def implementation(self) -> str:
        return str(self._answer.implementation)

    @property
    def device(self) -> str:
        return str(self._answer.device)

    @property
    def request_id(self) -> str:
        return str(self._answer.request_id)

    def timing(self) -> Timing:
        return Timing(*self._answer.timing)

    def launch(self) -> LaunchInfo:
        return LaunchInfo(*self._answer.launch)


class FastCalls(Calls):
    """Calls made by the C++ client. Retries of all other calls have a budget of their own."""

    def __init__(self, target: Target, timeout: float | None, retry: Retry) -> None:
        super().__init__(target, timeout, retry)
        self._threads_max = _THREADS_MAX
        self._several = target.connections > 1
        if not self._several:
            self.small_bytes = STREAM_BYTES
        self._own_native = _module.Calls(
            target.address,
            (target.connections, float(target.stall_timeout)),
            tuple(map(_number, dataclasses.astuple(retry))),
        )
        self._home.keep(self, self._own_native)

    @property
    def _native(self) -> Any:
        """As _methods."""
        self._home.check()
        return self._own_native

    def close(self) -> None:
        if not self._home.is_here:
            return
        self._closed.set()  # before calls end, so that they say why
        self._native.close()
        super().close()

    def run_ready(
        self,
        names: tuple[str, str, str],
        inputs: tuple[object, ...],
        extras: tuple[str, Mapping[str, object]],
        timeout: float | None,
        ceiling: Ceiling,
    ) -> Result | None:
        for x in inputs:  # a class of arrays may say more than its elements: to_operand knows
            if type(x) is not NDARRAY and isinstance(x, np.ndarray):
                return None
        seconds = self._timeout if timeout is None else check_timeout(timeout)
        metadata = call_metadata(())
        trace = metadata[0][1] if metadata is not None else ""
        terms = (*names, extras[0], seconds or 0.0, trace)
        answer = self._native.run_ready(terms, extras[1], inputs, self.small_bytes)
        if answer is None:
            return None
        self._check(answer)
        return Result(names[0], (FastResponse, answer), _arrays(answer), ceiling, answer.stripes)

    def run(self, request: Request) -> Result:
        if not self._is_native(request):
            return super().run(request)
        terms = Terms(self.deadline(request.timeout), call_metadata(()))
        # A thread that is in a large call cannot be interrupted; the main one has to be for Ctrl-C.
        if request.nbytes < self.small_bytes or not is_main_thread():
            return self._attempts(request, terms)
        terms = dataclasses.replace(terms, cancellation=Cancellation())
        return self._cancellable(terms, lambda: self._attempts(request, terms))

    def _is_native(self, request: Request) -> bool:
        return request.repeatable and not request.stays

    def _may_stripe(self, request: Request) -> bool:
        return False  # the module does, of itself

    def _takes_a_thread(self, request: Request) -> bool:
        return True

    def _attempts(self, request: Request, terms: Terms) -> Result:
        if not self._is_native(request):
            return super()._attempts(request, terms)
        schedule = Schedule(self._retry, self._budget)
        while True:
            answer = self._attempt(request, terms)
            pause = self._pause_of(answer, schedule, terms)
            if pause is None:
                break
            stop = self._closed if terms.cancellation is None else terms.cancellation.event
            if stop.wait(pause):
                raise Cancelled(CLOSED if self.closed else "the call was cancelled")
        self._check(answer)
        return _finished(request, answer)

    def _pause_of(self, answer: Any, schedule: Schedule, terms: Terms) -> float | None:
        """Before the call is made again, in seconds; None: it ends with `answer`. The module tries
        again whatever it may, but for a stream that had begun: it can't read a caller's functions
        twice. Arrays it can."""
        if type(answer) is not _module.Refusal or not _BROKEN_OFF.match(answer.message):
            return None
        return schedule.next(answer.code, answer.pushback, time.monotonic(), terms.deadline)

    def _attempt(self, request: Request, terms: Terms) -> Any:
        cancellation = terms.cancellation
        ended_by = None
        if cancellation is not None:
            ended_by = _module.Cancellation(self._native)
            cancellation.add(ended_by)
        try:
            return self._answer(request, terms, ended_by)
        finally:
            if cancellation is not None:
                cancellation.discard(ended_by)

    def _answer(self, request: Request, terms: Terms, ended_by: Any) -> Any:
        call = request.call
        seconds = 0.0
        if terms.deadline is not None:
            seconds = max(terms.deadline - time.monotonic(), _SECONDS_MIN)
        trace = next((value for key, value in terms.metadata or () if key == "traceparent"), "")
        names = (call.kernel, call.implementation, call.device, call.request_id)
        limit = _STRIPED_BYTES_MAX if self._several else STREAM_BYTES
        way = (request.nbytes >= limit, ended_by, *_memory_of(request))
        return self._native.run(
            (*names, seconds, trace), _plain(call.attributes), request.inputs, way
        )

    def _check(self, answer: Any) -> None:
        """Raises what a call ended with that has no answer."""
        if type(answer) is _module.Refusal:
            if self.closed:
                raise Cancelled(CLOSED)
            said = (answer.code, answer.message, answer.pushback)
            raise make_error(Refusal(*said, request_id=answer.request_id))


def _number(value: object) -> Any:
    """Numbers of NumPy are none to the module."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(attributes: Mapping[str, object]) -> dict[str, object]:
    """Attributes in Python's own types. Raises InvalidArgument as encode_attributes."""
    encode_attributes(4, attributes)
    return {
        name: value.item() if isinstance(value, (np.generic, np.ndarray)) else value
        for name, value in attributes.items()
    }


def _memory_of(request: Request) -> tuple[int | None, Array | None]:
    """(number of its data type, itself) of an `out` that the module can write to."""
    out = request.out
    if out is None or not out.flags.c_contiguous or not out.flags.writeable or out.ndim == 0:
        return None, None
    name = "bfloat16" if out.dtype == np.uint16 else array_type_name(out)
    if name not in DATA_TYPE_NUMBERS or not out.dtype.isnative or not request.out_takes_parts():
        return None, None
    base = plain(out)
    return DATA_TYPE_NUMBERS[name], base.view(np.uint16) if name == "bfloat16" else base


def _arrays(answer: Any) -> list[Array]:
    """The outputs, read-only, in the answer's memory. Raises Internal when there are none."""
    only = answer.only_output
    if only is not None and only[0] != 3:
        return [np.ndarray(only[1], _DTYPES[only[0]], answer)]
    outputs: list[Array] = []
    for number, shape, data in answer.outputs:
        name = DATA_TYPES[number]
        array: Array = np.ndarray(shape, WIRE_DTYPES[name], data)
        outputs.append(as_type(array, name))
    if not outputs:
        raise bad_response(NO_OUTPUTS)
    return outputs


def _finished(request: Request, answer: Any) -> Result:
    outputs = _arrays(answer)
    if request.out is None:
        outputs = request.finisher.shaped(outputs)
    else:
        if _memory_of(request)[0] is None:
            copy_into(request.out, request.finisher.shaped_as(request.out, outputs)[0])
        outputs[0] = request.out
    return request.finisher.made_of((FastResponse, answer), outputs, answer.stripes)
