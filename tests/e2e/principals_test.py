#!/usr/bin/env python3
"""Calls count together by the certificate's subject, whichever connections they come by and whatever their token is.

    principals_test.py SOURCE BUILD

Exit status 77: skipped, openssl or Debian's packages for Python are missing.
"""

import math
import os
import shutil
import sys
import threading
import unittest

sys.dont_write_bytecode = True
from access_case import ALICE, SKIPPED, AccessCase  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402

SECONDS_MAX = 400
# Some ten milliseconds of the device each, of a sanitized server's too.
WARM_UP, RESULTS, SIDE = 50, 250, 80 if os.environ.get("WARPCALL_TEST_SANITIZED") else 224
# Calls of each principal, as many as one connection takes: no principal is without a call while its thread here waits
# for its turn.
OUTSTANDING = 32
LANES = 2
ATTEMPTS = 20


class Load:
    """Keeps calls under way until `RESULTS` have come after a warm-up, in which all begin, and adds up the device's
    time by principal; and on, until each has an answer to a call that was made after those."""

    def __init__(self):
        self.lock = threading.Lock()
        self.under_way, self.results, self.failure = 0, 0, None
        self.device_ns, self.after = {"alice": 0, "bob": 0}, {"alice": 0, "bob": 0}
        self.longest_ns, self.least_wait_ns = 0, math.inf
        self.done, self.idle = threading.Event(), threading.Event()
        random = np.random.default_rng(1)
        self.matrix = random.standard_normal((SIDE, SIDE), dtype=np.float32)

    def keep(self, principal, client):
        with self.lock:
            self.under_way += 1
        self.submit(principal, client)

    def submit(self, principal, client):
        client.submit("matmul", self.matrix, self.matrix, implementation="reference").add_done_callback(
            lambda future: self.note(principal, client, future))

    def note(self, principal, client, future):
        with self.lock:
            if not self.done.is_set():
                self.count(principal, future)
            if self.done.is_set():
                self.under_way -= 1
                if self.under_way == 0:
                    self.idle.set()
                return
        self.submit(principal, client)

    def count(self, principal, future):
        self.failure = future.exception()
        if self.failure is None and self.results >= WARM_UP:
            timing = future.result().timing
            self.longest_ns = max(self.longest_ns, timing.kernel_ns)
            self.least_wait_ns = min(self.least_wait_ns, timing.queue_ns)
            if self.results < WARM_UP + RESULTS:
                self.device_ns[principal] += timing.kernel_ns
            else:
                self.after[principal] += 1
        self.results += 1
        if min(self.after.values()) > OUTSTANDING or self.failure is not None:
            self.done.set()

    def was_kept(self):
        """Returns True if each call found others of its principal before it: an empty queue would be next."""
        return self.least_wait_ns > self.longest_ns


class PrincipalsTest(AccessCase):
    def assert_equal_times(self, clients):
        """clients: (principal, client, calls under way) of each connection."""
        for _, client, _ in clients:
            client.devices()  # it is connected now
        for _ in range(ATTEMPTS):  # this process may not get to make its calls again in time
            load = self.run_load(clients)
            if load.was_kept():
                break
        else:
            self.fail(f"this process never kept the queues filled: {load.longest_ns, load.least_wait_ns}")
        alice, bob = load.device_ns["alice"], load.device_ns["bob"]
        # On a busy machine one call may take long, and its principal is charged when it ends: as many calls as there
        # are lanes may still be uncharged where the sums begin and end.
        self.assertLess(abs(alice - bob), 0.15 * min(alice, bob) + 2 * LANES * load.longest_ns,
                        (load.device_ns, load.longest_ns, load.least_wait_ns))

    def run_load(self, clients):
        load = Load()
        for principal, client, calls in clients:
            for _ in range(calls):
                load.keep(principal, client)
        self.assertTrue(load.idle.wait(SECONDS_MAX))
        self.assertIsNone(load.failure)
        return load

    def connect(self, server, **who):
        return self.enterContext(warpcall.connect(server.address, timeout=SECONDS_MAX, **who,
                                                  retry=warpcall.Retry(attempts_max=1)))

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
        self.assert_equal_times(clients)
        log = server.log_text()
        self.assertTrue('principal="CN=alice"' in log and 'principal=all' not in log)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: openssl, which makes certificates, is missing")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
