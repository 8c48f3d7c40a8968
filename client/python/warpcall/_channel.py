"""Connections to a server, and what calls of every kind send along: credentials, token, trace."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, Union

import grpc

from ._address import HttpProxy, explain_connection, http_proxy_for, parse_address
from ._process import check_may_open
from .errors import (
    InvalidArgument,
    Refusal,
    parse_lost_handles,
    parse_pushback,
    parse_request_id,
)

Metadata = tuple[tuple[str, str], ...]
Pem = Union[str, "os.PathLike[str]", bytes]
Options: TypeAlias = "list[tuple[str, int | str]]"

DEFAULT_ADDRESS = "127.0.0.1:8470"
CONNECTIONS_MAX = 64
# Environment variables, read like the command line's: arguments override them.
SERVER_VARIABLE = "WARPCALL_SERVER"
TOKEN_VARIABLE = "WARPCALL_TOKEN_FILE"
SESSION_VARIABLE = "WARPCALL_SESSION"
_TLS_VARIABLES = ("WARPCALL_TLS_CA", "WARPCALL_TLS_CERT", "WARPCALL_TLS_KEY")
# Characters that a header's value may hold, without spaces.
_TOKEN = re.compile(r"[!-~]+")
_SESSION = re.compile(r"[!-~]{1,128}")

_SERVICE = "/warpcall.v1.KernelService/"
EXECUTE = _SERVICE + "Execute"
EXECUTE_STREAM = _SERVICE + "ExecuteStream"
EXECUTE_GRAPH = _SERVICE + "ExecuteGraph"
LIST_KERNELS = _SERVICE + "ListKernels"
LIST_DEVICES = _SERVICE + "ListDevices"
SERVER_INFO = _SERVICE + "ServerInfo"
BENCHMARK = _SERVICE + "Benchmark"
BENCHMARK_STREAM = _SERVICE + "BenchmarkStream"
TUNE = _SERVICE + "Tune"
PUSH = _SERVICE + "Push"
PROFILE = _SERVICE + "Profile"
DESCRIBE = _SERVICE + "Describe"
PUT = _SERVICE + "Put"
GET = _SERVICE + "Get"
FREE = _SERVICE + "Free"
LIST_TENSORS = _SERVICE + "ListTensors"
_UNARY = (
    *(EXECUTE, LIST_KERNELS, LIST_DEVICES, SERVER_INFO, BENCHMARK, TUNE, PROFILE, DESCRIBE),
    *(EXECUTE_GRAPH, FREE, LIST_TENSORS),
)
# A stream of one message and a single message are one thing on the wire.
_STREAMS = (EXECUTE_STREAM, PUT, GET)
_ANSWERED_IN_PARTS = (BENCHMARK_STREAM, PUSH)

# The C++ client's, with its reasons (client/cpp/rpc/channel.cc).
_FRAME_BYTES = 4 << 20
_KEEPALIVE_MS = 6 * 60 * 1000
_NEVER_MS = (1 << 31) - 1
_OPTIONS: Options = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_frame_size", _FRAME_BYTES),
    # Ours know of pushback limits, budgets and deadlines.
    ("grpc.enable_retries", 0),
    # A lost server is looked for again after 100 ms, and every 2 s at most.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
]
# For addresses that may stand for several servers: round robin over those whose health is good.
_SEVERAL = ("dns:", "ipv4:", "ipv6:")
_TURNS = '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}'
_RESOLUTION_SECONDS = 1
_ALL: Options = [("grpc.inhibit_health_checking", 1)]
_NONE_SERVES = "connections to all backends failing"
_numbers = itertools.count()

# gRPC core's messages for a stream that ends without the server's final status: cut by a proxy with
# HTTP/2's NO_ERROR, INTERNAL_ERROR or CANCEL, or with the status left out.
_BROKEN_OFF = re.compile(r"Stream removed|Received RST_STREAM with error code [028]\b")
_BROKEN_OFF_CODES = ("UNKNOWN", "INTERNAL", "CANCELLED")


@dataclasses.dataclass(frozen=True)
class TLS:
    """Encrypts connections. Each field is a file's path or the PEM bytes themselves.

    `ca`: trusted certificate authorities; None: gRPC's defaults. `cert`, `key`: the client's
    certificate and its private key, for servers that require one.
    """

    ca: Pem | None = None
    cert: Pem | None = None
    key: Pem | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises OSError for a file that cannot be read."""
        if (self.cert is None) != (self.key is None):
            raise InvalidArgument("cert and key come together")
        return grpc.ssl_channel_credentials(_pem(self.ca), _pem(self.key), _pem(self.cert))


def _pem(source: Pem | None) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read()


@dataclasses.dataclass(frozen=True)
class Target:
    """A server, and how to reach it. Raises InvalidArgument for values out of range."""

    address: str
    connections: int = 1
    tls: TLS | None = None
    token: str | None = None
    session: str = ""
    stall_timeout: float = 20.0
    proxy: HttpProxy | None = dataclasses.field(init=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", parse_address(self.address))
        object.__setattr__(self, "proxy", http_proxy_for(self.address))
        if self.token is not None:  # as a file of one line has it
            object.__setattr__(self, "token", self.token.rstrip("\r\n"))
        if not 1 <= self.connections <= CONNECTIONS_MAX:
            raise InvalidArgument(
                f"connections is {self.connections}; it must be 1 to {CONNECTIONS_MAX}"
            )
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InvalidArgument("token is empty, or has spaces or characters outside ASCII")
        if self.session and not _SESSION.fullmatch(self.session):
            raise InvalidArgument(
                f"session is {self.session!r}; it must be at most 128 printable ASCII"
                " characters, no spaces"
            )
        if not self.stall_timeout > 0:
            raise InvalidArgument(f"stall_timeout is {self.stall_timeout}; it must be over 0")

    @property
    def is_several(self) -> bool:
        """True if the address may stand for several servers, among which this client chooses."""
        return self.address.startswith(_SEVERAL)

    def open(self, module: Any) -> Channels:
        """Channels of `module`, which is grpc or grpc.aio. They connect with the first call.
        Raises Cancelled in a process that was forked from one that had opened some."""
        check_may_open()
        if self.tls is None:
            make = partial(module.insecure_channel, self.address)
        else:
            make = partial(module.secure_channel, self.address, self.tls.credentials())
        return Channels(make, self._options(), self.is_several)

    def _options(self) -> list[Options]:
        """Returns the options of each connection's channels."""
        options: Options = [
            *_OPTIONS,
            ("grpc.enable_http_proxy", int(self.proxy is not None)),
            (
                "grpc.keepalive_timeout_ms",
                max(1, round(min(self.stall_timeout * 1000, _NEVER_MS))),
            ),
        ]
        if self.is_several:
            options += [
                ("grpc.service_config", _TURNS),
                ("grpc.dns_min_time_between_resolutions_ms", 1000 * _RESOLUTION_SECONDS),
            ]
        # Channels with the same number and address share a connection.
        numbers = itertools.islice(_numbers, self.connections)
        return [[*options, ("warpcall.connection", number)] for number in numbers]

    def metadata(self) -> Metadata:
        session = (("warpcall-session", self.session),) if self.session else ()
        token = () if self.token is None else (("authorization", f"Bearer {self.token}"),)
        return session + token

    def refusal(self, error: Any) -> Refusal:
        """The status of a call that gRPC reports as failed. A call that was cut between the client
        and the server is UNAVAILABLE, as when the connection is lost."""
        code = error.code()
        name, message = "UNKNOWN" if code is None else code.name, error.details() or ""
        if name in _BROKEN_OFF_CODES and _BROKEN_OFF.match(message):
            name, message = "UNAVAILABLE", f"the call was broken off on its way: {message}"
        message = explain_connection(name, message, self.address, self.proxy)
        trailers = error.trailing_metadata()
        pushback, lost = parse_pushback(trailers), parse_lost_handles(trailers)
        return Refusal(name, message, pushback, lost, parse_request_id(trailers))


def target_of(
    address: str | None,
    connections: int,
    tls: TLS | None,
    token: str | None,
    session: str | None,
    stall_timeout: float,
) -> Target:
    """With the environment's word for what is None. Raises InvalidArgument as Target, OSError for a
    file that cannot be read."""
    if address is None:
        address = os.environ.get(SERVER_VARIABLE) or DEFAULT_ADDRESS
    path = os.environ.get(TOKEN_VARIABLE)
    if token is None and path:
        with open(path, "rb") as file:
            token = file.read().decode("ascii", errors="replace").strip()
        if not token:
            raise InvalidArgument(f"{TOKEN_VARIABLE}: {path}: is empty")
    files = [os.environ.get(name) or None for name in _TLS_VARIABLES]
    if tls is None and any(files):
        tls = TLS(*files)
    if session is None:
        session = os.environ.get(SESSION_VARIABLE, "")
    return Target(address, connections, tls, token, session, stall_timeout)


class Methods:
    """The service's methods on channels that take turns. Requests and answers are bytes. The
    channels live as long as this, or a call that they make."""

    __slots__ = ("__weakref__", "_stubs", "_turn", "beside", "channels")

    def __init__(self, channels: list[Any]) -> None:
        self.channels = channels
        self.beside: Methods | None = None
        """Methods over the same connections, if these are the main thread's."""
        self._stubs = [
            {
                **{name: channel.stream_stream(name) for name in _STREAMS},
                **{name: channel.unary_stream(name) for name in _ANSWERED_IN_PARTS},
                **{name: channel.unary_unary(name) for name in _UNARY},
            }
            for channel in channels
        ]
        self._turn = itertools.count()

    def __getitem__(self, name: str) -> Any:
        stubs = self._stubs
        return stubs[0 if len(stubs) == 1 else next(self._turn) % len(stubs)][name]


class Channels:
    """A client's channels to one server, or to several by one address. Thread-safe."""

    def __init__(self, make: Callable[..., Any], options: list[Options], several: bool) -> None:
        self._make, self._options = make, options
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[Methods] = weakref.WeakSet()
        self._renewal = -math.inf
        # Replaced after a stream had ended: gRPC 1.51's threads may still use its channels, and
        # crash where they are gone.
        self._previous: Methods | None = None
        self.methods = self._open()
        """On the servers that say that they serve."""
        self._all = self._open(_ALL) if several else None
        self._own: Methods | None = None

    def _open(self, more: Options | None = None) -> Methods:
        methods = Methods([self._make(options=[*each, *(more or [])]) for each in self._options])
        self._live.add(methods)
        return methods

    def after_refusal(
        self, methods: Methods, error: Any, is_stream: bool = False
    ) -> Methods | None:
        """After an attempt by `methods` ended with `error`: for one more, or None. A call that gRPC
        sent to no server, as none serves, goes to any: a server that is told to stop still serves
        for a while, and until the name leads to the servers that come instead there may be no
        others."""
        if (
            self._all is None
            or methods is self._all
            or error.code() is not grpc.StatusCode.UNAVAILABLE
            or not (error.details() or "").startswith(_NONE_SERVES)
        ):
            return None
        with self._lock:
            now = time.monotonic()
            if now >= self._renewal:
                # Resolves the name again; gRPC does so by itself only when a connection is lost.
                self._previous = methods if is_stream else None
                self.methods = self._open()
                self._renewal = now + _RESOLUTION_SECONDS
        return self._all

    def call(
        self, attempt: Callable[[Methods], Any], may_repeat: Callable[[], bool] | None = None
    ) -> Any:
        """Returns the result of a call by `methods`, or of the retry that after_refusal allows.
        `may_repeat`: of a stream, whether it may be made again; None: the call is no stream."""
        methods = self.methods
        try:
            return attempt(methods)
        except grpc.RpcError as error:
            is_stream = may_repeat is not None
            may_retry = may_repeat is None or may_repeat()
            others = self.after_refusal(methods, error, is_stream) if may_retry else None
            if others is None:
                raise
            error.__traceback__ = None  # as in Calls._retried
        return attempt(others)

    def take_own(self) -> Methods:
        """The main thread's, for a call of one message. They go over the connections of `methods`,
        but on channels of their own: a call that gRPC makes while a thread waits for it can only be
        cancelled by closing its channel. keep_own or drop follows."""
        kept, self._own = self._own, None  # the main thread alone
        if kept is not None and kept.beside is self.methods:
            return kept
        with self._lock:
            if self._renewal == math.inf:
                return self.methods  # closed, as gRPC will say
            own = self._open()
            own.beside = self.methods  # when these are replaced, so is own
            return own

    def keep_own(self, own: Methods) -> None:
        """The call is over; the next one takes the same."""
        self._own = own

    def drop(self, own: Methods) -> None:
        """Cancels the call, if it is under way."""
        for channel in own.channels:
            channel.close()

    def reach_all(self, methods: Methods) -> bool:
        """True for the methods on servers of any health."""
        return methods is self._all

    def end(self) -> list[Any]:
        """All of gRPC's channels, to be closed, also those that others replaced while they had
        calls. There will be no more."""
        with self._lock:
            self._renewal = math.inf
            return [channel for methods in self._live for channel in methods.channels]


def call_metadata(own: Metadata) -> Metadata | None:
    """Metadata that a call sends: the client's own, and the caller's trace by W3C's rules if the
    program uses opentelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return own or None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return own or None
    value = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    return (*own, ("traceparent", value))
