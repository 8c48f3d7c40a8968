#!/usr/bin/env python3
"""A log that nobody reads, or that cannot be written, holds up nothing and loses nothing in silence.

    unread_log_test.py BUILD
"""

import os
import re
import resource
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from plain_server import PlainServer, eventually  # noqa: E402

FLAGS = ("--self_test=off", "--log_level=debug", "--lame_duck_seconds=0", "--inspect=off")
DROPPED = "warpcall_log_lines_dropped_total"


class UnreadLogTest(unittest.TestCase):
    def serve(self, *flags, **options):
        server = self.enterContext(PlainServer(*FLAGS, *flags, **options))
        self.assertTrue(server.await_serving())
        return server

    def fill(self, server):
        """Until lines are dropped: some 1200 of 1 KiB fill the pipe and the buffer."""
        def dropped():
            status, errors = server.call("load", "gelu:16", "--duration", "1", "--concurrency", "4")
            self.assertEqual(status, 0, errors)
            return server.metric(DROPPED) > 0
        self.assertTrue(eventually(dropped))

    def test_nobody_reads_it(self):
        server = self.serve()
        self.assertEqual(server.metric(DROPPED), 0)
        self.fill(server)
        self.assertEqual(server.call("run", "gelu", "--shape", "64")[0], 0)
        server.process.terminate()
        self.assertEqual(server.wait(), 0)

    def test_what_was_dropped_is_told_where_it_is_missing(self):
        server = self.serve()
        self.fill(server)
        lines = []
        while not lines or "lines of the log were dropped here" not in lines[-1]:
            lines.append(server.process.stderr.readline().decode())
            self.assertRegex(lines[-1], r"^ts=\S+ level=\w+ msg=.*\n$")
        said = int(re.search(r" lines=(\d+)", lines[-1])[1])
        self.assertGreater(said, 0)
        self.assertLessEqual(said, server.metric(DROPPED))
        server.process.terminate()
        rest = server.said()
        self.assertIn("msg=draining", rest)
        self.assertEqual(server.wait(), 0)

    def test_a_file_that_may_grow_no_more(self):
        """RLIMIT_FSIZE sends SIGXFSZ, which ends a process that does not expect it."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))
        with tempfile.NamedTemporaryFile() as log:
            server = self.serve(f"--tuning_cache={log.name}.tuning", stderr=log, preexec_fn=limit)
            self.fill(server)
            self.assertEqual(server.call("run", "gelu", "--shape", "64")[0], 0)
            self.assertLessEqual(os.path.getsize(log.name), 64 << 10)
            server.process.terminate()
            self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
