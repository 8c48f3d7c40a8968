#!/usr/bin/env python3
"""The CPU device of a real server, seen by an independent client (differential.py).

    differential_test.py BUILD_FOLDER

WARPCALL_TEST_SEED repeats a run's problems, WARPCALL_TEST_REQUESTS says how many there are. Exit
status 77: skipped, Debian's packages for Python are missing.
"""

import os
import random
import sys
import unittest

SKIPPED = 77
CLIENTS = 4
# Sanitized rows take ten times as long, and are the same.
SANITIZED = os.environ.get("WARPCALL_TEST_SANITIZED") == "1"
REQUESTS = int(os.environ.get("WARPCALL_TEST_REQUESTS", 600 if SANITIZED else 4000))
SEED = int(os.environ.get("WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
# Above this, most of the time would go into NumPy's float64.
LARGE_ELEMENTS_MAX = 1 << 19

sys.dont_write_bytecode = True
try:
    from differential import DEFAULTS, TYPE_NAMES, Client, Mix, Server, load_messages, run_clients
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(SKIPPED)

class DifferentialTest(unittest.TestCase):
    pack = ""

    @classmethod
    def setUpClass(cls):
        cls.messages = load_messages(cls.pack)
        cls.server = Server(cls.pack, "--devices=cpu")
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = Client(cls.server.address, cls.messages)
        cls.addClassCleanup(cls.client.channel.close)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        if status != 0:
            raise AssertionError(f"the server ended with {status}: {cls.server.log_text()}")

    def types_of_rows(self):
        return {(kernel.name, variant): {TYPE_NAMES[number] for number in row.data_types}
                for kernel in self.client.kernels() for row in kernel.implementations for variant in row.variants}

    def test_random_problems_by_every_row(self):
        mix = Mix(CLIENTS, REQUESTS, SEED, LARGE_ELEMENTS_MAX)
        tally = run_clients(self.pack, self.server, mix)
        for name, count in sorted(tally.done.items()):
            print(f"  {'/'.join(name):40} {count}")
        if tally.failures:
            self.fail("\n".join([f"{len(tally.failures)} failed; WARPCALL_TEST_SEED={SEED}; some:",
                                 *sorted(tally.failures, key=len)[:20]]))
        self.assertEqual(set(tally.devices), {"cpu"})
        self.assertEqual(sum(tally.done.values()) + sum(tally.refused.values()),
                         REQUESTS // CLIENTS * CLIENTS)
        types = self.types_of_rows()
        expected = {(*row, name) for row, names in types.items() for name in names}
        self.assertEqual(expected - set(tally.done), set(), "never answered")
        self.assertEqual(set(tally.done) - expected, set(), "answered, but not listed")
        families = {(kernel.name, variant): row.family for kernel in self.client.kernels()
                    for row in kernel.implementations for variant in row.variants}
        for kernel, asked, name in tally.refused:
            could = [row for row in types if row[0] == kernel and asked in (row[1], families[row], f"{families[row]}:{row[1]}")
                     and name in types[row]]
            self.assertEqual(could, [], f"{kernel}/{asked} was refused for {name}")

    def test_kernels_rows_and_devices_are_listed(self):
        listed = {kernel.name: kernel for kernel in self.client.kernels()}
        self.assertEqual(set(listed), set(DEFAULTS), "differential.py needs each in DEFAULTS, truth() and arithmetic()")
        for name, kernel in listed.items():
            families = [row.family for row in kernel.implementations if row.device_kind == "cpu"]
            self.assertEqual(families[-1], "reference", name)
        self.assertEqual([list(listed[name].input_names) for name in ("softmax", "matmul")],
                         [["x"], ["a", "b"]])
        attributes = {attribute.name: attribute for attribute in listed["matmul"].attributes}
        self.assertEqual(set(attributes), {"transpose_a", "transpose_b", "precision"})
        self.assertEqual(attributes["precision"].default_value.string_value, "ieee")
        self.assertEqual(list(attributes["precision"].allowed_values), ["ieee", "tf32"])
        devices = self.client.list_devices(self.messages.ListDevicesRequest()).devices
        self.assertEqual([(device.name, device.kind, device.healthy) for device in devices],
                         [("cpu", "cpu", True)])
        self.assertGreater(devices[0].memory_bytes, 0)


if __name__ == "__main__":
    DifferentialTest.pack = sys.argv[1]
    print(f"WARPCALL_TEST_SEED={SEED}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
