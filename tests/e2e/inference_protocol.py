"""Shared parts of the tests of the Open Inference Protocol: NVIDIA Triton's client of PyPI in an environment of its
own, the server, shared memory, and requests that wait."""

import contextlib
import hashlib
import os
import pathlib
import sys
import tempfile
import time

SKIPPED = 77
SECONDS_MAX = 90
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "tritonclient_requirements.txt"
INSIDE = "WARPCALL_TEST_INSIDE"

sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests" / "deploy"), str(ROOT / "tests" / "differential")]
import pinned  # noqa: E402


def enter(build):
    """Runs this program once more, by the Python that has requirements.txt's packages. They lie below the
    build's folder until the file changes. Ends with SKIPPED where they can't be had."""
    if os.environ.get(INSIDE):
        return
    folder = pathlib.Path(build) / "tritonclient"
    wanted = f"{sys.version_info[:2]} {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()}"
    note = folder / "installed"
    if not note.exists() or note.read_text(encoding="utf-8") != wanted:
        try:
            pinned.run("python3 -m venv", sys.executable, "-m", "venv", "--clear", folder)
            pinned.run("pip install", folder / "bin" / "python", "-m", "pip", "install", "--quiet",
                       "--disable-pip-version-check", "--no-input", "--retries", "2", "--require-hashes",
                       "--no-deps", "--only-binary", ":all:", "--requirement", REQUIREMENTS)
        except pinned.Missing as missing:
            print(f"skipped: {missing}")
            sys.exit(SKIPPED)
        note.write_text(wanted, encoding="utf-8")
    os.environ[INSIDE] = "1"
    python = str(folder / "bin" / "python")
    os.execv(python, [python, *sys.argv])


def eventually(what):
    end = time.monotonic() + SECONDS_MAX
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"waited {SECONDS_MAX} s in vain")
        time.sleep(0.01)


def total(server, metric, *labels):
    return sum(value for name, value in server.metrics().items()
               if name.startswith(metric) and all(label in name for label in labels))


class Gate:
    """Holds requests of the kernel `held` until it is opened."""

    def __init__(self, test):
        self.path = os.path.join(test.enterContext(tempfile.TemporaryDirectory()), "gate")
        pathlib.Path(self.path).touch()

    def open(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
