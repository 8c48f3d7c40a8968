#!/usr/bin/env python3
"""`warpcall top` in pseudo-terminals and pipes, against a real server and against ports that answer otherwise.

    top_test.py SOURCE BUILD
"""

import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import urllib.request

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PROGRAMS = pathlib.Path(os.environ.get("WARPCALL_TEST_BIN_DIR", BUILD / "bin"))
SECONDS_MAX = 90
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LEFT, RIGHT, ESCAPE = "\x1b[D", "\x1b[C", "\x1b"
ENDLESS = "endless"
EVIL = "\x1b[2J\x1b]0;ran\x07\u202e"
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("NO_COLOR", "COLUMNS")} | {"TERM": "xterm-256color"}


def traffic(rate, failed=0.0, p50=None, p99=None, beyond=False):
    return {"requests_per_second": rate, "failed_per_second": failed, "p50_seconds": p50, "p99_seconds": p99,
            "p99_is_lower_bound": beyond, "queue_p99_seconds": p50}


def kernel(name, requests, rate, **more):
    return {"name": name, "requests": requests, "auto_implementation": "cuda", "auto_requests": requests,
            "last_minute": traffic(rate, **more)}


STATUS = {
    "version": "9.8.7", "phase": "serving", "ready": True, "readiness": "ok", "uptime_seconds": 7384,
    "unix_seconds": 1.8e9, "window_seconds": 60.0, "last_minute": traffic(112.5, 1.5, 1e-3, 2e-3),
    "devices": [{"name": "cuda:0", "open": True, "healthy": True, "queue_depth": 3, "queue_oldest_seconds": 0.25,
                 "memory_used_bytes": 2 << 30, "memory_total_bytes": 80 << 30, "resident_tensors": 2,
                 "resident_used_bytes": 4096, "copy_bytes_per_second": 4.2e12,
                 "multiply_adds_flops_per_second": {"float32": None, "bfloat16": 8e14}}],
    "kernels": [kernel("softmax", 10, 100.0, p50=1e-3, p99=2e-3), kernel("Gelu", 30, 2.5, failed=1.5),
                kernel("matmul", 20, 10.0, p50=5.0, p99=16.777216, beyond=True)],
    "inspections": [{"unix_seconds": 1.8e9 - 5, "method": "push", "kernel": "softmax", "push": "mine",
                     "outcome": "INCORRECT", "principal": "alice", "seconds": 2.0}],
}


@contextlib.contextmanager
def held_port():
    """The number of a port on which nobody listens but who sets SO_REUSEADDR, and nobody else is given."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Port:
    """A metrics port that answers with `body`; None: it never answers; ENDLESS: its answer never ends."""

    def __init__(self, body, status=200, port=0):
        self.body, self.status = body, status
        self.asked, self.over = 0, threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                if outer.body is None:
                    outer.over.wait()
                    return
                if outer.body is ENDLESS:
                    with contextlib.suppress(OSError):
                        while True:
                            self.wfile.write(b"HTTP/1.0 200 OK\r\n" * 4096)
                    return
                body = outer.body.encode()
                self.send_response(outer.status if self.path == "/status.json" else 418)
                self.send_header("Content-Length", str(len(body) + self.server.missing))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            missing = 0

        self.server = Server(("127.0.0.1", port), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Terminal:
    """warpcall top in a terminal of its own."""

    def __init__(self, *arguments, columns=100, rows=40, interval="0.1", **environment):
        self.columns, self.rows, self.shown = columns, rows, ""
        self.controller, self.terminal = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.terminal)
        self.process = subprocess.Popen(
            [PROGRAMS / "warpcall", "top", "--interval", interval, *arguments], env=ENVIRONMENT | environment,
            stdin=self.terminal, stdout=self.terminal, stderr=self.terminal, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.controller)
        os.close(self.terminal)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.controller, keys.encode())

    def read(self, deadline):
        ready, _, _ = select.select([self.controller], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing came in {SECONDS_MAX} s after: {self.shown[-3000:]!r}")
        self.shown += os.read(self.controller, 1 << 16).decode(errors="replace")

    def frame(self):
        """Lines of the last frame that is whole, without codes; None before the first."""
        for frame in reversed(self.shown.split("\x1b[H")[1:]):
            lines = frame.split("\x1b[K")
            if len(lines) == self.rows + 1:
                return [CODES.sub("", line).strip("\r\n") for line in lines[:-1]]
        return None

    def await_frame(self, wanted):
        """The first frame from now on, of those that are drawn after the call, for which `wanted` holds."""
        deadline = time.monotonic() + SECONDS_MAX
        self.shown = self.shown[self.shown.rfind("\x1b[H"):] if "\x1b[H" in self.shown else self.shown
        while True:
            frame = self.frame()
            if frame and wanted(frame):
                return frame
            self.read(deadline)

    def await_text(self, text):
        return self.await_frame(lambda frame: any(text in line for line in frame))

    def end(self):
        """(exit status, all that appeared)"""
        deadline = time.monotonic() + SECONDS_MAX
        while self.process.poll() is None:
            with contextlib.suppress(AssertionError):
                self.read(min(deadline, time.monotonic() + 0.1))
            if time.monotonic() > deadline:
                raise AssertionError("it does not end")
        while select.select([self.controller], [], [], 0)[0]:
            self.read(deadline)
        return self.process.returncode, self.shown


def rows_of(frame):
    """Names of the kernels in their order, and the heading of their table."""
    at = next(number for number, line in enumerate(frame) if line.startswith("KERNEL"))
    names = []
    for line in frame[at + 1:]:
        if not line.strip():
            break
        names.append(line.split()[0])
    return names, frame[at]


class TopTest(unittest.TestCase):
    def setUp(self):
        self.port = self.enterContext(Port(json.dumps(STATUS)))

    def top(self, *arguments, **more):
        return self.enterContext(Terminal("--metrics", self.port.address, *arguments, **more))

    def piped(self, *arguments):
        run = subprocess.run([PROGRAMS / "warpcall", "top", *arguments], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=ENVIRONMENT)
        return run.returncode, run.stdout, run.stderr

    def assert_restored(self, top, status):
        ended, shown = top.end()
        self.assertEqual(ended, status, shown[-2000:])
        self.assertEqual(shown.count(LEAVE), 1)
        self.assertTrue(shown.endswith(LEAVE), shown[-100:])
        for code in ("\x1b[?25h", "\x1b[?7h"):
            self.assertIn(code, shown)
        self.assertEqual(termios.tcgetattr(top.terminal), top.before)

    # ---- live -----------------------------------------------------------------------------------

    def test_the_first_frame_has_the_server_its_devices_kernels_and_inspections(self):
        top = self.top()
        frame = top.await_text("softmax")
        text = "\n".join(frame)
        self.assertTrue(top.shown.startswith(ENTER) or ENTER in top.shown)
        for words in (f"warpcalld 9.8.7 at {self.port.address}, ready (ok), phase serving, up 2h3m4s",
                      "last 60 s: 112 requests/s, 1.5 failed/s, p50 1.00 ms, p99 2.00 ms"):
            self.assertIn(words, text)
        for cells in (["cuda:0", "healthy", "3", "250", "ms", "2.00", "GiB", "of", "80.0", "GiB", "2:", "4.00", "KiB",
                       "4.20", "TB/s", "bfloat16", "800", "TFLOP/s"],
                      ["matmul", "10", "0", "5.00", "s", ">16.8", "s", "5.00", "s", "20", "cuda"],
                      ["5.00", "s", "push", "mine", "INCORRECT", "2.00", "s", "alice"]):
            self.assertIn(cells, [line.split() for line in frame])
        self.assertEqual(rows_of(frame)[0], ["softmax", "matmul", "Gelu"])
        self.assertIn("q quit", frame[-1])

    def test_keys_choose_the_column_to_sort_by(self):
        top = self.top()
        top.await_frame(lambda frame: "REQ/S*" in rows_of(frame)[1] if "KERNEL" in "".join(frame) else False)
        for key, heading, names in (("s", "FAIL/S*", ["Gelu", "softmax", "matmul"]),
                                    (RIGHT, "P50*", ["matmul", "softmax", "Gelu"]),
                                    (LEFT, "FAIL/S*", ["Gelu", "softmax", "matmul"]),
                                    (LEFT + "\x1bOD", "KERNEL*", ["Gelu", "matmul", "softmax"]),
                                    (LEFT, "AUTO*", ["softmax", "Gelu", "matmul"])):
            top.press(key)
            frame = top.await_frame(lambda frame: heading in rows_of(frame)[1])
            self.assertEqual((rows_of(frame)[0], rows_of(frame)[1].count("*")), (names, 1))

    def test_a_filter_leaves_kernels_whose_names_contain_it(self):
        top = self.top()
        top.await_text("softmax")
        top.press("/GExq\x7f\x7f")
        frame = top.await_text("filter: GE_")
        self.assertEqual(rows_of(frame)[0], ["Gelu"])
        top.press("\r")
        self.assertEqual(rows_of(top.await_text("/ filter (GE)"))[0], ["Gelu"])
        top.press("/zz\r")
        self.assertIn("no kernel's name contains GEzz", "\n".join(top.await_text("(GEzz)")))
        top.press(ESCAPE)
        top.await_frame(lambda frame: len(rows_of(frame)[0]) == 3)

    def test_space_holds_the_picture(self):
        top = self.top()
        top.await_text("softmax")
        top.press(" ")
        top.await_text("PAUSED")
        self.port.body = json.dumps(STATUS | {"version": "newer"})
        asked = self.port.asked
        while self.port.asked < asked + 3:
            time.sleep(0.01)
        top.press("s")
        top.await_text("FAIL/S*")
        self.assertIn("warpcalld 9.8.7", "\n".join(top.frame()))
        top.press(" ")
        top.await_text("warpcalld newer")

    def test_the_terminal_is_restored_however_it_ends(self):
        for how, status in (("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with self.subTest(how=how):
                top = self.top()
                top.await_text("softmax")
                if isinstance(how, str):
                    top.press(how)
                else:
                    top.process.send_signal(how)
                self.assert_restored(top, status)

    def test_a_server_that_goes_is_told_and_asked_again_until_it_is_back(self):
        number = self.enterContext(held_port())
        address = f"127.0.0.1:{number}"
        with Terminal("--metrics", address) as top:
            with Port(json.dumps(STATUS), port=number):
                top.await_text("softmax")
            told = re.compile(f"no metrics port answers at {address}: Connection refused; .* trying again; "
                              r"last answer \d+ s ago")
            frame = top.await_frame(lambda frame: told.search(" ".join(frame)))
            self.assertIn("softmax", "\n".join(frame))  # the last that is known
            with Port(json.dumps(STATUS | {"version": "second"}), port=number):
                frame = top.await_text("warpcalld second")
            self.assertNotIn("trying again", "\n".join(frame))

    def test_keys_do_not_wait_for_a_server_that_hangs(self):
        with Port(None) as hangs, Terminal("--metrics", hangs.address) as top:
            top.await_text("asking " + hangs.address)
            top.press(" ")
            top.await_text("PAUSED")
            top.press("q")
            self.assert_restored(top, 0)

    def test_no_line_is_wider_than_a_narrow_terminal_and_none_is_lost(self):
        top = self.top(columns=40, rows=60)
        frame = top.await_text("QUEUE P99")
        self.assertLessEqual(max(map(len, frame[:-1])), 40, frame)
        text = "\n".join(frame)
        for words in ("softmax", "16.8 s", "4.20 TB/s", "alice"):
            self.assertIn(words, text)

    def test_follows_the_size_of_its_window(self):
        top = self.top(columns=100, rows=30, interval="3600")  # no news draw it anew
        top.await_text("softmax")
        top.resize(60, 8)
        frame = top.await_frame(lambda frame: len(frame) == 8)
        self.assertLessEqual(max(map(len, frame[:-1])), 60, frame)
        self.assertIn("q quit", frame[-1])

    def test_colours_are_for_terminals_that_want_them(self):
        with Port("", status=500) as broken:
            for environment, wanted in (({}, True), ({"NO_COLOR": "1"}, False)):
                with Terminal("--metrics", broken.address, **environment) as top:
                    top.await_text("HTTP status 500")
                    self.assertEqual(bool(COLOURS.search(top.shown)), wanted, environment)

    def test_text_of_a_server_cannot_drive_the_terminal(self):
        self.port.body = json.dumps(STATUS | {"version": EVIL, "kernels": [kernel(EVIL, 1, 1.0)]})
        top = self.top()
        top.await_text(r"warpcalld \x1b[2J")
        self.assertNotIn("\x1b[2J", top.shown)
        self.assertNotIn("\x1b]0;", top.shown)
        self.assertNotIn("\u202e", top.shown)

    # ---- once -----------------------------------------------------------------------------------

    def test_a_pipe_gets_one_plain_snapshot_as_once_does(self):
        first = self.piped("--metrics", self.port.address)
        self.assertEqual(first[0], 0, first)
        self.assertEqual(first, self.piped("--metrics", self.port.address, "--once"))
        self.assertNotIn("\x1b", first[1])
        self.assertEqual(rows_of(first[1].splitlines())[0], ["softmax", "matmul", "Gelu"])
        top = self.top("--once")
        status, shown = top.end()
        self.assertEqual(status, 0)
        self.assertNotIn(ENTER, shown)
        self.assertIn("softmax", shown)

    def test_json_is_what_the_server_says(self):
        status, output, _ = self.piped("--metrics", self.port.address, "--json")
        self.assertEqual((status, json.loads(output)), (0, STATUS))

    def test_the_metrics_port_is_that_of_the_host_of_the_server(self):
        status, _, error = self.piped("--once", "--server", "no-such-host.invalid:8470")
        self.assertEqual(status, 1)
        self.assertIn("the host 'no-such-host.invalid' is unknown", error)

    def test_errors_say_what_is_wrong_and_what_to_do(self):
        with held_port() as number:
            nobody = f"127.0.0.1:{number}"
            cases = [(nobody, 1, f"UNAVAILABLE: no metrics port answers at {nobody}: Connection refused; is warpcalld "
                      f"running there, with --metrics_listen={nobody}? --metrics names another port\n")]
            for address in ("h:0", "h:x", "h:65536", "[::1", ":9470", "a:1:2]"):
                cases.append((address, 2, f"INVALID_ARGUMENT: the address '{address}' is not that of a metrics port: "
                              "HOST, HOST:PORT or [IPV6]:PORT with a port from 1 to 65535\n"))
            for address, status, text in cases:
                self.assertEqual(self.piped("--metrics", address), (status, "", text))
        for body, code, text in (("", 404, "UNIMPLEMENTED: the server at {} has no /status.json: it is no warpcalld, "
                                           "or is older than this command"),
                                 ("", 503, "UNAVAILABLE: {} answers /status.json with HTTP status 503"),
                                 ("<html>", 200, "INTERNAL: the answer of {} is not JSON"),
                                 ("[]", 200, "INTERNAL: the answer of {} is not a status of warpcalld: "),
                                 ('{"version": 1}', 200, "INTERNAL: the answer of {} is not a status of warpcalld: "),
                                 (ENDLESS, 200, "INTERNAL: the answer of {} is longer than the limit of 1048576 "
                                                        "bytes")):
            with Port(body, code) as port:
                status, output, errors = self.piped("--metrics", port.address)
            self.assertEqual((status, output), (1, ""), errors)
            self.assertIn(text.format(port.address), errors)
        with Port("{}") as port:
            port.server.missing = 5
            self.assertIn(f"UNAVAILABLE: the answer of {port.address} was cut off", self.piped("--metrics", port.address)[2])
        status, _, errors = self.piped("--interval", "0.01")
        self.assertEqual(status, 2)
        self.assertIn("0.1", errors)

    # ---- a real server --------------------------------------------------------------------------

    def test_reads_a_real_server(self):
        log = self.enterContext(tempfile.TemporaryFile("w+"))
        server = subprocess.Popen([PROGRAMS / "warpcalld", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                                   "--devices=cpu", "--self_test=off", "--lame_duck_seconds=0"],
                                  stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            address, metrics = re.search(r"serving on (\S+), metrics on (\S+)", server.stdout.readline()).groups()
            with Terminal("--metrics", metrics) as top:
                top.await_text("identity")
                subprocess.run([PROGRAMS / "warpcall", "--server", address, "run", "gelu", "--shape", "64"], check=True,
                               capture_output=True, timeout=SECONDS_MAX)
                frame = top.await_frame(lambda frame: rows_of(frame)[0][0] == "gelu")
                self.assertIn(["gelu"], [line.split()[:1] for line in frame])
                self.assertEqual(next(line.split()[-2:] for line in frame if line.startswith("gelu ")), ["1", "cpu"])
            status, output, _ = self.piped("--metrics", metrics, "--json")
            with urllib.request.urlopen(f"http://{metrics}/status.json", timeout=SECONDS_MAX) as reply:
                self.assertEqual(json.loads(output).keys(), json.load(reply).keys())
            self.assertEqual(status, 0)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def test_help_and_completion_know_it(self):
        def words(*line):
            return subprocess.run([PROGRAMS / "warpcall", *line], capture_output=True, text=True, check=True,
                                  timeout=SECONDS_MAX).stdout
        self.assertIn("top ", words("help"))
        self.assertIn("--metrics HOST:PORT", words("help", "top"))
        self.assertEqual(words("__complete", "to"), "top\n")
        self.assertEqual(words("__complete", "top", "--m"), "--metrics\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
