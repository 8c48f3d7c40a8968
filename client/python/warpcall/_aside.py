"""Calls of the main thread, made by another thread.

Python raises KeyboardInterrupt in the main thread between any two instructions, also where grpcio's
Python code holds a lock. The lock then stays held, and the channel's next call hangs. So the main
thread starts, iterates and cancels no call of grpcio's: it only waits, on a lock of Python's own.
"""

from __future__ import annotations

import _thread
import atexit
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from .errors import Error

# Too short for a person pressing Ctrl-C to notice. Waits without an end would miss a signal that
# comes between Python's last look and the sleep of the thread.
_LOOK_SECONDS = 0.2
# For calls that Ctrl-C has ended, when the interpreter ends.
_END_SECONDS = 5.0
Value = TypeVar("Value")


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def cancel_aside(abort: Callable[[], Any]) -> None:
    """Calls `abort`, which cancels calls of grpcio's, on a thread where Ctrl-C can't strike."""
    if is_main_thread():
        thread = threading.Thread(target=abort, name="warpcall_cancel", daemon=True)
        _threads.add(thread)
        thread.start()
    else:
        abort()


class _Job(Generic[Value]):
    """A function, and what it returned or raised once `done` is free."""

    __slots__ = ("_error", "_value", "_work", "done")

    def __init__(self, work: Callable[[], Value]) -> None:
        self._work: Callable[[], Value] | None = work
        self._value: Value | None = None
        self._error: BaseException | None = None
        self.done = _thread.allocate_lock()
        self.done.acquire()

    def make(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            self._value = work()
        except BaseException as error:
            # As CallFuture.fail: frames of a traceback would keep the inputs.
            self._error = error.with_traceback(None) if isinstance(error, Error) else error

    def result(self) -> Value:
        error, self._error = self._error, None
        if error is None:
            return cast("Value", self._value)
        try:
            raise error
        finally:
            del error  # its traceback leads here


_Jobs = SimpleQueue["_Job[Any] | None"]


def _serve(jobs: _Jobs) -> None:
    get = jobs.get
    while (job := get()) is not None:
        job.make()
        done = job.done
        del job  # it has the inputs
        done.release()  # last: whoever waits needs the interpreter next


class Aside:
    """A client's thread for the calls of the main thread. It starts with the first."""

    def __init__(self) -> None:
        self._idle: _Jobs | None = None
        self._threads: list[threading.Thread] = []
        self._closed = False
        _asides.add(self)

    def result_of(self, work: Callable[[], Value], abort: Callable[[], Any]) -> Value:
        """Returns what `work` returns, which another thread calls if this is the main one. Ctrl-C
        ends the wait: `abort` then ends the work, on a thread of its own."""
        if not is_main_thread():
            return work()
        jobs: _Jobs | None = None
        try:
            # A signal's handler that makes another call meanwhile finds none, and starts one.
            jobs, self._idle = self._idle, None
            if jobs is None:
                jobs = self._start()
            job = _Job(work)
            acquire = job.done.acquire
            jobs.put(job)
            while not acquire(True, _LOOK_SECONDS):
                pass
        except BaseException:
            _end(jobs)
            cancel_aside(abort)
            raise
        surplus = jobs if self._closed else self._idle
        if not self._closed:
            self._idle = jobs
        _end(surplus)
        del work, abort
        return job.result()

    def end(self) -> None:
        """Ends the threads once they have finished their jobs."""
        self._closed = True
        _end(self._idle)
        self._idle = None

    def close(self) -> None:
        """Waits for the threads, whose calls were ended."""
        self.end()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def __del__(self) -> None:
        _end(self._idle)

    def _start(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        thread = threading.Thread(target=_serve, args=(jobs,), name="warpcall_aside", daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        _threads.add(thread)
        thread.start()
        return jobs


def _end(jobs: _Jobs | None) -> None:
    """The thread ends after the job that it has."""
    if jobs is not None:
        jobs.put(None)


_asides: weakref.WeakSet[Aside] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _await_threads() -> None:
    """Waits for calls that Ctrl-C has ended: an interpreter that ends unwinds its threads, and
    native code that one of them is in would terminate the process."""
    for aside in list(_asides):
        aside.end()
    until = time.monotonic() + _END_SECONDS
    for thread in list(_threads):
        thread.join(max(0.0, until - time.monotonic()))
