"""The client for asyncio.

async with warpcall.aio.connect("127.0.0.1:8470") as gpu:
    y = await gpu.softmax(x)
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import time
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Sequence,
)
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from . import _channel
from ._arrays import Array
from ._benchmark import BenchmarkCalls, OnRow
from ._calls import (
    CLOSED,
    Calls,
    Parts,
    Terms,
    check_residents,
    check_timeout,
    lost_again,
    small_bytes,
    time_left,
)
from ._channel import TLS, Channels, Methods, Target, call_metadata, target_of
from ._client import known_ceilings
from ._execute import Call, encode_extras, encode_ready
from ._fast import open_calls
from ._fuse import Attribute, expressed
from ._futures import Cancellation
from ._graph import Graph, GraphRequest, InspectedGraph, calling_graph, inspecting_graph
from ._graph_result import GraphDescription, GraphResult, read_description
from ._inspect import (
    ProfileOptions,
    Sampling,
    encode_describe,
    parse_problem,
)
from ._kernels import AsyncKernelMethods
from ._messages import ServerInfoResponse, encode, list_kernels_request
from ._process import Home
from ._profile import KernelSubject, Profile, ProfileCalls, Trace
from ._progress import Progress, counting, length_of
from ._proto import (
    DeviceInfo,
    FreeResponse,
    KernelInfo,
    ListDevicesResponse,
    ListKernelsResponse,
    ListTensorsResponse,
    TensorInfo,
)
from ._push import Manifest, OnEvent, Push, PushOptions, Source, encode_push, pushing
from ._reports import Benchmark, Description, Tensors, decoded, take_description
from ._request import (
    Options,
    Put,
    Request,
    are_the_callers,
    call_of,
    free_request,
    inputs_of,
    keep_ttl_ns,
    of_batch,
    put_of,
)
from ._residents import ResidentBase, by_handle
from ._result import Result, ready_result
from ._retry import Budget, Retry, Schedule
from .errors import Cancelled, Error, InvalidArgument, NotFound, Unimplemented, make_error

Value = TypeVar("Value")
# Exceptions that end an attempt without an answer.
_ENDS = (grpc.RpcError, asyncio.CancelledError, grpc.aio.UsageError)


class Client(AsyncKernelMethods):
    """Connections to one server, for one event loop. Made by `warpcall.aio.connect`.

    Kernels are methods, `await client.softmax(x, axis=-1)`; after `await client.kernels()` another
    name is an AttributeError; before that the call raises NotFound. Inputs belong to a call until
    it has been awaited. Cancelling the task that awaits a call ends the call on the server too.
    """

    def __init__(self, target: Target, timeout: float | None, retry: Retry) -> None:
        self._timeout = check_timeout(timeout)
        self._retry = retry
        self._budget = Budget(retry)
        self._metadata = target.metadata()
        self._target = target
        self._channels: Channels | None = None
        self._threads: Calls | None = None
        self._small_bytes = small_bytes(target.connections)
        self._closed = False
        self._home = Home()
        self._ending: asyncio.Event | None = None  # of those who wait to try again
        self._ceilings: dict[str, float] = {}
        self._kernel_names: list[str] | None = None

    # ---- kernels ----

    async def run(
        self,
        kernel: str,
        *inputs: Any,
        implementation: str = "",
        device: str = "",
        timeout: float | None = None,
        out: Array | None = None,
        dtype: Any = None,
        request_id: str = "",
        keep: bool = False,
        keep_ttl: float | None = None,
        **attributes: Attribute,
    ) -> Result:
        """Runs a kernel. Arguments and errors as for `warpcall.Client.run`."""
        if out is None and dtype is None and not keep and keep_ttl is None:
            said = expressed(attributes, len(inputs))
            extras = encode_extras(request_id, said) if said or request_id else b""
            names = (kernel, implementation, device)
            message = encode_ready(names, extras, inputs, self._small_bytes)
            if message is not None:
                data = await self._unary(_channel.EXECUTE, message, self._deadline(timeout))
                return ready_result(kernel, data, self._ceilings.get)
        stays = keep_ttl_ns(keep, keep_ttl)
        call = Call(kernel, implementation, device, request_id, attributes, stays)
        return await self._prepared(self._request(call, inputs, Options(timeout, out, dtype)))

    def _request(self, call: Call, inputs: Sequence[object], options: Options) -> Request:
        request = Request(call, inputs, options, self._ceilings.get, self._resident)
        check_residents(request, self._target)
        return request

    def _prepared(self, request: Request, reused: bool = False) -> Coroutine[Any, Any, Result]:
        """Returns the call's coroutine. `reused`: the caller overwrites inputs before awaiting."""
        if request.streams or request.nbytes >= self._small_bytes:
            if reused:
                request.own_inputs()
            return self._by_threads(request)
        return self._encoded(request, request.encode(), self._deadline(request.timeout))

    async def _encoded(self, request: Request, message: bytes, deadline: float | None) -> Result:
        try:
            return request.finish(await self._unary(_channel.EXECUTE, message, deadline))
        except NotFound as error:
            if not error.lost_handles:
                raise
        # The rest of the call's time, which covers putting the tensors again.
        request.timeout = math.inf if deadline is None else max(deadline - time.monotonic(), 1e-3)
        return await self._by_threads(request)

    def map(
        self,
        kernel: str,
        batches: Iterable[Any] | AsyncIterable[Any],
        *,
        window: int = 8,
        progress: Progress = None,
        **options: Any,
    ) -> AsyncIterator[Result]:
        """Yields the results of `kernel` for each batch, in order, with up to `window` open calls:
        `async for y in gpu.map("gelu", batches)`. As `warpcall.Client.map`; `batches` may be an
        async iterable."""
        if window < 1:
            raise InvalidArgument(f"window is {window}; it must be at least 1")
        if "out" in options:
            raise InvalidArgument("map takes no out: its results are many")
        return self._map(kernel, batches, window, progress, options)

    async def _map(
        self,
        kernel: str,
        batches: Iterable[Any] | AsyncIterable[Any],
        window: int,
        progress: Progress,
        options: dict[str, Any],
    ) -> AsyncIterator[Result]:
        pending: deque[asyncio.Task[Result]] = deque()
        try:
            with counting(progress, length_of(batches), kernel) as advance:
                reused = window > 1 and not are_the_callers(batches)
                number = 0
                async for batch in _each(batches):
                    call, rest = call_of(kernel, options)
                    with of_batch(number):
                        request = self._request(call, inputs_of(batch), rest)
                    number += 1
                    pending.append(asyncio.create_task(self._prepared(request, reused)))
                    if len(pending) >= window:
                        yield await pending.popleft()
                        advance()
                while pending:
                    yield await pending.popleft()
                    advance()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    # ---- several kernels in one call ----

    def graph(self, *, dtype: Any = None) -> Graph:
        """As `warpcall.Client.graph`; the function that it becomes returns a coroutine:
        `y = await f(x=x)`."""
        return Graph(self, dtype)

    async def _run_graph(self, request: GraphRequest) -> GraphResult | tuple[GraphResult, ...]:
        check_residents(request, self._target)
        deadline = self._deadline(request.timeout)
        with calling_graph():
            data = await self._with_residents(
                _channel.EXECUTE_GRAPH, request.encode, request.residents, deadline
            )
        return request.finish(data, self._ceilings.get, self._resident)

    async def _describe_graph(self, graph: InspectedGraph) -> GraphDescription:
        check_residents(graph.request, self._target)
        deadline = self._deadline(graph.request.timeout)
        with inspecting_graph():
            data = await self._with_residents(
                _channel.DESCRIBE, graph.encode_describe, graph.residents, deadline
            )
        return read_description(graph.problem, data)

    async def _profile_graph(
        self, graph: InspectedGraph, options: ProfileOptions, trace: Trace
    ) -> Profile:
        check_residents(graph.request, self._target)
        calls = ProfileCalls(graph, options, trace)
        with inspecting_graph():
            return await self._profile(calls, self._deadline(graph.request.timeout))

    async def _with_residents(
        self,
        method: str,
        encode: Callable[[], bytes],
        residents: Sequence[ResidentBase],
        deadline: float | None,
    ) -> bytes:
        """As Calls.with_residents."""
        try:
            return await self._unary(method, encode(), deadline)
        except NotFound as error:
            if not residents:
                raise
            await self._restore(residents, error, deadline)
        try:
            return await self._unary(method, encode(), deadline)
        except NotFound as error:
            raise lost_again(error) from None

    async def _restore(
        self, residents: Sequence[ResidentBase], error: NotFound, deadline: float | None
    ) -> None:
        """As Calls.restore."""
        # The rest of the call's time.
        timeout = math.inf if deadline is None else max(deadline - time.monotonic(), 1e-3)
        await self._in_thread(timeout, lambda calls, terms: calls.restore(residents, error, terms))

    # ---- tensors that stay ----

    async def put(
        self,
        x: Any,
        *,
        ttl: float | None = None,
        label: str = "",
        device: str = "",
        dtype: Any = None,
        evictable: bool = False,
        sha256: bool = False,
        keep_source: bool = True,
        timeout: float | None = None,
    ) -> Resident:
        """As `warpcall.Client.put`."""
        put = put_of(x, dtype, device, ttl, label, evictable, sha256, keep_source)
        put, response = await self._in_thread(timeout, lambda calls, terms: calls.put(put, terms))
        return self._resident(put.info(response), put.source, response.existed)

    async def free(self, *tensors: Any, timeout: float | None = None) -> FreeResponse:
        """As `warpcall.Client.free`."""
        message = encode(free_request(tensors))
        data = await self._unary(_channel.FREE, message, self._deadline(timeout))
        return decoded(FreeResponse, data)

    async def tensors(self, *, timeout: float | None = None) -> Tensors[Resident]:
        """As `warpcall.Client.tensors`."""
        data = await self._unary(_channel.LIST_TENSORS, b"", self._deadline(timeout))
        return Tensors(map(self._resident, decoded(ListTensorsResponse, data).tensors))

    async def resident(self, handle: str, *, timeout: float | None = None) -> Resident:
        """As `warpcall.Client.resident`."""
        return by_handle(handle, await self.tensors(timeout=timeout))

    async def _get(self, resident: Resident, timeout: float | None) -> Array:
        return await self._in_thread(timeout, lambda calls, terms: calls.get(resident, terms))

    def _resident(
        self, info: TensorInfo, source: Put | None = None, existed: bool = False
    ) -> Resident:
        return Resident(self, self._target.address, info, source, existed)

    # ---- lists ----

    async def kernels(
        self, *, tuned: bool = False, timeout: float | None = None
    ) -> list[KernelInfo]:
        """Returns every kernel of the server, with its inputs, attributes and implementations. With
        `tuned` also the measured problems and the implementations that "auto" runs for them."""
        request = list_kernels_request(tuned)
        data = await self._unary(_channel.LIST_KERNELS, request, self._deadline(timeout))
        kernels = list(decoded(ListKernelsResponse, data).kernels)
        self._kernel_names = [kernel.name for kernel in kernels]
        return kernels

    def _known_kernels(self) -> Sequence[str] | None:
        return self._kernel_names

    def _listed_kernels(self) -> Sequence[str]:
        return self._kernel_names or ()

    async def devices(self, *, timeout: float | None = None) -> list[DeviceInfo]:
        """Returns every device of the server, with its health."""
        data = await self._unary(_channel.LIST_DEVICES, b"", self._deadline(timeout))
        devices = list(decoded(ListDevicesResponse, data).devices)
        self._ceilings.update(known_ceilings(devices))
        return devices

    async def server_info(self, *, timeout: float | None = None) -> ServerInfoResponse:
        """Returns the server's version, start time and changed flags."""
        data = await self._unary(_channel.SERVER_INFO, b"", self._deadline(timeout))
        return decoded(ServerInfoResponse, data)

    # ---- how fast ----

    async def benchmark(
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
        max_noise: float = 0.0,
        row_timeout: float | None = None,
        method: str = "",
        timeout: float | None = None,
        progress: Progress = None,
        on_row: OnRow = None,
        **attributes: Attribute,
    ) -> Benchmark:
        """As `warpcall.Client.benchmark`; cancelling its task also ends it early."""
        sampling = Sampling(
            warmup_iterations, iterations, seed, max_noise, row_timeout, method
        )
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, sampling, attributes)
        with calls.run(progress, on_row) as run:
            for message, take in run.calls():
                await self._benchmark(message, self._deadline(timeout), take)
        return run.report

    async def tune(
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
        max_noise: float = 0.0,
        row_timeout: float | None = None,
        timeout: float | None = None,
        progress: Progress = None,
        on_row: OnRow = None,
        **attributes: Attribute,
    ) -> Benchmark:
        """As `warpcall.Client.tune`."""
        sampling = Sampling(warmup_iterations, iterations, seed, max_noise, row_timeout)
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, sampling, attributes)
        with calls.run(progress, on_row) as run:
            for message, take in run.calls():
                take(await self._unary(_channel.TUNE, message, self._deadline(timeout)))
        return run.report

    async def push(
        self,
        source: Source,
        *,
        manifest: Manifest = None,
        problems: Any = None,
        compare_with: str | Sequence[str] = (),
        check_only: bool = False,
        iterations: int = 0,
        seed: int = 0,
        device: str = "",
        fresh: bool = False,
        with_files: bool = False,
        timeout: float | None = None,
        on_event: OnEvent = None,
    ) -> Push:
        """As `warpcall.Client.push`; cancelling its task also ends it early."""
        options = PushOptions(check_only, iterations, seed, device, fresh, with_files)
        message = encode_push(source, manifest, problems, compare_with, options)
        with pushing(on_event) as run:
            await self._answered_in_parts(
                _channel.PUSH, message, self._deadline(timeout), run.parts
            )
        return run.report

    async def profile(
        self,
        kernel: str,
        shape: Any,
        *,
        dtype: Any = "float32",
        implementation: str = "",
        device: str = "",
        iterations: int = 0,
        trace: bool | str | os.PathLike[str] = False,
        seed: int = 0,
        request_path: bool = False,
        timeout: float | None = None,
        **attributes: Attribute,
    ) -> Profile:
        """As `warpcall.Client.profile`."""
        problem = parse_problem(kernel, shape, dtype)
        call = Call(kernel, implementation, device, attributes=attributes)
        options = ProfileOptions(iterations, bool(trace), seed, request_path)
        calls = ProfileCalls(KernelSubject(call, problem), options, trace)
        return await self._profile(calls, self._deadline(timeout))

    async def _profile(self, calls: ProfileCalls, deadline: float | None) -> Profile:
        """As Calls.profile."""
        steps = calls.steps()
        method, encode = next(steps)
        while True:
            said: bytes | Error
            try:
                said = await self._with_residents(method, encode, calls.subject.residents, deadline)
            except Error as error:
                said = error
            try:
                method, encode = steps.send(said)
            except StopIteration as end:
                profile: Profile = end.value
                return profile

    async def describe(
        self,
        kernel: str,
        shape: Any,
        *,
        dtype: Any = "float32",
        implementation: str = "",
        device: str = "",
        timeout: float | None = None,
        **attributes: Attribute,
    ) -> Description:
        """As `warpcall.Client.describe`."""
        problem = parse_problem(kernel, shape, dtype)
        message = encode_describe(
            problem, Call(kernel, implementation, device, attributes=attributes)
        )
        data = await self._unary(_channel.DESCRIBE, message, self._deadline(timeout))
        return take_description(kernel, problem.label, data)

    # ---- life ----

    async def close(self) -> None:
        """Ends every open call. In another process, acts as `warpcall.Client.close`."""
        if not self._home.is_here:
            return
        self._closed = True
        if self._ending is not None:
            self._ending.set()
        for channel in [] if self._channels is None else self._channels.end():
            await channel.close()
        if self._threads is not None:
            await asyncio.to_thread(self._threads.close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._closed else ""
        return f"<warpcall.aio.Client of {self._target.address}{state}>"

    # ---- calls ----

    def _open(self) -> Channels:
        """Opened by the first call: channels belong to the event loop that runs then. Raises
        Cancelled in another process than the client's own."""
        self._home.check()
        if self._closed:
            raise Cancelled(CLOSED)
        if self._channels is None:
            self._channels = self._target.open(grpc.aio)
            self._home.keep(self, self._channels)
        return self._channels

    def _deadline(self, timeout: float | None) -> float | None:
        timeout = self._timeout if timeout is None else check_timeout(timeout)
        return None if timeout is None else time.monotonic() + timeout

    async def _unary(self, method: str, message: bytes, deadline: float | None) -> bytes:
        failures: list[BaseException] = []
        methods = self._open().methods
        try:  # nearly always it is the only one, so all that retries take is left for later
            data: bytes = await methods[method](
                message, timeout=time_left(deadline), metadata=call_metadata(self._metadata)
            )
        except _ENDS as error:
            failures.append(error)
        else:
            self._budget.add_success()
            return data

        async def attempt(methods: Methods) -> bytes:
            if failures:
                raise failures.pop()
            data: bytes = await methods[method](
                message, timeout=time_left(deadline), metadata=call_metadata(self._metadata)
            )
            return data

        value: bytes = await self._retried(attempt, deadline)
        return value

    async def _benchmark(
        self, message: bytes, deadline: float | None, take: Callable[[bytes], None]
    ) -> None:
        """As Calls.benchmark."""
        parts = Parts(take)
        try:
            await self._answered_in_parts(_channel.BENCHMARK_STREAM, message, deadline, parts)
            return
        except Unimplemented:
            if parts.begun:
                raise
        take(await self._unary(_channel.BENCHMARK, message, deadline))

    async def _answered_in_parts(
        self, method: str, message: bytes, deadline: float | None, parts: Parts
    ) -> None:
        """As Calls.answered_in_parts."""

        async def attempt(methods: Methods) -> None:
            call = methods[method](
                message, timeout=time_left(deadline), metadata=call_metadata(self._metadata)
            )
            try:
                async for data in call:
                    parts.add(data)
            finally:
                self._home.end(call)

        await self._retried(attempt, deadline, lambda: not parts.begun)
        parts.check_begun()

    async def _retried(
        self,
        attempt: Callable[[Methods], Awaitable[Any]],
        deadline: float | None,
        may_repeat: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Returns the result of `attempt`, retried as often as the policy needs and allows."""
        schedule: Schedule | None = None
        channels = self._open()
        methods = channels.methods
        while True:
            try:
                value = await attempt(methods)
            except grpc.RpcError as error:
                others = channels.after_refusal(methods, error) if may_repeat() else None
                if others is not None:
                    methods = others
                    continue
                refused = self._target.refusal(error)
            except (asyncio.CancelledError, grpc.aio.UsageError):
                task = asyncio.current_task()
                if not self._closed or (task is not None and _is_cancelling(task)):
                    raise
                raise Cancelled(CLOSED) from None  # the channel was closed, not the task cancelled
            else:
                self._budget.add_success()
                return value
            if schedule is None:
                schedule = Schedule(self._retry, self._budget)
            pause = None
            if may_repeat():
                now = time.monotonic()
                pause = schedule.next(refused.code, refused.pushback, now, deadline)
            if pause is None:
                raise make_error(refused)
            await self._pause(pause)
            methods = channels.methods

    async def _pause(self, seconds: float) -> None:
        """Raises Cancelled when the client is closed meanwhile."""
        if self._ending is None:
            self._ending = asyncio.Event()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ending.wait(), seconds)
        if self._closed:
            raise Cancelled(CLOSED)

    async def _by_threads(self, request: Request) -> Result:
        """By calls that block: stripes, and streams, as grpc.aio (seen in 1.85) now and then says
        INTERNAL in place of the server's status when it refuses while a stream is being sent."""
        return await asyncio.wrap_future(self._calls().submit(request))

    async def _in_thread(
        self, timeout: float | None, work: Callable[[Calls, Terms], Value]
    ) -> Value:
        """What `work` returns, a call that blocks; cancelling the task ends it."""
        calls, cancellation = self._calls(), Cancellation()
        terms = dataclasses.replace(calls.terms(timeout), cancellation=cancellation)
        try:
            return await asyncio.to_thread(work, calls, terms)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def _calls(self) -> Calls:
        """Those that block."""
        self._home.check()
        if self._closed:
            raise Cancelled(CLOSED)
        if self._threads is None:
            self._threads = open_calls(self._target, self._timeout, self._retry)
        return self._threads


class Resident(ResidentBase):
    """As `warpcall.Resident`, with coroutines and `async with`."""

    __slots__ = ()

    async def get(self, *, timeout: float | None = None) -> Array:
        """As `warpcall.Resident.get`."""
        array: Array = await self._client._get(self, timeout)
        return array

    async def free(self, *, timeout: float | None = None) -> None:
        """As `warpcall.Resident.free`."""
        if not self._freed:
            await self._client.free(self, timeout=timeout)

    async def __aenter__(self) -> Resident:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.free()
        except Error:
            if error is None:
                raise


def _is_cancelling(task: asyncio.Task[Any]) -> bool:
    cancelling = getattr(task, "cancelling", None)  # Python 3.11
    return cancelling is None or cancelling() > 0


async def _each(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def connect(
    address: str | None = None,
    *,
    timeout: float | None = None,
    connections: int = 1,
    tls: TLS | None = None,
    token: str | None = None,
    session: str | None = None,
    retry: Retry | None = None,
    stall_timeout: float = 20.0,
) -> Client:
    """Returns a client for asyncio. Arguments and errors as for `warpcall.connect`."""
    target = target_of(address, connections, tls, token, session, stall_timeout)
    return Client(target, timeout, Retry() if retry is None else retry)
