#!/usr/bin/env python3
"""Connections that take all descriptors, or fail to be accepted for want of one: others are served meanwhile, everybody
is when they have gone, and the server calls itself ready only while it takes connections.

    connection_floods_test.py SOURCE BUILD

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import contextlib
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from access_case import PROGRAMS, SECONDS_MAX, AccessCase, eventually  # noqa: E402
import grpc  # noqa: E402
from users import OTHER_USER, acting_as, why_no_other_user  # noqa: E402

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
FRAME_HEAD_BYTES = 9


class Server:
    """A real one that may have so many descriptors."""

    def __init__(self, descriptors, log, *flags):
        self.log = pathlib.Path(log)
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                ["prlimit", f"--nofile={descriptors}:{descriptors}", PROGRAMS / "warpcalld", "--devices=cpu",
                 "--self_test=off", "--metrics_listen=127.0.0.1:0", "--lame_duck_seconds=0", *flags],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        line = self.process.stdout.readline()
        self.address, self.metrics = re.search(r"serving on ([^ ,]+).*, metrics on (\S+)", line).groups()

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=SECONDS_MAX) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def refused(self):
        (value,) = re.findall(r'^warpcall_rejected_total{reason="connections"} (\d+)$', self.get("/metrics")[1], re.M)
        return int(value)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def state(self):
        """What a failed test shows."""
        return f"exit status {self.process.poll()}, log:\n{self.log.read_text()}"

    def stop(self):
        self.process.terminate()
        self.process.stdout.close()
        return self.process.wait(timeout=SECONDS_MAX)


def connect(server, user=None, source="127.0.0.1"):
    host, port = server.address.rsplit(":", 1)
    with acting_as(os.geteuid() if user is None else user):
        return socket.create_connection((host, int(port)), timeout=SECONDS_MAX, source_address=(source, 0))


def is_served(connection):
    """Returns True if gRPC begins to speak to the connection; False if it is closed at once."""
    try:
        return len(connection.recv(FRAME_HEAD_BYTES, socket.MSG_WAITALL)) == FRAME_HEAD_BYTES
    except ConnectionError:
        return False


class ConnectionsTest(AccessCase):
    def start(self, descriptors, *flags):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors * 2 + 200 > hard:
            self.skipTest(f"the hard limit on descriptors is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        server = Server(descriptors, self.path("log"), *(flags or ["--listen=127.0.0.1:0"]))
        self.addCleanup(server.process.kill)
        return server

    def flood(self, server, stack, count, user=None):
        """Connects from many addresses of loopback. All connections are accepted when the last one has been."""
        for i in range(count):
            stack.enter_context(connect(server, user, f"127.0.0.{1 + i % 200}"))
        last = stack.enter_context(connect(server, user))
        is_served(last)

    def await_that(self, server, what):
        if not eventually(what):
            self.fail(server.state())

    def check_flood(self, descriptors):
        path = self.path("w.sock")
        server = self.start(descriptors, f"--listen=127.0.0.1:0,unix:{path}")
        idle = server.descriptors()
        self.assertEqual(self.ends(server), "OK")
        with contextlib.ExitStack() as flood:
            self.flood(server, flood, descriptors, None if why_no_other_user() else OTHER_USER)
            self.assertGreater(server.refused(), 0)
            self.assertIn("too many from one user or address", server.log.read_text())
            self.assertEqual(server.get("/readyz")[0], 200)
            if not why_no_other_user():
                self.assertEqual(self.ends(server), "OK")
                server_at_path = type("AtPath", (), {"address": f"unix:{path}"})
                self.assertEqual(self.ends(server_at_path), "OK")
        self.await_that(server, lambda: self.ends(server) == "OK")
        self.await_that(server, lambda: server.descriptors() <= idle + 4)
        self.assertEqual(server.get("/readyz")[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_a_flood_of_540(self):
        self.check_flood(540)

    def test_a_flood_of_4096(self):
        self.check_flood(4096)

    def health(self, server):
        """Asks by a connection that there is already."""
        channel = self.enterContext(grpc.insecure_channel(server.address))
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        self.assertEqual(check(b"", timeout=SECONDS_MAX), SERVING)
        return lambda: check(b"", timeout=SECONDS_MAX)

    @unittest.skipIf(why_no_other_user(), why_no_other_user())
    def test_who_takes_no_more_is_not_ready(self):
        server = self.start(540)
        health = self.health(server)
        with contextlib.ExitStack() as flood:
            for user in (None, OTHER_USER):
                self.flood(server, flood, 540, user)
            self.await_that(server, lambda: health() == NOT_SERVING)
            self.assertEqual(server.get("/healthz")[0], 200)
            status, reason = server.get("/readyz")
            self.assertEqual(status, 503)
            self.assertIn("no connections are accepted", reason)
        self.await_that(server, lambda: server.get("/readyz")[0] == 200)
        self.await_that(server, lambda: health() == SERVING)
        self.assertEqual(self.ends(server), "OK")
        self.assertEqual(server.stop(), 0)

    def test_descriptors_that_others_took_are_waited_for(self):
        server = self.start(4096)
        health = self.health(server)
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        # None beyond those that are open.
        open_now = max(map(int, os.listdir(f"/proc/{server.process.pid}/fd"))) + 1
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
        with contextlib.ExitStack() as stack:
            waiting = [stack.enter_context(connect(server)) for _ in range(open_now)]
            self.await_that(server, lambda: "cannot accept connections" in server.log.read_text())
            self.await_that(server, lambda: health() == NOT_SERVING)
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
            for connection in waiting:
                self.assertTrue(is_served(connection))
        self.await_that(server, lambda: health() == SERVING)
        self.await_that(server, lambda: server.get("/readyz")[0] == 200)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
