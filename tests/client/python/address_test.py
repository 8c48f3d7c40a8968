"""Addresses of the Python client's server: their forms, the environment's variables, tokens, and errors about a server
that is not there. They equal the command line's (tests/client/cpp/rpc/address_test.cc)."""

import os
import pathlib
import socket
import tempfile
import unittest
from unittest import mock

from support import ROOT, FakeServer, main
import warpcall
from warpcall import _address, _channel
from ways import REPLY, WAYS, X

ONCE = warpcall.Retry(attempts_max=1)
PROXY = _address.HttpProxy("proxy.example:3128", "http_proxy")


class AddressTest(unittest.TestCase):
    def test_without_a_port_it_is_8470(self):
        for text, address in [
                ("127.0.0.1", "127.0.0.1:8470"), ("gpu.example", "gpu.example:8470"),
                ("::1", "[::1]:8470"), ("[::1]", "[::1]:8470"), ("127.0.0.1:1", "127.0.0.1:1"),
                ("gpu.example:65535", "gpu.example:65535"), ("[::1]:80", "[::1]:80"),
                ("unix:/run/warpcall.sock", "unix:/run/warpcall.sock"),
                ("unix:///run/warpcall.sock", "unix:///run/warpcall.sock"),
                ("dns:///gpu.example:80", "dns:///gpu.example:80"),
                ("ipv4:127.0.0.1:80,127.0.0.1:81", "ipv4:127.0.0.1:80,127.0.0.1:81")]:
            self.assertEqual(_address.parse_address(text), address)
            self.assertEqual(_channel.Target(text).address, address)

    def test_refusals_name_what_is_wrong(self):
        for text, message in [
                ("", "is empty"), ("h:0", "port '0'; a port is a number from 1 to 65535"),
                ("h:65536", "port '65536'"), ("h:99999999999999999999", "from 1 to 65535"),
                ("h:", "port ''"), ("h:+80", "port '+80'"), ("h:http", "port 'http'"),
                ("h:\u0663", "port '\u0663'"), (":8470", "no host"), ("[::1", "'[' without ']'"),
                ("[::1]x", "behind its ']'"), ("http://h:80", "it is host, host:port or unix:/path"),
                ("unix:", "no path"),
                ("unix:/" + 200 * "s", "201 bytes; that of a socket has at most 107")]:
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                warpcall.connect(text)
            self.assertIn(message, raised.exception.message)

    # ---- a server that is not there ----

    def test_each_cause_has_its_sentence(self):
        failed = "failed to connect to all addresses; last error: "
        refused = "Failed to connect to remote host: Connection refused"
        lost = "address lookup failed for nosuch:8470: Domain name not found"
        for message, address, expected in [
                (failed + f"UNKNOWN: ipv4:127.0.0.1:1: {refused}", "localhost:1",
                 "no server listens on localhost:1 (connection refused): is warpcalld running there?"),
                (failed + "UNKNOWN: ipv4:127.0.0.1:1: connect: Connection refused (111)", "h:1",
                 "no server listens on h:1 (connection refused): is warpcalld running there?"),
                (failed + "UNKNOWN: unix:/s: No such file or directory", "unix:/s",
                 "there is no socket /s: is warpcalld running, with --listen=unix:/s?"),
                (failed + "FAILED_PRECONDITION: unix:/s: connect failed: addr: unix:/s error:"
                 " No such file or directory", "unix:/s",
                 "there is no socket /s: is warpcalld running, with --listen=unix:/s?"),
                (failed + "UNKNOWN: unix:/s: Connection refused", "unix:///s",
                 "no server listens on the socket /s (connection refused): is warpcalld running there?"),
                (failed + "UNKNOWN: ipv4:10.0.0.1:1: No route to host", "10.0.0.1:1",
                 "can't connect to 10.0.0.1:1: No route to host"),
                (failed + "UNKNOWN: ipv4:10.0.0.1:1: Socket closed", "h:1",
                 "can't connect to h:1: Socket closed; does it have TLS, or want a client's certificate, or another?"),
                ("DNS resolution failed for nosuch:8470: C-ares status is not ARES_SUCCESS qtype=A"
                 " name=nosuch is_balancer=0: Domain name not found", "nosuch:8470",
                 "the host 'nosuch' is unknown: Domain name not found"),
                (f"errors resolving nosuch:8470: [field:hostname lookup error:{lost}]", "nosuch:8470",
                 "the host 'nosuch' is unknown: Domain name not found"),
                ("the server is draining", "h:1", "the server is draining"),
                ("Socket closed", "h:1", "Socket closed")]:
            self.assertEqual(
                _address.explain_connection("UNAVAILABLE", message, address, None), expected)
            self.assertEqual(_address.explain_connection("NOT_FOUND", message, address, PROXY), message)

    def test_a_deadline_that_only_the_client_saw(self):
        self.assertEqual(
            _address.explain_connection("DEADLINE_EXCEEDED", "Deadline Exceeded", "h:1", None),
            "no answer of h:1 before the deadline; the server's log says where the time went")
        of_the_server = "the deadline passed in the queue"
        self.assertEqual(
            _address.explain_connection("DEADLINE_EXCEEDED", of_the_server, "h:1", None), of_the_server)

    def test_a_proxy_that_fails_is_named(self):
        through = "can't connect to gpu:1 through the proxy proxy.example:3128 (http_proxy): "
        for code, message, cause in [
                ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:3128:"
                 " HTTP proxy returned response code 502", "HTTP proxy returned response code 502"),
                ("UNAVAILABLE", "DNS resolution failed for proxy.example:3128: Domain name not found",
                 "Domain name not found"), ("DEADLINE_EXCEEDED", "Deadline Exceeded", "Deadline Exceeded")]:
            self.assertEqual(_address.explain_connection(code, message, "gpu:1", PROXY), through + cause)
        for code, message in (("DEADLINE_EXCEEDED", "the queue is longer than that"),
                              ("UNAVAILABLE", "the server is draining")):
            self.assertEqual(_address.explain_connection(code, message, "gpu:1", PROXY), message)

    def test_calls_say_so(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            gone = f"127.0.0.1:{nobody.getsockname()[1]}"
            for address, expected in [
                    (gone, f"no server listens on {gone} (connection refused): is warpcalld running there?"),
                    ("unix:/nonexistent/s", "there is no socket /nonexistent/s: is warpcalld running, with"
                     " --listen=unix:/nonexistent/s?")]:
                for connect, call in WAYS:
                    with connect(address, timeout=60, retry=ONCE) as client:
                        with self.assertRaises(warpcall.Unavailable) as raised:
                            call(client)
                    self.assertEqual(raised.exception.message, expected)


class ProxyRuleTest(unittest.TestCase):
    def test_one_rule_for_both_clients(self):
        path = pathlib.Path(ROOT, "tests", "proto", "http_proxy_cases.txt")
        cases = [line.split() for line in path.read_text(encoding="utf-8").splitlines()
                 if line and not line.startswith("#")]
        self.assertGreater(len(cases), 40)
        for address, excepted, expected in cases:
            environment = {"http_proxy": "http://proxy.example:3128"}
            if excepted != "-":
                environment["no_proxy"] = excepted
            with mock.patch.dict(os.environ, environment):
                proxy = _channel.Target(address).proxy
            self.assertEqual("direct" if proxy is None else "proxy", expected, (address, excepted))

    def proxy_of(self, **environment):
        return _address.http_proxy_for("gpu.example:1", environment)

    def test_the_first_variable_that_is_set_counts(self):
        self.assertIsNone(self.proxy_of())
        environment = {}
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            environment[name] = f"http://{name}:3128"
            self.assertEqual(self.proxy_of(**environment), (f"{name}:3128", name))
        self.assertIsNone(self.proxy_of(**environment, no_proxy="example"))
        self.assertIsNotNone(self.proxy_of(**environment, no_proxy="example", no_grpc_proxy="other"))

    def test_its_name_has_no_password(self):
        self.assertEqual(self.proxy_of(http_proxy="http://me:se@cret@proxy.example:3128/path").address,
                         "proxy.example:3128")

    def test_what_grpc_takes_for_none_is_none(self):
        for value in ("", "proxy.example:3128", "https://proxy.example:3128", "socks5://proxy.example:1080",
                      "http://", "http://me@"):
            self.assertIsNone(self.proxy_of(http_proxy=value), value)


class EnvironmentTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.seen, self.sessions = [], []

        def handler(request, context):
            sent = dict(context.invocation_metadata())
            self.seen.append(sent.get("authorization"))
            self.sessions.append(sent.get("warpcall-session"))
            return REPLY

        self.address = self.enterContext(FakeServer(handler)).address
        self.enterContext(mock.patch.dict(os.environ))
        for name in [name for name in os.environ if name.startswith("WARPCALL_")]:
            del os.environ[name]

    def file(self, text):
        path = self.folder / "token"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def test_what_is_not_said_the_environment_says(self):
        os.environ.update(WARPCALL_SERVER=self.address, WARPCALL_TOKEN_FILE=self.file(" secret\n"))
        for connect, call in WAYS:
            for options in ({}, {"token": "other"}):
                with connect(timeout=60, retry=ONCE, **options) as client:
                    call(client)
        self.assertEqual(self.seen, ["Bearer secret", "Bearer other"] * len(WAYS))
        with warpcall.connect("unix:/nonexistent/s", retry=ONCE) as client, \
                self.assertRaises(warpcall.Unavailable):  # the argument overrides them
            client.identity(X)
        os.environ["WARPCALL_SERVER"] = ""
        self.assertIn("127.0.0.1:8470", repr(warpcall.connect()))

    def test_a_session_goes_with_every_call(self):
        os.environ.update(WARPCALL_SERVER=self.address, WARPCALL_SESSION="of-all")
        for connect, call in WAYS:
            for options in ({}, {"session": "mine"}, {"session": ""}):
                with connect(timeout=60, retry=ONCE, **options) as client:
                    call(client)
        self.assertEqual(self.sessions, ["of-all", "mine", None] * len(WAYS))
        for wrong in ("two words", "é", "x" * 129):
            with self.assertRaisesRegex(warpcall.InvalidArgument, "session is .*128 printable"):
                warpcall.connect(session=wrong)

    def test_files_that_hold_nothing_or_are_not_there(self):
        os.environ["WARPCALL_TOKEN_FILE"] = self.file(" \n")
        with self.assertRaisesRegex(warpcall.InvalidArgument, "WARPCALL_TOKEN_FILE: .*/token: is empty"):
            warpcall.connect()
        os.environ["WARPCALL_TOKEN_FILE"] = self.file("two words")
        with self.assertRaises(warpcall.InvalidArgument):
            warpcall.connect()
        os.environ["WARPCALL_TOKEN_FILE"] = "/nonexistent/token"
        with self.assertRaises(FileNotFoundError):
            warpcall.aio.connect()
        os.environ["WARPCALL_TOKEN_FILE"] = ""
        os.environ["WARPCALL_TLS_CA"] = "/nonexistent/ca.pem"
        with self.assertRaises(FileNotFoundError):
            warpcall.connect()

    def test_a_newline_behind_a_token_is_not_the_tokens(self):
        for connect, call in WAYS:
            with connect(self.address, token="secret\r\n", timeout=60) as client:
                call(client)
        self.assertEqual(self.seen, ["Bearer secret"] * len(WAYS))
        for token in ("\n", "se\ncret", "secret\n ", "\nsecret"):
            with self.assertRaises(warpcall.InvalidArgument):
                warpcall.connect(self.address, token=token)


if __name__ == "__main__":
    main()
