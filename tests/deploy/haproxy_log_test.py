#!/usr/bin/env python3
"""HAProxy's log by deploy/haproxy: no line for a call that passes; caller, target and reason for one that fails.

    haproxy_log_test.py WARPCALLD WARPCALL
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import processes  # noqa: E402

FOLDER = processes.deployed_folder() / "haproxy"
CALLS = 20
SECONDS_MAX = 90
WARPCALLD, WARPCALL = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")


class HaproxyLogTest(unittest.TestCase):
    def call(self, front):
        return subprocess.run([WARPCALL, "--server", front, "run", "gelu", "--shape", "64"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=SECONDS_MAX).returncode

    def test_only_what_went_wrong_has_a_line(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        front, back = processes.free_addresses(2)
        log = folder / "haproxy.log"
        ports = [f"--listen={back}", "--metrics_listen=127.0.0.1:0"]
        environment = os.environ | {"WARPCALL_FRONT": front, "WARPCALL_BACK": back}
        with open(log, "ab") as output:
            haproxy = subprocess.Popen(["haproxy", "-db", "-f", FOLDER / "haproxy.cfg"], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, env=environment)
        self.addCleanup(haproxy.wait)
        self.addCleanup(haproxy.kill)
        with processes.warpcalld(WARPCALLD, folder, "--self_test=off", "--devices=cpu", ports=ports):
            processes.wait_until("the front", lambda: self.call(front) == 0, SECONDS_MAX)
            log.write_bytes(b"")  # drops calls from before both were there
            for _ in range(CALLS):
                self.assertEqual(self.call(front), 0)
        self.assertNotEqual(self.call(front), 0)  # the server is gone
        line = r'calls server/\S+ [\d/+-]+ 503 .*"POST http://\S+/warpcall\.v1\.\w+/\w+ HTTP/2\.0"'
        processes.wait_until("the line of the call that failed",
                             lambda: re.search(line, log.read_text(encoding="utf-8")), SECONDS_MAX)
        lines = log.read_text(encoding="utf-8").splitlines()
        self.assertEqual([text for text in lines if " 200 " in text or "Connect from" in text], [])

    def test_each_configuration_says_so(self):
        configurations = sorted(FOLDER.glob("*.cfg"))
        self.assertGreater(len(configurations), 2)
        for configuration in configurations:
            text = configuration.read_text(encoding="utf-8")
            defaults = re.search(r"(?ms)^defaults\n(.*?)^(?=\w)", text)[1]
            with self.subTest(configuration.name):
                self.assertIn("  mode http\n", defaults)
                self.assertIn("  option httplog\n", defaults)
                self.assertIn("  option dontlog-normal\n", defaults)


if __name__ == "__main__":
    if shutil.which("haproxy") is None:
        print("skipped: haproxy is missing")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
