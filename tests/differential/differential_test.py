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
    import grpc
    import numpy as np
    from differential import (FLOAT16, FLOAT32, TYPE_NAMES, Client, Mix, Problem, Server,
                              load_messages, run_clients)
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(SKIPPED)

SERVING = 1
SERVICE_NAME = b"warpcall.v1.KernelService"
ROWS = {
    "identity": ["parallel_copy", "onednn_reorder", "element_loop", "plain_copy"],
    "gelu": ["simd_fused", "onednn_eltwise", "chain_of_loops", "float64"],
    "softmax": ["simd_rows", "onednn_softmax", "chain_of_loops", "float64"],
    "matmul": ["onednn_matmul", "simd_tiled", "one_dot_per_output", "float64"],
}
STREAM_CHUNK_BYTES = 100_000


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
        return {(kernel.name, row.name): {TYPE_NAMES[number] for number in row.data_types}
                for kernel in self.client.kernels() for row in kernel.implementations}

    # ---- right answers ----

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
        families = {(kernel.name, row.name): row.family for kernel in self.client.kernels()
                    for row in kernel.implementations}
        for kernel, asked, name in tally.refused:
            could = [row for row in types if row[0] == kernel and asked in (row[1], families[row])
                     and name in types[row]]
            self.assertEqual(could, [], f"{kernel}/{asked} was refused for {name}")

    def test_a_stream_gives_the_bits_of_execute(self):
        for kernel, row in [("gelu", "simd_fused"), ("identity", "plain_copy"),
                            ("softmax", "simd_rows")]:
            problem = Problem(kernel, random.Random(SEED), np.random.default_rng(SEED))
            problem.shapes, problem.tensors = [[300, 500]], []
            values = np.random.default_rng(SEED).standard_normal([300, 500], dtype=np.float32)
            problem.data_type, problem.tensors = FLOAT32, [(values.tobytes(), values)]
            problem.attributes.update({"axis": -1} if kernel == "softmax" else {})
            problem.sent = dict(problem.attributes)
            request = problem.request(self.messages, row)
            response = self.client.execute(request, timeout=60)
            self.assertIsNone(problem.check(response))
            self.assertEqual(self.stream(request), response.outputs[0].data, kernel)

    def stream(self, request):
        """The output's bytes."""
        data = request.inputs[0].data
        message = self.messages.ExecuteStreamRequest
        header = message(header=request)
        header.header.inputs[0].data = b""
        chunks = [message(chunk={"offset": at, "data": data[at:at + STREAM_CHUNK_BYTES]})
                  for at in range(0, len(data), STREAM_CHUNK_BYTES)]
        output, done = bytearray(len(data)), None
        for answer in self.client.execute_stream(iter([header, *chunks]), timeout=60):
            kind = answer.WhichOneof("message")
            if kind == "chunk":
                end = answer.chunk.offset + len(answer.chunk.data)
                output[answer.chunk.offset:end] = answer.chunk.data
            elif kind == "done":
                done = answer.done
        self.assertEqual(done.implementation, request.implementation)
        return bytes(output)

    # ---- lists and health ----

    def test_kernels_rows_and_devices_are_listed(self):
        listed = {kernel.name: kernel for kernel in self.client.kernels()}
        self.assertEqual({name: [row.name for row in kernel.implementations
                                 if row.device_kind == "cpu"] for name, kernel in listed.items()},
                         ROWS)
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

    def test_health(self):
        self.assertEqual(self.client.health(b""), SERVING)
        named = bytes([0x0A, len(SERVICE_NAME)]) + SERVICE_NAME  # HealthCheckRequest{1: service}
        self.assertEqual(self.client.health(named), SERVING)
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.health(b"\x0a\x01x")
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)

    # ---- refusals ----

    def request(self, kernel="gelu", shapes=((2, 3),), **fields):
        """A right request of zeros, but for what the test changes."""
        request = self.messages.ExecuteRequest(kernel=kernel, **fields)
        for shape in shapes:
            request.inputs.add(data_type=FLOAT32, shape=shape, data=bytes(4 * int(np.prod(shape))))
        return request

    def refusal(self, request):
        with self.assertRaises(grpc.RpcError, msg=str(request)[:500]) as raised:
            self.client.execute_bytes(request, timeout=60)
        return raised.exception

    def assert_refused(self, code, request, *mentioned):
        data = request if isinstance(request, bytes) else request.SerializeToString()
        error = self.refusal(data)
        self.assertEqual(error.code(), code, f"{error.details()}: {str(request)[:500]}")
        for text in mentioned:
            self.assertIn(text, error.details())
        return error

    def assert_invalid(self, request, *mentioned):
        self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, request, *mentioned)

    def test_tensors_that_are_none(self):
        for shape in ([7], [], [-6], [1] * 8 + [6], [1 << 40, 1 << 40], [(1 << 63) - 1]):
            request = self.request()
            request.inputs[0].shape[:] = shape
            self.assert_invalid(request)
        for data_type in (0, 4, -1):
            request = self.request()
            request.inputs[0].data_type = data_type
            self.assert_invalid(request, str(data_type), "float32")
        request = self.request()
        request.inputs[0].data = request.inputs[0].data[:-1]
        self.assert_invalid(request, "23", "24")
        self.assert_invalid(b"\x0a\x04gelu\x1a\xff")

    def test_inputs_that_do_not_fit(self):
        self.assert_invalid(self.request(shapes=[]), "1", "0")
        self.assert_invalid(self.request(shapes=[[1], [1]]), "1", "2")
        self.assert_invalid(self.request("matmul", [[4]]), "2", "1")
        self.assert_invalid(self.request("matmul", [[4], [4, 4]]), "rank", "2")
        self.assert_invalid(self.request("matmul", [[2, 3], [4, 2]]), "3", "4")
        self.assert_invalid(self.request("matmul", [[2, 3, 3], [3, 3, 3]]), "2", "3")
        mixed = self.request("matmul", [[2, 2], [2, 2]])
        mixed.inputs[1].data_type, mixed.inputs[1].data = FLOAT16, bytes(8)
        self.assert_invalid(mixed, "float16", "float32")

    def test_attributes(self):
        for kernel, name, field, value, *mentioned in [
                ("gelu", "aproximate", "string_value", "tanh", "aproximate", "approximate"),
                ("gelu", "approximate", "string_value", "cubic", "cubic", "tanh", "none"),
                ("gelu", "approximate", "int_value", 1, "approximate", "string"),
                ("identity", "axis", "int_value", 0, "axis"),
                ("softmax", "axis", "int_value", 2, "2", "-2", "1"),
                ("softmax", "axis", "int_value", -3, "-3"),
                ("softmax", "axis", "bool_value", True, "axis", "int")]:
            request = self.request(kernel)
            setattr(request.attributes[name], field, value)
            self.assert_invalid(request, *mentioned)
        for name, field, value in [("transpose_a", "int_value", 1),
                                   ("precision", "string_value", "float64")]:
            request = self.request("matmul", [[2, 2], [2, 2]])
            setattr(request.attributes[name], field, value)
            self.assert_invalid(request, name)
        half = self.request("matmul", [[2, 2], [2, 2]])
        for tensor in half.inputs:
            tensor.data_type, tensor.data = FLOAT16, bytes(8)
        half.attributes["precision"].string_value = "tf32"
        self.assert_invalid(half, "tf32", "float32")

    def test_names_that_are_not_there(self):
        not_found = grpc.StatusCode.NOT_FOUND
        self.assert_refused(not_found, self.request("gleu"), "gleu", *ROWS)
        self.assert_refused(not_found, b"", *ROWS)
        self.assert_refused(not_found, self.request(implementation="fpga"), "fpga", *ROWS["gelu"])
        self.assert_refused(not_found, self.request(implementation="simd_rows"), *ROWS["gelu"])
        self.assert_refused(not_found, self.request(device="cuda:7"), "cuda:7", "cpu")

    def test_what_no_row_takes_and_what_is_too_large(self):
        request = self.request("softmax", implementation="library")
        request.inputs[0].data_type, request.inputs[0].data = FLOAT16, bytes(12)
        self.assert_refused(grpc.StatusCode.UNIMPLEMENTED, request, "onednn_softmax", "float16")
        large = self.request("matmul", [[1 << 20, 0], [0, 1 << 20]])
        error = self.assert_refused(grpc.StatusCode.RESOURCE_EXHAUSTED, large, str(1 << 42))
        self.assertIn(("grpc-retry-pushback-ms", "-1"), list(error.trailing_metadata()))


if __name__ == "__main__":
    DifferentialTest.pack = sys.argv[1]
    print(f"WARPCALL_TEST_SEED={SEED}", flush=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
