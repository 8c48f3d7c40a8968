#!/usr/bin/env python3
"""A program of the client library needs nothing of the server: neither to be built nor to run.

    link_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import pathlib
import re
import subprocess
import sys

PROGRAM = "bin/digits"
SERVERS = re.compile(r"dnnl|prometheus|cuda|cudart|cublas|cudnn|nvrtc|nvidia|hwy|httplib|highway")


def lines(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return result.stdout.splitlines()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    inputs = [pathlib.Path(build, line) for line in lines(["ninja", "-C", build, "-t", "inputs", PROGRAM])]
    if build / "client/cpp/libwarpcall_client.a" not in inputs:
        sys.exit(f"FAILED: {PROGRAM} is not made of the client library: {inputs}")
    rooms = [root / room for root in (source, build) for room in ("server", "kernels")]
    # The path within the tree: a folder on the way to it may have any name.
    found = [path for path in inputs if any(path.is_relative_to(room) for room in rooms)
             or SERVERS.search(path.name)]
    found += [line for line in lines(["ldd", build / PROGRAM]) if SERVERS.search(line.split(" => ")[0])]
    if found:
        sys.exit(f"FAILED: {PROGRAM} needs of the server:\n" + "\n".join(map(str, found)))
    print(f"ok: {len(inputs)} files make {PROGRAM}, none of them the server's")


if __name__ == "__main__":
    main()
