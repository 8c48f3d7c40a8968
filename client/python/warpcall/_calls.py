"""How calls are made: attempts and their pauses, streams, stripes, futures. Both kinds of client
stand on it, the one for asyncio with what blocks."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import grpc

from . import _channel
from ._arrays import Array
from ._aside import Aside, cancel_aside, is_main_thread
from ._channel import Methods, Target, call_metadata
from ._execute import encode_extras, encode_ready
from ._futures import CallFuture, Cancellation
from ._graph import GraphRequest, calling_graph
from ._process import Home
from ._profile import Profile, ProfileCalls
from ._proto import PutResponse
from ._request import STREAM_BYTES, Put, Request
from ._residents import ResidentBase
from ._result import Ceiling, Result, bad_response, ready_result
from ._retry import Budget, Retry, Schedule
from ._stream import GetSession, PutSession, Session, StreamSession
from ._striped import KernelCache, StripedCall
from ._stripes import STRIPE_BYTES_MIN, division_of, is_large_enough, plan_stripes
from .errors import (
    Cancelled,
    Error,
    InvalidArgument,
    NotFound,
    Refusal,
    Unimplemented,
    make_error,
)

CLOSED = "the client is closed"
_CANCELLED = "the call was cancelled"
# 30 years. A moment that is centuries ahead overflows gRPC's clock, and it says that it has passed.
_TIMEOUT_SECONDS_MAX = 1e9
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Terms:
    """Terms shared by all attempts of a call."""

    deadline: float | None
    """On time.monotonic's clock; None: never."""
    metadata: _channel.Metadata | None
    """Includes the caller's trace, since attempts may begin on threads without its context."""
    cancellation: Cancellation | None = None


class Parts:
    """The parts of an answer: `take` gets each as it comes."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self.begun = False

    def add(self, data: bytes) -> None:
        self.begun = True
        self._take(data)

    def check_begun(self) -> None:
        """Raises Internal for a stream that ended well, and nothing had come."""
        if not self.begun:
            raise bad_response("the stream ended before the answer did")


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A call with a future, between and during its attempts."""

    future: CallFuture
    request: Request
    message: bytes
    terms: Terms
    schedule: Schedule


class Calls:
    """The calls of one client. Thread-safe."""

    def __init__(self, target: Target, timeout: float | None, retry: Retry) -> None:
        self._timeout = check_timeout(timeout)
        self._target = target
        self._retry = retry
        self._budget = Budget(retry)
        self._metadata = target.metadata()
        self._home = Home()
        self._channels = target.open(grpc)
        self.kernels = KernelCache(self._list_kernels)
        self._put_device = ""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None  # for futures of streams and stripes
        self._threads_max = 2 * target.connections
        self._pauses: set[threading.Timer] = set()
        self._futures: set[CallFuture] = set()
        self._aside = Aside()
        self._home.keep(self, self._channels)
        self.small_bytes = small_bytes(target.connections)

    @property
    def closed(self) -> bool:
        """Also in a process that is not the client's own."""
        return self._closed.is_set() or not self._home.is_here

    @property
    def _methods(self) -> Methods:
        """Every call begins by these. Raises Cancelled in another process."""
        self._home.check()
        return self._channels.methods

    def close(self) -> None:
        """Ends every call under way with Cancelled, and leaves no thread behind. In another
        process than the client's own, does nothing."""
        if not self._home.is_here:
            return
        self._closed.set()
        with self._lock:
            pauses, futures, pool = list(self._pauses), list(self._futures), self._pool
        for pause in pauses:
            pause.cancel()
        for future in futures:
            future.end(Cancelled(CLOSED))
        for channel in self._channels.end():
            channel.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        self._aside.close()
        for pause in pauses:
            if pause is not threading.current_thread():
                pause.join()

    def deadline(self, timeout: float | None) -> float | None:
        """On time.monotonic's clock; None: never."""
        timeout = self._timeout if timeout is None else check_timeout(timeout)
        return None if timeout is None else time.monotonic() + timeout

    def terms(self, timeout: float | None) -> Terms:
        return Terms(self.deadline(timeout), call_metadata(self._metadata))

    # ---- calls that block ----

    def run_ready(
        self,
        names: tuple[str, str, str],
        inputs: tuple[object, ...],
        extras: tuple[str, Mapping[str, object]],
        timeout: float | None,
        ceiling: Ceiling,
    ) -> Result | None:
        """A small call of arrays that are sent as they lie, by a short way; None when it is none.

        `names`: the kernel's, the implementation's, the device's. `extras`: request_id, attributes.
        """
        data = encode_extras(*extras) if extras[0] or extras[1] else b""
        message = encode_ready(names, data, inputs, self.small_bytes)
        if message is None:
            return None
        data = self.unary(_channel.EXECUTE, message, self.deadline(timeout))
        return ready_result(names[0], data, ceiling)

    def run(self, request: Request) -> Result:
        self._home.check()
        terms = self.terms(request.timeout)
        if self._may_stripe(request):
            striping = dataclasses.replace(terms, cancellation=Cancellation())
            striped = self._plan(request, striping)
            if striped is not None:
                return self._run_stripes(striped, striping)

        def make() -> Result:
            if self._streams(request, terms):
                return self._execute_stream(request, terms)
            data = self.unary(_channel.EXECUTE, request.encode(), terms.deadline)
            return request.finish(data)

        return self._restoring(request.restorable, terms, make)

    def graph(self, request: GraphRequest) -> bytes:
        deadline = self.deadline(request.timeout)
        with calling_graph():
            return self.with_residents(
                _channel.EXECUTE_GRAPH, request.encode, request.residents, deadline
            )

    def with_residents(
        self,
        method: str,
        encode: Callable[[], bytes],
        residents: Sequence[ResidentBase],
        deadline: float | None,
    ) -> bytes:
        """A call whose request, which `encode` makes, names residents."""
        terms = Terms(deadline, call_metadata(self._metadata))
        return self._restoring(
            residents, terms, lambda: self.unary(method, encode(), terms.deadline)
        )

    def unary(self, method: str, message: bytes, deadline: float | None) -> bytes:
        self._home.check()
        metadata = call_metadata(self._metadata)
        if not is_main_thread():
            return self._unary(method, (message, metadata), deadline)
        sent = message, metadata
        return self._by_own(lambda own: self._unary(method, sent, deadline, own))

    def _by_own(self, make: Callable[[Methods], Value]) -> Value:
        """Returns what `make` returns or raises, with the main thread's methods."""
        own = self._channels.take_own()

        def work() -> Value | Error:
            try:
                return make(own)
            except Error as error:
                return error

        said = self._aside.result_of(work, partial(self._channels.drop, own))
        self._channels.keep_own(own)
        if not isinstance(said, Error):
            return said
        try:
            raise said.with_traceback(None)
        finally:
            del said  # its traceback leads here

    def _unary(
        self,
        method: str,
        sent: tuple[bytes, _channel.Metadata | None],
        deadline: float | None,
        own: Methods | None = None,
    ) -> bytes:
        """`own`: makes the call in place of the client's methods."""
        message, metadata = sent
        methods = self._methods if own is None else own
        failures: list[Exception] = []
        try:  # nearly always it is the only one, so all that retries take is left for later
            data: bytes = methods[method](
                message,
                timeout=None if deadline is None else deadline - time.monotonic(),
                metadata=metadata,
            )
        except (grpc.RpcError, ValueError) as error:
            failures.append(error)
        else:
            self._budget.add_success()
            return data

        def attempt(methods: Methods) -> bytes:
            if failures:
                raise failures.pop()
            if own is not None and not self._channels.reach_all(methods):
                methods = own
            data: bytes = methods[method](message, timeout=time_left(deadline), metadata=metadata)
            return data

        return self._retried(attempt, deadline)

    def benchmark(
        self, message: bytes, deadline: float | None, take: Callable[[bytes], None]
    ) -> None:
        """Calls BenchmarkStream. Servers without that method answer Benchmark, in a single part."""
        parts = Parts(take)
        try:
            self.answered_in_parts(_channel.BENCHMARK_STREAM, message, deadline, parts)
            return
        except Unimplemented:  # no such method, or no implementation: then Benchmark says so, too
            if parts.begun:
                raise
        take(self.unary(_channel.BENCHMARK, message, deadline))

    def answered_in_parts(
        self, method: str, message: bytes, deadline: float | None, parts: Parts
    ) -> None:
        """A call whose answer is a stream. Retried only before the first part."""
        metadata = call_metadata(self._metadata)

        def attempt(methods: Methods) -> None:
            begun = Cancellation()

            def begin() -> Any:
                call = methods[method](message, timeout=time_left(deadline), metadata=metadata)
                begun.add(call)
                return call

            call = self._aside.result_of(begin, begun.cancel)

            def part() -> bytes | None:
                data: bytes | None = next(call, None)
                return data

            try:  # each part by itself: what is told of it belongs to the caller's thread
                while (data := self._aside.result_of(part, call.cancel)) is not None:
                    parts.add(data)
            finally:  # also when Ctrl-C was pressed
                cancel_aside(partial(self._home.end, call))

        self._retried(attempt, deadline, lambda: not parts.begun)
        parts.check_begun()

    def profile(self, calls: ProfileCalls, deadline: float | None) -> Profile:
        """The calls of a profile, one after the other."""
        steps = calls.steps()
        method, encode = next(steps)
        while True:
            said: bytes | Error
            try:
                said = self.with_residents(method, encode, calls.subject.residents, deadline)
            except Error as error:
                said = error
            try:
                method, encode = steps.send(said)
            except StopIteration as end:
                profile: Profile = end.value
                return profile

    def _retried(
        self,
        attempt: Callable[[Methods], Value],
        deadline: float | None,
        may_repeat: Callable[[], bool] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Value:
        """Returns the result of `attempt`, retried as often as the policy needs and allows.
        `may_repeat`: as of Channels.call."""
        schedule: Schedule | None = None
        self._home.check()
        while True:
            refused: Refusal
            try:
                value: Value = self._channels.call(attempt, may_repeat)
            except grpc.RpcError as error:
                refused = self._target.refusal(error)
                # Where a call is its own error, it would keep itself, and the inputs, by a frame of
                # its traceback until Python looks for cycles.
                error.__traceback__ = None
            except ValueError as error:  # what gRPC says of channels that are closed
                if isinstance(error, Error) or not self.closed:
                    raise
                raise Cancelled(CLOSED) from None
            else:
                self._budget.add_success()
                return value
            if schedule is None:
                schedule = Schedule(self._retry, self._budget)
            pause = None
            if may_repeat is None or may_repeat():
                now = time.monotonic()
                pause = schedule.next(refused.code, refused.pushback, now, deadline)
            stop = self._closed if cancellation is None else cancellation.event
            stopped = pause is not None and stop.wait(pause)
            if self.closed:
                raise Cancelled(CLOSED)
            if stopped:
                raise Cancelled(_CANCELLED)
            if pause is None:
                raise make_error(refused)

    def _streams(self, request: Request, terms: Terms) -> bool:
        """True if the request goes by ExecuteStream. A stream takes Residents only as inputs that
        all parts of the problem share; calls with others are one message, however large."""
        if not request.streams or not request.residents or not request.repeatable:
            return request.streams
        kernel = self.kernels.find(request.call.kernel, terms.deadline)
        if kernel is None:
            return False
        division = division_of(request.inputs, request.call.attributes, kernel)
        return division is not None and not any(
            isinstance(item, ResidentBase) for item in division.split(request.inputs)
        )

    def _execute_stream(self, request: Request, terms: Terms) -> Result:
        return self._stream(
            _channel.EXECUTE_STREAM, lambda: StreamSession(request), terms, request.repeatable
        )

    def _stream(
        self,
        method: str,
        make_session: Callable[[], Session[Value]],
        terms: Terms,
        repeatable: bool = True,
    ) -> Value:
        """A call of a stream method; each attempt has a session of its own."""
        if is_main_thread():
            terms = dataclasses.replace(terms, cancellation=terms.cancellation or Cancellation())
            return self._cancellable(
                terms, lambda: self._stream(method, make_session, terms, repeatable)
            )

        def attempt(methods: Methods) -> Value:
            session, call = make_session(), None
            try:
                call = methods[method](
                    session.messages(), timeout=time_left(terms.deadline), metadata=terms.metadata
                )
                if terms.cancellation is not None:
                    terms.cancellation.add(call)
                session.begin()
                for data in call:
                    session.take(data)
            except grpc.RpcError:
                session.check_failure()
                raise
            finally:  # when something of ours went wrong, or Ctrl-C was pressed
                session.drop()
                if call is not None:
                    self._home.end(call)
                    if terms.cancellation is not None:
                        terms.cancellation.discard(call)
            return session.result()

        return self._retried(attempt, terms.deadline, lambda: repeatable, terms.cancellation)

    def _cancellable(self, terms: Terms, work: Callable[[], Value]) -> Value:
        """Returns what `work` returns; Ctrl-C cancels by `terms`."""
        assert terms.cancellation is not None
        self._home.check()
        return self._aside.result_of(work, terms.cancellation.cancel)

    # ---- tensors that stay ----

    def put(self, put: Put, terms: Terms) -> tuple[Put, PutResponse]:
        """Puts a tensor. Returns the Put that repeats it on the same device, and the answer. The
        device that the server chose for the first tensor serves all others that name none."""
        check_one_server(self._target)
        put = put.pinned(self._put_device)
        response = self._put(put, terms)
        if not put.header.device and not self._put_device:
            self._put_device = response.device
        return put.moved(response.device), response

    def _put(self, put: Put, terms: Terms) -> PutResponse:
        if put.header.sha256:
            try:
                return self._stream(_channel.PUT, lambda: PutSession(put, question=True), terms)
            except NotFound:
                pass
        return self._stream(_channel.PUT, lambda: PutSession(put), terms, put.repeatable)

    def get(self, resident: ResidentBase, terms: Terms) -> Array:
        resident.check(self._target.address)
        return self._restoring(
            [resident],
            terms,
            lambda: self._stream(_channel.GET, lambda: GetSession(resident.handle), terms),
        )

    def _restoring(
        self, residents: Sequence[ResidentBase], terms: Terms, make: Callable[[], Value]
    ) -> Value:
        """Returns what `make` returns. If the server has lost residents, puts them again and calls
        `make` a second time."""
        if not residents:
            return make()
        try:
            return make()
        except NotFound as error:
            self.restore(residents, error, terms)
        try:
            return make()
        except NotFound as error:
            raise lost_again(error) from None

    def restore(self, residents: Sequence[ResidentBase], error: NotFound, terms: Terms) -> None:
        """Puts residents that the server has lost again, so that the call that ended with `error`
        may be made once more. Raises `error`, with the reason, where one stays lost."""
        lost = error.lost_handles
        if not lost:
            raise error
        for resident in dict.fromkeys(residents):
            why_not = resident.restore(
                lost, time_left(terms.deadline), lambda source: self._put(source, terms)
            )
            if why_not:
                raise _explained(error, why_not) from None

    # ---- stripes ----

    def _may_stripe(self, request: Request) -> bool:
        several = self._target.connections > 1
        return several and not request.stays and is_large_enough(request)

    def _plan(self, request: Request, terms: Terms) -> StripedCall | None:
        """The call in stripes; None when it is to be sent whole."""
        kernel = self.kernels.find(request.call.kernel, terms.deadline)
        if kernel is None or terms.cancellation is None:
            return None
        stripes = plan_stripes(request, kernel, self._target.connections)
        return StripedCall(request, kernel, stripes, terms.cancellation) if stripes else None

    def _list_kernels(self, deadline: float) -> bytes:
        self._home.check()

        def call(methods: Methods) -> bytes:
            try:
                data: bytes = methods[_channel.LIST_KERNELS](
                    b"", timeout=time_left(deadline), metadata=self._metadata or None
                )
            except grpc.RpcError as error:
                raise make_error(self._target.refusal(error)) from None
            return data

        return self._by_own(call) if is_main_thread() else call(self._methods)

    def _run_stripes(self, striped: StripedCall, terms: Terms) -> Result:
        future = self._new_future(terms)
        work = partial(self._finish_stripes, striped, future, terms)
        try:
            return self._aside.result_of(work, future.cancel)
        finally:
            del future, work  # its error's traceback leads here

    def _finish_stripes(self, striped: StripedCall, future: CallFuture, terms: Terms) -> Result:
        """Blocks; the calling thread makes one stripe's call itself."""
        try:
            self._begin_stripes(striped, future, terms)
            return future.result()
        except BaseException:  # perhaps between the stripes
            future.cancel()
            raise
        finally:
            del future  # as in _run_stripes

    def _begin_stripes(self, striped: StripedCall, future: CallFuture, terms: Terms) -> None:
        """Makes the first stripe's call; whoever ends last settles the future."""

        def run(number: int) -> None:
            last = striped.run(number, lambda request: self._attempts(request, terms))
            if last and future.claim():
                future.finish(striped.result)

        for number in range(1, striped.count):
            self._in_pool(partial(run, number))
        run(0)

    def _attempts(self, request: Request, terms: Terms) -> Result:
        """A call, whole or of one stripe, that another thread may cancel."""
        return self._restoring(request.restorable, terms, lambda: self._attempts_of(request, terms))

    def _attempts_of(self, request: Request, terms: Terms) -> Result:
        if self._streams(request, terms):
            return self._execute_stream(request, terms)
        message, cancellation = request.encode(), terms.cancellation or Cancellation()

        def attempt(methods: Methods) -> bytes:
            call = methods[_channel.EXECUTE].future(
                message, timeout=time_left(terms.deadline), metadata=terms.metadata
            )
            cancellation.add(call)
            try:
                data: bytes = call.result()
            except grpc.FutureCancelledError:
                raise Cancelled(_CANCELLED) from None
            finally:  # also when Ctrl-C was pressed
                self._home.end(call)
                cancellation.discard(call)
            return data

        return request.finish(self._retried(attempt, terms.deadline, cancellation=cancellation))

    # ---- futures ----

    def submit(self, request: Request, reused: bool = False) -> CallFuture:
        """A call with a future. `reused`: the caller writes to the inputs as soon as this
        returns."""
        self._home.check()
        if self.closed:
            raise Cancelled(CLOSED)
        deadline, metadata = self.deadline(request.timeout), call_metadata(self._metadata)
        if self._takes_a_thread(request):
            if reused:
                request.own_inputs()
            terms = Terms(deadline, metadata, Cancellation())
            future = self._new_future(terms)
            begin = partial(self._in_pool, lambda: self._work(future, request, terms))
        else:
            terms = Terms(deadline, metadata)
            future = self._new_future(terms)
            schedule = Schedule(self._retry, self._budget)
            pending = _Pending(future, request, request.encode(), terms, schedule)
            begin = partial(self._begin, pending)
        self._aside.result_of(begin, future.cancel)
        return future

    def _takes_a_thread(self, request: Request) -> bool:
        """True if a thread of the pool, not one of gRPC's, settles the request's future."""
        return request.streams or self._may_stripe(request)

    def _new_future(self, terms: Terms) -> CallFuture:
        future = CallFuture(self._home)
        if terms.cancellation is not None:
            future.on_cancel(terms.cancellation.cancel)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Any) -> None:
        with self._lock:
            self._futures.discard(future)

    def _in_pool(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self.closed:
                raise Cancelled(CLOSED)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="warpcall")
            self._pool.submit(work)

    def _work(self, future: CallFuture, request: Request, terms: Terms) -> None:
        """All of a call that streams or may go in stripes, on a thread of the pool."""
        try:
            striped = self._plan(request, terms) if self._may_stripe(request) else None
            if striped is not None:
                self._begin_stripes(striped, future, terms)
                return
            result = self._attempts(request, terms)
        except BaseException as error:
            if future.claim():
                future.fail(error)
        else:
            if future.claim():
                future.set_result(result)

    def _begin(self, pending: _Pending, methods: Methods | None = None) -> None:
        """One attempt of a call with a future. None: by those that every call begins by."""
        terms, methods = pending.terms, methods or self._methods
        try:
            call = methods[_channel.EXECUTE].future(
                pending.message, timeout=time_left(terms.deadline), metadata=terms.metadata
            )
        except ValueError:  # what gRPC says of channels that are closed
            if pending.future.claim():
                pending.future.set_exception(Cancelled(CLOSED))
            return
        pending.future.on_cancel(call.cancel)
        call.add_done_callback(partial(self._ended, pending, methods))

    def _ended(self, pending: _Pending, methods: Methods, call: Any) -> None:
        """Called by a thread of gRPC when an attempt is over."""
        future = pending.future
        if call.code() is grpc.StatusCode.OK:
            self._budget.add_success()
            if future.claim():
                data = call.result()
                future.finish(lambda: pending.request.finish(data))
            return
        others = self._channels.after_refusal(methods, call)
        if others is not None and not future.done():
            return self._begin(pending, others)
        refused = self._target.refusal(call)
        now, deadline = time.monotonic(), pending.terms.deadline
        pause = pending.schedule.next(refused.code, refused.pushback, now, deadline)
        if pause is not None and not future.done() and self._begin_later(pending, pause):
            return
        closed = self._closed.is_set()
        if refused.lost_handles and not future.done() and not closed:
            # A thread of gRPC must not wait until they are put again.
            cancellation = Cancellation()
            future.on_cancel(cancellation.cancel)
            terms = dataclasses.replace(pending.terms, cancellation=cancellation)
            with contextlib.suppress(Cancelled):  # the client is closed, which ends the future
                self._in_pool(lambda: self._work(future, pending.request, terms))
            return
        if future.claim():
            future.set_exception(Cancelled(CLOSED) if closed else make_error(refused))

    def _begin_later(self, pending: _Pending, pause: float) -> bool:
        def begin() -> None:
            with self._lock:
                self._pauses.discard(timer)
            if not pending.future.done():
                self._begin(pending)

        def abort() -> None:
            timer.cancel()
            with self._lock:
                self._pauses.discard(timer)

        timer = threading.Timer(pause, begin)
        timer.daemon = True
        # Before it runs: `begin` has the future cancel the call instead.
        pending.future.on_cancel(abort)
        with self._lock:
            if self._closed.is_set():
                return False
            self._pauses.add(timer)
            timer.start()
        if pending.future.done():  # by now, or before it was kept
            abort()
        return True


def lost_again(error: NotFound) -> NotFound:
    """The error of a call that was made once more, which says so if handles were lost again."""
    if not error.lost_handles:
        return error
    return _explained(error, "the client had put it again in this call")


def _explained(error: NotFound, why_not: str) -> NotFound:
    """`error` with a sentence more."""
    return NotFound(
        f"{error.message}; {why_not}",
        retry_after=error.retry_after,
        lost_handles=error.lost_handles,
        request_id=error.request_id,
    )


def check_one_server(target: Target) -> None:
    """Raises InvalidArgument where calls may go to several servers: a tensor is on one."""
    if target.is_several:
        raise InvalidArgument(
            f"{target.address} may stand for several servers, and a tensor stays on one: name one"
            " server, or a sticky front"
        )


def check_residents(request: Request | GraphRequest, target: Target) -> None:
    """Raises InvalidArgument for a call whose tensors are or would be on another server."""
    for resident in request.residents:
        resident.check(target.address)
    if request.keeps:
        check_one_server(target)


def small_bytes(connections: int) -> int:
    """Size of the inputs from which a call streams, or may be split into stripes."""
    return STREAM_BYTES if connections == 1 else 2 * STRIPE_BYTES_MIN


def time_left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def check_timeout(timeout: float | None) -> float | None:
    """Seconds; infinity and None: no limit. Raises InvalidArgument for what is no time, TypeError
    for what is no number."""
    if timeout is not None and not isinstance(timeout, numbers.Real):
        raise TypeError(f"timeout is {timeout!r}; it must be a number of seconds, or None")
    if timeout is None or timeout > _TIMEOUT_SECONDS_MAX:
        return None
    if not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout} s; it must be over 0")
    return timeout
