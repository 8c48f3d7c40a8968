"""A DNS server for one name, as stale as a cluster's caches may be: each change shows when the time to live of the
answers before it is over."""

import socket
import struct
import threading
import time

NAME = "warpcall.test"
_HEADER = struct.Struct(">HHHHHH")
# Flags: a response with authority, recursion wished for, recursion available.
_RESPONSE, _RECURSION_WISHED, _RECURSION = 0x8400, 0x0100, 0x0080
_NO_SUCH_NAME = 3
_A, _IN = 1, 1


class NameServer:
    """On a free port of the loopback interface, in a thread of its own. Thread-safe."""

    def __init__(self, ttl_seconds):
        self._ttl = ttl_seconds
        self._lock = threading.Lock()
        self._changes = []  # [(since when clients see these hosts, hosts)], the oldest first
        self._queries = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
            stop.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def target(self, port):
        """The address that has gRPC's clients ask this server."""
        return "dns://127.0.0.1:{}/{}:{}".format(self._socket.getsockname()[1], NAME, port)

    def set_hosts(self, hosts):
        """IPv4 addresses of NAME, which clients see at once the first time, else when the time to live is over."""
        with self._lock:
            self._changes.append((time.monotonic() + self._ttl if self._changes else 0, tuple(hosts)))

    @property
    def queries(self):
        """Queries for addresses of NAME."""
        with self._lock:
            return self._queries

    def _hosts(self):
        with self._lock:
            self._queries += 1
            now = time.monotonic()
            return [hosts for since, hosts in self._changes if since <= now][-1]

    def _serve(self):
        while True:
            query, peer = self._socket.recvfrom(4096)
            if not query:
                return
            self._socket.sendto(self._reply(query), peer)

    def _reply(self, query):
        number, flags, _, _, _, _ = _HEADER.unpack_from(query)
        labels, at = [], _HEADER.size
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind, _ = struct.unpack_from(">HH", query, at + 1)
        question = query[_HEADER.size:at + 5]
        flags = _RESPONSE | _RECURSION | flags & _RECURSION_WISHED
        if ".".join(labels).lower() != NAME:
            return _HEADER.pack(number, flags | _NO_SUCH_NAME, 1, 0, 0, 0) + question
        hosts = self._hosts() if kind == _A else ()
        records = b"".join(struct.pack(">HHHIH", 0xC000 | _HEADER.size, _A, _IN, self._ttl, 4)
                           + socket.inet_aton(host) for host in hosts)
        return _HEADER.pack(number, flags, 1, len(hosts), 0, 0) + question + records
