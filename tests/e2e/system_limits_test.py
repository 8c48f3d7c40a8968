#!/usr/bin/env python3
"""Limits of the system, from far too low upwards: a server ends with status 1 and names the limit and its need, or it
serves, and goes on serving.

    system_limits_test.py BUILD

Exit status 77: skipped, since only root may become a user without processes.
"""

import itertools
import os
import re
import resource
import sys
import unittest

sys.dont_write_bytecode = True
from plain_server import SKIPPED, PlainServer  # noqa: E402

FLAGS = ("--lame_duck_seconds=0",)
# Unused users, one for each server: RLIMIT_NPROC counts a user's processes, and root's not at all.
USERS = itertools.count(654321)


def as_new_user(limits):
    user = next(USERS)

    def change():
        for which, value in limits.items():
            resource.setrlimit(which, (value, value))
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    return change


class SystemLimitsTest(unittest.TestCase):
    def start(self, limits, *flags):
        return PlainServer(*FLAGS, *flags, preexec_fn=as_new_user(limits))

    def assert_says(self, server, *texts):
        status = server.wait()
        said = server.said()
        last = said.strip().splitlines()[-1] if said.strip() else ""
        self.assertEqual(status, 1, said)
        self.assertTrue(last.startswith("warpcalld: "), said)
        for text in texts:
            self.assertIn(text, last)

    def assert_works(self, server, *more):
        """Matrix products of two threads on all of its lanes."""
        clients = [server.start_client("load", "matmul:256x256*256x256", "--duration", "0.5",
                                       "--concurrency", "4") for _ in range(2)]
        for client in clients:
            _, errors = client.communicate(timeout=60)
            self.assertEqual(client.returncode, 0, errors)
        for call in more:
            status, errors = server.call(*call)
            self.assertEqual(status, 0, errors)
        server.process.terminate()
        self.assertEqual(server.wait(), 0)

    def test_processes(self):
        started = 0
        for limit in (2, 4, 8, 12, 16, 20, 22, 24, 28, 32, 48, 64, 96, 128, 256, 512, 1024, 4096):
            with self.subTest(limit=limit), self.start({resource.RLIMIT_NPROC: limit}) as server:
                if server.await_serving():
                    started += 1
                    self.assert_works(server)
                else:
                    self.assert_says(server, "cannot start ",
                                     f"RLIMIT_NPROC (ulimit -u), for all processes of this user, is {limit}")
            if started == 2:
                break  # higher ones behave alike
        self.assertGreater(started, 0)

    def test_it_needs_no_more_threads_than_it_says(self):
        with self.start({}) as server:
            self.assertTrue(server.await_serving())
            threads = []
            clients = [server.start_client(
                "load", "matmul:256x256*256x256=5,gelu:65536=80,softmax:64x1024:bf16=15", "--duration", "1",
                "--concurrency", "8") for _ in range(4)]
            while any(client.poll() is None for client in clients):
                threads.append(server.metric("process_threads"))
            for client in clients:
                self.assertEqual(client.returncode, 0, client.communicate()[1])
            server.process.terminate()
            needed = int(re.search(r"msg=starting .*threads_max=(\d+)", server.said())[1])
            self.assertEqual(server.wait(), 0)
            self.assertGreater(max(threads), 10)
            self.assertLessEqual(max(threads), needed)

    def test_descriptors(self):
        for limit in (48, 255):
            with self.subTest(limit=limit), self.start({resource.RLIMIT_NOFILE: limit}) as server:
                self.assertFalse(server.await_serving())
                self.assert_says(server, f"the hard limit of open files (ulimit -Hn) is {limit}; the server "
                                 "needs 256")
        for limit in (256, 1024):
            with self.subTest(limit=limit), self.start({resource.RLIMIT_NOFILE: limit}) as server:
                self.assertTrue(server.await_serving(), server.process.poll())
                self.assert_works(server, ("bench", "gelu", "--shape", "64", "--iterations", "3"))

    def test_workers_get_their_descriptors(self):
        with self.start({resource.RLIMIT_NOFILE: 512}, "--test_cpu_workers=1", "--lanes_per_device=64",
                        "--self_test=off", "--staging_mib=512") as server:
            self.assertTrue(server.await_serving(), server.process.poll())
            self.assert_works(server)


if __name__ == "__main__":
    if os.getuid() != 0:
        print("skipped: only root may become a user without processes")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=2)
