"""A Docker engine with Compose, of a test's own: Debian's, in a root of debootstrap's. It lives in namespaces of its
own, on a network without a way out, so that whatever it mounts, routes and runs ends with it."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import processes
from image_test import run

# Debian 12 has Compose 1, which takes no file with a `name`.
RELEASE = "trixie"
# Prometheus and Python are for images made of the same root.
PACKAGES = ("docker.io", "docker-cli", "docker-compose", "iptables", "iproute2", "tini", "prometheus", "python3")
KEYS = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CONTROL_GROUPS = pathlib.Path("/sys/fs/cgroup")
START_SECONDS_MAX, END_SECONDS_MAX = 120, 120
PATH = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
# The engine's root becomes that of the namespace, which containers' own roots need.
START = """set -e
    mount --bind "$0" "$0"
    mount -t proc proc "$0/proc"
    mount -t sysfs sysfs "$0/sys"
    mount --rbind /sys/fs/cgroup "$0/sys/fs/cgroup"
    mount --rbind /dev "$0/dev"
    mount -t tmpfs tmpfs "$0/run"
    ip link set lo up
    cd "$0"
    pivot_root . old
    umount --lazy /old
    exec tini -- dockerd --log-level warn --cgroup-parent "/$1" """


class Engine:
    def __init__(self, folder):
        self.root, self.log = folder / "engine", folder / "engine.log"
        run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE, self.root)
        (self.root / "old").mkdir()
        self.group = f"warpcall-test-{os.getpid()}"
        with open(self.log, "wb") as output:
            self.parent = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--net", "--fork", "bash", "-c", START, self.root, self.group],
                env=PATH, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def process(self):
        """The first of its namespaces, by its id outside them; None: there is none yet."""
        children = pathlib.Path(f"/proc/{self.parent.pid}/task/{self.parent.pid}/children").read_text(encoding="utf-8")
        return int(children.split()[0]) if children else None

    def is_ready(self):
        if self.parent.poll() is not None:
            raise processes.Failure(f"the engine left at start: {self.log.read_text(encoding='utf-8')}")
        return self.process() is not None and subprocess.run(
            self.inside("docker", "info"), env=PATH, check=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def inside(self, *words):
        return ["nsenter", "--target", str(self.process()), "--mount", "--pid", "--net", "--", *map(str, words)]

    def docker(self, *words, **options):
        return run(*self.inside("docker", *words), env=PATH, **options)

    def inspect(self, container, what):
        return json.loads(self.docker("inspect", "--format", f"{{{{json .{what}}}}}", container))

    def beside(self, *words):
        """A program of this machine, on the network where the engine publishes ports."""
        return run("nsenter", "--target", self.process(), "--net", "--", *words)

    def get(self, url):
        program = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"
        return self.beside(sys.executable, "-c", program, url)

    def import_root(self, image):
        """Imports its own root as an image. Nothing mounted there is visible from outside."""
        tar = subprocess.Popen(["tar", "-C", self.root, "--exclude=./var/lib/docker", "-c", "."],
                               stdout=subprocess.PIPE)
        with tar.stdout:
            subprocess.run(self.inside("docker", "import", "-", image), env=PATH, stdin=tar.stdout, check=True,
                           stdout=subprocess.DEVNULL, timeout=START_SECONDS_MAX * 5)
        if tar.wait() != 0:
            raise processes.Failure(f"tar ended with status {tar.returncode}")

    def build(self, image, dockerfile):
        """Builds an image of metadata alone: nothing runs."""
        subprocess.run(self.inside("docker", "build", "--tag", image, "-"), env=PATH, input=dockerfile, text=True,
                       check=True, timeout=START_SECONDS_MAX, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def end(self):
        process = processes.wait_until("the engine's first process, or its end",
                                       lambda: self.parent.poll() is not None or self.process(), START_SECONDS_MAX)
        if self.parent.poll() is None:
            os.kill(process, signal.SIGTERM)
            try:
                self.parent.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.kill(process, signal.SIGKILL)
                self.parent.wait()
        for group in (CONTROL_GROUPS, *CONTROL_GROUPS.iterdir()):
            for folder, _, _ in os.walk(group / self.group, topdown=False):
                os.rmdir(folder)


@contextlib.contextmanager
def running(folder):
    engine = Engine(folder)
    try:
        processes.wait_until("the engine", engine.is_ready, START_SECONDS_MAX)
        yield engine
    finally:
        engine.end()


def obstacle():
    """Why this machine can have none; None: it can."""
    if not KEYS.exists():
        return f"there is no {KEYS}, by which Debian's packages are known"
    if not os.path.ismount(CONTROL_GROUPS):
        return f"no control groups are mounted at {CONTROL_GROUPS}"
    return None
