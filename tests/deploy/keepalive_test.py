#!/usr/bin/env python3
"""Clients may ask every ten seconds whether the server is still there, the least that Go's gRPC allows, with and without
calls; more often they may not.

    keepalive_test.py WARPCALLD LIBRARY

LIBRARY steps the server's clock, so that ten seconds pass in a moment: clock_step.cc.
"""

import contextlib
import pathlib
import socket
import struct
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import floods  # noqa: E402
import processes  # noqa: E402

WARPCALLD, LIBRARY = sys.argv[1:3]
SECONDS_MAX = 90
INTERVAL_NS = 10 * 10**9
GOAWAY, ACK = 7, 1
ENHANCE_YOUR_CALM = 11


class Ended(Exception):
    """The server has ended the connection; the message says by which code."""


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self.socket.sendall(floods.PREFACE + floods.frame(floods.SETTINGS))

    def receive(self, size):
        if len(received := self.socket.recv(size, socket.MSG_WAITALL)) < size:
            raise Ended("no code")
        return received

    def ping(self, number):
        """Returns once it is answered."""
        sent = struct.pack(">Q", number)
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(floods.frame(floods.PING, sent))
        while True:
            head = self.receive(9)
            size = int.from_bytes(head[:3])
            payload = self.receive(size) if size else b""
            kind, flags, _ = struct.unpack(">BBI", head[3:])
            if kind == GOAWAY:
                raise Ended(f"code {int.from_bytes(payload[4:8])}")
            if (kind, flags, payload) == (floods.PING, ACK, sent):
                return
            if kind in (floods.PING, floods.SETTINGS) and flags == 0:
                self.socket.sendall(floods.frame(kind, payload if kind == floods.PING else b"", ACK))


class KeepaliveTest(unittest.TestCase):
    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.clock = folder / "clock"
        self.clock.write_bytes(bytes(16))
        (self.address,) = processes.free_addresses(1)
        log = folder / "warpcalld.log"
        environment = {"WARPCALL_TEST_CLOCK": str(self.clock), "LD_PRELOAD": LIBRARY}
        command = ["env", *(f"{name}={value}" for name, value in environment.items()), WARPCALLD,
                   f"--listen={self.address}", "--metrics_listen=127.0.0.1:0", "--devices=cpu", "--self_test=off",
                   "--lame_duck_seconds=0"]
        self.enterContext(processes.running(command, log))
        processes.wait_until("the server", lambda: "serving on" in log.read_text(), SECONDS_MAX)
        self.connection = Connection(self.address)
        self.addCleanup(self.connection.socket.close)

    def check_pings(self):
        for number in range(1, 9):
            with open(self.clock, "r+b", buffering=0) as file:
                file.seek(8)
                file.write(struct.pack("=q", number * INTERVAL_NS))
            time.sleep(0.02)  # gRPC reads the clock once for all that a thread does before it polls again
            self.connection.ping(number)

    def test_without_calls(self):
        self.check_pings()

    def test_with_a_call(self):
        self.connection.socket.sendall(floods.begin(1))
        self.check_pings()

    def test_more_often_is_not_allowed(self):
        with self.assertRaisesRegex(Ended, f"code {ENHANCE_YOUR_CALM}|no code"):
            for number in range(1, 9):
                self.connection.ping(number)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
