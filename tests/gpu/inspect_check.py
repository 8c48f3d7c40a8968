"""Benchmark, Profile, Describe and the metrics of a GPU, through the real server and the command line.

    inspect_check.py PACK [OUT]

Prints its measurements; writes a plot and a trace into OUT; exit status 1 when a check fails.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from differential import Server

SOFTMAX_SHAPES = ["65536x256", "32768x1024", "16384x4096", "16384x16384", "4096x65536", "1024x131072",
                  "8x262144"]
TABLE_SECONDS_MAX = 60
# kernel_duration's mean against Benchmark's median.
DURATION_MARGIN = 0.05
# Multiply-adds alone against the library's product: 1.14 to 1.28 on an H200, and 0.91 where they were not at
# their best.
ARITHMETIC_MIN, ARITHMETIC_MAX = 1.0, 1.5
# Reads alone against a copy: 1.03 on an H100, 1.07 on an H200. Reads of half of the memory would be at 2.
READS_MIN, READS_MAX = 1.0, 1.25
FLAGS = ["--max_message_mib=2047", "--staging_mib=4096"]

failures = []


def check(condition, text):
    print(("ok    " if condition else "FAILED ") + text, flush=True)
    if not condition:
        failures.append(text)


def value_of(metrics, name, **labels):
    """Sums the series of `name` that have the labels; None if there is none."""
    found = [value for key, value in metrics.items() if re.match(name + r"(\{|$)", key)
             and all(f'{label}="{wanted}"' in key for label, wanted in labels.items())]
    return sum(found) if found else None


class Client:
    def __init__(self, pack, address):
        self.words = [os.path.join(pack, "bin/warpcall"), "--server", address]

    def run(self, *words):
        return subprocess.run([*self.words, *words], capture_output=True, text=True)

    def json(self, *words):
        done = self.run("--json", *words)
        if done.returncode != 0:
            sys.exit(f"warpcall {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)


def check_softmax_table(client, out):
    start = time.monotonic()
    table = os.path.join(out, "softmax.csv")
    words = ["bench", "softmax", "--plot", os.path.join(out, "softmax.svg"), "--csv", table]
    for shape in SOFTMAX_SHAPES:
        words += ["--shape", shape]
    done = client.run(*words, "--device", "cuda:0,cpu")
    seconds = time.monotonic() - start
    print(done.stdout, done.stderr)
    check(done.returncode == 0, "bench softmax over the peers' shapes")
    check(seconds < TABLE_SECONDS_MAX, f"the table took {seconds:.1f} s (at most {TABLE_SECONDS_MAX})")
    with open(table, newline="") as file:
        families = {line["family"] for line in csv.DictReader(file)}
    for family in ("cuda", "manual", "library", "cpu", "reference"):
        check(family in families, f"the table has family {family}")


def points(report):
    for point in report["points"]:
        for result in point["results"]:
            yield result


def median_us(client, implementation, *words):
    report = client.json("bench", *words, "--implementation", implementation, "--device", "cuda:0")
    print(json.dumps(report)[:600])
    return next(points(report))["median_ns"] / 1e3


def check_duration(server, client, kernel, inputs, piece, data_type, pieces, *more):
    """Compares the mean of warpcall_kernel_duration_seconds over requests with Benchmark's median. A large request runs
    in `pieces` whose copies overlap their kernels, so Benchmark times one `piece`: 4096 rows that cuBLASLt multiplies
    in 2672 us on an H200 take 3028 as eight times 512."""
    labels = {"kernel": kernel, "device": "cuda:0"}
    words = ["run", kernel, "--device", "cuda:0", "--output", "/dev/null", "--type", data_type, *more]
    for path in inputs:
        words += ["--input", path]
    first = client.json(*words)  # finds plans, fills pools
    implementation = first["implementation"]
    labels["implementation"] = implementation
    before = server.metrics()
    times = [client.json(*words)["timing"]["kernel_ns"] for _ in range(5)]
    after = server.metrics()
    name = "warpcall_kernel_duration_seconds"
    total = value_of(after, name + "_sum", **labels) - value_of(before, name + "_sum", **labels)
    count = value_of(after, name + "_count", **labels) - value_of(before, name + "_count", **labels)
    mean_us = 1e6 * total / count
    # Makes only as few launches as requests: a second of launches makes an H200 lower its clocks.
    harness_us = pieces * median_us(client, implementation, kernel, "--shape", piece, "--type", data_type,
                                    "--iterations", "5", "--warmup", "1", *more)
    ratio = mean_us / harness_us
    print(f"{kernel} {implementation}: requests {[round(t / 1e3, 1) for t in times]} us, launches {first['launch']}")
    check(abs(ratio - 1) <= DURATION_MARGIN,
          f"{kernel} {data_type} {implementation}: kernel_duration {mean_us:.1f} us, Benchmark of {pieces} x {piece} "
          f"{harness_us:.1f} us, ratio {ratio:.3f}")


def check_durations(server, client, folder):
    rng = np.random.default_rng(7)
    x = os.path.join(folder, "x.npy")
    np.save(x, rng.standard_normal(1 << 28, dtype=np.float32).reshape(16384, 16384))
    check_duration(server, client, "gelu", [x], "8192x16384", "f32", 2)
    os.remove(x)
    half = (rng.standard_normal(1 << 28, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    np.save(x, half.reshape(16384, 16384))
    check_duration(server, client, "gelu", [x], "8192x16384", "bf16", 2)
    os.remove(x)
    a, b = os.path.join(folder, "a.npy"), os.path.join(folder, "b.npy")
    for path in (a, b):
        np.save(path, rng.standard_normal((4096, 4096), dtype=np.float32))
    check_duration(server, client, "matmul", [a, b], "512x4096x4096", "f32", 8)
    for path in (a, b):
        values = np.load(path)
        np.save(path, (values.view(np.uint32) >> 16).astype(np.uint16))
    # Runs in one piece, since its rows do not lie one after the other. A kernel that comes alone takes up to 5 us
    # longer than one of Benchmark's, which follow each other, and a piece of this takes 44.
    check_duration(server, client, "matmul", [a, b], "4096x4096x4096", "bf16", 1, "--attribute", "transpose_a=true")


def check_profiles(server, client, out):
    for words in (["gelu", "--shape", "8192x8192"], ["softmax", "--shape", "16384x4096"],
                  ["matmul", "--shape", "4096x4096x4096", "--type", "bf16"], ["gelu", "--shape", "1024"]):
        words = [*words, "--request"]  # with copies, which are events of the device, too
        trace = os.path.join(out, f"trace_{words[0]}_{words[2]}.json")
        start = time.monotonic()
        done = client.run("profile", *words, "--device", "cuda:0", "--trace", trace)
        print(f"-- profile {' '.join(words)}: {time.monotonic() - start:.1f} s\n{done.stdout}{done.stderr}")
        check(done.returncode == 0, f"profile {' '.join(words)}")
        if done.returncode != 0:
            continue
        with open(trace) as file:
            events = json.load(file)["traceEvents"]
        device = [event for event in events if event["ph"] == "X" and event["pid"] == 2]
        check(len(device) >= 3, f"the trace has {len(device)} events of the device, {len(events)} in all")
        report = client.json("profile", *words, "--device", "cuda:0")
        kernels = [row for row in report["rows"] if row["kind"] == "kernel"]
        check(any((row["achieved_occupancy"] or 0) > 0 for row in kernels),
              f"achieved occupancy {[row['achieved_occupancy'] for row in kernels]}, "
              f"{report.get('counters_unavailable', '')!r}")
    achieved = {key: value for key, value in server.metrics().items()
                if key.startswith("warpcall_kernel_occupancy_ratio") and 'kind="achieved"' in key and value > 0}
    print(achieved)
    check(len(achieved) >= 3, "Profile's achieved occupancy is in the metrics")


def check_whole_kernel(client, out):
    """Softmax 16384x4096 as one kernel a run, as fast as Benchmark says and at its occupancy; README's example."""
    words = ["softmax", "--shape", "16384x4096", "--device", "cuda:0"]
    report = client.json("profile", *words, "--iterations", "5")
    rows = {kind: [row for row in report["rows"] if row["kind"] == kind] for kind in ("kernel", "copy", "host")}
    kernels = rows["kernel"]
    print(json.dumps(kernels))
    check(len(kernels) == 1 and kernels[0]["calls"] == 5, f"5 runs are {[row['calls'] for row in kernels]} kernels")
    check(not rows["copy"] and "queue" not in [row["name"] for row in rows["host"]], "no copies and no queue")
    harness_us = median_us(client, f"{report['implementation']}:{report['variant']}", *words)
    whole_us = kernels[0]["mean_ns"] / 1e3
    check(abs(whole_us / harness_us - 1) < 0.1, f"{whole_us:.1f} us whole, {harness_us:.1f} us by Benchmark")
    achieved = kernels[0]["achieved_occupancy"] or 0
    check(achieved > 0.45, f"achieved occupancy {100 * achieved:.1f} %, {report['counters_unavailable']!r}")
    pieces = [row for row in client.json("profile", *words, "--iterations", "5", "--request")["rows"]]
    calls = sum(row["calls"] for row in pieces if row["kind"] == "kernel")
    check(calls > 5 and any(row["kind"] == "copy" for row in pieces), f"5 requests are {calls} kernels, and copies")
    trace = os.path.join(out, "trace.json")
    start = time.monotonic()
    done = client.run("profile", "softmax", "--shape", "16384x16384", "--type", "bf16", "--trace", trace)
    print(f"-- README's profile: {time.monotonic() - start:.1f} s\n{done.stdout}{done.stderr}")
    check(done.returncode == 0 and os.path.getsize(trace) > 0, "README's profile writes its trace")


def check_verdicts(client):
    """Profiles report the known bounds of some kernels."""
    for words, bound in ((["gelu", "--shape", "8192x8192"], "memory"),
                         (["matmul", "--shape", "4096x4096x4096", "--type", "bf16"], "compute"),
                         (["gelu", "--shape", "1024"], "launch"),
                         (["gelu", "--shape", "8192x8192", "--request"], "transfer")):
        report = client.json("profile", *words, "--device", "cuda:0")
        print(json.dumps(report["verdict"]), json.dumps(report["figures"]))
        check(report["verdict"]["bound"] == bound,
              f"{' '.join(words)} is bound by {bound}: {report['verdict']['bound']}, {report['verdict']['reason']}")
    done = client.run("profile", "softmax", "--shape", "16384x4096", "--implementation", "cuda", "--implementation",
                      "manual", "--device", "cuda:0")
    print(f"-- two implementations\n{done.stdout}{done.stderr}")
    check(done.returncode == 0 and "kernels a run, the other 1" in done.stdout, "the chain's passes are a reason")


# A problem for each kernel that most of its rows take.
DESCRIBED = {"identity": ["1048576"], "gelu": ["1048576"], "softmax": ["4096x1024"], "matmul": ["1024x1024x1024"],
             "fused": ["1024x4096,4096", "--attribute", "expression=gelu(x0 + x1)"],
             "linear": ["256x512,128x512,128"], "layernorm": ["1024x4096,4096,4096"], "rmsnorm": ["1024x4096,4096"]}
# Language of a family's rows; a vendor's library reports nothing about its kernels.
LANGUAGES = {"cuda": "cuda", "manual": "cpp", "triton": "triton", "compiled": "cuda"}


def check_description(kernel, row, told, seconds):
    """The launch of a kernel of ours, of Triton's or of the compiler's is described in full."""
    languages = [file["language"] for file in told["files"]]
    shown = {file["language"]: file["text"] for file in told["files"]}
    sass = shown.get("sass", "")
    print(f"{kernel} {row['name']}: grid {told['grid']} block {told['block']} registers {told['registers_per_thread']} "
          f"shared {told['shared_memory_bytes']} local {told['local_memory_bytes']} waves {told['launch']['waves']:.2f} "
          f"occupancy {told['launch']['theoretical_occupancy']:.2f}, {sorted(set(languages))}, {seconds:.1f} s, "
          f"sass {len(sass)} bytes {sass[:100] if sass.startswith('//') else ''}")
    if row["family"] == "library" or "memcpy" in row["name"]:
        return
    check(told["grid"] and told["block"] and told["registers_per_thread"] > 0 and told["launch"]["waves"] > 0,
          f"{kernel} {row['name']}: its launch")
    check(LANGUAGES[row["family"]] in languages or "cuda" in languages, f"{kernel} {row['name']}: its source")
    check(sass != "", f"{kernel} {row['name']}: its SASS, or why there is none")


def check_descriptions(client):
    """Every row that runs a GPU's kernel, and registers, shared memory, grid and block against Profile's."""
    described = 0
    for kernel in client.json("kernels")["kernels"]:
        problem = DESCRIBED.get(kernel["name"])
        check(problem is not None, f"{kernel['name']} has a problem in DESCRIBED")
        variants = [(row, f"{row['name']}:{variant}") for row in kernel["implementations"]
                    for variant in row["variants"] if row["device_kind"] == "cuda" and not row["unavailable"]]
        for row, name in variants if problem else []:
            words = [kernel["name"], "--shape", *problem, "--implementation", name, "--device", "cuda:0"]
            start = time.monotonic()
            done = client.run("--json", "describe", *words)
            if done.returncode != 0:
                print(f"{kernel['name']} {name} does not take it: {done.stderr.strip()[:200]}")
                continue
            described += 1
            check_description(kernel["name"], row, json.loads(done.stdout), time.monotonic() - start)
    check(described > 20, f"{described} rows are described")
    words = ["softmax", "--shape", "16384x4096", "--device", "cuda:0", "--implementation", "cuda"]
    told = client.json("describe", *words)
    (ran,) = [row for row in client.json("profile", *words)["rows"] if row["kind"] == "kernel"]
    for name in ("registers_per_thread", "shared_memory_bytes", "grid", "block"):
        check(told[name] == ran[name], f"{name}: {told[name]} told, {ran[name]} by CUPTI")
    print(client.run("describe", *words).stdout)


def load(client, seconds, report):
    words = ["load", "gelu", "--shape", "1024", "--device", "cuda:0", "--duration", str(seconds)]
    report.append(client.run("--json", *words))


def windows(done):
    """The generator's lines, one a second."""
    return "\n".join(re.findall(r"\d+ s: .*", done.stderr))


def check_budget(client):
    """Requests of 4 KiB beside a Benchmark that takes all it can."""
    alone, beside = [], []
    load(client, 3, alone)
    thread = threading.Thread(target=load, args=(client, 6, beside))
    thread.start()
    client.run("bench", "gelu", "--shape", "16384x16384", "--device", "cuda:0", "--iterations", "100000")
    thread.join()
    print("4 KiB gelu alone\n" + windows(alone[0]))
    print("beside Benchmark\n" + windows(beside[0]))
    check(beside[0].returncode == 0, "no request failed beside a Benchmark")


def check_gpu_metrics(server, client):
    thread = threading.Thread(target=client.run, args=("bench", "matmul", "--shape", "4096x4096x4096", "--type",
                                                       "bf16", "--device", "cuda:0", "--iterations", "100000"))
    thread.start()
    most = {}
    names = ["sm_active_ratio", "sm_occupancy_ratio", "dram_bandwidth_ratio", "tensor_active_ratio",
             "power_watts", "temperature_celsius"]
    while thread.is_alive():
        metrics = server.metrics()
        for name in names:
            value = value_of(metrics, "warpcall_gpu_" + name, device="cuda:0")
            if value is not None:
                most[name] = max(value, most.get(name, 0))
        time.sleep(0.3)
    thread.join()
    print("most seen:", most)
    for name in names:
        check(most.get(name, 0) > 0, f"warpcall_gpu_{name}")
    check(most.get("sm_active_ratio", 0) > 0.5, "multiprocessors were active under load")
    ceiling = value_of(server.metrics(), "warpcall_device_bandwidth_ceiling_bytes_per_second", device="cuda:0")
    check(ceiling is not None and ceiling > 1e12, f"the ceiling is {ceiling}")


def check_arithmetic(client):
    """Multiply-adds alone are faster than any product, but not by far."""
    for words in (["f32"], ["f32", "--attribute", "precision=tf32"], ["f16"], ["bf16"]):
        report = client.json("bench", "matmul", "--shape", "4096x4096x4096", "--device", "cuda:0", "--implementation",
                             "library", "--iterations", "10", "--type", *words)
        ceiling = report["points"][0]["flops_ceiling"] or 0
        ratio = ceiling / max(result["flops_per_second"] for result in points(report))
        check(ARITHMETIC_MIN <= ratio <= ARITHMETIC_MAX,
              f"multiply-adds in {' '.join(words)}: {ceiling / 1e12:.0f} TFLOP/s, {ratio:.2f} of the library's product "
              f"({ARITHMETIC_MIN} to {ARITHMETIC_MAX})")


def check_reads(client):
    """Reads alone are a little faster than a copy, and no vector times a matrix is faster than reads."""
    report = client.json("bench", "matmul", "--shape", "1x8192x8192", "--device", "cuda:0", "--implementation", "library",
                         "--iterations", "20", "--type", "bf16")
    point = report["points"][0]
    ratio = (point["read_ceiling_bytes_per_second"] or 0) / point["ceiling_bytes_per_second"]
    check(READS_MIN <= ratio <= READS_MAX, f"reads at {ratio:.3f} of a copy ({READS_MIN} to {READS_MAX})")
    share = max(result["fraction_of_ceiling"] for result in points(report))
    check(0.5 < share <= 1.05, f"a vector times a matrix has {share:.3f} of the reads' bandwidth")
    report = client.json("bench", "gelu", "--shape", "67108864", "--device", "cuda:0", "--implementation", "cuda",
                         "--iterations", "5")
    check(report["points"][0]["read_ceiling_bytes_per_second"] is None, "gelu is compared with a copy")


def main():
    pack = sys.argv[1]
    out = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    os.makedirs(out, exist_ok=True)
    server = Server(pack, *FLAGS).await_rows()
    client = Client(pack, server.address)
    with tempfile.TemporaryDirectory() as folder:
        check_softmax_table(client, out)
        check_durations(server, client, folder)
    check_profiles(server, client, out)
    check_whole_kernel(client, out)
    check_verdicts(client)
    check_descriptions(client)
    check_budget(client)
    check_gpu_metrics(server, client)
    check_arithmetic(client)
    check_reads(client)
    check(server.stop() == 0, "the server drained")
    print(f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
