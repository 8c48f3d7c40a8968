#!/usr/bin/env python3
"""The wheels of a release, made of this build's programs, installed by pip in new systems of their own that have
python3-venv and nothing else: Debian 12, Debian 13 and, where its archive is in reach, Ubuntu 24.04. In each the server
starts, and the command line and the Python client get answers. Prints the size of the server's wheel, and the time from
`pip install` to the first answer.

    wheel_test.py BUILD_FOLDER [WHEELS]

WHEELS: a folder of wheels that were made before. Takes minutes, the archive, PyPI and root: for the night. Exit status
77: skipped, for want of these.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

sys.dont_write_bytecode = True

import processes  # noqa: E402
from clean_root_test import Root, check, clean_root, run  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MB = 10**6
SERVER_MB_MAX = 40
UBUNTU = ("https://archive.ubuntu.com/ubuntu", "/usr/share/debootstrap/scripts/gutsy")
UBUNTU_GLIBC = (2, 39)  # of 24.04
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CALLS = """
import sys
import numpy as np
import warpcall

with warpcall.connect(sys.argv[1], timeout=60, retry=warpcall.Retry(attempts_max=1000)) as gpu:
    x = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)
    for _ in range(20):
        assert np.array_equal(gpu.identity(x), x)
    assert abs(np.asarray(gpu.softmax(x)).sum(-1) - 1).max() < 1e-5
    print(warpcall.FAST, gpu.server_info().version)
"""


def make(folder, build):
    """{name: path} of the wheels, by deploy/wheels.sh, which must make the same bytes each time."""
    first, second = folder / "wheels", folder / "again"
    for made in (first, second):
        run("bash", SOURCE / "deploy/wheels.sh", made, build)
    for wheel in first.iterdir():
        check(wheel.read_bytes() == (second / wheel.name).read_bytes(), f"{wheel.name}, made again, has other bytes")
    return by_name(first)


def by_name(folder):
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def glibc_of(wheel):
    return tuple(int(number) for number in re.search(r"manylinux_(\d+)_(\d+)_", wheel.name).groups())


def check_server_wheel(wheel):
    """Its size, and that the licences are those of the packages that auditwheel's bill of materials lists."""
    size = wheel.stat().st_size / MB
    print(f"{wheel.name}: {size:.1f} MB, glibc {'.'.join(map(str, glibc_of(wheel)))} or later")
    check(size <= SERVER_MB_MAX, f"{wheel} has {size:.1f} MB; the limit is {SERVER_MB_MAX}")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (notice,) = [name for name in names if name.endswith("/NOTICE")]
        listed = re.findall(r"^(\S+) \S+: lib", archive.read(notice).decode(), re.M)
        (bill,) = [name for name in names if name.endswith(".cdx.json")]
        components = json.loads(archive.read(bill))["components"]
        metadata = archive.read(notice.partition("/")[0] + "/METADATA").decode()
    brought = {part["name"] for part in components if part["purl"].startswith("pkg:deb/")}
    check(len(brought) > 5, f"auditwheel lists {brought}")
    check(brought == set(listed), f"the wheel brings {brought}, and has the licences of {listed}")
    lacking = [name for name in brought if not any(entry.endswith(f"/licenses/{name}.txt") for entry in names)]
    check(lacking == [], f"the licences of {lacking} are not there")
    extras = re.findall(r"^Provides-Extra: (\S+)", metadata, re.M)
    check(extras == ["push"], f"a server without the CUDA device has the extras {extras}")


def prepare(root, wheels):
    """Copies the wheels, and what pip needs to reach PyPI as this machine does."""
    (root.path / "wheels").mkdir()
    for wheel in wheels.values():
        shutil.copy(wheel, root.path / "wheels")
    for file in (os.environ.get("PIP_CERT", CERTIFICATES), "/etc/pip.conf"):
        if os.path.exists(file):
            place = root.path / file[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)


def install(root, environment, *names):
    root.run("python3", "-m", "venv", f"/{environment}")
    root.run(f"/{environment}/bin/pip", "install", "--quiet", "--no-cache-dir", "--find-links", "/wheels", *names)


@contextlib.contextmanager
def serving(root, environment, *words):
    """Starts the server by the command that pip installed; yields its address."""
    log = root.path.parent / f"{environment}.log"
    command = ["chroot", root.path, *(words or (f"/{environment}/bin/warpcalld",)), *processes.FREE_PORTS,
               "--lame_duck_seconds=0"]
    with processes.running(command, log) as process:
        yield processes.wait_until("the server", lambda: process.poll() is None and
                                   re.search(r"serving on ([^ ,]+)", log.read_text()), 90)[1]


def check_root(root, wheels, is_fast):
    prepare(root, wheels)
    started = time.monotonic()
    install(root, "v", "warpcall-server", "warpcall")
    with serving(root, "v") as address:
        said = root.run("/v/bin/warpcall", "--server", address, "run", "softmax", "--shape", "8x8")
        seconds = time.monotonic() - started
        check("softmax on cpu" in said, f"the command line got {said}")
        print(f"  the first answer came {seconds:.0f} s after pip install began")
        said = root.run("/v/bin/python", "-W", "error", "-c", CALLS, address)
        check(said.split()[0] == "False", f"the Python client got {said}")
        # Nothing of this machine's can be meant: the root has no such libraries.
        check(root.run("find", "/usr", "-name", "libgrpc*") == "", "the root has gRPC of its own")
    # The one of the same version, by the client's extras, and as a module.
    install(root, "w", "warpcall[fast,server]" if is_fast else "warpcall[server]")
    with serving(root, "w", "/w/bin/python", "-m", "warpcall_server") as address:
        said = root.run("/w/bin/python", "-W", "error", "-c", CALLS, address).split()
        version = wheels["warpcall"].name.split("-")[1]
        check(said == [str(is_fast), version], f"the Python client got {said}")


def check_debian(release, folder, wheels, is_fast):
    print(f"Debian {release}:")
    with clean_root(folder, "--include=python3-venv", release=release) as path:
        check_root(Root(path), wheels, is_fast)


def check_ubuntu(folder, wheels):
    """Ubuntu 24.04, unless its archive is out of reach: then the wheel's tag says that its glibc is new enough."""
    print("Ubuntu 24.04:")
    with contextlib.ExitStack() as stack:
        try:
            # Debian has no keys of Ubuntu's: TLS is what says that the archive is theirs.
            path = stack.enter_context(clean_root(folder, "--no-check-gpg", "--include=python3-venv",
                                                  "--components=main,universe", release="noble", source=UBUNTU))
        except (Failure, subprocess.TimeoutExpired) as failure:
            check(glibc_of(wheels["warpcall_server"]) <= UBUNTU_GLIBC, f"{wheels['warpcall_server']} is too new")
            print(f"  skipped: {str(failure).splitlines()[-1][-200:]}; by its tag the wheel runs there")
            return
        check_root(Root(path), wheels, False)


def main():
    if shutil.which("debootstrap") is None or os.geteuid() != 0 or os.environ.get("WARPCALL_TEST_NIGHTLY") != "1":
        print("skipped: it needs WARPCALL_TEST_NIGHTLY=1, debootstrap and root")
        sys.exit(SKIPPED)
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheels = by_name(pathlib.Path(sys.argv[2])) if sys.argv[2:] else make(folder, build)
        check(set(wheels) == {"warpcall", "warpcall_fast", "warpcall_server"}, f"the wheels are {wheels}")
        check_server_wheel(wheels["warpcall_server"])
        for release, is_fast in (("bookworm", True), ("trixie", False)):
            (folder / release).mkdir()
            check_debian(release, folder / release, wheels, is_fast)
        (folder / "ubuntu").mkdir()
        check_ubuntu(folder / "ubuntu", wheels)


if __name__ == "__main__":
    main()
