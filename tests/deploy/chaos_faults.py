"""The faults of chaos_test.py for three servers behind HAProxy, and for two apart from them: a random script, one fault
at a time, each of which is over, and the servers well, before the next."""

import contextlib
import dataclasses
import pathlib
import random
import signal
import struct
import subprocess
import time

import processes
from chaos_apart import CALLS_PER_SECOND, ApartFaults, WatchedReplica
from replicas_test import ENOUGH, NAMES, SECONDS_MAX, WARPCALL

SHORT_SECONDS, PAUSE_SECONDS = (0.3, 1), (1, 3)
# A busy machine delays clients, servers and Prometheus: an alert this much later still counts for its fault.
BUSY_SECONDS, LOOK_SECONDS = 90, 1
# Back by little: Abseil 20220623 waits by the wall clock, so that a step back holds up by as much whatever waits
# for a time, the look at files that may have changed among it.
CLOCK_STEPS_SECONDS = (-10, -1, 1, 30, 3600, 86400)
DISK_BYTES = 256 << 10
# The last process lives as long as the run: its memory at the end is seen.
ENDED = 2
# Methods of Chaos, and the alerts that report each: for one of the three servers,
KINDS = {
    "kill": [], "kill for long": ["WarpcallDown"], "hang": [], "hang for long": ["WarpcallDown"], "drain": [],
    "full disk": ["WarpcallTuningNotKept"], "clock": [], "cut": [], "maintenance": [], "damaged file": [],
    "damaged file for long": ["WarpcallFileNotRead"],
}
# and for those apart, by their jobs.
APART = {
    "guarded": {
        "wrong tokens": ["WarpcallWrongTokens"],
        "short certificate": ["WarpcallCertificateExpires"],
        "last certificate": ["WarpcallCertificateExpires", "WarpcallCertificateExpiresToday"],
        "damaged flags": ["WarpcallFileNotRead"],
        "failed self test": ["WarpcallSelfTestFailed"],
        "restarts": ["WarpcallRestarts"],
        "absence": ["WarpcallAbsent"],
    },
    "loaded": {
        "overload": ["WarpcallQueueOld", "WarpcallQueueLong", "WarpcallRefusing"],
        "missed deadlines": ["WarpcallDeadlinesMissed"],
        "slow answers": ["WarpcallSlow"],
        "full staging": ["WarpcallStagingExhausted"],
        "lost device": ["WarpcallDeviceLost", "WarpcallErrorBudgetBurnsFast", "WarpcallErrorBudgetBurnsSlowly"],
        "dying worker": ["WarpcallWorkerRestarts"],
        "many connections": ["WarpcallDescriptors"],
    },
}
ALERTS = {kind: alerts for kinds in (KINDS, *APART.values()) for kind, alerts in kinds.items()}
# Alerts that a fault may cause, but need not: it lasts long, or follows its like within the alert's window.
POSSIBLE_ALERTS = {
    "damaged file": ["WarpcallFileNotRead"],
    "slow answers": ["WarpcallQueueOld", "WarpcallQueueLong"],
    "full staging": ["WarpcallQueueOld", "WarpcallRefusing"],
    "lost device": ["WarpcallWorkerRestarts"],
    "dying worker": ["WarpcallDeviceLost"],
}
# A machine without a GPU can't provoke these: only promtool tries them (deploy/prometheus/alerts_test.yml).
GPU_ALERTS = {"WarpcallXid", "WarpcallXidOfProgram", "WarpcallGpuThrottled"}
POLICIES, DAMAGED = '{"default": {}}', '{"default": {'


@dataclasses.dataclass
class Fault:
    kind: str
    server: WatchedReplica
    begin: float
    end: float = 0
    """Unix times; `end`: all are well again."""
    text: str = ""


def is_of(server, instance, job):
    """An alert with these labels is of the server, or of the job that it is alone in."""
    return (instance or job) in (server.instance, server.job)


class ChaosReplica(WatchedReplica):
    """A server whose files lie on a small disk, and whose clock can be stepped."""

    def __init__(self, number, folder, disk, clock):
        self.disk = disk
        self.clock = folder / f"{number}.clock"
        self.policies = folder / f"{number}.policies.json"
        self.tuning = disk / f"{number}.tuning"
        self.policies.write_text(POLICIES)
        self.clock.write_bytes(bytes(8))
        environment = {"WARPCALL_TEST_CLOCK": str(self.clock), "LD_PRELOAD": str(clock)} if clock else {}
        flags = [f"--tuning_cache={self.tuning}", f"--compile_cache={disk / f'{number}.compiled'}",
                 f"--policy_file={self.policies}", "--lame_duck_seconds=3"]
        super().__init__(number, "warpcall", folder, flags, environment)

    def step_clock(self, seconds):
        """Steps the clock by so much."""
        with open(self.clock, "r+b", buffering=0) as file:
            (ahead_ns,) = struct.unpack("=q", file.read(8))
            file.seek(0)
            file.write(struct.pack("=q", ahead_ns + round(seconds * 1e9)))


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


class Chaos(ApartFaults):
    """The faults of a run, in an order that the seed draws: each kind once, then each again. `rules`: chaos_judge.py's,
    which give a fault's time until its alert; `targets`: Prometheus' file of them."""

    def __init__(self, replicas, apart, balancer, prometheus, rules, targets, seed):
        self.replicas, self.apart, self.balancer, self.prometheus = replicas, apart, balancer, prometheus
        self.rules, self.targets = rules, targets
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

    def draw_server(self, kind):
        for job, kinds in APART.items():
            if kind in kinds:
                return self.apart[job]
        ends = kind.startswith(("kill", "drain"))
        return self.replicas[self.random.randrange(ENDED if ends else len(self.replicas))]

    def one(self, kind):
        server = self.draw_server(kind)
        after_seconds = max((self.rules[alert].after_seconds for alert in ALERTS[kind]), default=0)
        processes.wait_until(f"alerts of an earlier fault, as {kind} has, to end", lambda: not self.firing(kind, server),
                             after_seconds + BUSY_SECONDS)
        fault = Fault(kind, server, time.time())
        self.faults.append(fault)
        fault.text = getattr(self, kind.replace(" ", "_"))(server) or ""
        self.wait_until_well()
        fault.end = time.time()
        print(f"{fault.begin - self.started:7.1f} s  {kind} of {server.name}"
              f"{', ' if fault.text else ''}{fault.text}: well after {fault.end - fault.begin:.1f} s", flush=True)

    def wait_until_well(self):
        """All serve, by the proxy and by Prometheus, and all are called that clients call."""
        self.balancer.wait_for(a="UP", b="UP", c="UP")
        for replica in self.replicas:
            replica.wait_to_answer(ENOUGH)
        self.wait_until_scraped()

    def wait_until_scraped(self):
        now = time.time()

        def scraped():
            times = self.prometheus.query("max_over_time((timestamp(up) and up == 1)[1m:1s])")
            return (len(times) == len(self.replicas) + len(self.apart)
                    and min(moment for _, moment in times) > now)
        processes.wait_until("Prometheus to see all", scraped, SECONDS_MAX)

    def firing(self, kind, server):
        """The kind's alerts that fire for the server."""
        names = {labels["alertname"] for labels, _ in self.prometheus.query('ALERTS{alertstate="firing"}')
                 if is_of(server, labels.get("instance"), labels.get("job"))}
        return names.intersection(ALERTS[kind])

    def keep_up(self, call=lambda: None, seconds=1 / CALLS_PER_SECOND):
        """Keeps the fault up until its alerts fire, with a call every `seconds`. A fault without its alerts in time
        ends, too: chaos_judge.py finds it."""
        fault, look = self.faults[-1], time.monotonic()
        tell_seconds = max((self.rules[alert].tell_seconds for alert in ALERTS[fault.kind]), default=0)
        end = look + tell_seconds + BUSY_SECONDS
        while (now := time.monotonic()) < end:
            if now >= look:
                if len(self.firing(fault.kind, fault.server)) == len(ALERTS[fault.kind]):
                    return
                look = now + LOOK_SECONDS
            call()
            time.sleep(max(0, now + seconds - time.monotonic()))

    # ---- of a process ---------------------------------------------------------------------------

    def kill(self, replica):
        replica.kill()
        time.sleep(self.random.uniform(*SHORT_SECONDS))
        self.keep_up()
        replica.start()

    def kill_for_long(self, replica):
        self.kill(replica)

    def drain(self, replica):
        replica.end()
        replica.start()

    def hang(self, replica):
        replica.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(self.random.uniform(*SHORT_SECONDS))
            self.keep_up()
        finally:
            replica.process.send_signal(signal.SIGCONT)

    def hang_for_long(self, replica):
        self.hang(replica)

    # ---- faults around it -----------------------------------------------------------------------

    def full_disk(self, replica):
        """Tune's measurements cannot be kept on the full disk, and count nevertheless."""
        series = 'warpcall_tuning_cache_errors_total{operation="write"}'
        before = replica.counter(series)
        filler = replica.disk / "filler"
        with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        try:
            self.tune(replica)
            replica.wait_to_count(series, before + 1)
            self.keep_up()
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
        """The clock stays where it is put, also when the server is started anew."""
        step = self.random.choice(CLOCK_STEPS_SECONDS)
        replica.step_clock(step)
        replica.wait_to_answer(ENOUGH)
        return f"{step:+} s"

    def damaged_file(self, replica):
        """Its policies, as while files are exchanged: it goes by those that it has."""
        series = 'warpcall_reload_failures_total{flag="policy_file"}'
        before = replica.counter(series)
        try:
            replica.policies.write_text(DAMAGED)
            replica.wait_to_count(series, before + 1)
            replica.wait_to_answer(ENOUGH)
            # Retries of an unchanged file are up to 64 s apart, made for three minutes and not for the seconds here: a
            # changed file is read at once.
            self.keep_up(lambda: replica.policies.write_text(replica.policies.read_text() + " "), 2)
        finally:
            replica.policies.write_text(POLICIES)

    def damaged_file_for_long(self, replica):
        self.damaged_file(replica)

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
