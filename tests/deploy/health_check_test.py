#!/usr/bin/env python3
"""The image's HEALTHCHECK, without an image: it tells a server that is ready from one that is not, whatever credentials
the server requires.

    health_check_test.py WARPCALLD
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import processes  # noqa: E402

DOCKERFILE = pathlib.Path(__file__).parents[2] / "Dockerfile"
PORT = "/9470 "
WARPCALLD = sys.argv[1] if len(sys.argv) > 1 else ""


class HealthCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        text = DOCKERFILE.read_text(encoding="utf-8")
        # Docker's own form is JSON.
        (command,) = re.findall(r"HEALTHCHECK .*\\\n  CMD (\[.*\])\n", text)
        self.command = json.loads(command)
        self.assertIn("--metrics_listen=0.0.0.0:9470", text)

    def check(self, metrics):
        """(status, output) of the check, at another port than the image's."""
        *words, script = self.command
        self.assertEqual(script.count(PORT), 1)
        words.append(script.replace(PORT, f"/{metrics.rpartition(':')[2]} "))
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr

    def test_a_server_with_tls_and_tokens_is_healthy(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days",
                        "2", "-keyout", self.folder / "key", "-out", self.folder / "cert"], check=True,
                       capture_output=True, timeout=60)
        (self.folder / "tokens").write_text(f"alice {'1' * 32}\n", encoding="utf-8")
        with processes.warpcalld(WARPCALLD, self.folder, "--self_test=off", "--devices=cpu",
                                 f"--tls_cert={self.folder}/cert", f"--tls_key={self.folder}/key",
                                 f"--tls_client_ca={self.folder}/cert", f"--token_file={self.folder}/tokens"
                                 ) as (_, metrics):
            self.assertEqual(self.check(metrics), (0, "HTTP/1.1 200 OK\nok\n"))
        self.assertNotEqual(self.check(metrics)[0], 0)  # nobody is there any more

    def test_a_server_that_starts_is_not(self):
        """Its self-test takes minutes. It runs under a shell that stops it: it has not said its addresses."""
        log = self.folder / "log"
        with open(log, "wb") as output:
            with subprocess.Popen([WARPCALLD, *processes.FREE_PORTS, "--self_test=full", "--devices=cpu"],
                                  stdin=subprocess.DEVNULL, stdout=output, stderr=output) as server:
                try:
                    found = processes.wait_until(
                        "the metrics port", lambda: re.search(r'msg="the metrics port answers" metrics_listen=(\S+)\n',
                                                              log.read_text()), 60)
                    status, said = self.check(found[1])
                finally:
                    server.terminate()
        self.assertEqual(status, 1)
        self.assertRegex(said, r"^HTTP/1.1 503 Service Unavailable\nstarting")


if __name__ == "__main__":
    if not os.path.exists("/usr/bin/openssl"):
        print("skipped: openssl is missing")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
