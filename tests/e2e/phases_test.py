#!/usr/bin/env python3
"""A server's phases, as probes, metrics, the log and the service manager hear of them.

    phases_test.py BUILD
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from plain_server import SECONDS_MAX, PlainServer, eventually  # noqa: E402

# LeakSanitizer's note on a thread that ends meanwhile. Reports of leaks, no JSON, stay.
LEAK_SANITIZERS_NOTE = re.compile(r"==\d+==Running thread \d+ was not suspended\. .*")
PHASES = ("starting", "serving", "lame_duck", "draining")


class Manager:
    """The service manager's end of $NOTIFY_SOCKET, in the abstract namespace."""

    def __init__(self):
        self.name = f"@warpcall-phases-{os.getpid()}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.name.replace("@", "\0"))
        self.socket.settimeout(SECONDS_MAX)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def receive(self):
        """The next message: {name: value}."""
        return dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())

    def has_nothing(self):
        self.socket.setblocking(False)
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(SECONDS_MAX)
        return False


class PhasesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.manager = self.enterContext(Manager())

    def await_serving(self, server):
        self.assertTrue(eventually(lambda: self.logged("serving")))
        server.address = self.logged("serving")[0]["listen"]

    def start(self, *flags):
        """Starts a server whose log is self.log(), as JSON."""
        log = self.enterContext(open(self.folder / "log", "wb"))
        server = self.enterContext(PlainServer("--log_format=json", *flags, stderr=log,
                                               env={**os.environ, "NOTIFY_SOCKET": self.manager.name}))
        self.assertTrue(eventually(lambda: self.logged("the metrics port answers")))
        server.metrics = self.logged("the metrics port answers")[0]["metrics_listen"]
        return server

    def log(self):
        # The last line may not be whole yet.
        lines = (self.folder / "log").read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if not LEAK_SANITIZERS_NOTE.fullmatch(line)]

    def logged(self, message):
        return [line for line in self.log() if re.fullmatch(message, line["msg"])]

    @staticmethod
    def ask(server, path):
        try:
            return 200, server.get(path)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def phase(self, server):
        """The one phase whose gauge is 1."""
        found = dict(re.findall(r'^warpcall_server_phase\{phase="(\w+)"\} ([01])$',
                                server.get("/metrics"), re.M))
        self.assertEqual(tuple(found), PHASES)
        (phase,) = [name for name, value in found.items() if value == "1"]
        return phase

    def test_probes_are_answered_while_it_starts(self):
        server = self.start("--self_test=full")  # takes minutes
        testing = re.compile(r"starting: (opening the devices; )?testing \w+ \((\d+) of (\d+)\)\n")

        def tests():
            status, said = self.ask(server, "/readyz")
            self.assertEqual(status, 503)
            return testing.fullmatch(said)
        self.assertTrue(eventually(tests))
        number, count = map(int, tests().groups()[1:])
        self.assertLessEqual(1, number)
        self.assertLess(number, count)
        self.assertEqual(self.ask(server, "/healthz"), (200, "ok\n"))
        self.assertEqual(self.phase(server), "starting")
        self.assertIn("\nprocess_start_time_seconds ", server.get("/metrics"))
        self.assertTrue(self.manager.has_nothing())
        server.process.terminate()
        self.assertEqual(server.wait(), 0)
        self.assertEqual(self.logged("ready after .*"), [])

    def test_who_waits_for_it_hears_of_each_phase(self):
        flags = self.folder / "flags"
        flags.write_text("log_level=info\n", encoding="utf-8")
        server = self.start("--self_test=off", "--lame_duck_seconds=3600", f"--flagfile={flags}")
        self.await_serving(server)
        ready = self.manager.receive()
        self.assertEqual((ready["READY"], ready["STATUS"]), ("1", f"serving on {server.address}"))
        self.assertEqual(self.ask(server, "/readyz"), (200, "ok\n"))
        self.assertEqual(self.phase(server), "serving")
        # The log's own thread writes each line, perhaps after waiters have their answer.
        self.assertTrue(eventually(lambda: self.logged(r"ready after \d+\.\d s")))
        (line,) = self.logged(r"ready after \d+\.\d s")
        self.assertEqual(line["msg"], f"ready after {line['seconds']:.1f} s")
        server.process.send_signal(signal.SIGHUP)
        reloading = self.manager.receive()
        self.assertEqual(reloading["RELOADING"], "1")
        self.assertGreater(int(reloading["MONOTONIC_USEC"]), 0)
        self.assertEqual(self.manager.receive(), {"READY": "1"})
        self.assertTrue(eventually(lambda: self.logged("read again")))
        self.assertEqual(len(self.logged("read again")), 1)
        server.process.terminate()
        self.assertEqual(self.manager.receive()["STOPPING"], "1")
        self.assertEqual(self.phase(server), "lame_duck")
        self.assertEqual(self.ask(server, "/readyz"),
                         (503, "stopping: still serving, for load balancers to notice\n"))
        server.process.terminate()
        self.assertEqual(server.wait(), 0)
        (line,) = self.logged("stopped: .*")
        self.assertEqual((line["msg"], line["drained"], line["status"]),
                         ("stopped: drained 0, status 0", 0, 0))
        self.assertTrue(self.manager.has_nothing())

    def test_a_planned_drain_logs_no_errors(self):
        """Under clients that call until the end."""
        server = self.start("--self_test=off", "--lame_duck_seconds=0")
        self.await_serving(server)
        over = threading.Event()
        statuses = []

        def call():
            while not over.is_set():
                statuses.append(server.call("run", "gelu", "--shape", "64")[0])
        clients = [threading.Thread(target=call) for _ in range(3)]
        inspector = server.start_client("bench", "matmul", "--shape", "1024x1024x1024", "--iterations", "100")
        for client in clients:
            client.start()
        self.assertTrue(eventually(lambda: 0 in statuses))
        server.process.terminate()
        self.assertEqual(server.wait(), 0)
        over.set()
        for client in clients:
            client.join()
        inspector.communicate(timeout=SECONDS_MAX)
        self.assertEqual([line for line in self.log() if line["level"] == "error"], [])
        (line,) = self.logged("stopped: .*")
        self.assertEqual(line["status"], 0)

    def test_every_line_is_json(self):
        """stdout and stderr as one stream, as containers have them: of a server that serves and of those that do not."""
        (self.folder / "flags").write_text("log_format=json\nqueue_limt=1\n", encoding="utf-8")
        for flags, status, said in [
                (["--self_test=off"], None, "serving on 127.0.0.1:"),
                (["--queue_limit=0"], 2, "queue_limit: Value 0 not in range"),
                ([f"--flagfile={self.folder}/flags"], 2, "flag queue_limt is unknown"),
                (["--check_flags"], 0, "are valid"),
                (["--check_flags", "--token_file=/no/tokens"], 2, "token_file: /no/tokens"),
                (["--token_file=/no/tokens"], 1, "token_file: /no/tokens"),
                (["--listen=0.0.0.0:0"], 1, "--listen=0.0.0.0:0 lets other machines")]:
            with self.subTest(flags), PlainServer("--log_format=json", *flags, stderr=subprocess.STDOUT) as server:
                lines = []
                for line in server.process.stdout:
                    if LEAK_SANITIZERS_NOTE.fullmatch(line.decode().rstrip()):
                        continue
                    lines.append(json.loads(line))
                    if "serving on" in lines[-1]["msg"]:
                        server.process.send_signal(signal.SIGINT)
                self.assertEqual(server.wait(), status or 0)
                self.assertIn(said, " ".join(line["msg"] for line in lines))
                for line in lines:
                    self.assertLessEqual({"ts", "level", "msg"}, set(line))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
