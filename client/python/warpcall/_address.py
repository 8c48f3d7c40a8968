"""Where a server is, which HTTP proxy leads there, and why no connection came about: the rules and
the words of the C++ client (client/cpp/rpc/address.h, proto/common/http_proxy.h)."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from .errors import InvalidArgument

DEFAULT_PORT = 8470
_PORT_MAX = 65535
# sockaddr_un.sun_path, less its end.
_SOCKET_PATH_MAX = 107
_UNIX = "unix:"
# gRPC's own; what follows them is for it to judge.
_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix-abstract:", "vsock:", "xds:")

_Ip: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


def parse_address(address: str) -> str:
    """An address as gRPC takes it: a host, an IPv4 or an IPv6 address, the latter in brackets where
    a port follows, which otherwise is 8470; unix:/path; or with another of gRPC's schemes. Raises
    InvalidArgument for what is none of these."""
    if not isinstance(address, str):
        raise InvalidArgument(
            f"the address is {address!r}; it must be text: host, host:port or unix:/path"
        )
    if not address:
        raise InvalidArgument("the address is empty; it is host, host:port or unix:/path")
    if address.startswith(_UNIX):
        return _parse_unix(address)
    if address.startswith(_SCHEMES):
        return address
    if "/" in address:
        raise _invalid(address, "is none; it is host, host:port or unix:/path")
    host_end = address.find(":")
    if address[0] == "[":
        bracket = address.find("]")
        if bracket < 0:
            raise _invalid(address, "has a '[' without ']'")
        host_end = bracket + 1
    elif host_end != address.rfind(":"):  # IPv6, which leaves no room for a port
        return f"[{address}]:{DEFAULT_PORT}"
    if host_end < 0 or host_end >= len(address):
        return f"{address}:{DEFAULT_PORT}"
    if host_end == 0:
        raise _invalid(address, "has no host before its port")
    if address[host_end] != ":":
        raise _invalid(address, "has more than a port behind its ']'")
    port = address[host_end + 1 :]
    if not (port.isascii() and port.isdigit() and len(port) < 10 and 1 <= int(port) <= _PORT_MAX):
        raise _invalid(address, f"has the port '{port}'; a port is a number from 1 to {_PORT_MAX}")
    return address


def _parse_unix(address: str) -> str:
    path = os.fsencode(address[len(_UNIX) :])
    if not path:
        raise _invalid(address, "has no path of a socket, as unix:/run/warpcall.sock")
    if len(path) > _SOCKET_PATH_MAX:
        raise _invalid(
            address,
            f"has a path of {len(path)} bytes; that of a socket has at most {_SOCKET_PATH_MAX}",
        )
    return address


def _invalid(address: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"the address '{address}' {problem}")


# ---- proxies ------------------------------------------------------------------------------------


class HttpProxy(NamedTuple):
    """An HTTP proxy that calls go through."""

    address: str
    """ "proxy.example:3128", without the user and password that it may have."""
    variable: str
    """The environment's that names it."""


def http_proxy_for(address: str, environment: Mapping[str, str] = os.environ) -> HttpProxy | None:
    """The proxy that leads to an address that parse_address gave; None: it is reached directly. The
    rule is written down in proto/common/http_proxy.h, and tests/proto/http_proxy_cases.txt holds
    both to it. Where it finds none, gRPC must be told not to look for itself."""
    proxy, host = _named_proxy(environment), _proxied_host(address)
    if proxy is None or not host:
        return None
    excepted = environment.get("no_grpc_proxy", environment.get("no_proxy", ""))
    return None if _is_excepted(host, excepted) else proxy


def _named_proxy(environment: Mapping[str, str]) -> HttpProxy | None:
    for variable in ("grpc_proxy", "https_proxy", "http_proxy"):
        value = environment.get(variable)
        if value is None:
            continue
        scheme, _, rest = value.partition("http://")
        address = rest.partition("/")[0].rpartition("@")[2]
        # gRPC takes no other scheme.
        return HttpProxy(address, variable) if not scheme and address else None
    return None


def _proxied_host(address: str) -> str:
    """The host that a proxy would be asked for; empty where none can be."""
    if address.startswith((_UNIX, "unix-abstract:", "vsock:")):
        return ""
    if address.startswith("dns:"):  # dns:host, dns:///host, dns://authority/host
        address = address.removeprefix("dns:").rpartition("/")[2]
    elif address.startswith(("ipv4:", "ipv6:")):
        address = address[len("ipv4:") :]
        if "," in address:  # no proxy can be asked for a list
            return ""
    host = _host_of(address)
    return "" if _is_loopback(host) else host


def _host_of(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _parse_ip(host: str) -> _Ip | None:
    host = host.partition("%")[0]  # without an interface
    with contextlib.suppress(ValueError):
        ip = ipaddress.ip_address(host)
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return mapped or ip
    with contextlib.suppress(OSError):  # also "127.1", as getaddrinfo
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def _is_loopback(host: str) -> bool:
    """Unspecified addresses, 0.0.0.0 and ::, connect to this machine too."""
    name = host.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    ip = _parse_ip(host)
    return ip is not None and (ip.is_loopback or ip.is_unspecified)


def _is_excepted(host: str, entries: str) -> bool:
    for entry in filter(None, map(str.strip, entries.split(","))):
        if entry == "*" or host.lower().endswith(entry.lower()) or _is_in_network(host, entry):
            return True
    return False


def _is_in_network(host: str, entry: str) -> bool:
    ip = _parse_ip(host)
    base, slash, bits = entry.partition("/")
    if ip is None or not slash or not (bits.isascii() and bits.isdigit()):
        return False
    with contextlib.suppress(ValueError):
        return ip in ipaddress.ip_network(f"{base}/{bits}", strict=False)
    return False


# ---- failures -----------------------------------------------------------------------------------

# gRPC's messages of connections that never came about.
_UNRESOLVED = ("DNS resolution failed", "errors resolving ")
_UNCONNECTED = "last error: "
# gRPC's own of a deadline, whatever it waited for: perhaps for a proxy that never answered.
_DEADLINE = "Deadline Exceeded"
_CLOSED = "Socket closed"
# Later versions than 1.51 add the error's number.
_NUMBER = re.compile(r" \(\d+\)$")


def explain_connection(code: str, message: str, address: str, proxy: HttpProxy | None) -> str:
    """`message`, unless it says that a connection never came about: then a sentence with the
    cause, which names the proxy where the connection goes through one."""
    if proxy is not None and _is_of_connecting(code, message):
        where = f"{address} through the proxy {proxy.address} ({proxy.variable})"
        return f"can't connect to {where}: {_last_part(message)}"
    if code == "DEADLINE_EXCEEDED" and message == _DEADLINE:
        return (
            f"no answer of {address} before the deadline; the server's log says where the time went"
        )
    if code != "UNAVAILABLE":
        return message
    if message.startswith(_UNRESOLVED):
        return f"the host '{address.rpartition(':')[0]}' is unknown: {_last_part(message)}"
    if _UNCONNECTED not in message:
        return message
    return _no_server(address, _last_part(message))


def _is_of_connecting(code: str, message: str) -> bool:
    if code == "DEADLINE_EXCEEDED":
        return message == _DEADLINE
    return code == "UNAVAILABLE" and (message.startswith(_UNRESOLVED) or _UNCONNECTED in message)


def _last_part(message: str) -> str:
    """gRPC tells one thing after the other, the cause last."""
    return _NUMBER.sub("", message.rpartition(": ")[2].removesuffix("]"))


def _no_server(address: str, cause: str) -> str:
    path = address.removeprefix(_UNIX).removeprefix("//") if address.startswith(_UNIX) else ""
    if path and cause == "No such file or directory":
        return f"there is no socket {path}: is warpcalld running, with --listen={address}?"
    where = f"the socket {path}" if path else address
    if cause == "Connection refused":
        return f"no server listens on {where} (connection refused): is warpcalld running there?"
    # As a server with TLS ends a connection without it, or without the certificate that it wants.
    doubt = "; does it have TLS, or want a client's certificate, or another?"
    hint = doubt if cause == _CLOSED else ""
    return f"can't connect to {where}: {cause}{hint}"
