#!/usr/bin/env python3
"""The Debian packages in a new Debian of their own: installed with their dependencies, started as the service starts,
upgraded over a changed file of flags, rolled back, removed, purged.

    clean_root_test.py BUILD_FOLDER

Takes minutes, the archive and root: for the night. Exit status 77: skipped, for want of these.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
SECONDS_MAX = 900
FLAGS = "etc/warpcall/warpcalld.flags"
UNIT = "usr/lib/systemd/system/warpcalld.service"
NEXT_VERSION = "99.0.0"


def run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS_MAX,
                          env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
    if done.returncode != 0:
        raise Failure(f"{command} ended with status {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


def check(condition, message):
    if not condition:
        raise Failure(message)


@contextlib.contextmanager
def clean_root(folder, *options, release=None, source=()):
    """A new system: Debian of this system's release from the archive that this system uses, unless `release` and
    `source` (an archive and a script of debootstrap's) say otherwise."""
    root = folder / "root"
    text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    release = release or re.search(r"^VERSION_CODENAME=(\w+)$", text, re.M)[1]
    run("debootstrap", "--variant=minbase", *options, release, root, *source)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    run("mount", "--types", "proc", "proc", root / "proc")
    try:
        yield root
    finally:
        run("umount", root / "proc")


class Root:
    def __init__(self, path):
        self.path = path

    def run(self, *command):
        return run("chroot", self.path, *command)

    def install(self, packages, *options):
        """Installs by apt, which brings their dependencies."""
        folder = self.path / "packages"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for package in packages:
            shutil.copy(package, folder)
        self.run("apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *options,
                 *(f"/packages/{package.name}" for package in packages))

    def version(self):
        return self.run("dpkg-query", "--show", "--showformat=${Version}", "warpcall-server")

    def serve(self, folder):
        """Starts the server as the unit does, on free ports, and calls it by the installed command."""
        unit = (self.path / UNIT).read_text(encoding="utf-8")
        program, flags = re.search(r"^ExecStart=.* && exec (\S+) (--flagfile=\S+)'$", unit, re.M).groups()
        log = folder / "log"
        words = ["chroot", self.path, program, flags, *processes.FREE_PORTS, "--lame_duck_seconds=0"]
        with processes.running(words, log):
            address = processes.wait_until(
                "the server", lambda: re.search(r"serving on ([^ ,]+)", log.read_text()), 60)[1]
            return self.run("warpcall", "--server", address, "run", "gelu", "--shape", "1024")


def make_packages(build, folder, *options):
    """Makes the packages of the server and of the command line."""
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", folder, *options)
    return [path for path in folder.glob("*.deb") if "-dev" not in path.name]


def check_life(root, folder, build):
    root.run("apt-get", "update", "--quiet")
    first = make_packages(build, folder / "first")
    root.install(first)
    enabled = root.path / "etc/systemd/system/multi-user.target.wants/warpcalld.service"
    check(enabled.is_symlink(), "the service is not enabled")
    group = re.search(r"^SupplementaryGroups=(\w+)$", (root.path / UNIT).read_text(encoding="utf-8"), re.M)[1]
    root.run("getent", "group", group)
    check("gelu on cpu" in root.serve(folder), "the server did not answer")
    # Upgrades keep an administrator's lines.
    with open(root.path / FLAGS, "a", encoding="utf-8") as flags:
        flags.write("queue_seconds=7\n")
    root.install(make_packages(build, folder / "second", "-D", f"CPACK_PACKAGE_VERSION={NEXT_VERSION}"))
    check(root.version() == NEXT_VERSION, f"after the upgrade the version is {root.version()}")
    check("queue_seconds=7\n" in (root.path / FLAGS).read_text(encoding="utf-8"), "the flags were replaced")
    check("gelu on cpu" in root.serve(folder), "the upgraded server did not answer")
    # Back, as docs/UPGRADE.md says.
    root.install(first, "--allow-downgrades")
    check(root.version() != NEXT_VERSION, "the new version stayed")
    check("queue_seconds=7\n" in (root.path / FLAGS).read_text(encoding="utf-8"), "the flags were replaced")
    check("gelu on cpu" in root.serve(folder), "the server of before did not answer")
    root.run("apt-get", "remove", "--quiet", "--yes", "warpcall-server", "warpcall")
    check((root.path / FLAGS).exists(), "removing took the flags along")
    check(not (root.path / "usr/bin/warpcalld").exists(), "removing left the server")
    for secret in ("etc/warpcall/server.key", "var/cache/private/warpcall/tuning.txt"):
        (root.path / secret).parent.mkdir(parents=True, exist_ok=True)
        (root.path / secret).touch()
    root.run("dpkg", "--purge", "warpcall-server")
    left = [path for path in root.run("find", "/etc", "/usr", "/var/cache", "/var/lib", "-name", "*warpcall*").split()
            if not path.startswith(("/var/lib/apt/", "/var/lib/dpkg/"))]
    check(left == [], f"purging left {left}")


def main():
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        print("skipped: it needs debootstrap and root")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with clean_root(folder) as path:
            check_life(Root(path), folder, pathlib.Path(sys.argv[1]).resolve())
    print("the packages were installed, served, were upgraded, rolled back, removed and purged")


if __name__ == "__main__":
    main()
