#!/usr/bin/env python3
"""Shared memory by the Open Inference Protocol: NVIDIA Triton's Python client, unchanged, against the real
server.

    inference_memory_test.py SOURCE BUILD

Exit status 77: skipped, the client can't be had from PyPI.
"""

import contextlib
import os
import pathlib
import socket
import struct
import sys
import tempfile
import threading
import unittest

import inference_protocol as support

BUILD = pathlib.Path(sys.argv[2]).resolve()
support.enter(BUILD)

import numpy as np  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
import tritonclient.utils.shared_memory as memory  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import differential  # noqa: E402
from users import OTHER_USER, acting_as, knows_users, why_no_other_user  # noqa: E402

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(12, dtype=np.float32).reshape(3, 4)
PAGE = 4096
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
PER_CALLER, PER_USER = 64, 256


def raw(name, array):
    made = triton.InferInput(name, list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return made


def placed(name, array, region, offset=0):
    made = triton.InferInput(name, list(array.shape), "FP32")
    made.set_shared_memory(region, array.nbytes, offset)
    return made


def output(name, region, size, offset=0):
    made = triton.InferRequestedOutput(name)
    made.set_shared_memory(region, size, offset)
    return made


class MemoryTest(unittest.TestCase):
    flags = ["--allow_shared_memory"]

    def setUp(self):
        self.server = self.enterContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off", "--test_fault_injection",
            "--lanes_per_device=1", *self.flags))
        self.client = self.enterContext(triton.InferenceServerClient(
            self.server.address, channel_args=OWN_CONNECTION))
        self.regions = 0

    def tearDown(self):
        self.client.close()
        self.assertEqual(self.server.stop(), 0, self.server.log_text())

    def object(self, size):
        """(handle, key) of a new object of so many bytes."""
        self.regions += 1
        key = f"/warpcall_test_{os.getpid()}_{self.regions}"
        handle = memory.create_shared_memory_region(key[1:], key, size)
        self.addCleanup(memory.destroy_shared_memory_region, handle)
        return handle, key

    def assert_refused(self, code, text, call):
        with self.assertRaises(InferenceServerException) as caught:
            call()
        self.assertEqual(caught.exception.status(), f"StatusCode.{code}", caught.exception.message())
        self.assertIn(text, caught.exception.message())


class Relay:
    """Passes one connection on to `address`, from a port of its own choice."""

    def __init__(self, address, port=0):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.onward = socket.socket()
        self.onward.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # It ends with a reset, which frees the port at once.
        self.onward.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.onward.bind(("127.0.0.1", port))
        self.port = self.onward.getsockname()[1]
        host, server_port = address.rsplit(":", 1)
        self.onward.connect((host, int(server_port)))
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        self.accepted, _ = self.listening.accept()
        self.threads.append(threading.Thread(target=self.copy, args=(self.onward, self.accepted)))
        self.threads[1].start()
        self.copy(self.accepted, self.onward)

    def copy(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                to.sendall(data)

    def close(self):
        """After its client."""
        self.threads[0].join()
        self.onward.shutdown(socket.SHUT_RD)
        self.threads[1].join()
        for each in (self.onward, self.accepted, self.listening):
            each.close()


class UsersTest(MemoryTest):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o755)
        path = f"{folder}/socket"
        self.flags = [*MemoryTest.flags, f"--listen=unix:{path}"]
        super().setUp()
        os.chmod(path, 0o666)
        self.tcp, self.unix = self.server.address.split(",")
        _, self.key = self.object(PAGE)

    def connect(self, address, user=None):
        client = self.enterContext(triton.InferenceServerClient(address, channel_args=OWN_CONNECTION))
        with acting_as(os.geteuid() if user is None else user):
            self.assertTrue(client.is_server_live())
        return client

    def register(self, client, count):
        """Returns the number of regions that the server takes."""
        for i in range(count):
            try:
                client.register_system_shared_memory(f"{count}_{i}", self.key, 8)
            except InferenceServerException as refusal:
                self.assertEqual(refusal.status(), "StatusCode.RESOURCE_EXHAUSTED", refusal.message())
                return i
        return count

    def fill(self, connections=20):
        """Has one user take all that it gets, by loopback and the Unix socket."""
        clients = [self.connect(self.tcp) for _ in range(connections)]
        taken = [self.register(client, PER_CALLER) for client in clients]
        self.assertEqual(sum(taken), PER_USER, taken)
        for client in [clients[-1], *([self.connect(self.unix)] if knows_users() else [])]:
            self.assert_refused(
                "RESOURCE_EXHAUSTED", f"user has {PER_USER} regions of shared memory; the limit is {PER_USER}",
                lambda c=client: c.register_system_shared_memory("more", self.key, 8))
        return clients

    def test_unregistering_gives_the_places_back(self):
        clients = self.fill()
        clients[0].unregister_system_shared_memory()
        self.assertEqual(self.register(clients[-1], PER_CALLER), PER_CALLER)
        self.assertEqual(self.register(clients[-2], 1), 0)

    def test_a_closed_connection_gives_its_places_back(self):
        clients = self.fill()
        clients[1].close()
        support.eventually(lambda: self.register(clients[-1], 1) == 1)
        self.assertEqual(self.register(clients[-1], PER_CALLER - 1), PER_CALLER - 1)
        self.assertEqual(len(clients[0].get_system_shared_memory_status().regions), PER_CALLER)

    @unittest.skipIf(why_no_other_user(), why_no_other_user())
    def test_one_user_leaves_places_for_another(self):
        self.fill()
        for address in (self.tcp, self.unix):
            other = self.connect(address, OTHER_USER)
            self.assertEqual(self.register(other, PER_CALLER), PER_CALLER)
        for _ in range(2):
            self.assertEqual(self.register(self.connect(self.tcp, OTHER_USER), PER_CALLER), PER_CALLER)
        self.assertEqual(self.register(self.connect(self.tcp, OTHER_USER), 1), 0)

    def test_a_port_that_is_used_again_brings_no_regions(self):
        relay = Relay(self.tcp)
        with triton.InferenceServerClient(relay.address, channel_args=OWN_CONNECTION) as client:
            self.assertEqual(self.register(client, 1), 1)
            self.assertEqual(len(client.get_system_shared_memory_status().regions), 1)
        relay.close()
        again = Relay(self.tcp, relay.port)
        with triton.InferenceServerClient(again.address, channel_args=OWN_CONNECTION) as client:
            self.assertEqual(len(client.get_system_shared_memory_status().regions), 0)
        again.close()

    def test_the_connections_of_one_user_to_a_unix_socket_share_their_regions(self):
        first, second = self.connect(self.unix), self.connect(self.unix)
        self.assertEqual(self.register(first, PER_CALLER), PER_CALLER)
        self.assertEqual(len(second.get_system_shared_memory_status().regions), PER_CALLER)
        if os.geteuid() != 0:
            self.skipTest("only root may connect as another user")
        other = self.connect(self.unix, OTHER_USER)
        self.assertEqual(len(other.get_system_shared_memory_status().regions), 0)
        other.unregister_system_shared_memory()
        self.assertEqual(len(second.get_system_shared_memory_status().regions), PER_CALLER)


class AllowedTest(MemoryTest):
    def test_inputs_and_outputs_lie_where_they_are_said_to(self):
        self.assertIn("system_shared_memory", self.client.get_server_metadata().extensions)
        handle, key = self.object(3 * PAGE)
        memory.set_shared_memory_region(handle, [A])
        memory.set_shared_memory_region(handle, [B], offset=PAGE + 8)
        self.client.register_system_shared_memory("all", key, 3 * PAGE)
        result = self.client.infer(
            "matmul", [placed("b", B, "all", PAGE + 8), placed("a", A, "all")],
            outputs=[output("c", "all", 40, 2 * PAGE)])
        response = result.get_response()
        self.assertEqual(list(response.raw_output_contents), [b""])
        self.assertEqual((response.outputs[0].datatype, list(response.outputs[0].shape)), ("FP32", [2, 4]))
        np.testing.assert_array_equal(
            memory.get_contents_as_numpy(handle, np.float32, [2, 4], 2 * PAGE), A @ B)
        # A region that begins within a page, and one of the object's last bytes.
        self.client.register_system_shared_memory("b", key, B.nbytes, offset=PAGE + 8)
        result = self.client.infer("identity", [placed("x", B, "b")])
        np.testing.assert_array_equal(result.as_numpy("y"), B)

    def test_raw_contents_are_counted_without_what_is_placed(self):
        handle, key = self.object(PAGE)
        self.client.register_system_shared_memory("r", key, PAGE)
        memory.set_shared_memory_region(handle, [A])
        for inputs in ([placed("a", A, "r"), raw("b", B)], [raw("b", B), placed("a", A, "r")]):
            np.testing.assert_array_equal(self.client.infer("matmul", inputs).as_numpy("c"), A @ B)
        memory.set_shared_memory_region(handle, [B])
        np.testing.assert_array_equal(
            self.client.infer("matmul", [raw("a", A), placed("b", B, "r")]).as_numpy("c"), A @ B)
        copied_out = lambda: support.total(self.server, "warpcall_host_copy_bytes_total", 'where="copy_out"')
        before = copied_out()
        self.client.infer("identity", [raw("x", A)], outputs=[output("y", "r", A.nbytes)])
        self.assertEqual(copied_out(), before + A.nbytes)

    def test_what_does_not_lie_in_its_region_is_refused(self):
        _, key = self.object(PAGE)
        self.client.register_system_shared_memory("r", key, 64)
        wrong = "INVALID_ARGUMENT"
        for offset, size in ((48, 24), (65, 0), (1 << 62, 24), ((1 << 63) - 1, 24)):
            made = triton.InferInput("x", [6], "FP32")
            made.set_shared_memory("r", size, offset)
            self.assert_refused(wrong, "Invalid offset + byte size",
                                lambda m=made: self.client.infer("identity", [m]))
        self.assert_refused(wrong, "has 20 bytes of data",
                            lambda: self.client.infer("identity", [self.sized(A, "r", 20)]))
        self.assert_refused(wrong, "should be at least 24", lambda: self.client.infer(
            "identity", [raw("x", A)], outputs=[output("y", "r", 20)]))
        self.assert_refused("NOT_FOUND", "'other'",
                            lambda: self.client.infer("identity", [placed("x", A, "other")]))
        for key_wrong, value in (("shared_memory_byte_size", -1), ("shared_memory_offset", -1)):
            made = placed("x", A, "r")
            made._get_tensor().parameters[key_wrong].int64_param = value
            self.assert_refused(wrong, key_wrong, lambda m=made: self.client.infer("identity", [m]))
        made = placed("x", A, "r")
        del made._get_tensor().parameters["shared_memory_byte_size"]
        self.assert_refused(wrong, "without shared_memory_byte_size",
                            lambda: self.client.infer("identity", [made]))

    def sized(self, array, region, size):
        made = triton.InferInput("x", list(array.shape), "FP32")
        made.set_shared_memory(region, size)
        return made

    def test_registering_checks_the_object(self):
        _, key = self.object(PAGE)
        register = self.client.register_system_shared_memory
        for name, wrong_key, size, offset, text in (
                ("r", "/warpcall_test_none", 64, 0, "is not there"), ("r", key, PAGE + 1, 0, "4096 bytes"),
                ("r", key, PAGE, 1, "4096 bytes"), ("r", key, 1, (1 << 64) - 1, "4096 bytes"),
                ("r", key, (1 << 64) - 1, 1, "4096 bytes"), ("r", key, 0, 0, "of 0 bytes"),
                ("r", "/../etc/passwd", 8, 0, 'must be "/"'), ("r", "key", 8, 0, 'must be "/"'),
                ("n" * 257, key, 8, 0, "257 bytes"), ("", key, 8, 0, "has 0 bytes")):
            self.assert_refused("INVALID_ARGUMENT", text,
                                lambda a=(name, wrong_key, size, offset): register(*a))
        register("r", key, 64, offset=8)
        self.assert_refused("ALREADY_EXISTS", "'r'", lambda: register("r", key, 64))
        status = self.client.get_system_shared_memory_status()
        self.assertEqual([(r.name, r.key, r.offset, r.byte_size) for r in status.regions.values()],
                         [("r", key, 8, 64)])
        self.assert_refused("NOT_FOUND", "'s'", lambda: self.client.get_system_shared_memory_status("s"))
        for _ in range(2):
            self.client.unregister_system_shared_memory()
        self.assertEqual(len(self.client.get_system_shared_memory_status().regions), 0)
        self.client.unregister_system_shared_memory("r")
        for i in range(PER_CALLER):
            register(f"r{i}", key, 8)
        self.assert_refused("RESOURCE_EXHAUSTED", "64", lambda: register("one more", key, 8))

    def test_a_region_is_its_callers(self):
        _, key = self.object(PAGE)
        self.client.register_system_shared_memory("r", key, PAGE)
        with triton.InferenceServerClient(self.server.address, channel_args=OWN_CONNECTION) as other:
            self.assertEqual(len(other.get_system_shared_memory_status().regions), 0)
            self.assert_refused("NOT_FOUND", "'r'", lambda: other.infer("identity", [placed("x", A, "r")]))
            other.unregister_system_shared_memory()
            other.register_system_shared_memory("r", key, 8)
        self.assertEqual(self.client.get_system_shared_memory_status("r").regions["r"].byte_size, PAGE)

    def test_unregistering_waits_for_requests(self):
        gate = support.Gate(self)
        handle, key = self.object(PAGE)
        memory.set_shared_memory_region(handle, [A])
        self.client.register_system_shared_memory("r", key, PAGE)
        mapped = lambda: key in pathlib.Path(f"/proc/{self.server.process.pid}/maps").read_text()
        done = []
        self.client.async_infer("held", [placed("x", A, "r")],
                                callback=lambda result, error: done.append((result, error)),
                                outputs=[output("y", "r", A.nbytes, 512)], parameters={"gate": gate.path})
        support.eventually(lambda: support.total(self.server, "warpcall_staging_bytes", 'state="used"') > 0)
        self.client.unregister_system_shared_memory("r")
        self.assertEqual(len(self.client.get_system_shared_memory_status().regions), 0)
        self.assertTrue(mapped())
        gate.open()
        support.eventually(lambda: done)
        self.assertIsNone(done[0][1])
        np.testing.assert_array_equal(memory.get_contents_as_numpy(handle, np.float32, [2, 3], 512), A)
        support.eventually(lambda: not mapped())

    def test_an_object_that_is_made_smaller_fails_the_request_alone(self):
        for use in ("input", "output"):
            _, key = self.object(64 * PAGE)
            self.client.register_system_shared_memory(use, key, 64 * PAGE)
            os.truncate(f"/dev/shm{key}", PAGE)
            x = np.ones(16 * PAGE, np.float32)
            call = {"input": lambda: self.client.infer("identity", [placed("x", x, "input")]),
                    "output": lambda: self.client.infer(
                        "identity", [raw("x", x)], outputs=[output("y", "output", x.nbytes)])}[use]
            self.assert_refused("INVALID_ARGUMENT", "made smaller", call)
            self.assert_refused("INVALID_ARGUMENT", "made smaller", call)
        np.testing.assert_array_equal(self.client.infer("identity", [raw("x", A)]).as_numpy("y"), A)

    def test_cuda_shared_memory_is_refused_and_has_no_regions(self):
        self.assert_refused("UNIMPLEMENTED", "CUDA IPC", lambda: self.client.register_cuda_shared_memory(
            "r", b"AAAA", 0, 64))
        self.client.unregister_cuda_shared_memory()
        self.assertEqual(len(self.client.get_cuda_shared_memory_status().regions), 0)
        self.assert_refused("NOT_FOUND", "'r'", lambda: self.client.get_cuda_shared_memory_status("r"))


class NotAllowedTest(MemoryTest):
    flags = []

    def test_nothing_is_registered(self):
        _, key = self.object(PAGE)
        self.assert_refused("PERMISSION_DENIED", "allow_shared_memory",
                            lambda: self.client.register_system_shared_memory("r", key, PAGE))
        self.client.unregister_system_shared_memory()
        self.assertEqual(len(self.client.get_system_shared_memory_status().regions), 0)
        self.assert_refused("NOT_FOUND", "'r'", lambda: self.client.infer("identity", [placed("x", A, "r")]))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
