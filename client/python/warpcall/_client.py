"""The client that blocks, and its futures."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import grpc

from . import _channel
from ._arrays import Array
from ._channel import TLS, Methods, Target, refusal, trace_metadata
from ._execute import Call
from ._futures import CallFuture
from ._inspect import BenchmarkResponse, ProfileOptions, encode_profile, parse_problem
from ._kernels import KernelMethods
from ._messages import (
    AttributeValue,
    DeviceInfo,
    KernelInfo,
    ListDevicesResponse,
    ListKernelsResponse,
)
from ._reports import Benchmark, BenchmarkCalls, Profile, decoded, take_profile
from ._request import Options, Request, make_request
from ._result import Result
from ._retry import Budget, Retry, Schedule
from ._stream import StreamSession
from .errors import Cancelled, Error, InvalidArgument, make_error

DEFAULT_ADDRESS = "127.0.0.1:8470"
_CLOSED = "the client is closed"
Value = TypeVar("Value")


class Client(KernelMethods):
    """Connections to one server. Made by `warpcall.connect`; thread-safe.

    Kernels are methods, `client.softmax(x, axis=-1)`, whichever the server has.
    """

    def __init__(self, target: Target, timeout: float | None, retry: Retry) -> None:
        self._timeout = check_timeout(timeout)
        self._retry = retry
        self._budget = Budget(retry)
        self._metadata = target.metadata()
        self._channels = target.open(grpc)
        self._methods = Methods(self._channels)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None  # for futures of streams
        self._pauses: set[threading.Timer] = set()
        self._futures: set[CallFuture] = set()
        self._ceilings: dict[str, float] = {}
        self._target = target

    # ---- kernels ----

    def run(
        self,
        kernel: str,
        *inputs: Any,
        implementation: str = "",
        device: str = "",
        timeout: float | None = None,
        out: Array | None = None,
        dtype: Any = None,
        request_id: str = "",
        **attributes: AttributeValue,
    ) -> Result:
        """Runs a kernel and waits for its result.

        `inputs`: NumPy arrays, or what has `__dlpack__` in host memory or `__array__`, lists and
        numbers. What is not contiguous and little-endian is copied once.
        `implementation`: a row ("simd_rows") or a family ("cpu"); by default the server chooses.
        `device`: "cpu", "cuda:0"; by default the server chooses.
        `timeout`: seconds, retries included; None: the client's.
        `out`: an array of the result's type and shape to write it to.
        `dtype`: what inputs are converted to; "bfloat16" of uint16 arrays says what their bits are.
        `attributes`: the kernel's, by name.

        Raises a class of warpcall.Error.
        """
        options = Options(implementation, device, timeout, out, dtype, request_id)
        return self._run(make_request(kernel, inputs, options, attributes, self._ceiling))

    def submit(
        self,
        kernel: str,
        *inputs: Any,
        implementation: str = "",
        device: str = "",
        timeout: float | None = None,
        out: Array | None = None,
        dtype: Any = None,
        request_id: str = "",
        **attributes: AttributeValue,
    ) -> Future[Result]:
        """Begins a call and returns at once. Arguments as for `run`; inputs must stay as they are
        until the future is done. Cancelling the future ends the call on the server too."""
        options = Options(implementation, device, timeout, out, dtype, request_id)
        return self.submit_request(make_request(kernel, inputs, options, attributes, self._ceiling))

    def map(
        self, kernel: str, batches: Iterable[Any], *, window: int = 8, **options: Any
    ) -> Iterator[Result]:
        """Results of `kernel` for each batch, in their order, with up to `window` calls under way.

        A batch is an input, or a tuple of them. `options` are those of `run`, but for `out`. The
        first call that fails raises and cancels the others.
        """
        if window < 1:
            raise InvalidArgument(f"window is {window}; it must be at least 1")
        if "out" in options:
            raise InvalidArgument("map takes no out: its results are many")
        return self._map(kernel, batches, window, options)

    def _map(
        self, kernel: str, batches: Iterable[Any], window: int, options: dict[str, Any]
    ) -> Iterator[Result]:
        pending: deque[Future[Result]] = deque()
        try:
            for batch in batches:
                inputs = batch if isinstance(batch, tuple) else (batch,)
                pending.append(self.submit(kernel, *inputs, **options))
                if len(pending) >= window:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    # ---- lists ----

    def kernels(self, *, timeout: float | None = None) -> list[KernelInfo]:
        """Every kernel of the server, with its inputs, attributes and implementations."""
        data = self._unary(_channel.LIST_KERNELS, b"", self._deadline(timeout))
        return list(decoded(ListKernelsResponse, data).kernels)

    def devices(self, *, timeout: float | None = None) -> list[DeviceInfo]:
        """Every device of the server, with its health."""
        data = self._unary(_channel.LIST_DEVICES, b"", self._deadline(timeout))
        devices = list(decoded(ListDevicesResponse, data).devices)
        self._ceilings = known_ceilings(devices)
        return devices

    def _ceiling(self, device: str) -> float | None:
        if device not in self._ceilings and not self._closed.is_set():
            self.devices()
        return self._ceilings.get(device)

    # ---- how fast ----

    def benchmark(
        self,
        kernel: str,
        shapes: Any,
        *,
        dtype: Any = "float32",
        implementations: Sequence[str] = (),
        device: str = "",
        warmup_iterations: int = 0,
        iterations: int = 0,
        seed: int = 0,
        timeout: float | None = None,
        progress: Callable[[int, int], object] | None = None,
        **attributes: AttributeValue,
    ) -> Benchmark:
        """Times implementations side by side on the device, without transfers.

        `shapes`: of a problem's inputs, which the server makes: "4096x1024"; with several inputs
        "64x32*32x16", of matmul also "MxNxK"; or tuples. A list: several problems.
        `implementations`: rows or families; by default all that fit.
        `warmup_iterations`, `iterations`, `seed`: 0: the server's defaults.
        `timeout`: seconds for each problem.
        `progress`: called with how many problems are done, and how many there are.
        """
        counts = (warmup_iterations, iterations, seed)
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, counts, attributes)
        report, requests = calls.report(), calls.requests()
        for number, (problem, message) in enumerate(requests):
            data = self._unary(_channel.BENCHMARK, message, self._deadline(timeout))
            report.add(problem, decoded(BenchmarkResponse, data))
            if progress is not None:
                progress(number + 1, len(requests))
        return report

    def profile(
        self,
        kernel: str,
        shape: Any,
        *,
        dtype: Any = "float32",
        implementation: str = "",
        device: str = "",
        iterations: int = 0,
        trace: bool | str = False,
        seed: int = 0,
        request_path: bool = False,
        timeout: float | None = None,
        **attributes: AttributeValue,
    ) -> Profile:
        """What the device does for a kernel, on inputs that the server makes.

        `shape`: as for benchmark, of one problem.
        `trace`: a path to write a trace to, for ui.perfetto.dev; True: keep it in the result.
        `request_path`: profile a request with such inputs, copies included.
        """
        problem = parse_problem(kernel, shape, dtype)
        call = Call(kernel, implementation, device, attributes=attributes)
        options = ProfileOptions(iterations, bool(trace), seed, request_path)
        message = encode_profile(problem, call, options)
        data = self._unary(_channel.PROFILE, message, self._deadline(timeout))
        return take_profile(kernel, problem.label, data, trace)

    # ---- life ----

    def close(self) -> None:
        """Ends every call under way with Cancelled, and leaves no thread behind."""
        self._closed.set()
        with self._lock:
            pauses, futures, pool = list(self._pauses), list(self._futures), self._pool
        for pause in pauses:
            pause.cancel()
        for future in futures:
            if future.claim():
                future.set_exception(Cancelled(_CLOSED))
        for channel in self._channels:
            channel.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        for pause in pauses:
            if pause is not threading.current_thread():
                pause.join()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._closed.is_set() else ""
        return f"<warpcall.Client of {self._target.address}{state}>"

    # ---- calls ----

    def _deadline(self, timeout: float | None) -> float | None:
        """On time.monotonic's clock; None: never."""
        timeout = self._timeout if timeout is None else check_timeout(timeout)
        return None if timeout is None else time.monotonic() + timeout

    def _run(self, request: Request) -> Result:
        deadline = self._deadline(request.timeout)
        if request.streams:
            return self._stream(request, deadline, self._call_metadata())
        return request.finish(self._unary(_channel.EXECUTE, request.encode(), deadline))

    def _unary(self, method: str, message: bytes, deadline: float | None) -> bytes:
        call, metadata = self._methods[method], self._call_metadata()

        def attempt() -> bytes:
            data: bytes = call(message, timeout=_left(deadline), metadata=metadata)
            return data

        return self._retried(attempt, deadline)

    def _call_metadata(self) -> _channel.Metadata | None:
        return (self._metadata + trace_metadata()) or None

    def _retried(
        self, attempt: Callable[[], Value], deadline: float | None, tries: bool = True
    ) -> Value:
        """What `attempt` returns, after as many as it takes and may take."""
        schedule: Schedule | None = None
        while True:
            refused: tuple[str, str, float | None]
            try:
                value = attempt()
            except grpc.RpcError as error:
                refused = refusal(error)
            except ValueError as error:  # what gRPC says of channels that are closed
                if isinstance(error, Error) or not self._closed.is_set():
                    raise
                raise Cancelled(_CLOSED) from None
            else:
                self._budget.add_success()
                return value
            if schedule is None:
                schedule = Schedule(self._retry, self._budget)
            code, message, pushback = refused
            pause = schedule.next(code, pushback, time.monotonic(), deadline) if tries else None
            if self._closed.is_set() or (pause is not None and self._closed.wait(pause)):
                raise Cancelled(_CLOSED)
            if pause is None:
                raise make_error(code, message, pushback)

    def _stream(
        self,
        request: Request,
        deadline: float | None,
        metadata: _channel.Metadata | None,
        future: CallFuture | None = None,
    ) -> Result:
        def attempt() -> Result:
            session, call = StreamSession(request), None
            try:
                call = self._methods[_channel.EXECUTE_STREAM](
                    session.messages(), timeout=_left(deadline), metadata=metadata
                )
                if future is not None:
                    future.on_cancel(call.cancel)
                session.begin()
                for data in call:
                    session.take(data)
            except grpc.RpcError:
                if session.failure is not None:
                    raise session.failure from None
                raise
            finally:  # when something of ours went wrong, or Ctrl-C was pressed
                session.drop()
                if call is not None:
                    call.cancel()
            return session.result()

        return self._retried(attempt, deadline, request.repeatable)

    # ---- futures ----

    def submit_request(self, request: Request) -> CallFuture:
        """For this package: a call with a future. What it sends along is the caller's trace: its
        attempts begin on threads that know nothing of that."""
        if self._closed.is_set():
            raise Cancelled(_CLOSED)
        future = CallFuture()
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        deadline, metadata = self._deadline(request.timeout), self._call_metadata()
        if request.streams:
            self._submit_stream(future, request, deadline, metadata)
        else:
            schedule = Schedule(self._retry, self._budget)
            message = request.encode()
            self._begin(_Pending(future, request, message, deadline, metadata, schedule))
        return future

    def _forget(self, future: Future[Result]) -> None:
        with self._lock:
            self._futures.discard(future)

    def _submit_stream(
        self,
        future: CallFuture,
        request: Request,
        deadline: float | None,
        metadata: _channel.Metadata | None,
    ) -> None:
        def work() -> None:
            try:
                result = self._stream(request, deadline, metadata, future)
            except BaseException as error:
                failure = error
                if future.claim():
                    future.set_exception(failure)
            else:
                if future.claim():
                    future.set_result(result)

        with self._lock:
            if self._pool is None:
                workers = 2 * len(self._channels)
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="warpcall")
            self._pool.submit(work)

    def _begin(self, pending: _Pending) -> None:
        """One attempt of a call with a future."""
        try:
            call = self._methods[_channel.EXECUTE].future(
                pending.message, timeout=_left(pending.deadline), metadata=pending.metadata
            )
        except ValueError:  # what gRPC says of channels that are closed
            if pending.future.claim():
                pending.future.set_exception(Cancelled(_CLOSED))
            return
        pending.future.on_cancel(call.cancel)
        call.add_done_callback(lambda call: self._ended(pending, call))

    def _ended(self, pending: _Pending, call: Any) -> None:
        """Called by a thread of gRPC when an attempt is over."""
        future = pending.future
        if call.code() is grpc.StatusCode.OK:
            self._budget.add_success()
            if future.claim():
                data = call.result()
                future.finish(lambda: pending.request.finish(data))
            return
        code, message, pushback = refusal(call)
        pause = pending.schedule.next(code, pushback, time.monotonic(), pending.deadline)
        if pause is not None and not future.done() and self._begin_later(pending, pause):
            return
        if future.claim():
            closed = self._closed.is_set()
            error = Cancelled(_CLOSED) if closed else make_error(code, message, pushback)
            future.set_exception(error)

    def _begin_later(self, pending: _Pending, pause: float) -> bool:
        def begin() -> None:
            with self._lock:
                self._pauses.discard(timer)
            if not pending.future.done():
                self._begin(pending)

        timer = threading.Timer(pause, begin)
        timer.daemon = True
        with self._lock:
            if self._closed.is_set():
                return False
            self._pauses.add(timer)
            timer.start()
        pending.future.on_cancel(timer.cancel)
        return True


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A call with a future, between and during its attempts."""

    future: CallFuture
    request: Request
    message: bytes
    deadline: float | None
    metadata: _channel.Metadata | None
    schedule: Schedule


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def check_timeout(timeout: float | None) -> float | None:
    """Seconds; infinity and None: no limit. Raises InvalidArgument for what is no time."""
    if timeout is None or timeout == math.inf:
        return None
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout} s; it must be over 0")
    return timeout


def known_ceilings(devices: list[DeviceInfo]) -> dict[str, float]:
    """Measured bandwidths by device."""
    return {
        device.name: device.measured_bandwidth_bytes_per_second
        for device in devices
        if device.measured_bandwidth_bytes_per_second > 0
    }


def connect(
    address: str = DEFAULT_ADDRESS,
    *,
    timeout: float | None = None,
    connections: int = 1,
    tls: TLS | None = None,
    token: str | None = None,
    retry: Retry | None = None,
    stall_timeout: float = 20.0,
) -> Client:
    """A client of the server at `address`: "host:port" or "unix:/path". Returns at once: the first
    call connects.

    `timeout`: seconds that calls may take which set none; None: no limit.
    `connections`: 1 to 64; calls take them in turns. One is one core's work on either side.
    `tls`, `token`: for a server that wants them.
    `retry`: how calls are tried again.
    `stall_timeout`: seconds after which a connection is given up on which the server's machine
    takes in nothing of what was sent.

    Raises InvalidArgument for values out of range.
    """
    target = Target(address, connections, tls, token, stall_timeout)
    return Client(target, timeout, Retry() if retry is None else retry)
