#!/usr/bin/env python3
"""deploy/systemd: a unit that systemd takes, in which the server works, and that lets it drain.

    systemd_test.py WARPCALLD WARPCALL

No systemd runs here: its analyser judges the unit, and the server is started as the unit would start it:
another user without capabilities, under the unit's filter of system calls. Exit status 77: skipped, for want
of systemd's programs or of Debian's package python3-seccomp.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

try:
    import seccomp
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-seccomp)")
    sys.exit(77)

sys.dont_write_bytecode = True

import facts  # noqa: E402
import processes  # noqa: E402

SYSTEMD = processes.deployed_folder() / "systemd"
UNIT = SYSTEMD / "warpcalld.service"
FLAGS = SYSTEMD / "warpcalld.flags"
# Settings that systemd's analyser finds open, and why they stay so.
OPEN = {
    "DeviceAllow=": "GPUs",
    "IPAddressDeny=": "who may call is the administrator's to say",
    "MemoryDenyWriteExecute=": "oneDNN and CUDA's driver generate code",
    "PrivateDevices=": "GPUs",
    "PrivateMounts=": "the unit mounts nothing; ProtectSystem has a namespace of its own already",
    "PrivateNetwork=": "it serves",
    "PrivateUsers=": "MIG's devices have owners",
    "ProcSubset=": "/proc/meminfo",
    "RestrictAddressFamilies=~AF_(INET|INET6)": "it serves",
    "RestrictAddressFamilies=~AF_NETLINK": "getaddrinfo, and the users of loopback clients",
    "RestrictAddressFamilies=~AF_UNIX": "it may serve one, and speaks to its workers over them",
    "RootDirectory=/RootImage=": "libraries are the system's",
    "SupplementaryGroups=": "the one that may read keys and tokens",
    "SystemCallFilter=~@resources": "priorities and affinities",
}
RUNS = [["run", "softmax", "--shape", "64x256"],
        ["run", "matmul", "--shape", "64x64x64", "--implementation", "library"]]
INSPECTIONS = [["describe", "gelu", "--shape", "64x64"],
               ["bench", "gelu", "--shape", "4096", "--type", "f32"],
               ["profile", "gelu", "--shape", "4096", "--type", "f32"]]
# nobody's, which every Debian has.
USER = 65534
# Replaces each group that the unit has beside its user's; nobody is in it.
GROUP = 64999
POSTINST = processes.deployed_folder() / "install" / "debian" / "postinst"
TOKENS = [f"{digit}" * 32 for digit in "12"]

WARPCALLD, WARPCALL = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", "--no-pager", *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=60)


def settings_of(text):
    """{name: [values]} of a unit."""
    found = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.M):
        found.setdefault(name, []).append(value)
    return found


def call_sets():
    """{set of system calls: its members, which may be sets}, as systemd has them."""
    found, name = {}, None
    for line in analyze("syscall-filter").stdout.splitlines():
        if line.startswith("@"):
            name = line.strip()
            found[name] = []
        elif name and line.strip() and not line.strip().startswith("#"):
            found[name].append(line.strip())
    return found


def allowed_calls(filters):
    """The system calls that are left by the values of SystemCallFilter, in their order."""
    sets = call_sets()

    def members(name):
        return set().union(*map(members, sets[name])) if name.startswith("@") else {name}

    allowed = members("@default")
    for value in filters:
        named = set().union(*map(members, value.lstrip("~").split()))
        allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


class SystemdTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = UNIT.read_text(encoding="utf-8")
        cls.unit = settings_of(cls.text)
        cls.shell = shlex.split(cls.unit["ExecStart"][0])
        cls.check, start = (words.split() for words in cls.shell[2].split(" && exec "))
        cls.program, *cls.words = start
        cls.file_words = [f"--{line}" for line in FLAGS.read_text(encoding="utf-8").splitlines()
                          if line and not line.startswith("#")]

    def test_systemd_takes_it(self):
        """With this build's server in the place of the installed one."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, UNIT.name)
            copy.write_text(self.text.replace(self.program, os.path.abspath(WARPCALLD)), encoding="utf-8")
            done = analyze("verify", "--man=no", copy)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_little_is_left_open(self):
        done = analyze("security", "--offline=true", "--json=short", UNIT)
        self.assertEqual({entry["name"] for entry in json.loads(done.stdout) if entry["exposure"]},
                         set(OPEN))

    def test_flags_and_times_are_the_servers(self):
        defaults = facts.flags_of(WARPCALLD)
        settings = facts.Settings(defaults, self.file_words)
        self.assertEqual(facts.given(self.words), {"flagfile": f"/etc/warpcall/{FLAGS.name}"})
        kept = f"/var/cache/{self.unit['CacheDirectory'][0]}"
        self.assertEqual((settings.all["compile_cache"], os.path.dirname(settings.all["tuning_cache"])), (kept, kept))
        self.assertGreater(int(self.unit["TimeoutStopSec"][0]), settings.stop_seconds() + 5)
        # The exit status of a wrong flag: docs/operate.md, "Stop".
        self.assertEqual(self.unit["RestartPreventExitStatus"], ["2"])
        # A worker's end must not be the server's, and code that is generated must run.
        self.assertEqual(self.unit["OOMPolicy"], ["continue"])
        self.assertNotIn("MemoryDenyWriteExecute", self.unit)

    def test_a_start_is_over_when_the_server_serves(self):
        """The server sends READY=1 by itself: tests/e2e/phases_test.py."""
        self.assertEqual(self.unit["Type"], ["notify"])
        self.assertNotIn("NotifyAccess", self.unit)  # main: its processes have no say

    def test_the_flags_are_checked_before_a_start_and_a_reload(self):
        """The check uses the flags of the start; a reload follows only if it passes."""
        self.assertEqual(self.check, [self.program, "--check_flags", *self.words])
        self.assertEqual([line.split() for line in self.unit["ExecReload"]],
                         [self.check, ["/bin/kill", "-HUP", "$MAINPID"]])

    def test_a_mistake_in_the_flags_is_not_tried_again(self):
        """The main process ends with the status that RestartPreventExitStatus= names: systemd looks at no other's."""
        self.assertNotIn("ExecStartPre", self.unit)
        with tempfile.TemporaryDirectory() as folder:
            flags = pathlib.Path(folder, "flags")
            for line in ("queue_limt=7", f"token_file={folder}/none"):
                flags.write_text(f"{line}\n", encoding="utf-8")
                done = subprocess.run(self.start_words(flags), check=False, timeout=60, capture_output=True, text=True)
                self.assertEqual(str(done.returncode), *self.unit["RestartPreventExitStatus"], done.stderr)

    def test_the_server_is_the_main_process(self):
        """SIGTERM reaches the server, and the server may notify systemd."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "flags").write_text("listen=127.0.0.1:0\nmetrics_listen=127.0.0.1:0\nlame_duck_seconds=0\n",
                                          encoding="utf-8")
            with processes.running(self.start_words(folder / "flags"), folder / "log") as process:
                processes.wait_until("the server to serve", lambda: "serving on" in (folder / "log").read_text(),
                                     processes.START_SECONDS_MAX)
                self.assertEqual(os.path.realpath(f"/proc/{process.pid}/exe"), os.path.realpath(WARPCALLD))

    def start_words(self, flags):
        """Words of ExecStart= for this build's server and another file."""
        changes = {self.program: os.path.abspath(WARPCALLD), f"/etc/warpcall/{FLAGS.name}": str(flags)}
        return [re.sub("|".join(changes), lambda found: changes[found[0]], word) for word in self.shell]

    def arguments(self, folder):
        """The unit's arguments, with the file's flags but on free ports. The program is copied to a place where another
        user finds it."""
        program, flags = folder / "warpcalld", folder / "flags"
        shutil.copy(WARPCALLD, program)
        kept = [word[2:] for word in self.file_words
                if not re.match(r"--(listen|metrics_listen|compile_cache|tuning_cache|lame_duck_seconds)=", word)]
        kept += [f"compile_cache={folder}/compiled", f"tuning_cache={folder}/tuning.txt"]
        flags.write_text("\n".join(kept) + "\n", encoding="utf-8")
        return [program, f"--flagfile={flags}", *processes.FREE_PORTS, "--lame_duck_seconds=0"]

    def confine(self):
        """Runs between fork and exec: as another user, who has no capabilities, under the unit's filter."""
        if os.geteuid() == 0:
            os.setgroups([GROUP for _ in self.groups()])
            os.setgid(USER)
            os.setuid(USER)
        allow = seccomp.SyscallFilter(seccomp.ERRNO(1))
        for call in sorted(allowed_calls(self.unit["SystemCallFilter"])):
            try:
                allow.add_rule(seccomp.ALLOW, call)
            except (OSError, RuntimeError, ValueError):
                pass  # another architecture's
        os.umask(int(self.unit["UMask"][0], 8))
        allow.load()

    def test_compilers_can_confine_themselves_in_it(self):
        self.assertLessEqual({"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "prctl"},
                             allowed_calls(self.unit["SystemCallFilter"]))

    def test_the_server_works_in_it(self):
        self.serve([], [*RUNS, *INSPECTIONS])

    def test_workers_work_in_it(self):
        """Processes of devices, as a server of several GPUs has them."""
        self.serve(["--test_cpu_workers=2"], RUNS)

    def groups(self):
        return " ".join(self.unit.get("SupplementaryGroups", [])).split()

    def test_it_reads_secrets_that_others_may_not_also_when_they_change(self):
        """Files of root and of the unit's group, as deploy/README.md has them made."""
        if os.geteuid() != 0:
            self.skipTest("root gives files to groups")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            folder.chmod(0o755)
            (folder / "mine").write_text(TOKENS[0], encoding="utf-8")
            (folder / "new").write_text(TOKENS[1], encoding="utf-8")

            def put(token):
                (folder / "next").write_text(f"alice {token}\n", encoding="utf-8")
                (folder / "next").chmod(0o640)
                os.chown(folder / "next", 0, GROUP)
                (folder / "next").rename(folder / "tokens")
            put(TOKENS[0])

            def exchange(address, log):
                def run(token):
                    return self.call(address, ["--token_file", folder / token, *RUNS[0]])
                self.assertEqual(run("mine").returncode, 0, log.read_text()[-2000:])
                put(TOKENS[1])
                processes.wait_until("the new token to count", lambda: run("new").returncode == 0,
                                     processes.START_SECONDS_MAX)
                self.assertNotEqual(run("mine").returncode, 0)
            self.serve([f"--token_file={folder}/tokens"], [], exchange)

    def test_the_package_makes_the_units_groups(self):
        """Its script, beside programs that only note how they are called."""
        self.assertNotEqual(self.groups(), [])
        with tempfile.TemporaryDirectory() as folder:
            calls = pathlib.Path(folder, "calls")
            for program, status in [("deb-systemd-helper", 1), ("deb-systemd-invoke", 0), ("systemctl", 0),
                                    ("getent", 2), ("groupadd", 0)]:
                path = pathlib.Path(folder, program)
                path.write_text(f'#!/bin/sh\necho "{program} $*" >>{calls}\nexit {status}\n', encoding="utf-8")
                path.chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
            subprocess.run(["sh", POSTINST, "configure", ""], env=environment, check=True, timeout=60)
            made = re.findall(r"^groupadd --system (\S+)$", calls.read_text(encoding="utf-8"), re.M)
            self.assertEqual(made, self.groups())
            # Existing users and groups stay as they are.
            pathlib.Path(folder, "getent").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
            calls.unlink()
            subprocess.run(["sh", POSTINST, "configure", "0.1.0"], env=environment, check=True, timeout=60)
            self.assertNotIn("groupadd", calls.read_text(encoding="utf-8"))

    def serve(self, flags, commands, also=lambda address, log: None):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            words = self.arguments(folder) + flags
            if os.geteuid() == 0:
                os.chown(folder, USER, USER)
            log = folder / "log"
            with open(log, "wb") as output:
                process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, preexec_fn=self.confine, cwd="/",
                                           env={"PATH": os.environ["PATH"]})
            try:
                self.watch(process, log, commands, also)
            finally:
                process.kill()
                process.wait()

    def call(self, address, command):
        return subprocess.run([WARPCALL, "--server", address, *command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120)

    def watch(self, process, log, commands, also):
        def serving():
            if process.poll() is not None:
                raise processes.Failure(f"the server left at start: {log.read_text()}")
            return re.search(r"serving on ([^ ,]+)", log.read_text())
        address = processes.wait_until("warpcalld to serve", serving, processes.START_SECONDS_MAX)[1]
        for command in commands:
            done = self.call(address, command)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stderr}{log.read_text()[-2000:]}")
        also(address, log)
        process.send_signal(signal.SIGHUP)
        processes.wait_until("the flag file to be read again",
                             lambda: 'msg="read again"' in log.read_text(), processes.START_SECONDS_MAX)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=processes.STOP_SECONDS_MAX), 0, log.read_text()[-2000:])


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: there is no systemd-analyze (Debian: package systemd)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
