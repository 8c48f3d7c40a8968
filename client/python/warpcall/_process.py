"""Clients and processes that are forked.

A fork copies gRPC's connections, but none of its threads. Anything the child sends, even the
end of a call, would land amid the parent's data. So a client belongs to the process that made
it; in any other process it refuses calls, and leaves gRPC's objects alone until that process
ends. gRPC's own handlers of forks can hang the parent: before a fork they wait for threads that
wait for its end (https://github.com/grpc/grpc/issues/31885). So the first client turns them off.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from .errors import Cancelled

_ADVICE = (
    "gRPC's connections and threads do not survive a fork: start processes by multiprocessing's"
    ' "spawn" or "forkserver", and make a client in each'
)
# The process that opened the first channels: in its children gRPC may hang.
_opened_by: int | None = None


def check_may_open() -> None:
    """Before channels are opened. Raises Cancelled where a process from which this one was forked
    had opened some."""
    global _opened_by
    pid = os.getpid()
    if _opened_by is None:
        _opened_by = pid
        # Read by gRPC's first object.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        # gRPC looks for the end of an attempt to connect while a call waits, and else every 5 s: a
        # server that is back would be found that late by calls that fail at once.
        os.environ.setdefault("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "200")
    if _opened_by != pid:
        raise Cancelled(
            f"no client can be made here: process {_opened_by} had made one before process {pid}"
            f" was forked from it. {_ADVICE}"
        )


class Home:
    """The process that a client belongs to: that which makes this."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises Cancelled in any other process."""
        if os.getpid() != self._pid:
            raise Cancelled(
                f"the client belongs to process {self._pid}; this one, {os.getpid()}, was forked"
                f" from it. {_ADVICE}"
            )

    def keep(self, client: object, *held: object) -> None:
        """In any other process, `held` outlives `client`, which must not be in it."""
        weakref.finalize(client, self._leave, held)

    def end(self, call: Any) -> None:
        """Cancels a call of gRPC's; elsewhere it stays as it is."""
        if self.is_here:
            call.cancel()
        else:
            self._leave(call)

    def _leave(self, held: object) -> None:
        """Elsewhere, `held` gets a reference that nobody gives back: not even the interpreter's end
        destroys it."""
        if not self.is_here:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
