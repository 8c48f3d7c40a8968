"""Calls under way, as concurrent.futures.Future."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ._aside import cancel_aside
from ._process import Home
from ._result import Result
from .errors import Error


class Cancellation:
    """Ends all that is under way for one call, on whichever threads. Thread-safe."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._lock = threading.Lock()
        self._calls: set[Any] = set()

    def cancel(self) -> None:
        with self._lock:
            self.event.set()
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def add(self, call: Any) -> None:
        """An attempt begins, a call of gRPC's; it is cancelled at once when it is unwanted."""
        with self._lock:
            self._calls.add(call)
            if not self.event.is_set():
                return
        call.cancel()

    def discard(self, call: Any) -> None:
        """It is over."""
        with self._lock:
            self._calls.discard(call)


class CallFuture(Future[Result]):
    """A running call. Unlike an executor's future it can be cancelled until it has a result: the
    server then gives up the work, on the CPU even while it runs, and frees the lane."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self._home = home
        self._guard = threading.Lock()
        self._settled = False
        self._abort: Callable[[], Any] | None = None

    def running(self) -> bool:
        return not self.done()

    def cancel(self) -> bool:
        """False when it has a result or an error already, and in another process than the
        client's, where nothing ends."""
        if not self._home.is_here:
            return False
        with self._guard:
            if self._settled:
                return self.cancelled()
            self._settled = True
            abort = self._abort
        super().cancel()
        self.set_running_or_notify_cancel()  # wakes concurrent.futures.wait and as_completed
        if abort is not None:
            cancel_aside(abort)
        return True

    def result(self, timeout: float | None = None) -> Result:
        """Raises Cancelled in another process than the client's, where it never comes, unless it
        was there before the fork."""
        try:
            if not self.done():
                self._home.check()
            return super().result(timeout)
        finally:
            # An error has this frame in its traceback, and the future has the error.
            del self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As result."""
        if not self.done():
            self._home.check()
        return super().exception(timeout)

    # ---- for the client ----

    def on_cancel(self, abort: Callable[[], Any]) -> None:
        """Sets the function that aborts the current attempt; called at once after the end."""
        with self._guard:
            self._abort = abort
            if not self._settled:
                return
        abort()

    def claim(self) -> bool:
        """The call has ended and `finish` follows; False when the future was cancelled before."""
        with self._guard:
            if self._settled:
                return False
            self._settled = True
            self._abort = None
        self.set_running_or_notify_cancel()
        return True

    def finish(self, make: Callable[[], Result]) -> None:
        """Sets what `make` returns or raises."""
        try:
            result = make()
        except BaseException as error:
            self.fail(error)
        else:
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Sets what was raised. An error of ours leaves its traceback: its frames hold the inputs
        and this future, which would keep all of them until Python looks for cycles."""
        self.set_exception(error.with_traceback(None) if isinstance(error, Error) else error)

    def end(self, error: BaseException) -> None:
        """Gives up what is under way, with `error` unless it has ended before."""
        with self._guard:
            abort = self._abort
        if self.claim():
            self.set_exception(error)
        if abort is not None:
            abort()
