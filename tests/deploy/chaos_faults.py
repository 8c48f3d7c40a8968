"""What chaos_test.py does to three servers behind HAProxy: a random script of faults, one at a time, each of
which is over, and the servers well, before the next."""

import contextlib
import dataclasses
import pathlib
import random
import re
import signal
import struct
import subprocess
import time

import processes
from replicas_test import ENOUGH, METRICS_PORT, NAMES, PORT, SECONDS_MAX, WARPCALL, Replica

# An outage is one that Prometheus must tell (WarpcallDown waits for 3 s here), or one that it must not.
LONG_SECONDS, SHORT_SECONDS = (8, 10), (0.3, 1)
PAUSE_SECONDS = (1, 3)
# Back by little: Abseil 20220623 waits by the wall clock, so that a step back holds up by as much whatever waits
# for a time, the look at files that may have changed among it.
CLOCK_STEPS_SECONDS = (-10, -1, 1, 30, 3600, 86400)
DISK_BYTES = 256 << 10
# The last one's process lives as long as the run: what it holds at the end is seen.
ENDED = 2
# Methods of Chaos.
KINDS = ["kill", "kill for long", "hang", "hang for long", "drain", "full disk", "clock", "cut", "maintenance",
         "damaged file"]
POLICIES, DAMAGED = '{"default": {}}', '{"default": {'


@dataclasses.dataclass
class Fault:
    kind: str
    replica: int | None
    """Whose, from 0; None: the proxy's."""
    begin: float
    end: float = 0
    """Unix times; `end`: all are well again."""
    text: str = ""


class ChaosReplica(Replica):
    """One whose files lie on a small disk, and whose clock can be stepped."""

    def __init__(self, number, folder, disk, clock):
        self.number, self.disk = number, disk
        self.clock = folder / f"{number}.clock"
        self.policies = folder / f"{number}.policies.json"
        self.tuning = disk / f"{number}.tuning"
        self.policies.write_text(POLICIES)
        self.clock.write_bytes(bytes(8))
        environment = {"WARPCALL_TEST_CLOCK": str(self.clock), "LD_PRELOAD": str(clock)} if clock else {}
        flags = [f"--tuning_cache={self.tuning}", f"--compile_cache={disk / f'{number}.compiled'}",
                 f"--policy_file={self.policies}", "--lame_duck_seconds=3"]
        super().__init__(number, folder, flags, environment)
        self.address = f"{self.host}:{PORT}"
        self.instance = f"{self.host}:{METRICS_PORT}"
        self.lives = 0

    def start(self):
        super().start()
        self.lives += 1

    def step_clock(self, seconds):
        """By so much."""
        with open(self.clock, "r+b", buffering=0) as file:
            (ahead_ns,) = struct.unpack("=q", file.read(8))
            file.seek(0)
            file.write(struct.pack("=q", ahead_ns + round(seconds * 1e9)))

    def counter(self, series):
        return sum(float(value) for value in re.findall(rf"^{re.escape(series)} (\S+)$", self.metrics(), re.M))

    def wait_to_count(self, series, least):
        processes.wait_until(f"{series} of {self.host} to be {least}",
                             lambda: self.counter(series) >= least, SECONDS_MAX)


@contextlib.contextmanager
def small_disk(folder):
    """A file system of DISK_BYTES; an ordinary folder, and the reason, where none can be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", disk],
                             capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    try:
        yield disk, mounted.stderr.strip()
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", "--lazy", disk], check=True, timeout=SECONDS_MAX)


def stepped_clock(build):
    """(the library that steps a process's clock, "") or (None, why there is none)."""
    library = pathlib.Path(build) / "tests" / "deploy" / "libwarpcall_clock_step.so"
    return (library, "") if library.exists() else (None, f"there is no {library}")


class Chaos:
    """The faults of a run, in an order that the seed draws: each kind once, then each again."""

    def __init__(self, replicas, balancer, prometheus, seed):
        self.replicas, self.balancer, self.prometheus = replicas, balancer, prometheus
        self.random = random.Random(seed)
        self.faults = []
        self.started = time.time()

    def run(self, seconds, kinds):
        """Until `seconds` have passed and each of `kinds` has been."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.shuffle(kinds)
            for kind in kinds:
                if time.monotonic() >= end and len(self.faults) >= len(kinds):
                    break
                time.sleep(self.random.uniform(*PAUSE_SECONDS))
                self.one(kind)

    def one(self, kind):
        ends = kind.startswith(("kill", "drain"))
        number = self.random.randrange(ENDED if ends else len(self.replicas))
        fault = Fault(kind, number, time.time())
        self.faults.append(fault)
        fault.text = getattr(self, kind.replace(" ", "_"))(self.replicas[number]) or ""
        self.wait_until_well()
        fault.end = time.time()
        print(f"{fault.begin - self.started:7.1f} s  {kind} of {NAMES[number]}"
              f"{', ' if fault.text else ''}{fault.text}: well after {fault.end - fault.begin:.1f} s", flush=True)

    def wait_until_well(self):
        """All serve, by the proxy and by Prometheus, and all are called."""
        self.balancer.wait_for(a="UP", b="UP", c="UP")
        for replica in self.replicas:
            replica.wait_to_answer(ENOUGH)
        now = time.time()

        def scraped():
            times = self.prometheus.query('timestamp(up{job="warpcall"} == 1)')
            return len(times) == len(self.replicas) and min(moment for _, moment in times) > now
        processes.wait_until("Prometheus to see all", scraped, SECONDS_MAX)

    # ---- of a process ---------------------------------------------------------------------------

    def end_by(self, end, replica, seconds):
        end()
        time.sleep(seconds)
        replica.start()
        return f"gone for {seconds:.1f} s"

    def kill(self, replica):
        return self.end_by(replica.kill, replica, self.random.uniform(*SHORT_SECONDS))

    def kill_for_long(self, replica):
        return self.end_by(replica.kill, replica, self.random.uniform(*LONG_SECONDS))

    def drain(self, replica):
        return self.end_by(replica.end, replica, 0)

    def stop(self, replica, seconds):
        replica.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            replica.process.send_signal(signal.SIGCONT)
        return f"for {seconds:.1f} s"

    def hang(self, replica):
        return self.stop(replica, self.random.uniform(*SHORT_SECONDS))

    def hang_for_long(self, replica):
        return self.stop(replica, self.random.uniform(*LONG_SECONDS))

    # ---- of what surrounds it -------------------------------------------------------------------

    def full_disk(self, replica):
        """What it measures can't be kept, and counts nevertheless."""
        series = 'warpcall_tuning_cache_errors_total{operation="write"}'
        before = replica.counter(series)
        filler = replica.disk / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        try:
            self.tune(replica)
            replica.wait_to_count(series, before + 1)
        finally:
            filler.unlink()
        replica.tuning.unlink(missing_ok=True)
        self.tune(replica)
        if replica.counter(series) != before + 1 or not replica.tuning.stat().st_size:
            raise processes.Failure(f"{replica.host} does not write {replica.tuning}, for which there is room again")
        left = [path.name for path in replica.disk.iterdir() if path.name.startswith(f"{replica.tuning.name}.")]
        if left:
            raise processes.Failure(f"{replica.host} left {left} on the full disk")

    def tune(self, replica):
        subprocess.run([WARPCALL, "--server", replica.address, "tune", "identity", "--shape",
                        str(self.random.randrange(64, 4096)), "--iterations", "2"],
                       stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=SECONDS_MAX)

    def clock(self, replica):
        """It stays where it is put, also when the server is started anew."""
        step = self.random.choice(CLOCK_STEPS_SECONDS)
        replica.step_clock(step)
        replica.wait_to_answer(ENOUGH)
        return f"{step:+} s"

    def damaged_file(self, replica):
        """Its policies: it goes by those that it has."""
        series = 'warpcall_reload_failures_total{flag="policy_file"}'
        before = replica.counter(series)
        replica.policies.write_text(DAMAGED)
        try:
            replica.wait_to_count(series, before + 1)
            replica.wait_to_answer(ENOUGH)
        finally:
            replica.policies.write_text(POLICIES)

    # ---- of the proxy ---------------------------------------------------------------------------

    def cut_off(self, server):
        self.tell(f"shutdown sessions server {server}")

    def tell(self, command):
        answer = self.balancer.tell(command).strip()
        if answer:
            raise processes.Failure(f"HAProxy answers {answer!r} to {command!r}")

    def cut(self, replica):
        """Whatever is under way to it, a few times."""
        times = self.random.randint(1, 5)
        for _ in range(times):
            self.cut_off(f"servers/{NAMES[replica.number - 1]}")
            replica.wait_to_answer(ENOUGH // 4)
        return f"{times} times"

    def maintenance(self, replica):
        server = f"servers/{NAMES[replica.number - 1]}"
        self.tell(f"set server {server} state maint")
        self.cut_off(server)
        time.sleep(self.random.uniform(*SHORT_SECONDS))
        self.tell(f"set server {server} state ready")
