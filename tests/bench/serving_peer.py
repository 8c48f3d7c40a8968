#!/usr/bin/env python3
"""NVIDIA Triton Inference Server beside warpcalld, identity and gelu on the CPU: both are sent the same
ModelInfer by the same C++ client, in turns.

    serving_peer.py BUILD_FOLDER [--seconds S] [--runs N]

prints the table of BENCHMARKS.md: medians of N runs of S seconds each. The server and its Python backend come from PyPI
into BUILD_FOLDER/serving_peer; the models are Python, in two instances each, with Debian's python3-numpy. Every answer
is checked; a wrong one ends it with status 1, as does a missing package.
"""

import argparse
import hashlib
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import zipfile
from collections import namedtuple

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.append(str(HERE.parent / "deploy"))

import pinned  # noqa: E402

REQUIREMENTS = HERE / "serving_peer_requirements.txt"
# Debian's, to which its NumPy belongs.
PYTHON = "/usr/bin/python3"
KERNELS = ["identity", "gelu"]
START_SECONDS_MAX = 60
KIB, MIB = 1 << 10, 1 << 20
Point = namedtuple("Point", "bytes connections")
# Measured points, and how many times as fast as the peer warpcalld has to be.
BARS = {Point(4 * KIB, 1): 3, Point(4 * KIB, 8): 3, Point(MIB, 1): 2, Point(16 * MIB, 1): 2,
        Point(64 * MIB, 1): 2}
OURS, PEER = "warpcall", "peer"
Figures = namedtuple("Figures", "p50_us rate")

CONFIGURATION = """\
name: "{kernel}_fp32"
backend: "python"
max_batch_size: 0
input [{{ name: "x" data_type: TYPE_FP32 dims: [-1] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [-1] }}]
instance_group [{{ count: 2 kind: KIND_CPU }}]
"""


class Failure(Exception):
    """Cause that ended the benchmark."""


# ---- the peer --------------------------------------------------------------------------------------

def unpack(wheel, folder, python_version):
    """Unpacks the files of the wheel that the server needs to where it looks for them."""
    stub = f"pytriton/tritonserver/python_backend_stubs/{python_version}/triton_python_backend_stub"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if stub not in names:
            raise Failure(f"the wheel's Python backend is not for Python {python_version}")
        wanted = ("nvidia_pytriton.libs/", "pytriton/tritonserver/bin/", "pytriton/tritonserver/backends/")
        archive.extractall(folder, [name for name in names if name.startswith(wanted)])
        backend = folder / "pytriton/tritonserver/backends/python/triton_python_backend_stub"
        backend.write_bytes(archive.read(stub))
    backend.chmod(0o755)
    (folder / "pytriton/tritonserver/bin/tritonserver").chmod(0o755)


def fetch(folder):
    """The folder pytriton/tritonserver of the wheel, which stays until the pin or Python changes."""
    if platform.machine() != "x86_64":
        raise Failure("nvidia-pytriton's wheel is for x86-64")
    version = pinned.run("python3-numpy", PYTHON, "-c",
                         "import sys, numpy; print('%d.%d' % sys.version_info[:2], numpy.__version__)").split()
    note = folder / "fetched"
    wanted = f"{version[0]} {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()}"
    if not note.exists() or note.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pinned.download(folder, REQUIREMENTS)
        (wheel,) = folder.glob("*.whl")
        unpack(wheel, folder, version[0])
        wheel.unlink()
        note.write_text(wanted, encoding="utf-8")
    return folder / "pytriton/tritonserver", f"Python {version[0]}, NumPy {version[1]}"


def write_models(folder):
    """A model repository with the names, types, inputs and outputs of Warpcall's own models."""
    shutil.rmtree(folder, ignore_errors=True)
    for kernel in KERNELS:
        model = folder / f"{kernel}_fp32"
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(CONFIGURATION.format(kernel=kernel), encoding="utf-8")
        shutil.copy(HERE / "serving_peer_model.py", model / "1/model.py")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Peer:
    """The server, for as long as a `with` lasts; `address`, and the `version` that it says."""

    def __init__(self, server, models):
        self.address = f"127.0.0.1:{free_port()}"
        host, port = self.address.split(":")
        environment = dict(os.environ, PATH="/usr/bin:/bin", CUDA_VISIBLE_DEVICES="")
        self.process = subprocess.Popen(
            [server / "bin/tritonserver", "--model-repository", models, "--backend-directory",
             server / "backends", "--allow-http=false", "--allow-metrics=false", "--grpc-address", host,
             "--grpc-port", port], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace")
        self.reader = threading.Thread(target=self.process.stderr.read)
        self.version = ""

    def __enter__(self):
        timer = threading.Timer(START_SECONDS_MAX, self.process.kill)
        timer.start()
        said = []
        for line in self.process.stderr:
            said.append(line)
            if match := re.match(r"\| server_version +\| (\S+)", line):
                self.version = match[1]
            if "Started GRPCInferenceService" in line:
                break
        timer.cancel()
        if not said or "Started GRPCInferenceService" not in said[-1]:
            self.__exit__(None, None, None)
            raise Failure(f"tritonserver did not start within {START_SECONDS_MAX} s: {''.join(said[-5:])}")
        # Later output must not fill the pipe.
        self.reader.start()
        return self

    def __exit__(self, *_):
        # It is not killed: it would leave its shared memory behind.
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        if self.reader.ident is not None:
            self.reader.join()
        self.process.stderr.close()


# ---- the figures -----------------------------------------------------------------------------------

ROW = re.compile(r"\| TCP \| (\d+) \| (\d+) \| (\w+) (\w+) \(ModelInfer\) \| ([\d.]+) \|"
                 r" [\d.]+ \| [\d.]+ \| ([\d.]+) \|")


def read_run(output):
    """(point, kernel, server) -> Figures, from warpcall_transport_bench's output."""
    return {(Point(int(row[2]), int(row[1])), row[4], row[3]): Figures(float(row[5]), float(row[6]))
            for row in map(ROW.match, output.splitlines()) if row}


def medians(runs):
    """Median of each figure over the runs. Every run has every case."""
    wanted = {(point, kernel, server) for point in BARS for kernel in KERNELS for server in (OURS, PEER)}
    for run in runs:
        if missing := wanted - set(run):
            raise Failure(f"the benchmark did not measure {sorted(missing)}")
    return {case: Figures(statistics.median(run[case].p50_us for run in runs),
                          statistics.median(run[case].rate for run in runs)) for case in wanted}


def verdict(ratios, bar):
    """Both have to be there: the times' and the rates'."""
    return f"≥ {bar}: {'met' if min(ratios) >= bar else 'missed'}"


def cells(point, kernel, figures):
    ours, peer = figures[point, kernel, OURS], figures[point, kernel, PEER]
    size = f"{point.bytes // MIB} MiB" if point.bytes >= MIB else f"{point.bytes // KIB} KiB"
    yield f"{size}, {point.connections} connection{'s' * (point.connections > 1)}"
    yield kernel
    for one in (peer, ours):
        yield f"{one.p50_us:.0f}"
        yield f"{one.rate:.0f}" if one.rate >= 100 else f"{one.rate:.1f}"
    ratios = peer.p50_us / ours.p50_us, ours.rate / peer.rate
    yield from (f"{ratio:.2f}" for ratio in ratios)
    yield verdict(ratios, BARS[point])


def table(figures):
    names = ["tensor", "model", "Triton, Python backend: p50, us", "requests/s", "warpcalld: p50, us",
             "requests/s", "times as fast by p50", "by requests/s", "bar"]
    rows = [names, *(cells(point, kernel, figures) for point in BARS for kernel in KERNELS)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(names), *lines[1:]]) + "\n"


def measure(build, peer, seconds):
    """One run of all cases."""
    output = ""
    for connections in sorted({point.connections for point in BARS}):
        sizes = [str(point.bytes) for point in BARS if point.connections == connections]
        done = subprocess.run(
            [build / "tests/bin/warpcall_transport_bench", "--contenders", "infer,peer", "--peer", peer.address,
             "--transports", "tcp", "--connections", str(connections), "--sizes", ",".join(sizes), "--seconds",
             str(seconds), "--server_flags=--devices=cpu"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"warpcall_transport_bench: {done.stderr}")
        output += done.stdout
    return read_run(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    server, versions = fetch(options.build / "serving_peer")
    models = options.build / "serving_peer/models"
    write_models(models)
    load = os.getloadavg()[0]
    with Peer(server, models) as peer:
        runs = [measure(options.build, peer, options.seconds) for _ in range(options.runs)]
    print(table(medians(runs)))
    print(f"Triton Inference Server {peer.version}, Python backend, {versions}; {os.cpu_count()} cores, load average "
          f"{load:.1f} before; medians of {options.runs} runs of {options.seconds:g} s of each.")


if __name__ == "__main__":
    try:
        main()
    except (Failure, pinned.Missing) as failure:
        sys.exit(f"serving_peer: {failure}")
