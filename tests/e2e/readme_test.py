#!/usr/bin/env python3
"""Runs the commands of README and of the guide in docs/ as they stand there, against a server of their own, and
compares their output and files with the text, except measured figures. Commands of CONTRIBUTING that build or test
are not run, but the presets, targets, tests and scripts' options that they name must exist. So must the
implementations that kernels/README.md names.

    readme_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import array
import csv
import json
import math
import os
import pathlib
import random
import re
import shlex
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

# Commands that do not run here, by their beginning, and why.
EXCUSED = {
    "bash tests/run.sh": "is what runs this test",
    "docker ": "needs a container engine",
    "cmake --": "added_op_test does this",
    "build/relu/": "added_op_test does this",
    "warpcalld &": "README has started one",
}
GUIDE = ("README.md", "docs/start.md", "docs/layer.md", "docs/compare.md", "docs/json.md", "docs/operate.md",
         "docs/op.md")
# Elements of the inputs that README names. huge.npy exceeds the limit of a message (512 MiB).
INPUTS = {"x.npy": [4096, 1024], "bias.npy": [1024], "big.npy": [16 << 20], "huge.npy": [(512 << 20) // 4 + 1000]}
SECONDS_MAX = 300
DURATION = re.compile(r"\d[\d.]* (?:ns|us|ms|s|[KMGT]?B/s|[KMGT]?FLOP/s)(?![\w/])")


class Failure(Exception):
    """The texts and the programs do not agree; the message says where."""


def check(condition, message):
    if not condition:
        raise Failure(message)


# ---- README and the guide --------------------------------------------------------------------------

def guide_of(source):
    return "\n".join((source / name).read_text(encoding="utf-8") for name in GUIDE)


def blocks(text, language):
    return [match.group(2).splitlines()
            for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)^```$", text, re.MULTILINE)
            if match.group(1) == language]


def commands(block):
    """(command, lines of output or None where the text shows none) of one block."""
    if not any(line.startswith("$ ") for line in block):
        return [(line.split("  #")[0].strip(), None) for line in block if line.strip()]
    found = []
    for line in block:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def measured_left_out(lines):
    """Words as they are; figures that differ from run to run, and columns' widths, left out."""
    kept = []
    for line in lines:
        line = DURATION.sub("#", line)
        line = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line)
        line = re.sub(r"request warpcall-\d+", "request warpcall-#", line)
        line = " ".join(line.split())
        if line:
            kept.append(line)
    return kept


# ---- .npy files ------------------------------------------------------------------------------------

def write_npy(path, shape):
    """N(0, 1), in a pattern that repeats: quick to make."""
    rng = random.Random(7)
    pattern = array.array("f", (rng.gauss(0, 1) for _ in range(1 << 16)))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    left = math.prod(shape)
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        while left > 0:
            file.write(pattern[:left].tobytes())
            left -= len(pattern)


def write_shown(guide, folder):
    """Writes the JSON that the guide shows under the name that it says before: "as `layer.json`:"."""
    for name, text in re.findall(r"`(\w+\.json)`:\n\n```json\n((?:.*\n)*?)```$", guide, re.MULTILINE):
        (folder / name).write_text(text, encoding="utf-8")


def read_npy(path, first, count):
    with open(path, "rb") as file:
        file.seek(8)
        data = 10 + struct.unpack("<H", file.read(2))[0]
        file.seek(data + 4 * first)
        values = array.array("f", file.read(4 * count))
    check(len(values) == count, f"{path} ends before element {first + count}")
    return values


def check_gelu(folder, source):
    elements = math.prod(INPUTS[source])
    size = (folder / "y.npy").stat().st_size
    check(size == (folder / source).stat().st_size, f"y.npy has {size} bytes, unlike {source}")
    for first in (0, elements // 2, elements - 1000):
        for x, y in zip(read_npy(folder / source, first, 1000), read_npy(folder / "y.npy", first, 1000)):
            truth = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            check(abs(y - truth) <= 2e-6 * (1 + abs(x)), f"gelu({x}) is {y}, expected {truth}")


def check_softmax(folder):
    """Checks softmax of random numbers: rows sum to 1; their logarithms spread as N(0, 1)."""
    for row in (0, 4095):
        y = read_npy(folder / "y.npy", row * 1024, 1024)
        check(math.isclose(sum(y), 1, rel_tol=1e-4), f"row {row} of y.npy sums to {sum(y)}")
        spread = statistics.pstdev(map(math.log, y))
        check(0.8 < spread < 1.2, f"row {row} of y.npy has logarithms spread by {spread}")


def check_fused(folder):
    bias = read_npy(folder / "bias.npy", 0, 1024)
    for row in (0, 4095):
        x, y = (read_npy(folder / name, row * 1024, 1024) for name in ("x.npy", "y.npy"))
        for a, b, found in zip(x, bias, y):
            truth = 0.5 * (a + b) * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + b + 0.044715 * (a + b)**3)))
            check(abs(found - truth) <= 4e-6 * (1 + abs(a + b)), f"gelu({a} + {b}) is {found}, expected {truth}")


def check_files(folder, command):
    """Checks the files that the command writes."""
    if "softmax --shape 4096x1024 --output" in command:
        check_softmax(folder)
    elif "fused 'gelu(x0 + x1)'" in command:
        check_fused(folder)
    elif "run gelu" in command:
        check_gelu(folder, next(name for name in INPUTS if name in command))
    for option, name in re.findall(r"--(plot|csv|trace) (\S+)", command):
        text = (folder / name).read_text(encoding="utf-8")
        if option == "plot":
            root = xml.etree.ElementTree.fromstring(text)
            check(root.tag.endswith("svg") and ">cpu" in text, f"{name} shows no cpu")
        elif option == "csv":
            rows = list(csv.DictReader(text.splitlines()))
            check(len(rows) >= 3, f"{name} has {len(rows)} rows")
        else:
            check(json.loads(text)["traceEvents"], f"{name} has no events")


# ---- running ---------------------------------------------------------------------------------------

class Session:
    def __init__(self, source, build, folder):
        self.source, self.build, self.folder = source, build, folder
        self.server = None
        self.environment = dict(os.environ, PATH=f"{build}/bin:{os.environ['PATH']}")

    def start_server(self, arguments):
        self.server = subprocess.Popen(
            [f"{self.build}/bin/warpcalld", *arguments, "--listen=127.0.0.1:0",
             "--metrics_listen=127.0.0.1:0", "--lame_duck_seconds=0"],
            stdout=subprocess.PIPE, stderr=open(self.folder / "warpcalld.log", "wb"), text=True)
        line = self.server.stdout.readline()
        match = re.search(r"serving on (\S+),", line)
        check(match, f"the server did not start: {line}")
        self.environment["WARPCALL_SERVER"] = match.group(1)
        return [line]

    def stop_server(self):
        if self.server is None:
            return
        self.server.send_signal(signal.SIGTERM)
        check(self.server.wait(timeout=60) == 0, "the server did not end with status 0")

    def run(self, command, expected):
        """Runs it as a shell does. Where the text shows output, exit status 1 is for a refusal."""
        if command.endswith("&"):
            program, *arguments = shlex.split(command.rstrip("& "))
            check(program == "build/release/bin/warpcalld", f"in the background: {program}")
            return self.start_server(arguments)
        command = command.replace("build/release/bin/", f"{self.build}/bin/")
        in_source = command.startswith("bash deploy/")
        result = subprocess.run(command, shell=True, cwd=self.source if in_source else self.folder,
                                env=self.environment, capture_output=True, text=True,
                                timeout=SECONDS_MAX, check=False)
        refused = expected is not None and any(line.startswith("INVALID") for line in expected)
        check(result.returncode == (1 if refused else 0),
              f"{command} ended with {result.returncode}: {result.stdout}{result.stderr}")
        return (result.stdout + (result.stderr if refused else "")).splitlines()


def check_command(session, command, expected):
    printed = session.run(command, expected)
    if expected is not None:
        shown, seen = measured_left_out(expected), measured_left_out(printed)
        check(shown == seen, f"{command} prints\n  " + "\n  ".join(seen) + "\nand the text shows\n  "
              + "\n  ".join(shown))
    else:
        check(printed, f"{command} prints nothing")
    check_files(session.folder, command)


# ---- CONTRIBUTING ----------------------------------------------------------------------------------

def check_preset(source, words):
    presets = json.loads((source / "CMakePresets.json").read_text(encoding="utf-8"))
    names = {preset["name"] for preset in presets["configurePresets"] if not preset.get("hidden")}
    check(words[2] in names, f"there is no preset {words[2]}")


def output_of(command, message):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    check(result.returncode == 0, f"{message}: {result.stdout}{result.stderr}")
    return result.stdout


def check_build(session, words):
    """The targets of `cmake --build FOLDER --target ...` are known where FOLDER is this build."""
    if words[2] != "build/release":
        return
    targets = words[words.index("--target") + 1:] if "--target" in words else []
    output_of(["ninja", "-C", session.build, "-n", *targets], f"not to be built: {targets}")


def check_tests(session, words):
    """`ctest --test-dir FOLDER -R|-L PATTERN` selects something."""
    listed = output_of(["ctest", "--test-dir", session.build, "-N", *words[3:]], "ctest")
    check(not listed.rstrip().endswith("Total Tests: 0"), f"{shlex.join(words)} selects no test")


def check_cases(session, words):
    """`PROGRAM --gtest_filter=PATTERN` selects something."""
    program = os.path.join(session.build, *words[0].split("/")[2:])
    listed = output_of([program, "--gtest_list_tests", *words[1:]], "the program of tests")
    check(re.search("^  ", listed, re.M), f"{shlex.join(words)} selects no test")


def check_script(source, words):
    """The script exists and knows the options."""
    check((source / words[1]).is_file(), f"there is no {words[1]}")
    text = (source / words[1]).read_text(encoding="utf-8")
    for option in words[2:]:
        check(not option.startswith("--") or option in text, f"{words[1]} knows no {option}")


def check_contributing(session, command):
    """Runs the quick commands, and checks the names in the others."""
    words = shlex.split(command)
    if words[:2] == ["cmake", "--preset"]:
        check_preset(session.source, words)
    elif words[:2] == ["cmake", "--build"]:
        check_build(session, words)
    elif words[:2] == ["ctest", "--test-dir"]:
        check_tests(session, words)
    elif words[0] == "bash":
        check_script(session.source, words)
    elif words[0].startswith("build/release/tests/bin/"):
        check_cases(session, words)
    else:
        check(words[0].startswith("build/release/bin/"), f"CONTRIBUTING: {command} is not checked")
        check_command(session, command, None)


# ---- kernels/README ---------------------------------------------------------------------------------

def named_implementations(text):
    """{(kernel, family, "cpu" or "cuda"): names} of the tables."""
    found = {}
    columns = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] == ["kernel"]:
            columns = cells[1:]
            device = "cuda" if "cuda" in columns else "cpu"
        elif len(cells) > 1 and not set(line) <= set("|-"):
            for column, cell in zip(columns, cells[1:]):
                names = re.findall(r"([a-z]\w*)(?: \([^)]*\))?(?:, |$)", cell)
                found[cells[0], column.split()[0], device] = set(names)
    return found


def check_kernels(session, text):
    """The tables name the server's implementations, and no others for its devices."""
    named = named_implementations(text.partition("\n## Variants\n")[2])
    kernels = json.loads("\n".join(session.run("warpcall --json kernels", None)))["kernels"]
    listed = {key: set() for key in named}
    for kernel in kernels:
        for row in kernel["implementations"]:
            listed.setdefault((kernel["name"], row["family"], row["device_kind"]), set()).update(row["variants"])
    devices = {device for (_, _, device), names in listed.items() if names}
    for key, names in listed.items():
        expected = named.get(key, set())
        check(names == expected or key[2] not in devices,
              f"kernels/README.md has {sorted(expected)} as {key}, the server {sorted(names)}")


# ---- both ------------------------------------------------------------------------------------------

def run_guide(session, guide):
    used, done = set(), set()
    for block in blocks(guide, ""):
        for command, expected in commands(block):
            excuse = next((begin for begin in EXCUSED if command.startswith(begin)), None)
            if command.startswith("bash deploy/") and session.build != session.source / "build/release":
                print(f"not run: {command}: it builds in build/release")
            elif excuse:
                used.add(excuse)
                print(f"not run: {command}: {EXCUSED[excuse]}")
            elif command not in done:
                done.add(command)
                check_command(session, command, expected)
                print(f"ok: {command}", flush=True)
    check(session.server is not None, "README starts no server")
    check(used == set(EXCUSED), f"the texts no longer have {set(EXCUSED) - used}")


def run_all(source, build, folder):
    contributing = (source / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name, shape in INPUTS.items():
        write_npy(folder / name, shape)
    write_shown(guide_of(source), folder)
    session = Session(source, build, folder)
    try:
        run_guide(session, guide_of(source))
        check_kernels(session, (source / "kernels/README.md").read_text(encoding="utf-8"))
        print("ok: the tables of kernels/README.md")
        for block in blocks(contributing, ""):
            for command, _ in commands(block):
                check_contributing(session, command)
                print(f"ok, in CONTRIBUTING: {command}", flush=True)
    finally:
        session.stop_server()


def main():
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_all(source, build, pathlib.Path(folder))
        except Failure as failure:
            sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
