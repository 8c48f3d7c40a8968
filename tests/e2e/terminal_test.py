#!/usr/bin/env python3
"""The commands of README and of the guide in terminals of 80 and of 120 columns: they run as they stand there, on a
pseudo-terminal, against a real server. No line may be wider than the terminal, which would break it; each command's exit
status is the text's, and its output has the words of the text's. In a terminal headings and errors are in colours, and
with NO_COLOR they are not.

    terminal_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

import readme_test
from readme_test import check

WIDTHS = (80, 120)
SECONDS_MAX = 120
# Commands that run elsewhere only (readme_test.py), by their beginning, and why.
EXCUSED = {
    "bash ": "is no session: it builds",
    "build/relu/": "is no session: it is built there",
    "cmake ": "is no session: it builds",
    "docker ": "needs a container engine",
    "warpcalld ": "speaks to logs, not to terminals",
    "warpcall bench": "takes long; MORE has a shorter one",
    "warpcall load": "takes five seconds; MORE has a shorter one",
    "warpcall profile": "of 1 GiB takes long; MORE has a smaller one",
    "warpcall run gelu --input": "of gigabytes takes long",
}
# Further commands, and a text in the output of each.
MORE = [
    ("warpcall help", 0, "Usage: warpcall"),
    ("warpcall help run", 0, "--shape"),
    ("warpcall help top", 0, "--metrics"),
    ("warpcall kernels", 0, "SUMMARY"),
    ("warpcall devices", 0, "DESCRIPTION"),
    ("warpcall health", 0, "SERVING"),
    ("warpcall version", 0, "warpcalld "),
    ("warpcall bench softmax --shape 64x64 --iterations 5 --warmup 1 --implementation cpu", 0, "VS BEST"),
    ("warpcall bench softmax --shape 1048576x1048576", 1, "refused: "),
    ("warpcall load gelu:4096=80,softmax:64x1024:bf16=20 --rate 200 --requests 60 --warmup 0", 0,
     "sent after the planned time"),
    ("warpcall profile softmax --shape 64x64 --implementation cpu", 0, "HOST PHASE"),
    ("warpcall profile softmax --shape 64x64 --implementation cpu --implementation manual", 0, "PER RUN"),
    ("warpcall run sofmax --shape 4x4", 1, "did you mean softmax?"),
    ("warpcall run softmax --shpae 4x4", 2, "did you mean --shape?"),
    ("warpcall run softmax --shape 4x4 --output -", 2, "terminal"),
]
CODES = re.compile(r"\x1b\[[0-9;]*m")
# Takes some seconds on every machine, and meanwhile says how many.
SLOW = "warpcall bench softmax --shape 2048x4096 --iterations 20 --implementation reference"


def in_terminal(command, columns, folder, environment):
    """(exit status, all that appeared) of a shell's command whose stdin, stdout and stderr are a terminal."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, shell=True, cwd=folder, env=environment, stdin=terminal,
                               stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    shown = b""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        ready, _, _ = select.select([controller], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            process.kill()
        try:
            piece = os.read(controller, 1 << 16) if ready else b""
        except OSError:  # EIO: nobody has the terminal open any more
            piece = b""
        if not piece:
            break
        shown += piece
    os.close(controller)
    status = process.wait()
    check(ready, f"{command} did not end in {SECONDS_MAX} s")
    return status, shown.decode().replace("\r\n", "\n")


def settled(line):
    """What stays of a line that was rewritten from its beginning."""
    shown = ""
    for text in line.split("\r"):
        shown = text + shown[len(text):]
    return shown.rstrip()


class Terminal:
    def __init__(self, session, columns):
        self.session, self.columns = session, columns
        self.environment = {key: value for key, value in session.environment.items()
                            if key not in ("NO_COLOR", "COLUMNS")}
        self.environment["TERM"] = "xterm-256color"

    def show(self, command, status):
        """Returns the command's output without colours, and if it had colours."""
        command = command.replace("build/release/bin/", f"{self.session.build}/bin/")
        found, shown = in_terminal(command, self.columns, self.session.folder, self.environment)
        check(found == status, f"{command} ended with {found} instead of {status}:\n{shown}")
        plain = "\n".join(map(settled, CODES.sub("", shown).split("\n")))
        for line in re.split("[\r\n]", CODES.sub("", shown)):
            check(len(line) <= self.columns,
                  f"{command} shows {len(line)} columns on a terminal of {self.columns}:\n{line}")
        check("\x1b" not in plain, f"{command} shows codes that are no colours: {plain!r}")
        if self.columns == WIDTHS[0]:  # colours do not depend on the width
            self.check_without_colours(command, status)
        return plain, plain != shown

    def check_without_colours(self, command, status):
        found, shown = in_terminal(command, self.columns, self.session.folder,
                                   dict(self.environment, NO_COLOR="1"))
        check(found == status, f"{command} ended with {found} instead of {status} without colours:\n{shown}")
        check("\x1b" not in shown, f"{command} shows colours in spite of NO_COLOR:\n{shown!r}")


def words_of(lines):
    """Names and headings: words that do not differ from run to run."""
    return {word for line in readme_test.measured_left_out(lines)
            for word in re.findall(r"[A-Za-z][A-Za-z_/]{2,}", line)} - {"ADDRESS"}


def show_guide(terminal, guide, used):
    for block in readme_test.blocks(guide, ""):
        for command, expected in readme_test.commands(block):
            excuse = next((begin for begin in EXCUSED if command.startswith(begin)), None)
            if excuse:
                used.add(excuse)
            elif not command.endswith("&"):
                refused = expected is not None and any(line.startswith("INVALID") for line in expected)
                shown, coloured = terminal.show(command, 1 if refused else 0)
                missing = words_of(expected or []) - words_of(shown.splitlines())
                check(not missing, f"{command} at {terminal.columns} columns shows no {missing}:\n{shown}")
                check(coloured or expected is None, f"{command} shows no colours")
                print(f"ok, {terminal.columns} columns: {command}", flush=True)


def check_progress(terminal):
    """What goes on is said in one line, which fits a narrow terminal and is gone at the end."""
    columns = 40
    status, shown = in_terminal(SLOW, columns, terminal.session.folder, terminal.environment)
    check(status == 0, f"{SLOW} ended with {status}:\n{shown}")
    told = [text for text in re.split("[\r\n]", shown) if " so far" in text]
    check(len(told) >= 2 and all(len(text) < columns for text in told), f"{SLOW} says what goes on by {told}")
    check("so far" not in "\n".join(map(settled, shown.split("\n"))), f"{SLOW} leaves its progress:\n{shown!r}")
    print(f"ok: progress of {SLOW}", flush=True)


def wait_for_bandwidth(session):
    """The server measures it after its start; its advice is longer from then on."""
    deadline = time.monotonic() + SECONDS_MAX
    while not json.loads("\n".join(session.run("warpcall --json devices", None)))["devices"][0][
            "measured_bandwidth_bytes_per_second"]:
        check(time.monotonic() < deadline, f"no bandwidth was measured in {SECONDS_MAX} s")


def run_all(source, build, folder):
    guide = readme_test.guide_of(source)
    for name in ("x.npy", "bias.npy"):
        readme_test.write_npy(folder / name, readme_test.INPUTS[name])
    readme_test.write_shown(guide, folder)
    session = readme_test.Session(source, build, folder)
    used = set()
    try:
        session.start_server([])
        wait_for_bandwidth(session)
        for columns in WIDTHS:
            terminal = Terminal(session, columns)
            show_guide(terminal, guide, used)
            for command, status, word in MORE:
                shown, _ = terminal.show(command, status)
                # A line that was broken is whole again without its spaces.
                check("".join(word.split()) in "".join(shown.split()),
                      f"{command} at {columns} columns shows no {word!r}:\n{shown}")
                print(f"ok, {columns} columns: {command}", flush=True)
        check_progress(terminal)
    finally:
        session.stop_server()
    check(used == set(EXCUSED), f"the texts no longer have {set(EXCUSED) - used}")


def main():
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_all(source, build, pathlib.Path(folder))
        except readme_test.Failure as failure:
            sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
