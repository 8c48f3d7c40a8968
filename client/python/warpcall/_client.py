"""The client that blocks, and its futures."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from . import _channel
from ._arrays import Array
from ._benchmark import BenchmarkCalls, OnRow
from ._calls import check_residents
from ._channel import TLS, Target, target_of
from ._execute import Call
from ._fast import open_calls
from ._fuse import Attribute, expressed
from ._graph import Graph, GraphRequest, InspectedGraph, inspecting_graph
from ._graph_result import GraphDescription, GraphResult, read_description
from ._inspect import (
    ProfileOptions,
    Sampling,
    encode_describe,
    parse_problem,
)
from ._kernels import KernelMethods
from ._messages import ServerInfoResponse, encode, list_kernels_request
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
from ._residents import Resident, by_handle
from ._result import Result
from ._retry import Retry
from .errors import InvalidArgument


class Client(KernelMethods):
    """Connections to one server. Made by `warpcall.connect`; thread-safe.

    Each kernel of the server is a method, `client.softmax(x, axis=-1)`. For a name that this
    package does not know, the client gets the server's list once; a name outside the list is an
    AttributeError. If the list is unavailable, every name counts as a kernel, and the call reports
    the error.
    """

    def __init__(self, target: Target, timeout: float | None, retry: Retry) -> None:
        self._calls = open_calls(target, timeout, retry)
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
        keep: bool = False,
        keep_ttl: float | None = None,
        **attributes: Attribute,
    ) -> Result:
        """Runs a kernel and waits for its result.

        `inputs`: NumPy arrays, objects with `__dlpack__` in host memory or `__array__`, lists and
        numbers, Residents and results that were kept. Arrays that are not contiguous and
        little-endian are copied once. A call with Residents runs on their device. The client puts
        those that the server lost again if it can (see `put`), within `timeout`, once a call.
        `implementation`: a family ("cuda"), or one variant of it ("cuda:two_pass"); default:
        server's choice.
        `device`: "cpu", "cuda:0"; default: server's choice.
        `timeout`: seconds, retries included; None: the client's.
        `out`: an array of the result's type and shape to write it to.
        `dtype`: the type to convert arrays to; "bfloat16" reads uint16 arrays as raw bits.
        `keep`: True leaves the outputs on the device: the result has Residents, no arrays.
        `keep_ttl`: seconds after their last use when the server ends them; None: the server's
        `--resident_ttl_seconds`.
        `attributes`: the kernel's, by name. A function that `warpcall.fuse` made stands for its
        expression.

        Raises a class of warpcall.Error.
        """
        calls = self._calls
        if out is None and dtype is None and not keep and keep_ttl is None:
            names = (kernel, implementation, device)
            extras = (request_id, expressed(attributes, len(inputs)))
            result = calls.run_ready(names, inputs, extras, timeout, self._ceiling)
            if result is not None:
                return result
        stays = keep_ttl_ns(keep, keep_ttl)
        call = Call(kernel, implementation, device, request_id, attributes, stays)
        return calls.run(self._request(call, inputs, Options(timeout, out, dtype)))

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
        keep: bool = False,
        keep_ttl: float | None = None,
        **attributes: Attribute,
    ) -> Future[Result]:
        """Begins a call and returns a future of its result. Takes the arguments of `run`. Inputs of
        any size are copied or sent before it returns, so the caller may change them. `out` belongs
        to the call until the future is done. Cancelling the future ends the call on the server too.

        `Blocks(x.shape, x.dtype, [x])` avoids the copy: the call reads it while it runs, and it
        belongs to the call until the future is done.
        """
        stays = keep_ttl_ns(keep, keep_ttl)
        call = Call(kernel, implementation, device, request_id, attributes, stays)
        request = self._request(call, inputs, Options(timeout, out, dtype))
        return self._calls.submit(request, reused=True)

    def _request(self, call: Call, inputs: Sequence[object], options: Options) -> Request:
        request = Request(call, inputs, options, self._ceiling, self._resident)
        check_residents(request, self._target)
        return request

    def map(
        self,
        kernel: str,
        batches: Iterable[Any],
        *,
        window: int = 8,
        progress: Progress = None,
        **options: Any,
    ) -> Iterator[Result]:
        """Yields the results of `kernel` for each batch, in order, with up to `window` open calls.

        A batch is an input or a tuple of inputs. `options` are those of `run`, except `out`. The
        first call that fails raises and cancels the others.
        A generator may reuse the memory of its batches: each batch is sent or copied before the
        next one is requested. Copies take memory for up to `window` batches. Batches in a list or
        tuple are not copied and must not change.
        `progress`: True shows a tqdm bar, if tqdm is installed. A function is called with the
        number of results so far and their total, None if `batches` has no length.
        """
        if window < 1:
            raise InvalidArgument(f"window is {window}; it must be at least 1")
        if "out" in options:
            raise InvalidArgument("map takes no out: its results are many")
        return self._map(kernel, batches, window, progress, options)

    def _map(
        self,
        kernel: str,
        batches: Iterable[Any],
        window: int,
        progress: Progress,
        options: dict[str, Any],
    ) -> Iterator[Result]:
        pending: deque[Future[Result]] = deque()
        try:
            with counting(progress, length_of(batches), kernel) as advance:
                # With a window of one nothing is under way when the next batch is asked for.
                reused = window > 1 and not are_the_callers(batches)
                for number, batch in enumerate(batches):
                    call, rest = call_of(kernel, options)
                    with of_batch(number):
                        request = self._request(call, inputs_of(batch), rest)
                    pending.append(self._calls.submit(request, reused))
                    if len(pending) >= window:
                        yield pending.popleft().result()
                        advance()
                while pending:
                    yield pending.popleft().result()
                    advance()
        finally:
            for future in pending:
                future.cancel()

    # ---- several kernels in one call ----

    def graph(self, *, dtype: Any = None) -> Graph:
        """Returns a graph to build: several kernels that run in one call, on one device.
        Intermediate results never leave the device.

            with gpu.graph() as g:
                h = g.linear(g.input("x"), w1, b1, activation="gelu")
                g.output(g.linear(h, w2, b2))
            f = g.build()
            y = f(x=x)
            y.steps  # which implementations ran; with f(x=x, step_times=True) how long

        Arrays among the arguments are sent with each call. Put weights once instead:
        `w1 = gpu.put(weight)`.
        `dtype`: the type to convert arrays to, those of calls too; as for `run`.
        """
        return Graph(self, dtype)

    def _run_graph(self, request: GraphRequest) -> GraphResult | tuple[GraphResult, ...]:
        check_residents(request, self._target)
        return request.finish(self._calls.graph(request), self._ceiling, self._resident)

    def _describe_graph(self, graph: InspectedGraph) -> GraphDescription:
        check_residents(graph.request, self._target)
        deadline = self._calls.deadline(graph.request.timeout)
        with inspecting_graph():
            data = self._calls.with_residents(
                _channel.DESCRIBE, graph.encode_describe, graph.residents, deadline
            )
        return read_description(graph.problem, data)

    def _profile_graph(
        self, graph: InspectedGraph, options: ProfileOptions, trace: Trace
    ) -> Profile:
        check_residents(graph.request, self._target)
        deadline = self._calls.deadline(graph.request.timeout)
        with inspecting_graph():
            return self._calls.profile(ProfileCalls(graph, options, trace), deadline)

    # ---- tensors that stay ----

    def put(
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
        """Puts a tensor on a device of the server, where it stays, and returns it as an input of
        any number of calls.

            with gpu.put(weight) as w:
                y = gpu.linear(x, w, bias)

        `x`, `dtype`: an input, as for `run`; Blocks too.
        `ttl`: seconds after its last use when the server ends the tensor; None: the server's
        `--resident_ttl_seconds`.
        `label`: for people, in `tensors()`; at most 256 bytes.
        `device`: "cpu", "cuda:0"; default: that of the client's first put, for which the server
        chose. The inputs of a call have to be on one device.
        `evictable`: True lets the server end the tensor when another needs the memory.
        `sha256`: True asks first by digest whether the server has the content, and then sends none
        (`Resident.existed`).
        `keep_source`: True keeps the array, or a copy if it is writeable, so that the client can
        put it again, at most once a minute, when a call finds it expired, evicted, or lost with its
        device or server. False, as with Blocks: such a call raises NotFound (`lost_handles`).
        `timeout`: seconds, retries included; None: the client's.

        Raises InvalidArgument for a client whose address may stand for several servers,
        ResourceExhausted when there is no room, and the errors of `run`.
        """
        put = put_of(x, dtype, device, ttl, label, evictable, sha256, keep_source)
        put, response = self._calls.put(put, self._calls.terms(timeout))
        return self._resident(put.info(response), put.source, response.existed)

    def free(self, *tensors: Any, timeout: float | None = None) -> FreeResponse:
        """Frees tensors, which are Residents, kept results or handles: `bytes` freed on the server,
        and handles that were `unknown` there. Calls that use them at this moment keep them until
        they end."""
        data = self._calls.unary(
            _channel.FREE, encode(free_request(tensors)), self._calls.deadline(timeout)
        )
        return decoded(FreeResponse, data)

    def tensors(self, *, timeout: float | None = None) -> Tensors[Resident]:
        """Returns the caller's tensors on the server as Residents, oldest first; prints as a table.
        Without tokens or certificates all callers are one. Each row is an input of calls. These
        Residents have no source."""
        data = self._calls.unary(_channel.LIST_TENSORS, b"", self._calls.deadline(timeout))
        return Tensors(map(self._resident, decoded(ListTensorsResponse, data).tensors))

    def resident(self, handle: str, *, timeout: float | None = None) -> Resident:
        """Returns a tensor of the caller's on the server by its handle, which another program put
        there or kept. Raises NotFound if `tensors()` has none of that handle."""
        return by_handle(handle, self.tensors(timeout=timeout))

    def _get(self, resident: Resident, timeout: float | None) -> Array:
        return self._calls.get(resident, self._calls.terms(timeout))

    def _resident(
        self, info: TensorInfo, source: Put | None = None, existed: bool = False
    ) -> Resident:
        return Resident(self, self._target.address, info, source, existed)

    # ---- lists ----

    def kernels(self, *, tuned: bool = False, timeout: float | None = None) -> list[KernelInfo]:
        """Returns every kernel of the server, with its inputs, attributes and implementations. With
        `tuned` also the measured problems and the implementations that "auto" runs for them."""
        request = list_kernels_request(tuned)
        data = self._calls.unary(_channel.LIST_KERNELS, request, self._calls.deadline(timeout))
        kernels = decoded(ListKernelsResponse, data).kernels
        self._calls.kernels.keep(kernels)
        return list(kernels)

    def _known_kernels(self) -> Sequence[str] | None:
        if self._calls.closed:
            return None
        return self._calls.kernels.names(self._calls.deadline(None))

    def _listed_kernels(self) -> Sequence[str]:
        return self._calls.kernels.listed

    def devices(self, *, timeout: float | None = None) -> list[DeviceInfo]:
        """Returns every device of the server, with its health."""
        data = self._calls.unary(_channel.LIST_DEVICES, b"", self._calls.deadline(timeout))
        devices = list(decoded(ListDevicesResponse, data).devices)
        self._ceilings.update(known_ceilings(devices))  # other threads may be reading it
        return devices

    def server_info(self, *, timeout: float | None = None) -> ServerInfoResponse:
        """Returns the server's version, start time and changed flags."""
        data = self._calls.unary(_channel.SERVER_INFO, b"", self._calls.deadline(timeout))
        return decoded(ServerInfoResponse, data)

    def _ceiling(self, device: str) -> float | None:
        if device not in self._ceilings and not self._calls.closed:
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
        max_noise: float = 0.0,
        row_timeout: float | None = None,
        method: str = "",
        timeout: float | None = None,
        progress: Progress = None,
        on_row: OnRow = None,
        **attributes: Attribute,
    ) -> Benchmark:
        """Times implementations side by side on the device, without transfers.

        `shapes`: shapes of a problem's inputs, which the server makes: "4096x1024"; for several
        inputs "64x32*32x16"; for matmul and linear also "MxNxK", for layernorm and rmsnorm also
        "MxN"; or tuples. A list gives several problems.
        `implementations`: families ("cuda"), variants ("cuda:two_pass"), all variants of a family
        ("cuda:*"); default: every family that fits, with the variant that `run` would use.
        `warmup_iterations`, `iterations` (at most 100,000), `seed`: 0 gives the server's defaults.
        `max_noise`: measure a row until the relative standard error of its median is below this;
        0: only by iterations.
        `row_timeout`: time limit for one row, in seconds; None: the server's own limit.
        `method`: "burst" takes samples of all rows in turn; "settled" runs each row for seconds,
        until the device's clock has settled, and reports clock, power and energy, too.
        `timeout`: seconds for each problem; rows not measured by then say so.
        `progress`: as for map; it counts problems, and a bar shows the last row.
        `on_row`: is called with each BenchmarkRow as it comes, without its verdict, which depends
        on those that are yet to come.

        Whatever ends it early, an error of the server's, Ctrl-C or what `on_row` raises, has the
        rows that were measured until then: `error.report`.
        """
        sampling = Sampling(
            warmup_iterations, iterations, seed, max_noise, row_timeout, method
        )
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, sampling, attributes)
        with calls.run(progress, on_row) as run:
            for message, take in run.calls():
                self._calls.benchmark(message, self._calls.deadline(timeout), take)
        return run.report

    def tune(
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
        """Runs `benchmark`; afterwards the server uses the fastest correct row for calls that name
        no implementation or only a family. This holds for problems of about these sizes and of
        these types and attributes. `describe` shows the choice and its reason.

        The rows of a problem arrive together, once all are measured.
        """
        sampling = Sampling(warmup_iterations, iterations, seed, max_noise, row_timeout)
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, sampling, attributes)
        with calls.run(progress, on_row) as run:
            for message, take in run.calls():
                take(self._calls.unary(_channel.TUNE, message, self._calls.deadline(timeout)))
        return run.report

    def push(
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
        """Compiles, checks and times a kernel of your own on the server's device. Returns its
        report, whatever the verdict; see `Push.raise_for_verdict`.

        `source`: CUDA C++, or the path of a .cu file.
        `manifest`: what the kernel computes and how it is launched (warpcall-kernel/1): a dict,
        JSON, or the path of a .json file. None: it stands in the source's first comment.
        `problems`: problems to check and time it on, as `benchmark` takes shapes, in all types of
        the manifest; or dicts such as {"shape": "64x32", "dtype": "float16", "axis": 0}. None: the
        server draws problems around the manifest's examples.
        `compare_with`: implementations to time for comparison; default: the fastest vendor-library
        implementation and the fastest of the server's own; "none": no others.
        `check_only`: True does not time it.
        `iterations`: samples of each timing, at most 100,000; 0: the server's default.
        `seed`: `Push.seed` of a run to repeat; 0: new inputs.
        `fresh`: True judges it even if the server knows a verdict for the same push.
        `with_files`: True gets the PTX and SASS, `Push.source("sass")`.
        `timeout`: seconds from the call to the verdict, with the wait in the queue. The server
        judges for at most 60 s from when the push leaves the queue; then the verdict is TIMEOUT.
        `on_event`: is called with each PushQueued, PushCompiled, PushCheck, PushTiming and the
        PushVerdict as it comes.

        Raises the errors of `run`: PermissionDenied where the server's policy allows no pushes.
        Whatever ends it early has the events that came until then: `error.report`.
        """
        options = PushOptions(check_only, iterations, seed, device, fresh, with_files)
        message = encode_push(source, manifest, problems, compare_with, options)
        with pushing(on_event) as run:
            self._calls.answered_in_parts(
                _channel.PUSH, message, self._calls.deadline(timeout), run.parts
            )
        return run.report

    def profile(
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
        """Profiles a kernel on inputs that the server makes, and finds the bound of its speed. Also
        gets the plan of the run and its device; `timeout` covers all calls together.

        `shape`: one problem, as for benchmark.
        `iterations`: number of runs, at most 1,000; 0: the server's default.
        `trace`: path of a trace to write, for ui.perfetto.dev; True keeps it in the result.
        `request_path`: True profiles the whole path of a request, copies included.
        """
        problem = parse_problem(kernel, shape, dtype)
        call = Call(kernel, implementation, device, attributes=attributes)
        options = ProfileOptions(iterations, bool(trace), seed, request_path)
        calls = ProfileCalls(KernelSubject(call, problem), options, trace)
        return self._calls.profile(calls, self._calls.deadline(timeout))

    def describe(
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
        """Describes the implementation that would run for a problem and the reason; runs nothing.

        `shape`: one problem, as for benchmark. Raises the errors of `run`.
        """
        problem = parse_problem(kernel, shape, dtype)
        message = encode_describe(
            problem, Call(kernel, implementation, device, attributes=attributes)
        )
        data = self._calls.unary(_channel.DESCRIBE, message, self._calls.deadline(timeout))
        return take_description(kernel, problem.label, data)

    # ---- life ----

    def close(self) -> None:
        """Ends every open call with Cancelled, and joins all threads. Does nothing in a process
        that was forked from the client's own."""
        self._calls.close()

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
        state = " (closed)" if self._calls.closed else ""
        return f"<warpcall.Client of {self._target.address}{state}>"


def known_ceilings(devices: list[DeviceInfo]) -> dict[str, float]:
    """Measured bandwidths by device."""
    return {
        device.name: device.measured_bandwidth_bytes_per_second
        for device in devices
        if device.measured_bandwidth_bytes_per_second > 0
    }


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
    """Returns a client of the server at `address`: "host:port", "host" (port 8470) or "unix:/path".
    The first call connects.

    Missing arguments come from the environment, as for the command line: `WARPCALL_SERVER` is the
    address (default 127.0.0.1:8470), `WARPCALL_TOKEN_FILE` a file with the token,
    `WARPCALL_SESSION` the session, and `WARPCALL_TLS_CA`, `WARPCALL_TLS_CERT` and
    `WARPCALL_TLS_KEY` the files of `tls`.

    `timeout`: seconds for calls that set none of their own; None: no limit.
    `connections`: 1 to 64; each can keep one core busy on either side. Small calls alternate
    between them. A call with 2 MiB of inputs or more is spread over them, if the kernel's problems
    have independent parts (`Result.stripes`).
    `tls`, `token`: credentials for servers that require them. A trailing newline of the token is
    ignored.
    `session`: a name that every call carries. A front of several servers may send all calls of a
    session to one of them, so that they find the tensors that stay there.
    `retry`: the retry policy.
    `stall_timeout`: seconds after which the client drops a connection whose sent data the server's
    machine does not acknowledge.

    Raises InvalidArgument for values out of range and invalid addresses, OSError for a file that
    cannot be read.
    """
    target = target_of(address, connections, tls, token, session, stall_timeout)
    return Client(target, timeout, Retry() if retry is None else retry)
