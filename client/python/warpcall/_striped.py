"""One call that is made in stripes, and what is known of kernels for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from ._arrays import Array, check_out, copy_into, empty
from ._futures import Cancellation
from ._messages import decode
from ._proto import DATA_TYPES, KernelInfo, ListKernelsResponse, TensorSpec
from ._request import Request
from ._result import Result, bad_response
from ._stripes import Stripe, StripedResponse, division_of, has_rows, stripe_request
from .errors import Error

# A call that does not know the kernels is only slower, so it does not wait long for them: nor for
# more than half of its own time, or try again.
_ASKING_SECONDS_MAX = 10.0


class KernelCache:
    """The server's kernels, listed on first use. Thread-safe."""

    def __init__(self, ask: Callable[[float], bytes]) -> None:
        """`ask`: ListKernels once, until a time on time.monotonic's clock; raises Error."""
        self._ask = ask
        self._lock = threading.Lock()
        self._kernels: dict[str, KernelInfo] | None = None

    @property
    def listed(self) -> list[str]:
        """The names of those that the server has said."""
        return list(self._kernels or ())

    def keep(self, kernels: Iterable[KernelInfo]) -> None:
        """Replaces the cached kernels by the server's current ones."""
        self._kernels = {kernel.name: kernel for kernel in kernels}

    def names(self, deadline: float | None) -> list[str] | None:
        """Returns the kernels' names; None if the server listed none. Takes as long as find."""
        self.find("", deadline)
        return self.listed or None

    def find(self, name: str, deadline: float | None) -> KernelInfo | None:
        """Returns the kernel; None if it is not listed, or the server did not answer. Takes at most
        half of the time until the deadline."""
        if self._kernels is None:
            patience = _ASKING_SECONDS_MAX
            now = time.monotonic()
            if deadline is not None:
                patience = min(patience, (deadline - now) / 2)
            if patience <= 0 or not self._lock.acquire(timeout=patience):
                return None
            try:
                if self._kernels is None:
                    self._kernels = self._asked(now + patience)
            finally:
                self._lock.release()
        return (self._kernels or {}).get(name)

    def _asked(self, until: float) -> dict[str, KernelInfo] | None:
        try:
            kernels = decode(ListKernelsResponse, self._ask(until)).kernels
        except Error as error:
            # It will never say, or not to who asks.
            return {} if error.code in ("UNIMPLEMENTED", "PERMISSION_DENIED") else None
        except ValueError:  # no such message
            return None
        return {kernel.name: kernel for kernel in kernels}


class _Output:
    """The memory of a call's output, of which each stripe writes its part. Knows nothing of inputs:
    requests refer to it, and would keep themselves."""

    def __init__(self, request: Request, kernel: KernelInfo) -> None:
        """Raises InvalidArgument when the request's `out` does not fit the result, which has the
        first split input's type, and its shape but for the last dimensions of what falls into rows:
        those the first answer tells."""
        division = division_of(request.inputs, request.call.attributes, kernel)
        assert division is not None  # there are stripes
        first = division.split(request.inputs)[0]
        self._out, self._kernel = request.out, kernel
        self._out_takes_parts = request.out_takes_parts()
        self._type = DATA_TYPES[first.data_type]
        self._outer = first.shape[: len(first.shape) - division.kept]
        self._lock = threading.Lock()
        self.memory: Array | None = None
        if not has_rows(kernel):
            self.memory = self._memory_for(first.shape)

    def _memory_for(self, shape: tuple[int, ...]) -> Array:
        spec = TensorSpec(self._type, shape)
        if self._out is None:
            return empty(spec)[0]
        check_out(self._out, spec)
        whole = self._out.flags.c_contiguous and self._out_takes_parts
        return self._out if whole else empty(spec)[0]

    def place(self, stripe: Stripe, shape: tuple[int, ...]) -> Array:
        """Where the output of a stripe goes. Raises Internal when none of it has that shape."""
        expected = stripe.shape
        if has_rows(self._kernel):
            expected = (stripe.shape[0], *shape[1:])
        if shape != expected or len(shape) != len(stripe.shape):
            raise bad_response(f"an output of shape {list(shape)}, not {list(expected)}")
        with self._lock:
            if self.memory is None:
                self.memory = self._memory_for((*self._outer, *shape[1:]))
            place = stripe.of(self.memory, self._kernel)
        if place.shape != shape:
            raise bad_response("outputs that differ from stripe to stripe in shape")
        return place


class StripedCall:
    """Runs each stripe once, from any threads, then has a result. The first stripe that fails ends
    the others; nothing of the call is under way any more when the last `run` has returned."""

    def __init__(
        self,
        request: Request,
        kernel: KernelInfo,
        stripes: list[Stripe],
        cancellation: Cancellation,
    ) -> None:
        """Raises as _Output."""
        self._request = request
        self._output = _Output(request, kernel)
        self._requests = [
            stripe_request(request, kernel, stripe, partial(self._output.place, stripe))
            for stripe in stripes
        ]
        self._cancellation = cancellation
        self._lock = threading.Lock()
        self._left = self.count = len(stripes)
        self._results: list[Result | None] = [None] * len(stripes)
        self._failure: BaseException | None = None

    def run(self, number: int, make: Callable[[Request], Result]) -> bool:
        """Makes one stripe's call by `make`. True: it was the last to end, and `result` follows."""
        try:
            self._results[number] = make(self._requests[number])
        except BaseException as error:
            with self._lock:
                if self._failure is None:  # the others' Cancelled comes after it
                    self._failure = error
            self._cancellation.cancel()
        with self._lock:
            self._left -= 1
            return self._left == 0

    def result(self) -> Result:
        """REQUIRES: every `run` has returned. Raises what the first stripe to fail did."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        results = [result for result in self._results if result is not None]
        out = self._request.out
        memory = self._output.memory
        assert memory is not None  # every stripe was answered
        if out is not None and out is not memory:
            copy_into(out, memory)
        array = memory if out is None else out
        return self._request.finisher.made_of(StripedResponse(results), [array], len(results))
