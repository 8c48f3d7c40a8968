"""Tensors that stay on a server's devices."""

from __future__ import annotations

import dataclasses
import datetime
import math
import numbers
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ._arrays import Array, empty
from ._format import binary_bytes
from ._messages import DATA_TYPE_NUMBERS
from ._proto import PutResponse, TensorInfo, TensorSpec
from .errors import DeadlineExceeded, Error, InvalidArgument, NotFound

if TYPE_CHECKING:
    from ._request import Put

# A tensor that is lost again within this time of being put again stays lost.
_RESTORED_SECONDS_MIN = 60.0
_TTL_SECONDS_MAX = 9e9  # of 64 bits of nanoseconds
AnyResident = TypeVar("AnyResident", bound="ResidentBase")


class ResidentBase:
    """A tensor that stays on a device of a server. Its type, shape and content never change; the
    server ends it when it is freed or was unused for its time to live. Thread-safe."""

    __slots__ = (
        "_client",
        "_freed",
        "_info",
        "_lock",
        "_restorable_at",
        "_server",
        "_source",
        "existed",
    )

    def __init__(
        self,
        client: Any,
        server: str,
        info: TensorInfo,
        source: Put | None = None,
        existed: bool = False,
    ) -> None:
        """`server`: its address. `source`: puts the tensor again; None: nothing can."""
        self.existed = existed
        """The server had the content already, and no bytes were sent."""
        self._client, self._server = client, server
        self._info, self._source = info, source
        self._freed = False
        self._lock = threading.Lock()  # of `restore`
        self._restorable_at = 0.0

    @property
    def info(self) -> TensorInfo:
        """All that the server said of the tensor when it was put, kept or listed."""
        return self._info

    @property
    def handle(self) -> str:
        """The tensor's name on the server: secret, and another one after it was put again."""
        return self._info.handle

    @property
    def label(self) -> str:
        return self._info.label

    @property
    def device(self) -> str:
        """The device that holds the tensor, e.g. "cuda:0"."""
        return self._info.device

    @property
    def shape(self) -> tuple[int, ...]:
        return self._info.shape

    @property
    def nbytes(self) -> int:
        return self._info.bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of what `get` returns; uint16 for bfloat16 where ml_dtypes is not
        installed."""
        return empty(TensorSpec(self.dtype_name, (0,)))[0].dtype

    @property
    def dtype_name(self) -> str:
        """ "float32", "float16" or "bfloat16"."""
        return self._info.data_type

    @property
    def data_type(self) -> int:
        """The number of a DataType."""
        return DATA_TYPE_NUMBERS[self._info.data_type]

    @property
    def freed(self) -> bool:
        """True if this program freed the tensor."""
        return self._freed

    @property
    def expires(self) -> datetime.datetime | None:
        """When the server ends the tensor, in UTC, unless a call uses it before: each use starts
        its time to live anew. As of the moment when it was put or listed; None for a result."""
        ns = self._info.expires_unix_ns
        return datetime.datetime.fromtimestamp(ns / 1e9, datetime.timezone.utc) if ns else None

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} can't be pickled: send its handle and, in the other process,"
            " gpu.resident(handle)"
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} is on the server: get() returns the array")

    def __repr__(self) -> str:
        label = f" {self.label!r}" if self.label else ""
        shape = ",".join(map(str, self.shape))
        state = " (freed)" if self._freed else ""
        return (
            f"<warpcall.Resident{label} {self.dtype_name}[{shape}] on {self.device},"
            f" {binary_bytes(self.nbytes)}{state}>"
        )

    # ---- for the client ----

    def check(self, server: str) -> None:
        """Raises InvalidArgument unless a call to the server at that address may use the tensor."""
        if self._freed:
            raise InvalidArgument(f"{self!r} was freed by this program; put it again")
        if server != self._server:
            raise InvalidArgument(f"{self!r} is on {self._server}; this client calls {server}")

    def end(self) -> str:
        """The tensor is freed: no call may use it from now on. Returns its handle."""
        self._freed, self._source = True, None  # first: see `restore`
        return self._info.handle

    def restore(
        self, lost: Mapping[str, str], patience: float | None, put: Callable[[Put], PutResponse]
    ) -> str:
        """Puts the tensor again if it is among the lost handles. Returns why it stays lost, in a
        sentence; empty: it does not.

        `patience`: seconds to wait for another thread that is putting it again; None: no limit.
        Raises DeadlineExceeded after that time, and as `put`.
        """
        if not self._lock.acquire(timeout=-1 if patience is None else max(0.0, patience)):
            raise DeadlineExceeded(f"no time was left to put {self!r} again")
        try:
            why = lost.get(self._info.handle)
            if why is None:  # another call has put it again
                return ""
            source, now = self._source, time.monotonic()
            if why == "freed":
                return "the client does not put again what was freed"
            if source is None:
                return "the client can't put it again because it keeps no copy of the content"
            if now < self._restorable_at:
                named = f" ({self.label!r})" if self.label else ""
                return (
                    f"the client tries once a minute to put it again{named}, and last did so less"
                    f" than 60 s ago; it may in {math.ceil(self._restorable_at - now)} s"
                )
            self._restorable_at = now + _RESTORED_SECONDS_MIN
            response = put(source)
            self._info = dataclasses.replace(
                self._info, handle=response.handle, expires_unix_ns=response.expires_unix_ns
            )
        finally:
            self._lock.release()
        if self._freed:  # meanwhile, by the old handle
            self._client.free(response.handle)
        return ""


class Resident(ResidentBase):
    """A tensor that stays on a device of a server: an input of calls, in place of an array. Its
    type, shape and content never change. As a context manager it is freed at the end.

    Made by `Client.put`, by calls with `keep=True`, and by `Client.tensors`. Thread-safe.
    """

    __slots__ = ()

    def get(self, *, timeout: float | None = None) -> Array:
        """Returns the tensor as an array in its own memory, of the types that results have.

        `timeout`: seconds, retries included; None: the client's. Raises NotFound, which says why,
        when the server has the tensor no more and it can't be put again."""
        array: Array = self._client._get(self, timeout)
        return array

    def free(self, *, timeout: float | None = None) -> None:
        """Frees the tensor; calls that use it at this moment keep it until they end. Later uses
        raise InvalidArgument. Does nothing the second time, or when the server ended it before."""
        if not self._freed:
            self._client.free(self, timeout=timeout)

    def __enter__(self) -> Resident:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.free()
        except Error:
            if error is None:  # else that one tells more
                raise


def by_handle(handle: str, tensors: Sequence[AnyResident]) -> AnyResident:
    """Raises NotFound where none of the tensors has the handle."""
    for resident in tensors:
        if resident.handle == handle:
            return resident
    raise NotFound(f"the server has no tensor of the handle {handle!r} for this caller")


def ttl_ns(name: str, seconds: float | None) -> int:
    """A time to live in nanoseconds; 0, which is the server's own, for None. Raises InvalidArgument
    for what is no time."""
    if seconds is None:
        return 0
    if not isinstance(seconds, numbers.Real):
        raise InvalidArgument(f"{name} is {seconds!r}; it must be a number of seconds, or None")
    if not 0 < seconds <= _TTL_SECONDS_MAX:
        raise InvalidArgument(f"{name} is {seconds} s; it must be over 0 and at most 9e9")
    return max(1, round(seconds * 1e9))
