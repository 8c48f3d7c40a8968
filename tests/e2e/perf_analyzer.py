"""NVIDIA's perf_analyzer, unchanged: its origin, a run of it, and its output; and the server's statistics that it
reads.

The program is in the wheel of tritonclient 2.51.0, the last one for glibc 2.36; it links NVIDIA's runtime,
which comes from PyPI too, and Debian's libb64-0d.
"""

import ctypes.util
import dataclasses
import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "deploy"), str(ROOT / "tests" / "differential")]
import differential  # noqa: E402
import pinned  # noqa: E402

WHEELS = {"tritonclient==2.51.0":
          "sha256:c485bb0123bdf310f90bc8b03d3489b28df2ffed55b30c7eee0b795b48113d52",
          "nvidia-cuda-runtime-cu12==12.4.127":
          "sha256:64403288fa2136ee8e467cdc9c9427e0434110899d07c779f25b5c068934faa5"}
FILES = {"bin/perf_analyzer", "lib/libcudart.so.12"}
SECONDS_MAX = 120
STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"


def fetch(folder):
    """The program's path below `folder`, where it stays. Raises pinned.Missing."""
    program = folder / "perf_analyzer"
    if platform.machine() != "x86_64":
        raise pinned.Missing("perf_analyzer's wheel is for x86-64")
    if ctypes.util.find_library("b64") is None:
        raise pinned.Missing("no libb64-0d; deploy/install_packages.sh test installs it")
    if (folder / "fetched").exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{wheel} --hash={digest}\n" for wheel, digest in WHEELS.items()))
    pinned.download(folder, requirements)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(tuple(FILES)):
                    (folder / name.rsplit("/", 1)[1]).write_bytes(archive.read(name))
    program.chmod(0o755)
    (folder / "fetched").touch()
    return program


class Failed(Exception):
    """perf_analyzer ended with another status than 0; the message is its output."""


class Late(Failed):
    """It did not end in time."""


def run(program, address, *arguments):
    """Returns the program's output."""
    # One connection registers shared memory and makes the requests: regions belong to a connection.
    environment = dict(os.environ, LD_LIBRARY_PATH=str(program.parent),
                       TRITON_CLIENT_GRPC_CHANNEL_MAX_SHARE_COUNT="64")
    try:
        done = subprocess.run([program, "-i", "grpc", "-u", address, "-v", *arguments], env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        printed = b"".join(part or b"" for part in (late.stdout, late.stderr)).decode(errors="replace")
        raise Late(f"{arguments} had not ended after {SECONDS_MAX} s: {printed}") from None
    if done.returncode != 0:
        raise Failed(done.stdout + done.stderr)
    return done.stdout


@dataclasses.dataclass
class Report:
    """Its verdict on one concurrency."""
    counts: dict
    """Requests that it sent, and the growth of the server's statistics, by its own names."""
    passes: list
    """(requests a second, mean latency in microseconds as its client sees it) of each window in turn."""
    p50_us: int
    """Median over all windows."""
    server_us: dict
    """Means on the server, whole microseconds, by the statistics' names."""


def read_report(printed):
    """Reads its output with -v for one concurrency."""
    passes = re.findall(r"Pass \[\d+\] throughput: ([\d.]+) infer/sec\. Avg latency: (\d+) usec", printed)
    said = printed[printed.index("\n  Client:"):]
    server = re.search(r"queue (\d+) usec \+ compute input (\d+) usec \+ compute infer (\d+) usec \+ "
                       r"compute output (\d+) usec", said)
    names = ("queue", "compute_input", "compute_infer", "compute_output")
    return Report({name: int(count) for name, count in re.findall(r"(\w+(?: request)?) count: (\d+)", said)},
                  [(float(rate), int(latency)) for rate, latency in passes],
                  int(re.search(r"p50 latency: (\d+) usec", said)[1]), dict(zip(names, map(int, server.groups()))))


class Statistics:
    """ModelStatistics of one model; `folder` holds protoc's output for the proto."""

    def __init__(self, address, model, folder):
        path = pathlib.Path(folder) / "inference.desc"
        pinned.run("protoc", "protoc", f"--proto_path={ROOT / 'proto'}", "--include_imports",
                   f"--descriptor_set_out={path}", "inference/grpc_service.proto")
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        request, response = (differential.class_of(pool.FindMessageTypeByName(f"inference.{name}"), pool)
                             for name in ("ModelStatisticsRequest", "ModelStatisticsResponse"))
        self.request = request(name=model)
        self.channel = grpc.insecure_channel(address)
        self.method = self.channel.unary_unary(STATISTICS, request_serializer=request.SerializeToString,
                                               response_deserializer=response.FromString)

    def read(self):
        """(count, ns) of each sum, by its name."""
        (model,) = self.method(self.request).model_stats
        sums = model.inference_stats
        return {field.name: (getattr(sums, field.name).count, getattr(sums, field.name).ns)
                for field in sums.DESCRIPTOR.fields}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()


def grown(before, after):
    """Growth of each sum of Statistics.read."""
    return {name: (count - before[name][0], ns - before[name][1]) for name, (count, ns) in after.items()}
