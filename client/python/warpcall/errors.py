"""Errors that can end a call: one class for each status of the service.

Each is a `warpcall.Error`; where Python has a class of the same meaning, it is one of these too, so
`except ValueError` and `except TimeoutError` work as expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._push import Push
    from ._reports import Benchmark

PUSHBACK_KEY = "grpc-retry-pushback-ms"
LOST_HANDLES_KEY = "warpcall-lost-handles"
REQUEST_ID_KEY = "warpcall-request-id"
# gRPC's messages for a method that a server lacks: of C++ and of Python.
NO_METHOD = ("", "Method not found!")


class Error(Exception):
    """A call that failed. Classes below exist for the codes that the service documents; any other
    code comes as an `Error` itself.

    `code`: the canonical name of the status, e.g. "INVALID_ARGUMENT".
    `message`: the server's text, which names the value and the limit.
    `retryable`: the same call may succeed later.
    `retry_after`: seconds after which the server allows a retry; None if it gave no time.
    `lost_handles`: handles of the call that name no tensor on the server, each with its reason:
    "freed", "expired", "evicted", "lost" (with its device or server) or "unknown".
    `request_id`: the id by which the server's log has the request if the call gave none; else "".
    `report`: what came until then, if a benchmark or a push ended early.
    """

    code: str = "UNKNOWN"
    report: Benchmark | Push | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
        lost_handles: Mapping[str, str] | None = None,
        request_id: str = "",
    ) -> None:
        """`retry_after`: less than 0 means never."""
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        has_time = retry_after is not None and retry_after >= 0
        self.retryable = has_time or (retry_after is None and self.code == "UNAVAILABLE")
        self.retry_after = retry_after if has_time else None
        self.lost_handles = {} if lost_handles is None else dict(lost_handles)
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        retry_after = self.retry_after if self.retryable else -1.0
        said = (self.message, self.code, retry_after, self.lost_handles, self.request_id)
        return _rebuild, (type(self), *said)


def _rebuild(
    cls: type[Error],
    message: str,
    code: str,
    retry_after: float | None,
    lost_handles: Mapping[str, str],
    request_id: str,
) -> Error:
    return cls(
        message,
        code=code,
        retry_after=retry_after,
        lost_handles=lost_handles,
        request_id=request_id,
    )


class InvalidArgument(Error, ValueError):
    """A shape, data type, attribute or option that the kernel or this package does not accept."""

    code = "INVALID_ARGUMENT"


class NotFound(Error, LookupError):
    """No such kernel, implementation, device or tensor; the message lists those that exist, or says
    how the tensor ended."""

    code = "NOT_FOUND"


class Unimplemented(Error):
    """No implementation accepts this problem; the message gives each one's reason."""

    code = "UNIMPLEMENTED"


class ResourceExhausted(Error):
    """A limit of the server: of a message, of its queue or of its memory."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(Error, TimeoutError):
    """The timeout passed, or the server predicted that it would."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(Error):
    """The call was cancelled, its client closed, or the process forked from the client's own."""

    code = "CANCELLED"


class Unavailable(Error, ConnectionError):
    """No server, a draining server, or a lost device."""

    code = "UNAVAILABLE"


class Unauthenticated(Error):
    """A token or certificate is missing or wrong."""

    code = "UNAUTHENTICATED"


class PermissionDenied(Error):
    """The server's policy does not allow it."""

    code = "PERMISSION_DENIED"


class Internal(Error):
    """A defect of the server, or an answer that contradicts itself."""

    code = "INTERNAL"


class PushRejected(Error):
    """A pushed kernel that did not pass. `code` is the verdict's status, "INCORRECT_NUMERICAL",
    `message` its reason, and `report` the Push."""


_CLASSES: dict[str, type[Error]] = {
    cls.code: cls
    for cls in (
        InvalidArgument,
        NotFound,
        Unimplemented,
        ResourceExhausted,
        DeadlineExceeded,
        Cancelled,
        Unavailable,
        Unauthenticated,
        PermissionDenied,
        Internal,
    )
}


class Refusal(NamedTuple):
    """The status that ended a call, and what the server says of it in the trailers."""

    code: str
    """Its canonical name."""
    message: str
    pushback: float | None = None
    """As parse_pushback returns it."""
    lost_handles: Mapping[str, str] = {}
    request_id: str = ""
    """As Error.request_id."""


def _trailer(metadata: Iterable[tuple[str, str | bytes]] | None, name: str) -> str | None:
    """The first value of that name; None without one."""
    for key, value in metadata or ():
        if key == name:
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return None


def parse_lost_handles(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[str, str]:
    """The lost handles of a call's trailers, each with its reason: "HANDLE why[,HANDLE why]"."""
    text = _trailer(metadata, LOST_HANDLES_KEY)
    if text is None:
        return {}
    pairs = (item.partition(" ") for item in text.split(","))
    return {handle: why for handle, _, why in pairs}


def parse_pushback(metadata: Iterable[tuple[str, str | bytes]] | None) -> float | None:
    """The pushback of a call's trailers in seconds: None without one, negative for "do not try
    again", which also is what a value that is no integer means (gRFC A6)."""
    text = _trailer(metadata, PUSHBACK_KEY)
    if text is None:
        return None
    try:
        return int(text) / 1000
    except ValueError:
        return -1.0


def parse_request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The request's id of a call's trailers; "" without one."""
    return _trailer(metadata, REQUEST_ID_KEY) or ""


def make_error(refusal: Refusal) -> Error:
    """The exception for a status."""
    code, message, pushback, lost_handles, request_id = refusal
    cls = _CLASSES.get(code, Error)
    return _rebuild(cls, message, code, pushback, lost_handles, request_id)
