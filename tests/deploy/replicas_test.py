#!/usr/bin/env python3
"""Three servers behind deploy/haproxy, and behind the client's own turns: calls are spread, and no call fails
while one is killed, each is restarted, or one hangs.

    replicas_test.py WARPCALLD WARPCALL [SpreadTest | FaultsTest]

Exit status 77: skipped, there is no HAProxy.
"""

import contextlib
import csv
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.dont_write_bytecode = True

import processes  # noqa: E402

CONFIGURATION = processes.deployed_folder() / "haproxy" / "haproxy-replicas.cfg"
# Addresses of this machine and this process alone, so that the ports can be the configuration's.
NETWORK = f"127.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
PORT, METRICS_PORT = 8470, 9470
NAMES = "abc"
# Workers of a load: each server has one or two calls under way at any time.
WORKERS = 6
LOAD = ["load", "gelu:262144", "--warmup", "0", "--check"]
SPREAD = 0.2
ENOUGH = 40
SECONDS_MAX = 90

WARPCALLD, WARPCALL = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


class Replica:
    COMMON = ("--self_test=off", "--lanes_per_device=1")

    def __init__(self, number, folder, flags=(), environment=None, before=()):
        """`flags` besides those that every one has, `environment` besides the test's; `before` are words before the
        program."""
        self.host = f"{NETWORK}.{number}"
        self.log = folder / f"{number}.log"
        self.flags, self.environment, self.before = flags, os.environ | (environment or {}), before
        self.process = None

    def start(self):
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [*self.before, WARPCALLD, f"--listen={self.host}:{PORT}",
                 f"--metrics_listen={self.host}:{METRICS_PORT}", *self.COMMON, *self.flags],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=self.environment)

        def serves():
            if self.process.poll() is not None:
                raise processes.Failure(f"warpcalld left at start: {self.log.read_text()}")
            return "serving on" in self.log.read_text()
        processes.wait_until(f"{self.host} to serve", serves, SECONDS_MAX)

    def metrics(self):
        """Asks again where the port closed the connection: a busy machine may delay this process for longer than the
        port waits for a request."""
        for tries_left in (2, 1, 0):
            try:
                with urllib.request.urlopen(f"http://{self.host}:{METRICS_PORT}/metrics", timeout=30) as response:
                    return response.read().decode()
            except OSError as error:
                if not tries_left or not isinstance(error, http.client.RemoteDisconnected):
                    raise processes.Failure(f"{self.host}'s metrics: {error!r}, exit status {self.process.poll()}: "
                                            f"{self.log.read_text()}") from error
        raise AssertionError("the last try returns or raises")

    def answered(self, kernel=""):
        """Calls, of any kernel or of one, that it answered since its start."""
        return sum(map(int, re.findall(
            rf'^warpcall_requests_total\{{(?=.*code="OK")(?=.*kernel="{kernel}).*\}} (\d+)$', self.metrics(), re.M)))

    def wait_to_answer(self, calls):
        """Waits until the server has answered so many more calls."""
        before = self.answered()
        processes.wait_until(f"calls of {self.host}", lambda: self.answered() >= before + calls, SECONDS_MAX)

    def end(self):
        """Ends the server by SIGTERM, as an orchestrator does."""
        self.process.terminate()
        if self.process.wait(timeout=SECONDS_MAX) != 0:
            raise processes.Failure(f"warpcalld left with {self.process.returncode}: {self.log.read_text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Balancer:
    """deploy/haproxy with these servers."""

    def __init__(self, folder):
        self.address = f"{NETWORK}.9:{PORT}"
        self.socket = folder / "haproxy.sock"
        text = CONFIGURATION.read_text(encoding="utf-8")
        changes = [("127.0.0.1:8470", self.address, 1),
                   ("\nglobal\n", f"\nglobal\n  stats socket {self.socket} level admin\n", 1)]
        changes += [(f"10.0.0.{i}:", f"{NETWORK}.{i}:", 2) for i in (1, 2, 3)]
        for old, new, times in changes:
            if text.count(old) != times:
                raise processes.Failure(f"haproxy-replicas.cfg has {old!r} {text.count(old)} times, not {times}")
            text = text.replace(old, new)
        config = folder / "haproxy.cfg"
        config.write_text(text, encoding="utf-8")
        with open(folder / "haproxy.log", "wb") as log:
            self.process = subprocess.Popen(["haproxy", "-db", "-f", config], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT)

    def tell(self, command):
        """Returns the answer to a command of its management guide."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(f"{command}\n".encode())
            return connection.makefile().read()

    def states(self):
        """{server: its state by HAProxy's checks}."""
        try:
            text = self.tell("show stat")
        except (FileNotFoundError, ConnectionRefusedError):  # it is starting
            return {}
        rows = csv.DictReader(io.StringIO(text.lstrip("# ")))
        return {row["svname"]: row["status"] for row in rows
                if row["pxname"] == "servers" and row["svname"] in NAMES}

    def wait_for(self, **states):
        def are():
            if self.process.poll() is not None:
                raise processes.Failure(f"haproxy left with {self.process.returncode}")
            now = self.states()
            return all(now.get(name, "").startswith(state) for name, state in states.items())
        processes.wait_until(f"HAProxy's {states}", are, SECONDS_MAX)

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=SECONDS_MAX)


class Load:
    """Calls without an end, until it has to report."""

    def __init__(self, address, *options):
        self.process = subprocess.Popen(
            [WARPCALL, "--server", address, "--json", *LOAD, "--duration", "600", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=SECONDS_MAX)
        if not output:
            raise processes.Failure(f"warpcall load: {errors}")
        return json.loads(output)["all"]


class Replicas(unittest.TestCase):
    """Three replicas, and checks on them."""

    COUNT = 3
    FLAGS = ()

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.replicas = [Replica(number, self.folder, self.FLAGS) for number in range(1, self.COUNT + 1)]
        for replica in self.replicas:
            replica.start()
            self.addCleanup(replica.kill)

    def in_turns(self):
        """The address of all, by gRPC's round_robin."""
        return "ipv4:" + ",".join(f"{replica.host}:{PORT}" for replica in self.replicas)

    @contextlib.contextmanager
    def balancer(self):
        balancer = Balancer(self.folder)
        try:
            balancer.wait_for(a="UP", b="UP", c="UP")
            yield balancer
        finally:
            balancer.end()

    @contextlib.contextmanager
    def load(self, address, *options, workers=WORKERS):
        """Calls, none of which may fail; they reach every server before this begins and before it ends."""
        load = Load(address, "--concurrency", str(workers), *options)
        try:
            for replica in self.replicas:
                replica.wait_to_answer(ENOUGH)
            yield
            for replica in self.replicas:
                replica.wait_to_answer(ENOUGH)
            report = load.report()
        finally:
            load.process.kill()
            load.process.wait()
        self.assertEqual(report["failed"], 0, report["statuses"])
        print(f"{self.id()}: {report['ok']} calls, {report['retries']} retries", flush=True)

    def check_spread(self, address):
        """Makes one call after the other: of several at once a slower server gets fewer, as it should."""
        with self.load(address, workers=1):
            before = [replica.answered() for replica in self.replicas]
            self.replicas[0].wait_to_answer(10 * ENOUGH)
            calls = [replica.answered() - old for replica, old in zip(self.replicas, before)]
            mean = sum(calls) / len(calls)
            self.assertLess(max(abs(count - mean) for count in calls), SPREAD * mean, calls)

    def check_kill(self, address):
        """Its calls fail, and are tried again, also where a proxy has begun to pass the answer on."""
        with self.load(address, "--retry"):
            self.replicas[2].kill()
            self.replicas[0].wait_to_answer(ENOUGH)
            self.replicas[2].start()

    def check_restarts(self, address):
        """Nothing is even tried again: no call goes to one that is about to stop."""
        with self.load(address):
            for replica in self.replicas:
                replica.end()
                replica.start()
                replica.wait_to_answer(ENOUGH)


class SpreadTest(Replicas):
    """If no server is busy each has its turn."""

    def test_calls_in_turns_are_spread(self):
        self.check_spread(self.in_turns())

    def test_calls_through_haproxy_are_spread(self):
        with self.balancer() as balancer:
            self.check_spread(balancer.address)


    def test_a_session_finds_its_tensors_behind_haproxy(self):
        def warpcall(session, *arguments):
            done = subprocess.run([WARPCALL, f"--server={balancer.address}", f"--session={session}", "--json", *arguments],
                                  capture_output=True, text=True, check=False, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        with self.balancer() as balancer:
            warpcall("any", "run", "identity", "--shape", "64", "--output", "x.npy")
            held = {}
            for session in (f"session-{number}" for number in range(12)):
                held[session] = warpcall(session, "put", "x.npy")["handle"]
            for session, handle in held.items():
                for _ in range(3):
                    warpcall(session, "run", "gelu", "--input", f"@{handle}")
            tensors = [int(re.search(r'^warpcall_resident_tensors\{device="cpu"\} (\d+)$', replica.metrics(), re.M)[1])
                       for replica in self.replicas]
            self.assertEqual(sum(tensors), len(held))
            self.assertGreater(len([count for count in tensors if count]), 1, tensors)


class FaultsTest(Replicas):
    def test_in_turns_a_killed_server_is_not_missed(self):
        self.check_kill(self.in_turns())

    def test_through_haproxy_a_killed_server_is_not_missed(self):
        with self.balancer() as balancer:
            self.check_kill(balancer.address)

    def test_in_turns_servers_are_restarted_unnoticed(self):
        self.check_restarts(self.in_turns())

    def test_through_haproxy_servers_are_restarted_unnoticed(self):
        with self.balancer() as balancer:
            self.check_restarts(balancer.address)

    def test_haproxy_takes_out_a_server_that_hangs(self):
        with self.balancer() as balancer:
            hanging = self.replicas[1].process
            hanging.send_signal(signal.SIGSTOP)
            try:
                balancer.wait_for(a="UP", b="DOWN", c="UP")
                done = processes.load(WARPCALL, balancer.address,
                                      [*LOAD[1:], "--requests", "300", "--deadline", "60"])
            finally:
                hanging.send_signal(signal.SIGCONT)
            self.assertEqual((done["all"]["failed"], done["all"]["ok"]), (0, 300))
            balancer.wait_for(a="UP", b="UP", c="UP")
            with self.load(balancer.address):
                pass


if __name__ == "__main__":
    if shutil.which("haproxy") is None:
        print("skipped: there is no haproxy (Debian: package haproxy)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:4]])
