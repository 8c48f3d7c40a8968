#!/usr/bin/env python3
"""Signals: at every moment of a server's life, as process 1 too, and to the processes that it starts.

    signals_test.py BUILD
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
from plain_server import SECONDS_MAX, SERVER, PlainServer, eventually  # noqa: E402

# Longer than a test may take: a lame duck that was not left out shows.
LAME_DUCK = "--lame_duck_seconds=3600"


def child_of(parent, word=""):
    """A process that `parent` started with `word`; None: there is none."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                with open(f"/proc/{name}/stat") as stat:
                    is_its = int(stat.read().rsplit(")", 1)[1].split()[1]) == parent
                with open(f"/proc/{name}/cmdline") as line:
                    if is_its and word in line.read():
                        return int(name)
        except OSError:
            continue
    return None


def links_of(pid):
    """Targets of its descriptors."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return links


def runs(pid, program):
    try:
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(program)
    except OSError:
        return False


def blocks_sigterm(pid):
    """Returns True once the program keeps the signal."""
    try:
        with open(f"/proc/{pid}/status") as status:
            masks = [line.split()[1] for line in status if line.startswith("SigBlk:")]
    except OSError:
        return False
    return bool(masks) and int(masks[0], 16) >> (signal.SIGTERM - 1) & 1 == 1


def may_unshare():
    done = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False)
    return done.returncode == 0


class SignalsTest(unittest.TestCase):
    def serve(self, *flags, **options):
        return self.enterContext(PlainServer(LAME_DUCK, *flags, **options))

    def end_lame_duck(self, server, pid):
        """Sends SIGTERM until the server has ended: a signal is lost while the one before is pending."""
        def has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            return server.process.poll() is not None
        self.assertTrue(eventually(has_ended))

    def test_told_to_end_while_it_starts_it_ends_at_once(self):
        for milliseconds in (0, 5, 10, 20, 40, 80, 160, 320):
            with self.subTest(milliseconds=milliseconds), PlainServer(LAME_DUCK) as server:
                pid = server.process.pid
                self.assertTrue(eventually(lambda pid=pid: blocks_sigterm(pid)))
                time.sleep(milliseconds / 1000)
                server.process.terminate()
                if server.await_serving():  # before the signal came
                    self.assertGreater(milliseconds, 20)
                    self.end_lame_duck(server, pid)
                self.assertEqual(server.wait(), 0)

    def test_as_process_1_it_takes_a_signal_before_it_is_ready(self):
        if not may_unshare():
            self.skipTest("no namespace of processes may be made here (unshare --pid)")
        for milliseconds in (0, 5, 10, 20, 40, 80):
            with self.subTest(milliseconds=milliseconds), PlainServer(
                    LAME_DUCK, before=["unshare", "--pid", "--fork", "--kill-child"]) as server:
                self.assertTrue(eventually(lambda s=server: child_of(s.process.pid) is not None))
                pid = child_of(server.process.pid)
                self.assertTrue(eventually(lambda pid=pid: runs(pid, SERVER)))
                # While the dynamic loader works the program cannot act yet, and the kernel drops signals that process 1
                # does not block.
                self.assertTrue(eventually(lambda pid=pid: blocks_sigterm(pid)))
                time.sleep(milliseconds / 1000)
                os.kill(pid, signal.SIGTERM)
                if server.await_serving():
                    self.assertGreater(milliseconds, 20)
                    self.end_lame_duck(server, pid)
                self.assertEqual(server.wait(), 0)

    def test_its_libraries_begin_after_it_keeps_signals(self):
        """Their constructors take most of the time until main. LD_DEBUG shows the order."""
        run = subprocess.run([SERVER, "--version"], env={**os.environ, "LD_DEBUG": "files"},
                             capture_output=True, text=True, check=True)
        lines = run.stderr.splitlines()
        first = next(n for n, line in enumerate(lines) if "calling preinit" in line)
        others = [n for n, line in enumerate(lines) if "calling init" in line and "libgrpc" in line]
        self.assertTrue(others)
        self.assertLess(first, others[0])

    def test_ctrl_c_at_a_terminal_has_no_lame_duck(self):
        server = self.serve("--self_test=off")
        self.assertTrue(server.await_serving())
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)

    def test_sigterm_has_its_lame_duck_which_a_second_one_ends(self):
        server = self.serve("--self_test=off")
        self.assertTrue(server.await_serving())
        server.process.terminate()
        with self.assertRaises(subprocess.TimeoutExpired):
            server.process.wait(1)
        server.process.terminate()
        self.assertEqual(server.wait(), 0)

    def test_check_can_be_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([SERVER, "--check", "--self_test=full", "--devices=cpu"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as check:
                # Until then it is nobody's to interrupt: 128 and the signal.
                self.assertTrue(eventually(lambda c=check: child_of(c.pid, "self-test-child")))
                check.send_signal(number)
                self.assertEqual(check.wait(60), -number)

    def test_a_flag_file_that_hangs_does_not_keep_it(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/flags")
            with PlainServer(f"--flagfile={folder}/flags") as server:
                self.assertEqual(server.wait(), 2)
                self.assertIn("is a FIFO, not a regular file", server.said())

    def test_a_stopped_inspection_ends_with_its_call(self):
        server = self.serve("--self_test=off")
        self.assertTrue(server.await_serving())
        # The server measures its own bandwidth first.
        self.assertTrue(eventually(lambda: server.metric(
            "warpcall_device_bandwidth_ceiling_bytes_per_second")))
        client = server.start_client("bench", "matmul", "--shape", "1024x1024x1024", "--iterations",
                                     "10000", "--timeout", "600")
        child = []

        def begun():
            found = child_of(server.process.pid, "--method=benchmark")
            child[:] = [found] if found is not None and blocks_sigterm(found) else []
            return bool(child)
        self.assertTrue(eventually(begun))
        os.kill(child[0], signal.SIGSTOP)
        client.kill()
        client.communicate()
        self.assertTrue(eventually(lambda: not os.path.exists(f"/proc/{child[0]}")))
        # The next one has its turn.
        self.assertEqual(server.call("bench", "gelu", "--shape", "64", "--iterations", "3")[0], 0)

    def stop_measurement(self, server):
        """Stops the process by which the server measures its own bandwidth; its id."""
        self.assertTrue(server.await_serving())
        child = []

        def begun():
            child[:] = filter(None, [child_of(server.process.pid, "--method=benchmark")])
            return bool(child)
        self.assertTrue(eventually(begun))
        os.kill(child[0], signal.SIGSTOP)
        return child[0]

    def test_a_stopped_measurement_of_the_server_ends_with_it(self):
        server = self.serve("--self_test=off")
        child = self.stop_measurement(server)
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)
        self.assertTrue(eventually(lambda: not os.path.exists(f"/proc/{child}"), seconds=10))

    def test_a_stopped_measurement_of_the_server_holds_up_no_drain(self):
        server = self.serve("--self_test=off", "--drain_seconds=20")
        child = self.stop_measurement(server)
        client = server.start_client("bench", "gelu", "--shape", "64", "--iterations", "3")
        self.assertIn("queued behind 1 call", client.stderr.readline().decode())
        server.process.send_signal(signal.SIGINT)
        client.communicate(timeout=SECONDS_MAX)
        self.assertEqual(client.returncode, 0)
        self.assertEqual(server.wait(), 0)
        self.assertTrue(eventually(lambda: not os.path.exists(f"/proc/{child}"), seconds=10))

    def stop_self_test(self, server):
        """Stops the server's process for it, and returns its id."""
        pid = server.process.pid
        child = []

        def begun():
            child[:] = filter(None, [child_of(pid, "self-test-child")])
            # The server has a pidfd of the child.
            return child and any("pidfd" in link for link in links_of(pid))
        self.assertTrue(eventually(begun))
        os.kill(child[0], signal.SIGSTOP)
        return child[0]

    def test_a_stopped_self_test_ends_with_the_server(self):
        server = self.serve()
        child = self.stop_self_test(server)
        server.process.terminate()
        self.assertEqual(server.wait(), 0)
        self.assertTrue(eventually(lambda: not os.path.exists(f"/proc/{child}"), seconds=10))

    def test_a_child_finds_no_descriptors_that_the_server_was_left(self):
        with tempfile.TemporaryFile() as low, tempfile.TemporaryFile() as high:
            os.dup2(high.fileno(), 200)
            try:
                server = self.serve(pass_fds=(low.fileno(), 200))
            finally:
                os.close(200)
            left = {os.readlink(f"/proc/self/fd/{file.fileno()}") for file in (low, high)}
            self.assertLessEqual(left, set(links_of(server.process.pid)))
            child = self.stop_self_test(server)
            self.assertFalse(left & set(links_of(child)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2, failfast=True)
