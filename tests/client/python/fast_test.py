"""The module warpcall_fast, beyond what the other tests show with WARPCALL_TEST_FAST=1: its use beside grpcio in one
process, the arrays that it takes as they lie, when it is used, and how its calls end when they meet streams, signals or
a closed client."""

import contextlib
import glob
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import types
import unittest
import warnings
from unittest import mock

from support import (ENVIRONMENT, SEED, FakeServer, RealServer, answer, eventually, grpc, in_thread,
                     main, np)
import warpcall
import warpcall_fast
from warpcall import _fast
from warpcall._calls import Calls
from ways import QUICK, REPLY, Script, X

NAMES = ("identity", "", "", "", 0.0, "")
MIB = 1 << 20


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *args, **kwargs):
        return self.array.__dlpack__(*args, **kwargs)


def python(program, *arguments, **environment):
    """A program that was run to its end."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], text=True,
                          capture_output=True, timeout=200, check=False,
                          env={**ENVIRONMENT, **environment})


class BesideGrpcioTest(unittest.TestCase):
    PROGRAM = """
        import sys
        import numpy as np
        for name in sys.argv[2:]:
            __import__(name)
        import grpc, warpcall
        from warpcall import _arrays, _execute
        assert warpcall.FAST
        x = np.random.default_rng(1).standard_normal(1 << 18, np.float32)
        request = _execute.encode_request(_execute.Call("identity"), [_arrays.to_operand(x)])
        options = [("grpc.max_receive_message_length", -1)]
        with warpcall.connect(sys.argv[1], timeout=60) as client, \\
                grpc.insecure_channel(sys.argv[1], options=options) as channel:
            bare = channel.unary_unary("/warpcall.v1.KernelService/Execute")
            for _ in range(200):
                assert np.array_equal(client.identity(x), x)
                assert bare(request).endswith(x.tobytes())
            client.devices()  # by grpcio
        print("right")
    """

    def test_both_orders(self):
        with RealServer() as server:
            for order in (("grpc", "warpcall_fast"), ("warpcall_fast", "grpc")):
                done = python(self.PROGRAM, server.address, *order)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "right\n", ""))


class ChoiceTest(unittest.TestCase):
    def test_the_environment_refuses_it(self):
        for value, fast in (("1", False), ("0", True), ("", True)):
            done = python("import warpcall; print(warpcall.FAST)", WARPCALL_PURE=value)
            self.assertEqual((done.stdout, done.stderr), (f"{fast}\n", ""))

    def test_one_of_another_version_is_refused(self):
        spec = importlib.util.find_spec("warpcall_fast")
        other = types.SimpleNamespace(__version__="9.9.9", __spec__=spec)
        with mock.patch.dict(sys.modules, {"warpcall_fast": other}), \
                mock.patch.object(_fast, "VERSION", "9.9.8"):
            with self.assertWarnsRegex(UserWarning, "warpcall 9.9.8 .* warpcall_fast, which is 9.9.9"):
                self.assertIsNone(_fast._load())
        with mock.patch.dict(sys.modules, {"warpcall_fast": other}), \
                mock.patch.object(_fast, "VERSION", "9.9.9"), warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIs(_fast._load(), other)

    def test_one_that_does_not_load_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "warpcall_fast.py"), "w", encoding="utf-8") as file:
                file.write("raise ImportError('libgrpc.so.29: cannot open shared object file')\n")
            path = os.pathsep.join([folder, ENVIRONMENT["PYTHONPATH"]])
            done = python("import warpcall; print(warpcall.FAST)", PYTHONPATH=path)
        self.assertEqual(done.stdout, "False\n")
        self.assertIn("goes on without warpcall_fast: libgrpc.so.29", done.stderr)

    def test_what_it_does_not_know_is_made_without_it(self):
        for options in ({"token": "t"}, {"tls": warpcall.TLS()}):
            with warpcall.connect("localhost:1", **options) as client:
                self.assertIs(type(client._calls), Calls)
        with warpcall.connect("localhost:1") as client:
            self.assertIs(type(client._calls), _fast.FastCalls)


class ArraysTest(unittest.TestCase):
    """Against a server that answers any request with X."""

    def setUp(self):
        server = self.enterContext(FakeServer(Script()))
        self.calls = warpcall_fast.Calls(server.address, (1, 20.0), (5, 0.05, 2.0, 60.0, 50.0, 0.1))
        self.addCleanup(self.calls.close)

    def taken(self, *inputs, attributes=None, bytes_max=1 << 20):
        return self.calls.run_ready(NAMES, attributes or {}, inputs, bytes_max)

    def test_what_is_sent_as_it_lies(self):
        read_only = X.copy()
        read_only.flags.writeable = False
        with tempfile.NamedTemporaryFile() as file:
            for x in (X, X.astype(np.float16), read_only, X[:1], np.empty((0, 3), np.float32),
                      np.memmap(file, np.float32, "w+", shape=(2, 3)), memoryview(X), OnlyDlpack(X),
                      OnlyDlpack(X.astype(np.float16))):
                self.assertIsInstance(self.taken(x, X), warpcall_fast.Answer)

    def test_what_is_not(self):
        bits = X.astype(np.float16).view(np.uint16)
        for x in (X.astype(np.float64), X.T, X[:, ::2], X.astype(">f4"), np.float32(1),
                  np.array(1, np.float32), bits, bits.view(warpcall.BFloat16Bits), [1.0], 1.0, "x",
                  None, OnlyDlpack(X.T), OnlyDlpack(X.astype(np.float64)), b"abcd"):
            self.assertIsNone(self.taken(x), x)
            self.assertIsNone(self.taken(X, x), x)
        self.assertIsNone(self.taken())
        self.assertIsNone(self.taken(X, bytes_max=X.nbytes))
        self.assertIsInstance(self.taken(X, bytes_max=X.nbytes + 1), warpcall_fast.Answer)
        for value in (1 << 63, [1], np.int64(1), None):
            self.assertIsNone(self.taken(X, attributes={"a": value}), value)
        for value in (True, -(1 << 63), 0.5, np.float64(0.5), "text"):
            self.assertIsInstance(self.taken(X, attributes={"a": value}), warpcall_fast.Answer)

    def test_outputs_are_read_only_and_outlive_the_client(self):
        (number, shape, data), = self.taken(X).outputs
        self.calls.close()
        self.assertEqual((number, shape), (1, X.shape))
        y = np.frombuffer(data, np.float32).reshape(shape)
        del data
        np.testing.assert_array_equal(y, X)
        self.assertFalse(y.flags.writeable)


class ValuesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))

    def test_streams(self):
        x = np.random.default_rng(SEED).standard_normal((17 << 10, 1 << 10), np.float32)
        out = np.empty_like(x)
        for call in (lambda: self.gpu.identity(x), lambda: self.gpu.identity(x, out=out),
                     lambda: self.gpu.identity(x, out=np.empty_like(x.T).T),
                     lambda: self.gpu.submit("identity", x).result(60)):
            np.testing.assert_array_equal(call().array, x)
        np.testing.assert_array_equal(out, x)
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            self.gpu.identity(x, out=out[1:])
        self.assertIn(f"out is float32[{len(x) - 1},1024]", raised.exception.message)
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            self.gpu.softmax(x, axis=7)
        self.assertIn("-2 to 1", raised.exception.message)

    def test_which_calls_stream(self):
        def refuse(requests, context):
            context.abort(grpc.StatusCode.NOT_FOUND, "a stream")

        with FakeServer(Script(), refuse) as server, warpcall.connect(server.address) as client:
            x = np.zeros(_fast.STREAM_BYTES // 4, np.float32)
            np.testing.assert_array_equal(client.identity(x[1:]), X)
            for call in (lambda: client.identity(x), lambda: client.submit("identity", x).result(60)):
                with self.assertRaisesRegex(warpcall.NotFound, "a stream"):
                    call()

    def test_a_stream_that_was_cut_is_made_again(self):
        calls = []

        def cut(requests, context):
            calls.append(len(calls))
            if len(calls) == 1:
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            context.abort(grpc.StatusCode.NOT_FOUND, "a second time")

        x = np.zeros(_fast.STREAM_BYTES // 4, np.float32)
        with FakeServer(Script(), cut) as server, warpcall.connect(server.address, retry=QUICK) as client:
            for call in (lambda: client.identity(x), lambda: client.submit("identity", x).result(60)):
                calls.clear()
                with self.assertRaisesRegex(warpcall.NotFound, "a second time"):
                    call()
                self.assertEqual(len(calls), 2)

    def test_out_is_written_where_it_lies(self):
        x = np.random.default_rng(SEED).standard_normal((33, 65), np.float32)
        for out in (np.empty_like(x), np.empty(x.T.shape, np.float32).T, x.astype(">f4")):
            y = self.gpu.identity(x, out=out)
            self.assertIs(y.array, out)
            np.testing.assert_array_equal(out, x)
        frozen = np.empty_like(x)
        frozen.flags.writeable = False
        for out in (frozen, np.empty_like(x, np.float16), np.empty_like(x, np.uint16)):
            with self.assertRaises(warpcall.InvalidArgument):
                self.gpu.identity(x, out=out)

    def test_numbers_and_bits(self):
        self.assertEqual(self.gpu.identity(2.5).shape, ())
        self.assertEqual(self.gpu.identity([2.5]).shape, (1,))
        bits = np.arange(1 << 16, dtype=np.uint16).view(warpcall.BFloat16Bits)
        y = self.gpu.identity(bits)
        self.assertEqual(y.dtype_name, "bfloat16")
        np.testing.assert_array_equal(np.asarray(y).view(np.uint16), np.asarray(bits))
        self.assertGreater(y.timing.total_ns, 0)
        self.assertEqual(y.launch.bytes_moved, 2 * bits.nbytes)
        (row,) = (row for kernel in self.gpu.kernels() if kernel.name == "identity"
                  for row in kernel.implementations if row.name == y.implementation)
        self.assertEqual((y.device, row.device_kind), ("cpu", "cpu"))

    def test_torch(self):
        try:
            import torch
        except ImportError as missing:
            self.skipTest(str(missing))
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = torch.randn(5, 7).to(dtype)
            for given in (x, x.requires_grad_()):
                y = self.gpu.identity(given).torch()
                self.assertEqual(y.dtype, dtype)
                self.assertTrue(torch.equal(y, x))

    def test_text_that_is_none(self):
        with self.assertRaises(UnicodeEncodeError):
            self.gpu.gelu(X, approximate="\udc80")
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.softmax(X, axis=1 << 63)


class EndsTest(unittest.TestCase):
    def setUp(self):
        self.entered, self.told = threading.Semaphore(0), threading.Semaphore(0)

    def handler(self, request, context):
        cancelled = threading.Event()
        if not context.add_callback(cancelled.set):
            cancelled.set()
        self.entered.release()
        if cancelled.wait(120):
            self.told.release()
        return REPLY

    def test_a_cancelled_future_ends_the_call_on_the_server(self):
        for elements in (4, 17 << 20):
            with FakeServer(self.handler, self.handler) as server, \
                    warpcall.connect(server.address) as client:
                future = client.submit("identity", np.zeros(elements, np.float32))
                self.assertTrue(self.entered.acquire(timeout=60))
                self.assertTrue(future.cancel())
                self.assertTrue(self.told.acquire(timeout=60), "the server was not told")

    def test_futures_that_wait_for_a_thread(self):
        with mock.patch.object(_fast, "_THREADS_MAX", 2), \
                FakeServer(self.handler) as server, warpcall.connect(server.address) as client:
            futures = [client.submit("identity", X, timeout=60) for _ in range(5)]
            late = client.submit("identity", X, timeout=1e-3)
            for future in futures:
                self.assertTrue(future.cancel())
            self.assertIsInstance(late.exception(60), warpcall.DeadlineExceeded)

    def test_a_signals_handler_may_close_the_client(self):
        program = """
            import os, signal, sys, warpcall, numpy
            client = warpcall.connect(sys.argv[1])
            signal.signal(signal.SIGUSR1, lambda number, frame: client.close())
            try:
                client.identity(numpy.zeros(4, 'f4'))
            except warpcall.Cancelled as error:
                print(error.message)
        """
        with FakeServer(self.handler) as server:
            process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), server.address],
                                       text=True, stdout=subprocess.PIPE, env=ENVIRONMENT)
            self.addCleanup(process.kill)
            self.assertTrue(self.entered.acquire(timeout=60))
            process.send_signal(signal.SIGUSR1)
            self.assertEqual(process.communicate(timeout=60)[0], "the client is closed\n")
            self.assertTrue(self.told.acquire(timeout=60), "the server was not told")

    def test_close_ends_calls_of_every_kind(self):
        calls = [lambda client: client.identity(X), lambda client: client.identity([1.0]),
                 lambda client: client.identity(np.zeros(17 << 20, np.float32)),
                 lambda client: client.submit("identity", X).result()]
        with FakeServer(self.handler, self.handler) as server:
            client = warpcall.connect(server.address)
            begun = [in_thread(lambda call=call: call(client)) for call in calls]
            for _ in calls:
                self.assertTrue(self.entered.acquire(timeout=60))
            client.close()
            for thread, outcome in begun:
                self.assertIsInstance(outcome.result(60), warpcall.Cancelled)
                thread.join()
            for call in calls:
                with self.assertRaisesRegex(warpcall.Cancelled, "closed"):
                    call(client)

    def test_clients_leave_no_threads(self):
        def threads():
            """But for those that the two gRPC libraries have named: they come with load, and stay."""
            found = []
            for path in glob.glob("/proc/self/task/*/comm"):
                with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:  # it ended
                    found.append(file.read())
            return found.count(own_name)

        with open("/proc/self/comm", encoding="utf-8") as file:
            own_name = file.read()
        before = threads()
        with FakeServer(lambda request, context: answer(X)) as server:
            for _ in range(20):
                with warpcall.connect(server.address, connections=2, retry=QUICK) as client:
                    client.identity(X)
                    client.submit("identity", X).result(60)
        self.assertTrue(eventually(lambda: threads() <= before), (threads(), before))

    def test_a_program_that_ends_with_open_clients(self):
        with FakeServer(Script()) as server:
            done = python("import sys, numpy, warpcall\n"
                          "client = warpcall.connect(sys.argv[1])\n"
                          "y = client.identity(numpy.zeros((2, 3), 'f4'))\n"
                          "future = client.submit('identity', y)\n", server.address)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    main()
