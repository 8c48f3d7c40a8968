#!/usr/bin/env python3
"""deploy/ray on a Ray cluster of three nodes on this machine: each row is right and there once though a node is killed
with its server; blocks go to the server of their own node; refusals; remains at the end.

    ray_test.py WARPCALLD FOLDER [unittest's arguments]

With WARPCALL_TEST_NIGHTLY=1, as it takes minutes. Ray comes from PyPI (ray_requirements.txt), into an environment of
600 MB in FOLDER, where it stays. Its Python runs ray_cluster.py, which has the cases. Exit status 77: skipped, without
that or where Ray can't be had.
"""

import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import pinned  # noqa: E402
import processes  # noqa: E402

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
CLIENT = HERE.parents[1] / "client" / "python"
CASES_SECONDS_MAX, END_SECONDS_MAX = 900, 60


def environment(folder, binary):
    """Environment of the cluster, which nobody else may use, and of all its processes."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "WARPCALL"))}
    return {**ours, "TMPDIR": folder, "PATH": f"{binary.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(CLIENT), "PYTHONDONTWRITEBYTECODE": "1",
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0",
            # Ray's workers yield to everybody else on the machine, which is busy when tests run.
            "RAY_worker_niceness": "0", "WARPCALL_PURE": "1"}


def left(folder):
    """{id: command line} of processes that have a file of the folder open, as all of the cluster have. Their parents
    and environments do not tell: Ray's workers end when their parent is process 1, and write over the others."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if any(os.readlink(file).startswith(f"{folder}/") for file in (process / "fd").iterdir()):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return found


def main():
    if os.environ.get("WARPCALL_TEST_NIGHTLY") != "1":
        print("skipped: it takes minutes; WARPCALL_TEST_NIGHTLY=1 runs it, as tests/run.sh --nightly does")
        return SKIPPED
    binary, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    try:
        programs = pinned.environment(build / "ray", HERE / "ray_requirements.txt")
    except pinned.Missing as missing:
        print(f"skipped: {missing}")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        try:
            done = subprocess.run(
                [programs / "python", HERE / "ray_cluster.py", binary, folder, *sys.argv[3:]],
                env=environment(folder, binary), stdin=subprocess.DEVNULL, check=False, timeout=CASES_SECONDS_MAX)
            processes.wait_until("the cluster's processes to end", lambda: not left(folder), END_SECONDS_MAX)
            return done.returncode
        finally:
            for process, command in left(folder).items():
                print(f"left, and killed now: {process} {command}")
                os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
