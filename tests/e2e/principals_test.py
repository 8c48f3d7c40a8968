#!/usr/bin/env python3
"""Whose calls count together: by the certificate's subject, else by the token's name, whichever
connections they come by.

    principals_test.py SOURCE BUILD

Exit status 77: skipped, openssl or Debian's packages for Python are missing.
"""

import os
import shutil
import sys
import threading
import unittest

sys.dont_write_bytecode = True
from access_case import ALICE, BOB, SKIPPED, AccessCase  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402

SECONDS_MAX = 400
# Some ten milliseconds of the device each, of a sanitized server's too.
WARM_UP, RESULTS, SIDE = 50, 250, 80 if os.environ.get("WARPCALL_TEST_SANITIZED") else 224
# Of each principal, and as many as one connection takes: none is without a call while its thread here waits for
# its turn.
OUTSTANDING = 32
LANES = 2


class Load:
    """Keeps calls under way until `RESULTS` have come after a warm-up, in which all begin, and adds up the device's
    time by principal."""

    def __init__(self):
        self.lock = threading.Lock()
        self.device_ns, self.longest_ns, self.results, self.failure = {}, 0, 0, None
        self.done = threading.Event()
        random = np.random.default_rng(1)
        self.matrix = random.standard_normal((SIDE, SIDE), dtype=np.float32)

    def keep(self, principal, client):
        client.submit("matmul", self.matrix, self.matrix, implementation="reference").add_done_callback(
            lambda future: self.note(principal, client, future))

    def note(self, principal, client, future):
        if self.done.is_set():
            return
        with self.lock:
            if future.exception() is not None:
                self.failure = future.exception()
            elif self.results >= WARM_UP:
                ns = future.result().timing.kernel_ns
                self.device_ns[principal] = self.device_ns.get(principal, 0) + ns
                self.longest_ns = max(self.longest_ns, ns)
            self.results += 1
            if self.results == WARM_UP + RESULTS or self.failure is not None:
                self.done.set()
                return
        self.keep(principal, client)


class PrincipalsTest(AccessCase):
    def assert_equal_times(self, load, clients):
        """clients: (principal, client, calls under way) of each connection."""
        for _, client, _ in clients:
            client.devices()  # it is connected now
        for principal, client, calls in clients:
            for _ in range(calls):
                load.keep(principal, client)
        self.assertTrue(load.done.wait(SECONDS_MAX))
        self.assertIsNone(load.failure)
        alice, bob = load.device_ns["alice"], load.device_ns["bob"]
        # Where the machine has other work one call may take long, which its principal is charged with when it
        # is over: as many as there are lanes are still to be made up for where the sums begin and end.
        self.assertLess(abs(alice - bob), 0.15 * min(alice, bob) + 2 * LANES * load.longest_ns,
                        (load.device_ns, load.longest_ns))

    def connect(self, server, **who):
        return self.enterContext(warpcall.connect(server.address, timeout=SECONDS_MAX, **who,
                                                  retry=warpcall.Retry(attempts_max=1)))

    def test_eight_connections_of_one_token_get_what_one_of_another_gets(self):
        tokens = self.write("tokens", f"alice {ALICE}\nbob {BOB}\n")
        server = self.serve(f"--token_file={tokens}", f"--lanes_per_device={LANES}")
        clients = [("alice", self.connect(server, token=ALICE), OUTSTANDING // 8) for _ in range(8)]
        clients.append(("bob", self.connect(server, token=BOB), OUTSTANDING))
        self.assert_equal_times(Load(), clients)
        self.assertEqual(server.stop(), 0)

    def test_a_certificates_subject_is_a_principal_whatever_its_token(self):
        for name in ("server", "authority"):
            self.make_certificate(name)
        for name in ("alice", "bob"):
            self.make_signed(name, "authority")
        tokens = self.write("tokens", f"all {ALICE}\n")
        server = self.serve(*self.tls_flags(), f"--tls_client_ca={self.path('authority.pem')}",
                            f"--token_file={tokens}", f"--lanes_per_device={LANES}", "--log_level=debug")
        def tls(name):
            return warpcall.TLS(self.path("server.pem"), self.path(f"{name}.pem"),
                                self.path(f"{name}.key"))
        clients = [("alice", self.connect(server, tls=tls("alice"), token=ALICE), OUTSTANDING // 4)
                   for _ in range(4)]
        clients.append(("bob", self.connect(server, tls=tls("bob"), token=ALICE), OUTSTANDING))
        self.assert_equal_times(Load(), clients)
        log = server.log_text()
        self.assertTrue('principal="CN=alice"' in log and 'principal=all' not in log)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: openssl, which makes certificates, is missing")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
