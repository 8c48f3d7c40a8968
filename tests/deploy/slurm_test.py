#!/usr/bin/env python3
"""deploy/slurm: jobs of a real Slurm, of one node that is this machine.

    slurm_test.py WARPCALLD WARPCALL

Exit status 77: skipped, for want of root, of control groups or of Debian's packages slurmctld, slurmd and slurm-client.
"""

import contextlib
import datetime
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import facts  # noqa: E402
import processes  # noqa: E402

SCRIPT = processes.deployed_folder() / "slurm" / "warpcalld.sbatch"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
SECONDS_MAX = 120
# Slurm's own default, after which a cancelled job is killed.
KILL_WAIT_SECONDS = 30
LAME_DUCK_SECONDS = 1
# Uses neither munge nor groups of processes, which a container may lack. Memory is counted by request.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}({address})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
KillWait={kill_wait}
NodeName={host} NodeAddr={address} CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

WARPCALLD, WARPCALL = map(os.path.abspath, sys.argv[1:3]) if len(sys.argv) > 2 else ("", "")


@contextlib.contextmanager
def slurm(folder):
    """Yields the environment of Slurm's commands."""
    config = folder / "slurm.conf"
    for name in ("state", "spool"):
        (folder / name).mkdir()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // facts.MIB
    free = [address.partition(":") for address in processes.free_addresses(2)]
    config.write_text(CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0], folder=folder, cpus=os.cpu_count(), memory=memory,
        kill_wait=KILL_WAIT_SECONDS, address=free[0][0], ports=[port for _, _, port in free]),
        encoding="utf-8")
    environment = os.environ | {"SLURM_CONF": str(config),
                                "PATH": f"{os.path.dirname(WARPCALLD)}:{os.environ['PATH']}"}
    daemons = []
    try:
        for name in ("slurmctld", "slurmd"):
            with open(folder / f"{name}.log", "wb") as log:
                daemons.append(subprocess.Popen([name, "-D"], env=environment, stdin=subprocess.DEVNULL,
                                                stdout=log, stderr=subprocess.STDOUT))
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(timeout=SECONDS_MAX)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


class Job:
    def __init__(self, environment, folder, *arguments):
        self.environment, self.folder = environment, folder
        # Resources of a small machine; memory is counted here, but not enforced.
        done = self.run("sbatch", "--parsable", "--cpus-per-task=1", "--mem=1M", *arguments)
        self.number = done.stdout.strip()
        self.address = folder / f"warpcalld-{self.number}.address"
        self.log = folder / f"warpcalld-{self.number}.log"

    def run(self, *command):
        return subprocess.run(command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=True, timeout=SECONDS_MAX)

    def field(self, name):
        shown = self.run("scontrol", "show", "job", self.number).stdout
        return re.search(rf"\b{name}=(\S+)", shown)[1]

    def text(self):
        return self.log.read_text() if self.log.exists() else ""

    def wait_to_serve(self):
        """The server's port on this machine."""
        def served():
            if self.field("JobState") not in ("PENDING", "CONFIGURING", "RUNNING"):
                raise processes.Failure(f"job {self.field('JobState')}: {self.text()}")
            return self.address.exists()
        processes.wait_until("the job's address", served, SECONDS_MAX)
        node, _, port = self.address.read_text().strip().rpartition(":")
        if node != self.field("NodeList"):
            raise processes.Failure(f"{self.address} names {node}")
        return f"127.0.0.1:{port}"

    def wait_to_end(self):
        """(state, exit status) of the job."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
        processes.wait_until("the job's end", lambda: self.field("JobState") in ended, SECONDS_MAX)
        return self.field("JobState"), self.field("ExitCode")


class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.environment = cls.enterClassContext(slurm(cls.folder))

    def job(self, *arguments):
        return Job(self.environment, self.folder, *arguments)

    def call(self, address):
        done = subprocess.run([WARPCALL, "--server", address, "run", "gelu", "--shape", "1024"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=SECONDS_MAX)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_drain(self, job):
        """It went through its lame duck, which a second SIGTERM would have ended."""
        times = [datetime.datetime.fromisoformat(time)
                 for time in re.findall(r"^ts=(\S+)Z .*msg=(?:stopping|draining) ", job.text(), re.M)]
        self.assertEqual(len(times), 2, job.text())
        self.assertGreaterEqual((times[1] - times[0]).total_seconds(), LAME_DUCK_SECONDS)

    def test_a_job_serves_until_its_time_is_nearly_over_and_drains(self):
        """The test sends Slurm's signal by hand: to the shell of the job alone."""
        job = self.job(SCRIPT)
        self.call(job.wait_to_serve())
        # Other nodes reach it.
        self.assertRegex(job.text(), r"serving on 0\.0\.0\.0:\d+, metrics on 0\.0\.0\.0:\d+\n")
        job.run("scancel", "--batch", "--signal=USR1", job.number)
        self.assertEqual(job.wait_to_end(), ("COMPLETED", "0:0"), job.text())
        self.assertFalse(job.address.exists())
        self.check_drain(job)

    def test_scancel_drains_too(self):
        job = self.job(SCRIPT)
        self.call(job.wait_to_serve())
        job.run("scancel", job.number)
        self.assertEqual(job.wait_to_end()[0], "CANCELLED")
        processes.wait_until("the address to go", lambda: not job.address.exists(), SECONDS_MAX)
        self.check_drain(job)

    def test_flags_follow_the_script_and_a_wrong_one_fails_the_job(self):
        job = self.job(SCRIPT, "--log_format=json")
        job.wait_to_serve()
        self.assertIn('"msg":"memory limits"', job.text())
        job.run("scancel", job.number)
        wrong = self.job(SCRIPT, "--queue_second=1")
        self.assertEqual(wrong.wait_to_end(), ("FAILED", "2:0"))
        self.assertIn("--queue_second=1", wrong.text())

    def test_there_is_time_to_drain(self):
        text = SCRIPT.read_text(encoding="utf-8")
        (words,) = re.findall(r"^readonly times=\((.*)\)$", text, re.M)
        settings = facts.Settings(facts.flags_of(WARPCALLD), words.split())
        self.assertLess(settings.stop_seconds(), KILL_WAIT_SECONDS)
        (ahead,) = re.findall(r"^#SBATCH --signal=B:USR1@(\d+)$", text, re.M)
        self.assertLess(settings.stop_seconds(), int(ahead))
        self.assertEqual(settings.number("lame_duck_seconds"), LAME_DUCK_SECONDS)


if __name__ == "__main__":
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"skipped: there is no {missing[0]}" if missing else "skipped: Slurm's daemons want root")
        sys.exit(77)
    if not os.path.ismount("/sys/fs/cgroup"):  # a bare root has none
        print("skipped: Slurm's daemons want control groups, at /sys/fs/cgroup")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
