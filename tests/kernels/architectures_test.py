#!/usr/bin/env python3
"""A program has every GPU function for every architecture that it is built for, by cuobjdump's word.

    architectures_test.py PROGRAM ARCHITECTURE... -- FOLDER...

ARCHITECTURE as CMAKE_CUDA_ARCHITECTURES has it: machine code and PTX, or, with "-real" or "-virtual", one of them.
FOLDER is where cuobjdump may be. Exit status 77: skipped, it is nowhere.
"""

import collections
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
SECTION = re.compile(r"^Fatbin (elf|ptx) code:$")
ARCHITECTURE = re.compile(r"^arch = sm_(\w+)$")
FUNCTION = {"elf": re.compile(r"^ Function (\S+):$"), "ptx": re.compile(r"\.entry (\w+)\(")}
DUMP = {"elf": "--dump-resource-usage", "ptx": "--dump-ptx"}


def find_tool(folders):
    found = (path for folder in folders for path in sorted(pathlib.Path(folder).rglob("cuobjdump"))
             if path.is_file())
    return next(found, None)


def functions(tool, program, kind):
    """{architecture: [(function, how often)]} of machine code or of PTX."""
    text = subprocess.run([tool, DUMP[kind], program], capture_output=True, text=True, check=True, timeout=600).stdout
    found, section, counts = collections.defaultdict(collections.Counter), None, None
    for line in text.splitlines():
        if match := SECTION.match(line):
            section, counts = match[1], None
        elif section == kind and (match := ARCHITECTURE.match(line)):
            counts = found[match[1]]
        elif section == kind and counts is not None and (match := FUNCTION[kind].search(line)):
            counts[match[1]] += 1
    return found


def wanted(architectures):
    """{"elf": architectures with machine code, "ptx": with PTX}"""
    of_kind = {"elf": {"", "real"}, "ptx": {"", "virtual"}}
    parts = [architecture.partition("-") for architecture in architectures]
    return {kind: {number for number, _, only in parts if only in known} for kind, known in of_kind.items()}


def findings(tool, program, architectures):
    found = {kind: functions(tool, program, kind) for kind in DUMP}
    everything = collections.Counter()
    for counts in (counts for by_architecture in found.values() for counts in by_architecture.values()):
        everything |= counts
    if not everything:
        return [f"{tool} finds no GPU function in {program}"]
    lines = []
    for kind, numbers in wanted(architectures).items():
        for number in sorted(numbers | found[kind].keys()):
            counts = found[kind].get(number, collections.Counter())
            if number not in numbers:
                lines.append(f"{kind} for {number}, which nobody asked for")
            lacking = everything - counts
            if lacking:
                lines.append(f"{kind} for {number} lacks {lacking.total()} of {everything.total()}, "
                             f"such as {min(lacking)}")
            print(f"{kind} for {number}: {counts.total()} functions")
    return lines


def main():
    program, *rest = sys.argv[1:]
    architectures, folders = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    tool = find_tool(folders)
    if tool is None:
        print(f"skipped: no cuobjdump in {', '.join(folders)}")
        return SKIPPED
    lines = findings(tool, program, architectures)
    for line in lines:
        print(f"FAILED: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
