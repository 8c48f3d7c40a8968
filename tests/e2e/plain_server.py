"""A real server without any client's library: for tests of how it starts, logs and ends."""

import os
import pathlib
import select
import subprocess
import sys
import time
import urllib.request

SKIPPED = 77
SECONDS_MAX = 90
BUILD = pathlib.Path(sys.argv[1]).resolve()
PROGRAMS = pathlib.Path(os.environ.get("WARPCALL_TEST_BIN_DIR", BUILD / "bin"))
SERVER = str(PROGRAMS / "warpcalld")


def eventually(what, seconds=SECONDS_MAX):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class PlainServer:
    """Starts it; `before` are words before the program (unshare), `options` are Popen's."""

    def __init__(self, *flags, before=(), **options):
        self.words = [*before, SERVER, "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                      "--devices=cpu", *flags]
        options.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        **options)
        self.address = self.metrics = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def await_serving(self):
        """Returns True once the server serves; False if it ends before."""
        readable, _, _ = select.select([self.process.stdout], [], [], SECONDS_MAX)
        line = self.process.stdout.readline().decode() if readable else ""
        if " serving on " not in line:
            return False
        self.address, self.metrics = (word.rstrip(",") for word in line.split()[3:7:3])
        return True

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=SECONDS_MAX) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum over its series; None: there is none."""
        values = [float(line.split()[-1]) for line in self.get("/metrics").splitlines()
                  if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(values) if values else None

    def start_client(self, *arguments):
        return subprocess.Popen([str(PROGRAMS / "warpcall"), "--server", self.address, *arguments],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE)

    def call(self, *arguments):
        """(exit status, stderr) of warpcall."""
        with self.start_client(*arguments) as client:
            _, errors = client.communicate(timeout=SECONDS_MAX)
            return client.returncode, errors.decode()

    def wait(self, seconds=SECONDS_MAX):
        """Its exit status."""
        return self.process.wait(seconds)

    def said(self):
        return self.process.stderr.read().decode()
