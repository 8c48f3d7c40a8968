"""Two servers beside those that chaos_test.py's clients call, each alone in a job of Prometheus', and their faults: those
that would fail the clients' calls, or need other flags."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import chaos_client  # noqa: F401  it finds warpcall
import numpy as np
import processes
import warpcall
from replicas_test import METRICS_PORT, PORT, SECONDS_MAX, Replica

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import users  # noqa: E402

# Linux shares the CPU out by sessions first: other work on the machine takes no more from a server, or from Prometheus,
# than a machine of its own would.
OWN_SESSION = ("setsid",)
TOKEN, TOKEN_OF_NOBODY = "1" * 32, "2" * 32
# Days of a certificate: no alert, WarpcallCertificateExpires, and with it WarpcallCertificateExpiresToday.
LONG_DAYS, SHORT_DAYS, LAST_DAYS = 400, 3, 1
DESCRIPTORS = 3000
STAGING_MIB = 16
# Alerts want 100 calls in ten minutes, which are a minute here.
CALLS_PER_SECOND = 20
# Calls that may wait for a device. A connection may have 32 open: those that two devices run and hold, and two that are
# refused.
QUEUE_LIMIT = 14
# A server that has run no such call predicts 0.4 s for it.
MUCH_WORK_FLOPS = 1 << 44
# Longer than any fault lasts.
RUN_SECONDS_MAX = 600
# A device whose worker ends three times within a minute is lost.
WORKER_SECONDS = 31
FRAME_SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


class WatchedReplica(Replica):
    """A server that Prometheus scrapes as a target of `job`."""

    def __init__(self, number, job, folder, flags, environment=None, before=()):
        super().__init__(number, folder, flags, environment, [*OWN_SESSION, *before])
        self.number, self.job = number, job
        self.name = f"{job} {number}"
        self.address = f"{self.host}:{PORT}"
        self.instance = f"{self.host}:{METRICS_PORT}"
        self.starts = []
        """Unix times."""

    def __repr__(self):
        return self.name

    def start(self):
        super().start()
        self.starts.append(time.time())

    def counter(self, series):
        return sum(float(value) for value in re.findall(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.M))

    def wait_to_count(self, series, least):
        processes.wait_until(f"{series} of {self.host} to be {least}",
                             lambda: self.counter(series) >= least, SECONDS_MAX)


class Guarded(WatchedReplica):
    """With a certificate, tokens, and its flags in a file."""

    COMMON = ()

    def __init__(self, number, folder):
        self.certificate, self.key, self.tokens, self.flag_file = (
            folder / f"{number}.{name}" for name in ("crt", "key", "tokens", "flags"))
        self.tokens.write_text(f"alice {TOKEN}\n")
        super().__init__(number, "guarded", folder, [f"--flagfile={self.flag_file}"])
        self.write_flags("self_test=off")
        self.write_certificate(LONG_DAYS)

    def write_flags(self, *lines):
        self.flag_file.write_text("\n".join([f"tls_cert={self.certificate}", f"tls_key={self.key}",
                                             f"token_file={self.tokens}", "lame_duck_seconds=0", *lines]) + "\n")

    def write_certificate(self, days):
        """Keeps the key: the server never finds a certificate and a key that don't belong together."""
        key = ["-key", self.key] if self.key.exists() else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                                            "-nodes", "-keyout", self.key]
        new = self.certificate.with_suffix(".new")
        subprocess.run(["openssl", "req", "-x509", *key, "-days", str(days), "-subj", "/CN=guarded", "-addext",
                        f"subjectAltName=IP:{self.host}", "-out", new], check=True, capture_output=True, timeout=60)
        new.rename(self.certificate)

    def client(self, token):
        return warpcall.connect(self.address, timeout=SECONDS_MAX, token=token, retry=warpcall.Retry(attempts_max=1),
                                tls=warpcall.TLS(ca=str(self.certificate)))


class Loaded(WatchedReplica):
    """A server with little room and two devices, each in a worker process; calls of the kernel `held` wait until a file
    is gone."""

    def __init__(self, number, folder):
        super().__init__(number, "loaded", folder,
                         ["--test_fault_injection", "--test_cpu_workers=2", f"--queue_limit={QUEUE_LIMIT}",
                          "--queue_seconds=86400", "--lame_duck_seconds=0", f"--staging_mib={STAGING_MIB}", f"--max_message_mib={STAGING_MIB // 2}",
                          f"--max_run_seconds={RUN_SECONDS_MAX}", f"--send_seconds={RUN_SECONDS_MAX}"],
                         before=["prlimit", f"--nofile={DESCRIPTORS}"])
        self.gate = folder / f"{number}.gate"

    def client(self):
        return warpcall.connect(self.address, timeout=RUN_SECONDS_MAX, retry=warpcall.Retry(attempts_max=1))

    def restarted(self):
        """Restarts the server and returns a client: earlier faults' calls have taught it nothing about their time."""
        self.end()
        self.start()
        return self.client()

    def worker(self, device):
        """The process id of its worker."""
        def found():
            for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                        parent = int(stat.read().rpartition(")")[2].split()[1])
                    with open(f"/proc/{pid}/cmdline", "rb") as words:
                        if parent == self.process.pid and f"device={device}".encode() in words.read():
                            return int(pid)
            return None
        return processes.wait_until(f"a worker of {device}", found, SECONDS_MAX)

    @contextlib.contextmanager
    def held(self):
        """Calls of `held` wait meanwhile."""
        self.gate.touch()
        try:
            yield str(self.gate)
        finally:
            self.gate.unlink()


def write_targets(path, servers):
    """Writes Prometheus' list of targets beside the three servers."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps([{"targets": [server.instance], "labels": {"job": server.job}} for server in servers]))
    new.rename(path)


class ApartFaults:
    """Methods of Chaos, named as their kinds. Each keeps its fault up until the kind's alerts fire, and ends it."""

    # ---- of the server that is guarded ----------------------------------------------------------

    def wrong_tokens(self, server):
        with server.client(TOKEN_OF_NOBODY) as client:
            def call():
                with contextlib.suppress(warpcall.Unauthenticated):
                    client.run("identity", np.zeros(4, np.float32))
            self.keep_up(call)

    def short_certificate(self, server, days=SHORT_DAYS):
        server.write_certificate(days)
        try:
            self.keep_up()
        finally:
            server.write_certificate(LONG_DAYS)

    def last_certificate(self, server):
        self.short_certificate(server, LAST_DAYS)

    def damaged_flags(self, server):
        """It goes by those that it has."""
        series = 'warpcall_reload_failures_total{flag="flagfile"}'
        before = server.counter(series)
        server.write_flags("self_test=of")
        try:
            server.process.send_signal(signal.SIGHUP)
            server.wait_to_count(series, before + 1)
            self.keep_up()
        finally:
            server.write_flags("self_test=off")

    def failed_self_test(self, server):
        """It starts with kernels that crash, hang and are wrong."""
        server.end()
        server.flags.append("--test_fault_injection")
        server.write_flags("self_test=quick")
        try:
            server.start()
            self.keep_up()
        finally:
            server.end()
            server.flags.remove("--test_fault_injection")
            server.write_flags("self_test=off")
            server.start()

    def restarts(self, server):
        for _ in range(5):
            server.end()
            server.start()
            self.wait_until_scraped()
        self.keep_up()

    def absence(self, server):
        """Prometheus' list of targets lacks it."""
        write_targets(self.targets, [other for other in self.apart.values() if other is not server])
        try:
            self.keep_up()
        finally:
            write_targets(self.targets, self.apart.values())

    # ---- of the server that is loaded -----------------------------------------------------------

    def hold(self, client, gate, **more):
        """Gives both devices a call that waits."""
        return [client.submit("held", np.zeros(4, np.float32), device=device, gate=gate, **more)
                for device in ("cpu:0", "cpu:1")]

    def overload(self, server):
        """Patient clients send more calls than the queue holds, each of much work."""
        with server.restarted() as client:
            with server.held() as gate:
                calls = self.hold(client, gate)
                self.keep_up(lambda: calls.append(
                    client.submit("held", np.zeros(4, np.float32), gate=gate, flops=MUCH_WORK_FLOPS)))
            self.check_ends(calls, warpcall.ResourceExhausted)

    def missed_deadlines(self, server):
        with server.restarted() as client:
            with server.held() as gate:
                held, late = self.hold(client, gate), []
                self.keep_up(lambda: late.append(client.submit("identity", np.zeros(4, np.float32), timeout=0.3)))
            self.check_ends(held)
            self.check_ends(late, warpcall.DeadlineExceeded)

    def slow_answers(self, server):
        """Fills the devices and their queues with calls, again and again, and answers them after four seconds."""
        with server.restarted() as client:
            def answer_late():
                with server.held() as gate:
                    calls = [future for _ in range(QUEUE_LIMIT) for future in self.hold(client, gate)]
                    time.sleep(4)
                self.check_ends(calls)
            self.keep_up(answer_late)

    def full_staging(self, server):
        """One call holds all staging memory, and others wait for room."""
        elements = (STAGING_MIB << 20) // 8 - (1 << 14)
        with server.restarted() as client:
            with server.held() as gate:
                held, calls = client.submit("held", np.zeros(elements, np.float32), device="cpu:0", gate=gate), []
                self.keep_up(lambda: calls.append(
                    client.submit("identity", np.zeros(1 << 16, np.float32), device="cpu:0")))
            self.check_ends([held])
            self.check_ends(calls, warpcall.ResourceExhausted)

    def check_ends(self, futures, *errors):
        for future in futures:
            error = future.exception(timeout=SECONDS_MAX)
            if error is not None and not isinstance(error, errors):
                raise processes.Failure(f"a call ended with {error!r}; expected {errors}")

    def lost_device(self, server):
        """Its worker ends three times within a minute, and clients go on to name the device."""
        for restarts in (1, 2):
            os.kill(server.worker("cpu:1"), signal.SIGKILL)
            server.wait_to_count('warpcall_worker_restarts_total{device="cpu:1"}', restarts)
            server.wait_to_count('warpcall_device_healthy{device="cpu:1"}', 1)
        os.kill(server.worker("cpu:1"), signal.SIGKILL)
        with server.client() as client:
            def call():
                with contextlib.suppress(warpcall.Unavailable):
                    client.run("identity", np.zeros(4, np.float32), device="cpu:1")
            self.keep_up(call)
        server.end()
        server.start()

    def dying_worker(self, server):
        """It ends three times, too seldom for the device to be lost."""
        for restarts in (1, 2, 3):
            os.kill(server.worker("cpu:0"), signal.SIGKILL)
            server.wait_to_count('warpcall_worker_restarts_total{device="cpu:0"}', restarts)
            if restarts < 3:
                time.sleep(WORKER_SECONDS)
        self.keep_up()
        server.end()
        server.start()

    def many_connections(self, server):
        """Come from two addresses and two users: one may have three quarters of all. Each sends HTTP/2's preface, without
        which the server closes it."""
        connections = []

        def connect(source):
            for _ in range(DESCRIPTORS // 2):
                with contextlib.suppress(OSError):
                    connections.append(socket.create_connection((server.host, PORT), timeout=SECONDS_MAX,
                                                                source_address=(source, 0)))
                    connections[-1].sendall(FRAME_SETTINGS)
        try:
            connect("127.2.0.1")
            with users.acting_as(users.OTHER_USER if users.knows_users() else os.geteuid()):
                connect("127.2.0.2")
            server.wait_to_count("process_open_fds", 0.9 * DESCRIPTORS + 1)
            self.keep_up()
        finally:
            for connection in connections:
                connection.close()


def why_few_connections():
    """Why `many connections` can't be here, or an empty text."""
    return users.why_no_other_user() if users.knows_users() else ""
