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
from ._channel import TLS, Target, target_of
from ._execute import Call
from ._fast import open_calls
from ._inspect import (
    ProfileOptions,
    Sampling,
    encode_describe,
    parse_problem,
)
from ._kernels import KernelMethods
from ._messages import ServerInfoResponse, list_kernels_request
from ._profile import Profile, ProfileCalls
from ._progress import Progress, counting, length_of
from ._proto import AttributeValue, DeviceInfo, KernelInfo, ListDevicesResponse, ListKernelsResponse
from ._reports import Benchmark, Description, decoded, take_description
from ._request import Options, Request, are_the_callers, call_of, inputs_of
from ._result import Result
from ._retry import Retry
from .errors import InvalidArgument


class Client(KernelMethods):
    """Connections to one server. Made by `warpcall.connect`; thread-safe.

    Kernels are methods, `client.softmax(x, axis=-1)`, whichever the server has. For a name that
    this package does not know, the server is asked once for its list; what is not in it is an
    AttributeError. Where it can't be asked, any name is taken for a kernel's, and the call says
    what is wrong.
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
        **attributes: AttributeValue,
    ) -> Result:
        """Runs a kernel and waits for its result.

        `inputs`: NumPy arrays, objects with `__dlpack__` in host memory or `__array__`, lists and
        numbers. Arrays that are not contiguous and little-endian are copied once.
        `implementation`: a family ("cuda"), or one variant of it ("cuda:two_pass"); by default the
        server chooses.
        `device`: "cpu", "cuda:0"; by default the server chooses.
        `timeout`: seconds, retries included; None: the client's.
        `out`: an array of the result's type and shape to write it to.
        `dtype`: the type to convert inputs to; "bfloat16" reads uint16 arrays as raw bits.
        `attributes`: the kernel's, by name.

        Raises a class of warpcall.Error.
        """
        calls = self._calls
        if out is None and dtype is None:
            names = (kernel, implementation, device)
            extras = (request_id, attributes)
            result = calls.run_ready(names, inputs, extras, timeout, self._ceiling)
            if result is not None:
                return result
        call = Call(kernel, implementation, device, request_id, attributes)
        return calls.run(Request(call, inputs, Options(timeout, out, dtype), self._ceiling))

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
        """Begins a call and returns without its result. Arguments as for `run`. Inputs are those of
        this moment, of any size: they were copied or sent when it returns. `out` belongs to the
        call until the future is done. Cancelling the future ends the call on the server too.

        `Blocks(x.shape, x.dtype, [x])` is not copied: the call reads it while it is under way, and
        it belongs to the call until the future is done.
        """
        call = Call(kernel, implementation, device, request_id, attributes)
        options = Options(timeout, out, dtype)
        request = Request(call, inputs, options, self._ceiling)
        return self._calls.submit(request, reused=True)

    def map(
        self,
        kernel: str,
        batches: Iterable[Any],
        *,
        window: int = 8,
        progress: Progress = None,
        **options: Any,
    ) -> Iterator[Result]:
        """Results of `kernel` for each batch, in their order, with up to `window` calls under way.

        A batch is an input, or a tuple of them. `options` are those of `run`, but for `out`. The
        first call that fails raises and cancels the others.
        Whatever yields the batches may reuse their memory: before the next one is asked for, a
        batch was sent, or copied, which takes memory for up to `window` of them. Batches in a list
        or tuple are not copied and must stay as they are.
        `progress`: True: a bar of tqdm's, where that is installed; or what is called with how many
        results were taken, and how many there are, None when `batches` does not say.
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
                for batch in batches:
                    call, rest = call_of(kernel, options)
                    request = Request(call, inputs_of(batch), rest, self._ceiling)
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

    # ---- lists ----

    def kernels(self, *, tuned: bool = False, timeout: float | None = None) -> list[KernelInfo]:
        """Every kernel of the server, with its inputs, attributes and implementations; with
        `tuned` also the problems that it has measured, and what "auto" runs for them."""
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
        """Every device of the server, with its health."""
        data = self._calls.unary(_channel.LIST_DEVICES, b"", self._calls.deadline(timeout))
        devices = list(decoded(ListDevicesResponse, data).devices)
        self._ceilings.update(known_ceilings(devices))  # other threads may be reading it
        return devices

    def server_info(self, *, timeout: float | None = None) -> ServerInfoResponse:
        """Which server this is, since when, and what it was told."""
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
        timeout: float | None = None,
        progress: Progress = None,
        on_row: OnRow = None,
        **attributes: AttributeValue,
    ) -> Benchmark:
        """Times implementations side by side on the device, without transfers.

        `shapes`: of a problem's inputs, which the server makes: "4096x1024"; with several inputs
        "64x32*32x16", of matmul also "MxNxK"; or tuples. A list: several problems.
        `implementations`: families ("cuda"), variants ("cuda:two_pass"), all variants of a family
        ("cuda:*"); by default every family that fits, by the variant that `run` would take.
        `warmup_iterations`, `iterations`, `seed`: 0: the server's defaults.
        `max_noise`: a row is measured until the relative standard error of its median is below
        this; 0: by iterations alone.
        `row_timeout`: the longest time for one row, in seconds; None: the server's own limit.
        `timeout`: seconds for each problem; what is not measured then is left, and says so.
        `progress`: as for map; problems are counted, and a bar shows the row that came last.
        `on_row`: is called with each BenchmarkRow as it comes, without its verdict, which depends
        on those that are yet to come.

        Whatever ends it early, an error of the server's, Ctrl-C or what `on_row` raises, has the
        rows that were measured until then: `error.report`.
        """
        sampling = Sampling(warmup_iterations, iterations, seed, max_noise, row_timeout)
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
        **attributes: AttributeValue,
    ) -> Benchmark:
        """As `benchmark`, and from then on the server runs calls that name no implementation, or a
        family, by the fastest row whose result was right: for problems of about these sizes, and of
        these types and attributes. `describe` says what it chose, and why.

        The rows of a problem come together, when all are measured.
        """
        sampling = Sampling(warmup_iterations, iterations, seed, max_noise, row_timeout)
        calls = BenchmarkCalls(kernel, shapes, dtype, implementations, device, sampling, attributes)
        with calls.run(progress, on_row) as run:
            for message, take in run.calls():
                take(self._calls.unary(_channel.TUNE, message, self._calls.deadline(timeout)))
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
        **attributes: AttributeValue,
    ) -> Profile:
        """Profiles a kernel on inputs that the server makes, and finds the bound of its speed. Also
        gets the plan of the run and its device; `timeout` covers all together.

        `shape`: as for benchmark, of one problem.
        `trace`: a path to write a trace to, for ui.perfetto.dev; True: keep it in the result.
        `request_path`: profile a request with such inputs, copies included.
        """
        problem = parse_problem(kernel, shape, dtype)
        call = Call(kernel, implementation, device, attributes=attributes)
        options = ProfileOptions(iterations, bool(trace), seed, request_path)
        calls = ProfileCalls(call, problem, options, trace)
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
        **attributes: AttributeValue,
    ) -> Description:
        """Describes the implementation that would run for a problem, and why; runs nothing.

        `shape`: as for benchmark, of one problem. Refuses as `run` does.
        """
        problem = parse_problem(kernel, shape, dtype)
        message = encode_describe(
            problem, Call(kernel, implementation, device, attributes=attributes)
        )
        data = self._calls.unary(_channel.DESCRIBE, message, self._calls.deadline(timeout))
        return take_description(kernel, problem.label, data)

    # ---- life ----

    def close(self) -> None:
        """Ends every call under way with Cancelled, and leaves no thread behind. In a process that
        was forked from the client's own, does nothing."""
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
    retry: Retry | None = None,
    stall_timeout: float = 20.0,
) -> Client:
    """A client of the server at `address`: "host:port", "host" (port 8470) or "unix:/path". Returns
    at once: the first call connects.

    Where they are not given, the environment says what it says to the command line:
    `WARPCALL_SERVER` the address (without it 127.0.0.1:8470), `WARPCALL_TOKEN_FILE` a file with the
    token, `WARPCALL_TLS_CA`, `WARPCALL_TLS_CERT` and `WARPCALL_TLS_KEY` the files of `tls`.

    `timeout`: seconds that calls may take which set none; None: no limit.
    `connections`: 1 to 64; one is one core's work on either side. Small calls take them in turns; a
    call of 2 MiB of inputs or more is spread over them where the kernel's problems have independent
    parts (`Result.stripes`).
    `tls`, `token`: for a server that wants them. A newline behind the token is left out.
    `retry`: how calls are tried again.
    `stall_timeout`: seconds after which a connection is given up on which the server's machine
    takes in nothing of what was sent.

    Raises InvalidArgument for values out of range and no addresses, OSError for a file that cannot
    be read.
    """
    target = target_of(address, connections, tls, token, stall_timeout)
    return Client(target, timeout, Retry() if retry is None else retry)
