"""A server whose wall clock is set back by an hour: its periodic work, and the end of its drain, go on by the clock
that nobody sets.

    clock_step_test.py WARPCALLD WARPCALL LIBRARY

LIBRARY steps a process's clock: clock_step.cc.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

import processes

HOUR_NS = 3600 * 10**9
SECONDS_MAX = 20
TOKENS = ["1" * 32, "2" * 32]


def call(warpcall, address, folder, token):
    (folder / "mine").write_text(token, encoding="utf-8")
    (folder / "mine").chmod(0o600)
    words = [warpcall, "--server", address, "--token_file", folder / "mine", "run", "gelu", "--shape", "8"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


def check_files_are_read_again(warpcall, address, folder, tokens):
    """A thread that looks each second reads them."""
    tokens.write_text(f"alice {TOKENS[1]}\n", encoding="utf-8")
    processes.wait_until("the new token to count",
                         lambda: call(warpcall, address, folder, TOKENS[1]).returncode == 0, SECONDS_MAX)


def main():
    warpcalld, warpcall, library = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tokens, clock = folder / "tokens", folder / "clock"
        tokens.write_text(f"alice {TOKENS[0]}\n", encoding="utf-8")
        clock.write_bytes(struct.pack("=q", 0))
        os.environ |= {"WARPCALL_TEST_CLOCK": str(clock), "LD_PRELOAD": library}
        with processes.warpcalld(warpcalld, folder, "--drain_seconds=5", f"--token_file={tokens}") as (address, _):
            before = call(warpcall, address, folder, TOKENS[0])
            if before.returncode != 0:
                raise processes.Failure(f"before the step: {before.stderr}")
            time.sleep(1.5)  # so that its threads wait, and are asleep when it comes
            with open(clock, "r+b", buffering=0) as file:
                file.write(struct.pack("=q", -HOUR_NS))
            check_files_are_read_again(warpcall, address, folder, tokens)
            start = time.monotonic()
        if (took := time.monotonic() - start) > SECONDS_MAX:
            raise processes.Failure(f"the end took {took:.1f} s")
    print("ok      files are read again and the server ends after its clock was set back")


if __name__ == "__main__":
    main()
