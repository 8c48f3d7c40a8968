#!/usr/bin/env python3
"""Admission of callers: TLS, certificates of clients, tokens, and files that change while the server runs, with the
command line (the C++ client) and the Python client.

    callers_test.py SOURCE BUILD

Exit status 77: skipped, openssl or Debian's packages for Python are missing.
"""

import collections
import contextlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import types
import unittest
import urllib.request

sys.dont_write_bytecode = True
from access_case import ALICE, BOB, BUILD, NEWER, PROGRAMS, SECONDS_MAX, SKIPPED, X, AccessCase, eventually  # noqa: E402
import differential  # noqa: E402
import grpc  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402
from warpcall import _execute  # noqa: E402

FLOAT32, DONE = 1, 3
STARTS_MAX = 20
# A running, ready server reports it within this time.
STOPPED_SECONDS = 0.3


class CallersTest(AccessCase):
    # ---- tokens ---------------------------------------------------------------------------------

    def test_every_method_but_health_and_reflection_asks_for_a_token(self):
        tokens = self.write("tokens", f"# who\nalice {ALICE}\n\n bob\t{BOB}\n")
        server = self.serve(f"--token_file={tokens}")
        good = ["--token_file", self.write("alice", ALICE + "\n")]
        bad = ["--token_file", self.write("wrong", ALICE[:-1])]
        calls = [["devices"], ["kernels"], ["run", "gelu", "--shape", "4"],
                 ["run", "gelu", "--shape", "4096", "--stream"], ["describe", "gelu", "--shape", "4"],
                 ["bench", "gelu", "--shape", "64", "--iterations", "2"],
                 ["profile", "gelu", "--shape", "64"]]
        for call in calls:
            with self.subTest(call=call):
                self.assert_refused(server, "UNAUTHENTICATED: missing token", *call)
                self.assert_refused(server, "UNAUTHENTICATED: unknown token", *bad, *call)
                self.assert_done(server, *good, *call)
        self.assert_done(server, "health")
        self.assertEqual([self.ends(server, token=token) for token in (ALICE, BOB, None, ALICE + "x")],
                         ["OK", "OK", "UNAUTHENTICATED", "UNAUTHENTICATED"])
        with warpcall.connect(server.address, timeout=60) as client:
            with self.assertRaises(warpcall.Unauthenticated):
                client.identity(np.zeros(8 << 20, np.float32))  # as a stream
        refused = sum(value for name, value in server.metrics().items()
                      if name.startswith("warpcall_requests_total") and 'code="UNAUTHENTICATED"' in name)
        self.assertEqual(refused, 3)  # identity twice, and a stream
        # Operators find out who called, by any method.
        for method in ("ListDevices", "ListKernels"):
            line = f'msg="request failed" peer=ipv4:127.* method={method} code=UNAUTHENTICATED error="unknown token'
            self.assertTrue(eventually(lambda: re.search(line, server.log_text())), method)
        self.assertNotIn(ALICE, server.log_text())
        self.assertEqual(server.stop(), 0)

    def test_a_stream_without_a_token_ends_before_it_has_sent_anything(self):
        server = self.serve(f"--token_file={self.write('tokens', f'alice {ALICE}')}")
        done = threading.Event()

        def silence():
            done.wait()
            yield from ()

        with grpc.insecure_channel(server.address) as channel:
            stream = channel.stream_stream("/warpcall.v1.KernelService/ExecuteStream")
            with self.assertRaises(grpc.RpcError) as ended:
                next(stream(silence(), timeout=60))
            done.set()
        self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(server.stop(), 0)

    def test_a_callers_long_text_is_cut_in_the_log(self):
        server = self.serve()
        with grpc.insecure_channel(server.address) as channel:
            call = channel.unary_unary("/warpcall.v1.KernelService/Execute")
            for text in (b"z" * 60000, b"\n" * 60000):
                request = b"\x0a\xe0\xd4\x03" + text  # field 1, the kernel's name, of 60000 bytes
                with self.assertRaises(grpc.RpcError) as ended:
                    call(request, timeout=60)
                self.assertEqual(ended.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(server.stop(), 0)
        lines = server.log_text().splitlines()
        self.assertTrue(any("zzzz... (60" in line for line in lines), lines)
        self.assertLess(max(map(len, lines)), 10_000)

    def test_a_fifo_in_a_files_place_holds_up_neither_other_files_nor_the_end(self):
        tokens = self.write("tokens", f"alice {ALICE}\n")
        policies = self.write("policies", '{"default": {}}')
        server = self.serve(f"--token_file={tokens}", f"--policy_file={policies}")
        self.assertEqual(self.ends(server, token=ALICE), "OK")
        os.mkfifo(self.path("fifo"))
        os.replace(self.path("fifo"), tokens)
        self.assertTrue(eventually(lambda: "is a FIFO, not a regular file" in server.log_text()))
        self.assertEqual(self.ends(server, token=ALICE), "OK")
        self.write("policies", '{"default": {"methods": []}}')
        self.assertTrue(eventually(lambda: self.ends(server, token=ALICE) == "PERMISSION_DENIED"))
        self.assertEqual(server.stop(), 0)
        self.assert_does_not_start("is a FIFO, not a regular file", f"--token_file={tokens}")
        self.assert_does_not_start("is a FIFO, not a regular file", f"--policy_file={tokens}")
        self.assert_does_not_start("is a FIFO, not a regular file", f"--tuning_cache={tokens}")
        self.make_certificate("server")
        self.assert_does_not_start("is a FIFO, not a regular file", f"--tls_cert={tokens}",
                                   f"--tls_key={self.path('server.key')}")

    def test_tokens_change_while_the_server_runs_and_never_by_half(self):
        tokens = self.write("tokens", f"alice {ALICE}\n")
        server = self.serve(f"--token_file={tokens}")
        self.assertEqual(self.ends(server, token=ALICE), "OK")
        self.write("tokens", f"alice {NEWER}\nbob {BOB} more\n")
        self.assertTrue(eventually(lambda: "line 2: has 3 words" in server.log_text()))
        self.assertEqual([self.ends(server, token=ALICE), self.ends(server, token=NEWER)],
                         ["OK", "UNAUTHENTICATED"])
        self.write("tokens", f"alice {NEWER}\n")
        self.assertTrue(eventually(lambda: self.ends(server, token=NEWER) == "OK"))
        self.assertEqual(self.ends(server, token=ALICE), "UNAUTHENTICATED")
        os.remove(tokens)
        self.assertTrue(eventually(lambda: "No such file" in server.log_text()))
        self.assertEqual(self.ends(server, token=NEWER), "OK")
        self.assertNotIn(NEWER, server.log_text())
        self.assertEqual(server.stop(), 0)

    def test_a_token_that_is_gone_gets_no_further_request_on_a_stream(self):
        tokens = self.write("tokens", f"alice {ALICE}\nbob {BOB}\n")
        server = self.serve(f"--token_file={tokens}")
        data = np.arange(4, dtype=np.float32).tobytes()
        x = types.SimpleNamespace(data_type=FLOAT32, shape=(4,))
        header = _execute.encode_header(_execute.Call("identity"), [x])
        todo = queue.Queue()
        with grpc.insecure_channel(server.address) as channel:
            stream = channel.stream_stream("/warpcall.v1.KernelService/ExecuteStream")(
                iter(todo.get, None), timeout=60, metadata=[("authorization", f"Bearer {BOB}")])

            def run():
                todo.put(_execute.stream_header(header))
                todo.put(_execute.stream_chunk(0, 0, memoryview(data)))
                return next(True for message in stream
                            if _execute.split_stream_response(message)[0] == DONE)

            self.assertTrue(run() and run())
            self.write("tokens", f"alice {ALICE}\n")
            self.assertTrue(eventually(lambda: self.ends(server, token=BOB) == "UNAUTHENTICATED"))
            with self.assertRaises(grpc.RpcError) as ended:
                run()
            todo.put(None)
        self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(server.stop(), 0)

    def serve_stopped_while_it_starts(self, *flags):
        """A server that has read its files, is not ready, and is stopped; and the thread that awaits its start."""
        for _ in range(STARTS_MAX):
            server = differential.Server.__new__(differential.Server)
            start = threading.Thread(target=server.__init__, args=(str(BUILD), "--devices=cpu", *flags))
            start.start()
            # Logged when the devices are open; the implementations are still being tried.
            self.assertTrue(eventually(lambda: hasattr(server, "process")
                                       and "memory limits" in server.log_text(), pause=0.001))
            server.process.send_signal(signal.SIGSTOP)
            start.join(STOPPED_SECONDS)
            self.enterContext(server)
            if start.is_alive():
                return server, start
            server.process.send_signal(signal.SIGCONT)
        self.fail(f"{STARTS_MAX} servers were ready before they could be stopped")

    def test_a_token_that_went_while_the_server_got_ready_does_not_count(self):
        tokens = self.write("tokens", f"alice {ALICE}\nbob {BOB}\n")
        server, start = self.serve_stopped_while_it_starts(f"--token_file={tokens}")
        self.write("tokens", f"alice {ALICE}\n")
        server.process.send_signal(signal.SIGCONT)
        start.join()
        self.assertTrue(eventually(lambda: self.ends(server, token=BOB) == "UNAUTHENTICATED"))
        self.assertEqual(self.ends(server, token=ALICE), "OK")
        self.assertEqual(server.stop(), 0)

    # ---- TLS ------------------------------------------------------------------------------------

    def test_a_token_that_can_be_guessed_counts_and_is_warned_of(self):
        server = self.serve(f"--token_file={self.write('tokens', 'alice s1')}")
        self.assertEqual([self.ends(server, token=token) for token in ("s1", "s2")],
                         ["OK", "UNAUTHENTICATED"])
        self.assertIn('level=warning msg="tokens can be guessed"', server.log_text())
        self.assertNotIn("s1", server.log_text())
        # A file that was cut in the middle of its last line, say.
        self.write("tokens", "alice s1\nbob B")
        self.assertTrue(eventually(lambda: server.log_text().count('msg="tokens can be guessed"') == 2))
        self.assertEqual(server.stop(), 0)

    def test_who_trusts_the_server_is_served_and_nobody_else(self):
        self.make_certificate("server")
        self.make_certificate("other")
        tokens = self.write("tokens", f"alice {ALICE}\n")
        server = self.serve(*self.tls_flags(), f"--token_file={tokens}")
        trusting = ["--tls_ca", self.path("server.pem"), "--token_file", self.write("alice", ALICE)]
        self.assert_done(server, *trusting, "devices")
        self.assert_done(server, *trusting, "run", "gelu", "--shape", "4096", "--stream")
        self.assert_refused(server, "certificate verify failed", "--tls_ca", self.path("other.pem"),
                            "devices")
        self.assert_refused(server, "UNAVAILABLE", "devices")
        ca = self.path("server.pem")
        self.assertEqual(self.ends(server, tls=warpcall.TLS(ca), token=ALICE), "OK")
        self.assertEqual(self.ends(server, tls=warpcall.TLS(ca)), "UNAUTHENTICATED")
        self.assertEqual(self.ends(server, tls=warpcall.TLS(self.path("other.pem"))), "UNAVAILABLE")
        self.assertEqual(server.stop(), 0)

    def test_peers_without_tls_can_neither_break_nor_fill_the_log(self):
        self.make_certificate("server")
        server = self.serve(*self.tls_flags(), "--log_format=json")
        host, port = server.address.rsplit(":", 1)
        for _ in range(50):
            with contextlib.suppress(ConnectionError), \
                    socket.create_connection((host, int(port)), timeout=60) as peer:
                peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
                peer.recv(1)  # the server has ended it
        self.assertEqual(server.stop(), 0)
        lines = [json.loads(line) for line in server.log_text().splitlines()]
        told = [line for line in lines if line["msg"] == "grpc"]
        self.assertEqual({line["level"] for line in told}, {"warning"})
        in_second = collections.Counter(line["ts"][:len("2026-01-01T00:00:00")] for line in told)
        self.assertLessEqual(max(in_second.values()), 10)  # 5, of two seconds of the limit's clock
        self.assertIn("Handshake failed", told[0]["text"])

    def test_clients_show_a_certificate_of_the_authority(self):
        for name in ("server", "authority", "other"):
            self.make_certificate(name)
        self.make_signed("alice", "authority")
        self.make_signed("mallory", "other")
        self.make_signed("late", "authority", days=-1)
        server = self.serve(*self.tls_flags(), f"--tls_client_ca={self.path('authority.pem')}")
        ca = self.path("server.pem")
        ends = {}
        for name in ("alice", "mallory", "late"):
            own = ["--tls_cert", self.path(f"{name}.pem"), "--tls_key", self.path(f"{name}.key")]
            tls = warpcall.TLS(ca, own[1], own[3])
            ends[name] = self.command(server, "--tls_ca", ca, *own, "devices")[0], self.ends(server, tls=tls)
        ends["nobody"] = (self.command(server, "--tls_ca", ca, "devices")[0],
                          self.ends(server, tls=warpcall.TLS(ca)))
        refused = (1, "UNAVAILABLE")
        self.assertEqual(ends, {"alice": (0, "OK"), "mallory": refused, "late": refused,
                                "nobody": refused})
        self.assertEqual(server.stop(), 0)

    def shake_hands(self, server, ca, *own):
        """A handshake, which the server or this client ends; then nothing."""
        context = ssl.create_default_context(cafile=self.path(f"{ca}.pem"))
        if own:
            context.load_cert_chain(*map(self.path, own))
        host, port = server.address.rsplit(":", 1)
        with contextlib.suppress(ConnectionError, ssl.SSLError), \
                socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as plain, \
                context.wrap_socket(plain, server_hostname=host) as peer:
            peer.recv(1)

    def test_refused_certificates_of_clients_count_though_their_lines_are_left_out(self):
        for name in ("server", "authority", "other"):
            self.make_certificate(name)
        self.make_signed("mallory", "other")
        server = self.serve(*self.tls_flags(), f"--tls_client_ca={self.path('authority.pem')}")
        def counted():
            return server.metrics()['warpcall_auth_refusals_total{reason="certificate"}']
        self.shake_hands(server, "other")  # refuses the server's certificate
        self.assertTrue(eventually(lambda: "Handshake failed" in server.log_text()))
        self.assertEqual(counted(), 0)
        for _ in range(10):
            self.shake_hands(server, "server", "mallory.pem", "mallory.key")
            self.shake_hands(server, "server")
        self.assertTrue(eventually(lambda: counted() == 20), counted())
        self.assertEqual(server.stop(), 0)

    def test_certificates_change_under_load_without_a_failed_call(self):
        self.make_certificate("server")
        server = self.serve(*self.tls_flags())
        before = self.shown(server)
        self.make_certificate("next")
        both = self.write("both.pem", "".join(
            pathlib.Path(self.path(f"{name}.pem")).read_text() for name in ("server", "next")))
        failures, calls, ending = [], [0], threading.Event()

        def load():
            while not ending.is_set():  # a connection each
                end = self.ends(server, tls=warpcall.TLS(both))
                calls[0] += 1
                if end != "OK":
                    failures.append(end)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            with warpcall.connect(server.address, tls=warpcall.TLS(both), timeout=60) as lasting:
                lasting.identity(X)
                # A key that is not the certificate's counts for nothing.
                os.replace(self.path("next.key"), self.path("server.key"))
                self.assertTrue(eventually(lambda: "is not the key of" in server.log_text()))
                self.assertEqual(self.shown(server), before)
                os.replace(self.path("next.pem"), self.path("server.pem"))
                self.assertTrue(eventually(lambda: self.shown(server) != before))
                lasting.identity(X)
                changed = calls[0]
                self.assertTrue(eventually(lambda: calls[0] > changed + 5))
        finally:
            ending.set()
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(server.stop(), 0)

    def expiry(self, server):
        """(its series, when the certificate ends) of a server with one."""
        (found,) = [(series, value) for series, value in server.metrics().items() if "certificate_expiry" in series]
        return found

    def test_the_certificates_end_is_in_the_metrics_and_in_the_log(self):
        now = time.time()
        self.make_certificate("server")  # for two days
        server = self.serve(*self.tls_flags())
        series, ends = self.expiry(server)
        self.assertEqual(series, f'warpcall_certificate_expiry_seconds{{file="{self.path("server.pem")}"}}')
        self.assertTrue(-1 <= ends - now - 2 * 86400 < SECONDS_MAX, ends)
        (line,) = re.findall(r".*the TLS certificate ends.*", server.log_text())
        self.assertIn("level=warning", line)
        self.assertIn(time.strftime("expiry=%Y-%m-%dT%H:%M:%S", time.gmtime(ends)), line)
        self.assertRegex(line, r"days_left=(2|1\.99)")
        self.make_certificate("next", days=90)
        for kind in ("key", "pem"):
            os.replace(self.path(f"next.{kind}"), self.path(f"server.{kind}"))
        self.assertTrue(eventually(lambda: self.expiry(server)[1] > ends + 80 * 86400))
        self.assertEqual(server.stop(), 0)
        again = self.serve(*self.tls_flags())
        (line,) = re.findall(r".*the TLS certificate ends.*", again.log_text())
        self.assertIn("level=info", line)
        self.assertFalse([series for series in self.serve().metrics() if "certificate_expiry" in series])

    # ---- other machines -------------------------------------------------------------------------

    def test_other_machines_are_let_in_on_purpose_only(self):
        everywhere = "--listen=0.0.0.0:0"
        self.assert_does_not_start("--listen=0.0.0.0:0 lets other machines call this server", everywhere)
        self.assert_does_not_start("say --insecure", everywhere, "--policy_file=none")
        self.make_certificate("server")
        tokens = self.write("tokens", f"alice {ALICE}\n")
        warning = "has published defects"
        for flags in (["--insecure"], self.tls_flags(), [f"--token_file={tokens}"]):
            server = self.serve(everywhere, *flags)
            log = server.log_text()
            self.assertRegex(log, r"msg=starting version=\S+ grpc_version=\d+\.\d+\.\d+")
            version = re.search(r"grpc_version=([\d.]+)", log).group(1)
            old = [int(part) for part in version.split(".")] < [1, 65, 4]
            self.assertEqual(warning in log, old, log)
            self.assertEqual(server.stop(), 0)
        self.assertNotIn(warning, self.serve().log_text())

    def test_probes_need_no_certificate(self):
        for name in ("server", "authority"):
            self.make_certificate(name)
        server = self.serve(*self.tls_flags(), f"--tls_client_ca={self.path('authority.pem')}")
        self.assertNotEqual(self.command(server, "--tls_ca", self.path("server.pem"), "health")[0], 0)
        for probe in ("healthz", "readyz"):
            with urllib.request.urlopen(f"http://{server.metrics_address}/{probe}") as answer:
                self.assertEqual(answer.status, 200)
        self.assertEqual(server.stop(), 0)

    # ---- mistakes -------------------------------------------------------------------------------

    def test_what_is_wrong_with_the_files_is_said_at_the_start(self):
        self.make_certificate("server")
        self.make_certificate("other")
        self.make_signed("late", "server", days=-1)
        cert, key = self.tls_flags()
        empty = self.write("empty", "# nobody\n")
        long = self.write("short", "alice " + 5000 * "x")
        twice = self.write("twice", f"alice {ALICE}\nbob {ALICE}\n")
        for text, flags in [
                ("--tls_key: one of them is not given", [cert]),
                ("--tls_cert is not given", [f"--tls_client_ca={self.path('other.pem')}"]),
                ("missing: No such file", [f"--tls_cert={self.path('missing')}", key]),
                ("is not the key of the certificate", [cert, f"--tls_key={self.path('other.key')}"]),
                ("no PEM of a certificate", [f"--tls_cert={self.path('server.key')}", key]),
                ("no PEM of a private key", [cert, f"--tls_key={self.path('server.pem')}"]),
                ("the certificate expired on", self.tls_flags("late")),
                ("--tls_client_ca", [cert, key, f"--tls_client_ca={empty}"]),
                ("it has no token", [f"--token_file={empty}"]),
                ("line 1: the token of alice has 5000 bytes; it has to be 1 to 4096",
                 [f"--token_file={long}"]),
                ("line 2: the token of bob is also that of alice, on line 1", [f"--token_file={twice}"])]:
            with self.subTest(flags=flags):
                self.assert_does_not_start(text, *flags)

    def test_the_command_lines_own_files(self):
        self.make_certificate("server")
        server = self.serve(*self.tls_flags())
        empty = self.write("empty", " \n")
        for text, arguments in [
                ("--tls_ca: ", ["--tls_ca", self.path("missing")]),
                ("--token_file: ", ["--token_file", empty]),
                ("one of them is not given", ["--tls_cert", self.path("server.pem")])]:
            status, output, errors = self.command(server, *arguments, "devices")
            self.assertEqual((status, output), (2, ""), errors)
            self.assertIn(text, errors)

    def test_completion_asks_the_server_as_the_command_would(self):
        self.make_certificate("server")
        token = self.write("alice", ALICE)
        server = self.serve(*self.tls_flags(), f"--token_file={self.write('tokens', f'alice {ALICE}')}")

        def names(*words, **variables):
            return subprocess.run([PROGRAMS / "warpcall", "__complete", *words, "run", "soft"], text=True,
                                  capture_output=True, check=True, timeout=SECONDS_MAX,
                                  env={**os.environ, "HOME": str(self.folder), **variables}).stdout.split()

        at, trusting = ["--server", server.address], f"--tls_ca={self.path('server.pem')}"
        for words, variables in [
                ([*at, trusting, "--token_file", token], {}),
                ([*at, trusting, "--token_file", "~/alice"], {}),
                ([trusting], {"WARPCALL_SERVER": server.address, "WARPCALL_TOKEN_FILE": token})]:
            # A busy server may answer too late.
            self.assertTrue(eventually(lambda: names(*words, **variables) == ["softmax"]), words)
        self.assertEqual(names(*at, trusting), [])
        self.assertEqual(names(*at, "--tls", "--token_file", token), [])  # nobody that it trusts
        self.assertEqual(names(*at, trusting, "--token_file", self.path("missing")), [])


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: openssl, which makes certificates, is missing")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
