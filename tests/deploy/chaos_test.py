#!/usr/bin/env python3
"""Three servers behind deploy/haproxy and by the clients' own turns, with clients of all kinds, while servers are
killed, hang, drain, have no disk, see their clocks stepped and lose their connections: no answer is wrong, no call
fails that could have been tried again, memory stays. Two servers apart from them are overloaded, lose devices, see
their certificates end, and more. Prometheus' alerts tell each fault within their time, and nothing else: all alerts but
those of GPUs, which promtool alone tries (deploy/prometheus/alerts_test.yml).

    chaos_test.py WARPCALLD WARPCALL BUILD [--seconds N] [--seed N] [--attempts N] [--only FAULT]...

BUILD: of its targets warpcall_fast and warpcall_clock_step are used, if they are there. With --attempts 1 clients
do not try again, which has to fail. --only: these faults alone. A seed repeats the order of faults and the calls'
data, not how they meet.
Exit status 77: skipped, HAProxy, Prometheus or Debian's packages for Python are missing.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

import processes  # noqa: E402
from replicas_test import WARPCALL, Balancer  # noqa: E402


def missing():
    """Why this machine can't run it, or None."""
    for program, package in (("haproxy", "haproxy"), ("prometheus", "prometheus"), ("protoc", "protobuf-compiler"),
                             ("openssl", "openssl"), ("prlimit", "util-linux")):
        if shutil.which(program) is None:
            return f"there is no {program} (Debian: package {package})"
    for module, package in (("grpc", "grpcio"), ("numpy", "numpy"), ("google.protobuf", "protobuf"), ("yaml", "yaml")):
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(module) is not None:
                continue
        return f"there is no {module} (Debian: package python3-{package})"
    return None


if (why := missing()) is not None:
    print(f"skipped: {why}")
    sys.exit(77)

import chaos_apart  # noqa: E402
import chaos_faults  # noqa: E402
import chaos_judge  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CLIENT = pathlib.Path(__file__).resolve().with_name("chaos_client.py")
# All times of rules are so much shorter here: `for:`, ranges and offsets.
FASTER = 10
TIMES = re.compile(r"( for: |\[|\boffset )(\d+)([smhd])\b")
KINDS = ["python", "fast", "stream", "infer", "hasty"]
# The C++ client's calls, by `warpcall load`, which compares identity's answers with their inputs.
MIX = "identity:4096=6,identity:262144=1,gelu:4096=2,softmax:64x256=2,matmul:32x64*64x32=2"
LOAD = ["load", MIX, "--rate", "40", "--concurrency", "2", "--warmup", "0", "--duration", "86000", "--check"]
# A client's patience, and its time to check its answers.
REPORT_SECONDS_MAX = 100


class Caller:
    """A process that calls until it is asked to report."""

    def __init__(self, name, command, environment, folder):
        self.name, self.log = name, folder / f"{name.replace(' ', '_')}.log"
        self.by_signal = command[0] == WARPCALL
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            env=os.environ | environment)

    def ask(self):
        if self.by_signal:
            self.process.send_signal(signal.SIGINT)
        self.process.stdin.close()

    def check_lives(self):
        if self.process.poll() is not None:
            raise processes.Failure(f"{self.name} left with {self.process.returncode}: {self.log.read_text()[-2000:]}")

    def report(self):
        """Returns the caller's report on its calls, in chaos_client.py's words."""
        self.process.stdin = None
        output, _ = self.process.communicate(timeout=REPORT_SECONDS_MAX)
        if not output:
            self.check_lives()
        report = json.loads(output)
        return chaos_judge.of_load(self.name, report["all"]) if self.by_signal else report

    def end(self):
        self.process.kill()
        self.process.wait()


class Sampler(threading.Thread):
    """Records each second the memory that every server holds, and the state that needs memory."""

    def __init__(self, replicas):
        super().__init__(daemon=True)
        self.replicas, self.stop = replicas, threading.Event()
        self.samples = []

    def run(self):
        while not self.stop.wait(1):
            for replica in self.replicas:
                process = replica.process
                with contextlib.suppress(OSError, TypeError):  # it is gone
                    resident_mib = processes.resident_mib(process.pid)
                    descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
                    self.samples.append(chaos_judge.Sample(
                        (replica.number, process.pid), time.time(), resident_mib, descriptors))


def faster_rules(folder, targets):
    """deploy/prometheus with times that are FASTER times shorter; scrapes the targets in the file `targets`, too."""
    copy = folder / "prometheus"
    shutil.copytree(processes.deployed_folder() / "prometheus", copy)
    for name, least in (("alerts.yml", 20), ("rules.yml", 20)):
        text, count = TIMES.subn(lambda found: "{}{}ms".format(
            found[1], int(found[2]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[3]] * 1000 // FASTER),
            (copy / name).read_text())
        if count < least:
            raise processes.Failure(f"{name} has {count} times; expected at least {least}")
        (copy / name).write_text(text)
    with open(copy / "prometheus.yml", "a", encoding="utf-8") as config:
        config.write(f"""
  - job_name: apart
    file_sd_configs:
      - files: ["{targets}"]
        refresh_interval: 1s
""")
    return copy


def start_callers(options, routes, folder, stack):
    """Starts each kind of caller that this machine has; returns them, and the missing kinds."""
    module = pathlib.Path(options.build) / "fast" / "module"
    kinds, lacking = KINDS, []
    if not module.exists():
        kinds = [kind for kind in KINDS if kind != "fast"]
        lacking.append(f"no calls by warpcall_fast: there is no {module}")
    # This process has its clients by grpcio (chaos_apart.py).
    environment = {"WARPCALL_PURE": ""}
    if options.attempts:
        environment["WARPCALL_TEST_ATTEMPTS"] = str(options.attempts)
    callers = []
    for number, kind in enumerate(kinds):
        callers.append(Caller(kind, [sys.executable, CLIENT, kind, SOURCE, str(options.seed + 10 * number), *routes],
                              environment | {"PYTHONPATH": str(module) if kind == "fast" else ""}, folder))
        stack.callback(callers[-1].end)
    retry = [] if options.attempts == 1 else ["--retry"]
    for name, route in zip(("load through haproxy", "load in turns"), routes):
        callers.append(Caller(name, [WARPCALL, "--server", route, "--json", *LOAD, *retry,
                                     "--seed", str(options.seed)], {}, folder))
        stack.callback(callers[-1].end)
    return callers, lacking


def run(options, folder, stack):
    """Runs the chaos; returns the judge's data."""
    disk, no_disk = stack.enter_context(chaos_faults.small_disk(folder))
    clock, no_clock = chaos_faults.stepped_clock(options.build)
    replicas = [chaos_faults.ChaosReplica(number, folder, disk, clock) for number in (1, 2, 3)]
    for replica in replicas:
        replica.start()
        stack.callback(replica.kill)
    balancer = Balancer(folder)
    stack.callback(balancer.end)
    balancer.wait_for(a="UP", b="UP", c="UP")
    apart = {server.job: server for server in (chaos_apart.Guarded(4, folder), chaos_apart.Loaded(5, folder))}
    for server in apart.values():
        server.start()
        stack.callback(server.kill)
    targets = folder / "targets.json"
    chaos_apart.write_targets(targets, apart.values())
    deployed = faster_rules(folder, targets)
    api = stack.enter_context(processes.prometheus(
        shutil.which("prometheus"), folder, deployed, ('", "'.join(replica.instance for replica in replicas), None),
        chaos_judge.SCRAPE_SECONDS, chaos_apart.OWN_SESSION))
    routes = [balancer.address, "ipv4:" + ",".join(replica.address for replica in replicas)]
    callers, lacking = start_callers(options, routes, folder, stack)
    without = {kind: why for kind, why in (("full disk", no_disk), ("clock", no_clock),
                                           ("many connections", chaos_apart.why_few_connections())) if why}
    for what in lacking + [f"no fault {kind!r}: {why}" for kind, why in without.items()]:
        print(f"left out: {what}", flush=True)
    rules = chaos_judge.read_rules(deployed)
    chaos = chaos_faults.Chaos(replicas, apart, balancer, api, rules, targets, options.seed)
    chaos.wait_until_well()
    for caller in callers:
        caller.check_lives()
    sampler = Sampler(replicas)
    sampler.start()
    begin = time.time()
    failure = None
    try:
        chaos.run(options.seconds, [kind for kind in options.only or chaos_faults.ALERTS if kind not in without])
    except processes.Failure as error:  # the callers' reports may say why
        failure = error
    for caller in callers:
        caller.ask()
    reports = {caller.name: caller.report() for caller in callers}
    sampler.stop.set()
    sampler.join()
    return chaos_judge.Seen(chaos.faults, failure, reports, sampler.samples, api, (begin, time.time()),
                            [*replicas, *apart.values()], rules)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("warpcalld")
    parser.add_argument("warpcall")
    parser.add_argument("build")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(os.environ.get(
        "WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 31))))
    parser.add_argument("--attempts", type=int, default=0)
    parser.add_argument("--only", action="append", choices=chaos_faults.ALERTS)
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.seconds:.0f} s, alerts' times are {FASTER} times shorter", flush=True)
    # A shell has its jobs in the background ignore SIGINT, and so would `warpcall load`, which reports at it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            seen = run(options, folder, stack)
        except processes.Failure as failure:
            print(f"FAILED: {failure}")
            return 1
        return chaos_judge.judge(seen)


if __name__ == "__main__":
    sys.exit(main())
