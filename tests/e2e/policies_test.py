#!/usr/bin/env python3
"""Policies' limits for callers, against the real server, and policy files that change.

    policies_test.py SOURCE BUILD

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
from access_case import ALICE, BOB, X, AccessCase, eventually  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402

CAROL = "carol-0123456789abcdef"
KERNEL = """// warpcall-kernel {
// "name": "k", "op": "gelu", "types": ["float32"], "code": {"kind": "cuda", "entry": "k"},
// "args": ["x.ptr", "y.ptr"], "launch": {"grid": [1], "block": [32]}
// }
__global__ void k(const T* x, T* y) { y[0] = x[0]; }
"""


class PoliciesTest(AccessCase):
    def serve_with(self, policies, *flags):
        tokens = self.write("tokens", f"alice {ALICE}\nbob {BOB}\ncarol {CAROL}\n")
        return self.serve(f"--token_file={tokens}", f"--policy_file={self.policies(policies)}", *flags)

    def policies(self, policies):
        return self.write("policies.json", json.dumps(policies))

    def connect(self, server, token):
        return self.enterContext(warpcall.connect(server.address, timeout=60, token=token,
                                                  retry=warpcall.Retry(attempts_max=1)))

    def refusals(self, server):
        """Refusals that happened, by reason."""
        start = 'warpcall_auth_refusals_total{reason="'
        return {name[len(start):-2]: count for name, count in server.metrics().items()
                if name.startswith(start) and count > 0}

    def assert_denied(self, text, call):
        with self.assertRaises(warpcall.PermissionDenied) as caught:
            call()
        self.assertIn(text, str(caught.exception))

    def test_calls_are_counted_by_principal(self):
        server = self.serve_with({"default": {}, "principals": {"alice": {}, 'CN="o\\dd"': {}}})
        alice, bob = (self.connect(server, token) for token in (ALICE, BOB))
        for client, calls in ((alice, 3), (bob, 2)):
            for _ in range(calls):
                client.gelu(X)
        start = "warpcall_principal_requests_total"
        self.assertEqual({name: count for name, count in server.metrics().items() if name.startswith(start)},
                         {start + '{principal="alice"}': 3, start + '{principal=""}': 2,
                          start + r'{principal="CN=\"o\\dd\""}': 0})

    def test_push_is_for_those_whose_methods_name_it(self):
        server = self.serve_with({"principals": {"alice": {"methods": ["Push"], "kernels": ["gelu"]}, "bob": {}}})
        alice, bob = (self.connect(server, token) for token in (ALICE, BOB))
        self.assertIn(alice.push(KERNEL).status, ("NOT_SUPPORTED", "COMPILE_ERROR", "INCORRECT_NUMERICAL"))
        self.assert_denied("Push is for principals whose policy names it", lambda: bob.push(KERNEL))
        self.assert_denied("may not run softmax", lambda: alice.push(KERNEL.replace("gelu", "softmax")))

    def test_a_push_is_compared_with_what_its_caller_may_use(self):
        server = self.serve_with({"principals": {"alice": {"methods": ["Push"], "implementations": ["reference"]}}})
        alice = self.connect(server, ALICE)
        for names in ("cpu", ()):
            self.assert_denied("alice may not use the implementation",
                               lambda: alice.push(KERNEL, compare_with=names))  # noqa: B023  (called at once)
        for name in ("reference", "none"):
            self.assertIn(alice.push(KERNEL, compare_with=name).status, ("NOT_SUPPORTED", "COMPILE_ERROR"))

    def test_what_is_not_allowed_is_refused_and_counted(self):
        server = self.serve_with({
            "default": {"methods": ["ListDevices", "ServerInfo"]},
            "principals": {
                "alice": {"methods": ["Execute", "ExecuteStream", "BenchmarkStream", "Describe"],
                          "kernels": ["gelu"], "implementations": ["reference"], "devices": ["cpu"]},
                "bob": {"devices": ["cuda:0"]}}})
        alice, bob, carol = (self.connect(server, token) for token in (ALICE, BOB, CAROL))
        # The server chooses among the implementations that alice may use.
        self.assertEqual(alice.gelu(X).implementation, "reference")
        self.assertEqual(alice.gelu(X, device="cpu", implementation="reference:float64").implementation,
                         "reference")
        self.assertEqual(alice.gelu(np.ones(4 << 20, np.float32)).implementation, "reference")  # a stream
        other = next(row for kernel in self.connect(self.serve(), None).kernels() if kernel.name == "gelu"
                     for row in kernel.implementations if row.name != "reference")
        self.assert_denied("alice may not run softmax; the server's policy allows: gelu",
                           lambda: alice.softmax(X))
        for name in (other.variants[0], f"{other.name}:{other.variants[0]}"):
            self.assert_denied(f"alice may not use the implementation {other.variants[0]}",
                               lambda: alice.gelu(X, implementation=name))  # noqa: B023  (called at once)
        self.assert_denied("for alice allows nothing that can run this",
                           lambda: alice.gelu(X, implementation="cpu"))
        self.assert_denied("alice may not use the device cuda:7", lambda: alice.gelu(X, device="cuda:7"))
        self.assert_denied("alice may not call ListKernels", alice.kernels)
        self.assert_denied("alice may not call Tune", lambda: alice.tune("gelu", "64"))
        self.assert_denied("alice may not use the implementation", lambda: alice.benchmark("gelu", ["64"]))
        alice.benchmark("gelu", ["64"], implementations=["reference"], iterations=2)
        self.assert_denied("alice may not run softmax", lambda: alice.describe("softmax", "64"))
        for asked in ({}, {"implementation": "reference"}):
            self.assertEqual(alice.describe("gelu", "64", **asked).implementation, "reference")
        for call in (lambda: bob.gelu(X), lambda: bob.describe("gelu", "64")):
            self.assert_denied("for bob allows nothing that can run this: cpu may not be used", call)
        carol.devices()
        self.assert_denied("carol may not call Execute", lambda: carol.gelu(X))
        self.assertEqual(self.refusals(server), {"kernel": 2, "implementation": 4, "device": 3,
                                                 "method": 3})
        self.assertEqual(server.stop(), 0)

    def test_where_a_row_refuses_another_that_is_allowed_serves(self):
        server = self.serve_with({"principals": {
            "alice": {"implementations": ["refusing", "taking"]}, "bob": {"implementations": ["refusing"]},
            "carol": {"implementations": ["not_compiling"]}}}, "--test_fault_injection")
        bob = self.connect(server, BOB)
        with self.assertRaises(warpcall.Unimplemented) as caught:
            bob.picky(X, elements_max=1)
        self.assertIn("there is no way to copy", str(caught.exception))
        self.assert_denied("for bob allows nothing that can run this: cpu: not_compiling would run it",
                           lambda: bob.picky(X, elements_max=1))
        alice = self.connect(server, ALICE)
        self.assertEqual(alice.picky(X, elements_max=1).launch.variant, "taking")
        self.assertEqual(alice.describe("picky", "64", elements_max=1).launch.variant, "taking")
        refused = self.refusals(server)
        with self.assertRaises(warpcall.Internal) as caught:
            self.connect(server, CAROL).describe("picky", "64", elements_max=1)
        self.assertIn("expected a kernel", str(caught.exception))
        self.assertEqual(self.refusals(server), refused)  # nothing that she may not use was asked for
        self.assertEqual(server.stop(), 0)

    def test_what_is_in_flight_has_limits(self):
        server = self.serve_with({"principals": {
            "alice": {"requests_in_flight_max": 1, "bytes_in_flight_max": 8 << 20}, "bob": {}}},
            "--test_fault_injection")
        alice, bob = self.connect(server, ALICE), self.connect(server, BOB)
        for size in (3 << 20, 16 << 20):  # message and stream; inputs alone exceed it
            with self.assertRaises(warpcall.ResourceExhausted) as caught:
                alice.identity(np.zeros(size, np.float32))
            self.assertIn("its limit is 8388608 (bytes_in_flight_max)", str(caught.exception))
            self.assertIsNone(caught.exception.retry_after)
        gate = self.write("gate", "")
        calls = [alice.submit("held", X, gate=gate) for _ in range(4)]
        others = [bob.submit("held", X, gate=gate) for _ in range(4)]
        self.assertTrue(eventually(lambda: sum(call.done() for call in calls) == 3))
        os.remove(gate)
        ends = [call.exception(timeout=60) for call in calls]
        self.assertTrue(all(call.exception(timeout=60) is None for call in others))
        refused = [end for end in ends if end is not None]
        self.assertEqual(len(refused), 3, ends)
        for end in refused:
            self.assertIsInstance(end, warpcall.ResourceExhausted)
            self.assertIn("alice has 1 requests in flight", str(end))
            self.assertAlmostEqual(end.retry_after, 0.1)
        for _ in range(20):  # each is over when its answer has come
            alice.identity(X)
        self.assertEqual(self.refusals(server), {"requests_in_flight": 3, "bytes_in_flight": 2})
        self.assertEqual(server.metrics()['warpcall_rejected_total{reason="quota"}'], 5)
        used = 'warpcall_staging_bytes{device="cpu",state="used"}'
        self.assertTrue(eventually(lambda: server.metrics()[used] == 0))
        gate = self.write("gate", "")
        running = alice.submit("held", X, gate=gate)
        self.assertTrue(eventually(lambda: server.metrics()[used] > 0))
        with self.assertRaises(warpcall.ResourceExhausted) as caught:
            alice.kernels()
        self.assertAlmostEqual(caught.exception.retry_after, 0.1)
        os.remove(gate)
        self.assertIsNone(running.exception(timeout=60))
        self.assertEqual(server.stop(), 0)

    def test_policies_change_while_the_server_runs_and_never_by_half(self):
        server = self.serve_with({"principals": {"alice": {"kernels": ["identity"]}}})
        self.assertEqual(self.ends(server, token=ALICE), "OK")
        failures = 'warpcall_reload_failures_total{flag="policy_file"}'
        self.assertEqual(server.metrics()[failures], 0)
        self.policies({"principals": {"alice": {"kernels": ["gelu"]}, "bob": {"share": 0}}})
        self.assertTrue(eventually(lambda: server.metrics()[failures] >= 1))
        self.assertTrue(eventually(
            lambda: "principals.bob.share: is no number of 0.01 to 100" in server.log_text()))
        self.assertEqual([self.ends(server, token=token) for token in (ALICE, BOB)],
                         ["OK", "PERMISSION_DENIED"])
        self.policies({"principals": {"alice": {"kernels": ["gelu"]}, "bob": {"share": 2}}})
        self.assertTrue(eventually(lambda: self.ends(server, token=BOB) == "OK"))
        self.assertEqual(self.ends(server, token=ALICE), "PERMISSION_DENIED")
        self.assertEqual(server.stop(), 0)

    def test_what_is_wrong_with_the_file_is_said_at_the_start(self):
        self.assert_does_not_start("missing: No such file", f"--policy_file={self.path('missing')}")
        self.assert_does_not_start(
            "\"Excute\" is no method; available: Benchmark",
            f"--policy_file={self.policies({'default': {'methods': ['Excute']}})}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
