"""Large calls of the Python client in stripes, one for each connection. On the real server they give the bits of one
call; against a server that does as a test says, one stripe's failure, cancelling, Ctrl-C and close end all of
them."""

import asyncio
import concurrent.futures
import itertools
import subprocess
import sys
import threading
import time
import unittest

from support import (ENVIRONMENT, FAST, SEED, FakeServer, Messages, RealServer, answer, grpc, in_thread,
                     main, np)
import warpcall
from ways import QUICK, AioClient

MIB = 1 << 20
THEIRS = Messages()
KERNELS = THEIRS.ListKernelsResponse()
for name, independence in (("gelu", 1), ("softmax", 2), ("matmul", 0)):
    KERNELS.kernels.add(name=name, independence=independence)
KERNELS.kernels.add(name="sharing", independence=3, input_roles=[0, 1])
KERNELS.kernels[1].attributes.add(name="axis", default_value={"int_value": -1})
X = np.arange(MIB, dtype=np.float32)  # 4 MiB


class BitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.one = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))
        cls.four = cls.enterClassContext(
            warpcall.connect(cls.server.address, timeout=60, connections=4))

    def same(self, expected, y, stripes):
        self.assertEqual(y.stripes, stripes)
        self.assertEqual((y.dtype_name, y.shape), (expected.dtype_name, expected.shape))
        np.testing.assert_array_equal(np.asarray(y).view(np.uint8),
                                      np.asarray(expected).view(np.uint8))

    def test_the_bits_of_one_call(self):
        x = np.random.default_rng(SEED).standard_normal((3, 3, 300, 401), np.float32)
        for kernel, attributes in [("identity", {}), ("gelu", {"approximate": "none"}),
                                   ("softmax", {}), ("softmax", {"axis": 2})]:
            for dtype in ("float32", "float16", "bfloat16"):
                # Names one implementation, since the fastest may depend on the size.
                options = {"dtype": dtype, "implementation": "cpu", **attributes}
                whole = self.one.run(kernel, x, **options)
                self.assertEqual(whole.stripes, 1)
                stripes = 4 if dtype == "float32" else 2
                self.same(whole, self.four.run(kernel, x, **options), stripes)
                self.same(whole, self.four.submit(kernel, x, **options).result(60), stripes)

    def test_the_bits_of_one_call_with_weights(self):
        random = np.random.default_rng(SEED)
        x = random.standard_normal((3, 3, 300, 401), np.float32)
        weight, bias = random.standard_normal((2, 401), np.float32)
        for kernel, inputs in [("layernorm", (x, weight, bias)), ("rmsnorm", (x, weight))]:
            for implementation in ("cpu", "manual"):
                options = {"implementation": implementation, "epsilon": 0.25}
                whole = self.one.run(kernel, *inputs, **options)
                self.assertEqual(whole.stripes, 1)
                self.same(whole, self.four.run(kernel, *inputs, **options), 4)
                self.same(whole, self.four.submit(kernel, *inputs, **options).result(60), 4)

    def test_the_bits_of_one_call_of_rows(self):
        random = np.random.default_rng(SEED)
        x = random.standard_normal((3, 3, 300, 401), np.float32)
        row, column = random.standard_normal((1, 1, 1, 401)), random.standard_normal((3, 3, 300, 1))
        row, column = row.astype(np.float32), column.astype(np.float32)
        for kernel, inputs, attributes in [
                ("fused", (row, x), {"expression": "softmax(x0 + x1)"}),
                ("fused", (x, column), {"expression": "sum(x0 * x1)"}),
                ("matmul", (x, x[0, 0, :50].T), {}),
                ("matmul", (x, x[..., ::-1, :]), {"transpose_b": True})]:
            options = {"implementation": "cpu", **attributes}
            whole = self.one.run(kernel, *inputs, **options)
            self.assertEqual(whole.stripes, 1)
            self.same(whole, self.four.run(kernel, *inputs, **options), 4)
            self.same(whole, self.four.submit(kernel, *inputs, **options).result(60), 4)

    def test_products_on_a_stream(self):
        random = np.random.default_rng(SEED)
        a = random.standard_normal((48 << 10, 1 << 8), np.float32)  # 48 MiB: several windows
        b = random.standard_normal((1 << 8, 3), np.float32)
        options = {"implementation": "manual"}
        expected = np.concatenate([np.asarray(self.one.matmul(part, b, **options))
                                   for part in np.split(a, 16)])
        np.testing.assert_array_equal(self.one.matmul(a, b, **options), expected)

    def test_weights_on_a_stream(self):
        random = np.random.default_rng(SEED)
        x = random.standard_normal((12 << 10, 1 << 10), np.float32)  # 48 MiB: several windows
        weight, bias = random.standard_normal((2, 1 << 10), np.float32)
        expected = np.concatenate([np.asarray(self.one.layernorm(part, weight, bias))
                                   for part in np.split(x, 16)])
        np.testing.assert_array_equal(self.one.layernorm(x, weight, bias), expected)

    def test_what_cannot_be_cut_goes_whole(self):
        x = np.random.default_rng(SEED).standard_normal((1024, 1024), np.float32)
        self.same(self.one.softmax(x, axis=0), self.four.softmax(x, axis=0), 1)
        y = self.four.submit("matmul", x, x[:, :8], transpose_a=True).result(60)
        self.assertEqual((y.stripes, y.shape), (1, (1024, 8)))
        y = self.four.fused(x, expression="dropout(x0, 0.5)")
        self.same(self.one.fused(x, expression="dropout(x0, 0.5)"), y, 1)
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            self.four.softmax(x, axis=2)
        self.assertIn("-2 to 1", raised.exception.message)

    def test_stripes_that_stream(self):
        x = np.random.default_rng(SEED).standard_normal((9 << 20,), np.float32)  # two of 18 MiB
        with warpcall.connect(self.server.address, timeout=60, connections=2) as two:
            out = np.empty_like(x)
            y = two.identity(x, out=out, request_id="mine")
            self.assertIs(y.array, out)
            self.assertEqual((y.stripes, y.request_id, y.launch.bytes_moved),
                             (2, "mine", 2 * x.nbytes))
            np.testing.assert_array_equal(out, x)
            np.testing.assert_array_equal(two.submit("identity", x).result(60), x)

    def test_out(self):
        x = np.random.default_rng(SEED).standard_normal((1024, 1024), np.float32)
        turned = np.empty_like(x).T
        for out in (np.empty_like(x), turned):
            y = self.four.identity(x, out=out)
            self.assertIs(y.array, out)
            self.assertEqual(y.stripes, 4)
            np.testing.assert_array_equal(out, x)
        halves = np.empty(x.shape, np.uint16)
        self.four.identity(x, dtype="bfloat16", out=halves)
        np.testing.assert_array_equal(
            halves, np.asarray(self.one.identity(x, dtype="bfloat16")).view(np.uint16))
        for out in (np.empty((4,), np.float32), np.empty_like(x, np.float16)):
            with self.assertRaises(warpcall.InvalidArgument):
                self.four.identity(x, out=out)

    def test_from_asyncio(self):
        x = np.random.default_rng(SEED).standard_normal((1024, 1024), np.float32)

        async def call():
            async with warpcall.aio.connect(self.server.address, connections=4) as client:
                return await asyncio.gather(client.softmax(x), client.identity(x[:4]))

        y, small = asyncio.run(call())
        self.same(self.one.softmax(x), y, 4)
        self.assertEqual(small.stripes, 1)

    def test_threads_at_the_same_time(self):
        def call(number):
            x = np.full((MIB,), number, np.float32)
            submitted = self.four.submit("identity", x)
            return np.array_equal(self.four.identity(x), x) and np.array_equal(
                submitted.result(60), x)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(call, range(32))))

    def test_repr(self):
        self.assertIn("in 4 stripes", repr(self.four.identity(X)))


class Scripted:
    """A handler that lists KERNELS and answers a stripe, float32 elements that count up, as
    `answer_to(its first element / stripe's elements, request, context)` says."""

    def __init__(self, answer_to):
        self.answer_to, self.lists, self.peers = answer_to, 0, set()

    def __call__(self, request, context):
        if not request:
            self.lists += 1
            return KERNELS.SerializeToString()
        self.peers.add(context.peer())
        tensor = THEIRS.ExecuteRequest.FromString(request).inputs[0]
        data = np.frombuffer(tensor.data, np.float32)
        return self.answer_to(int(data[0]) // data.size, data, context)


def echo(number, data, context):
    return answer(data)


def by_run(client):
    return client.gelu(X)


def by_future(client):
    return client.submit("gelu", X).result(60)


WAYS = [(warpcall.connect, by_run), (warpcall.connect, by_future), (AioClient, by_run)]


class SharingTest(unittest.TestCase):
    """y[..., i, j] = x[..., i, 0] + weight[j], by rows of x, which share the weight."""

    def setUp(self):
        self.seen, self.columns, self.numbers = [], None, itertools.count(1)

    def handler(self, request, context):
        if not request:
            return KERNELS.SerializeToString()
        x, weight = THEIRS.ExecuteRequest.FromString(request).inputs
        self.seen.append((tuple(x.shape), tuple(weight.shape)))
        first = np.frombuffer(x.data, np.float32).reshape(x.shape)[..., :1]
        y = first + np.frombuffer(weight.data, np.float32)
        # One step of the interpreter: stripes answered at the same time get different numbers.
        number = next(self.numbers)
        return answer(y if self.columns is None else self.columns(number, y))

    def test_a_result_with_a_width_of_its_own(self):
        x = np.random.default_rng(SEED).standard_normal((4, 256, 1024), np.float32)
        weight = np.arange(5, dtype=np.float32)
        expected = x[..., :1] + weight
        with FakeServer(self.handler) as server, warpcall.connect(
                server.address, timeout=60, connections=4) as client:
            for way in (client.run, lambda *call: client.submit(*call).result(60)):
                y = way("sharing", x, weight)
                self.assertEqual(y.stripes, 4)
                self.assertEqual(self.seen, [((256, 1024), (5,))] * 4)
                np.testing.assert_array_equal(y, expected)
                self.seen.clear()
            for out in (np.empty_like(expected), np.empty(expected.T.shape, np.float32).T):
                self.assertIs(client.run("sharing", x, weight, out=out).array, out)
                np.testing.assert_array_equal(out, expected)
            for out in (np.empty((4, 256, 6), np.float32), np.empty((1024, 5), np.float32)):
                with self.assertRaises(warpcall.InvalidArgument):
                    client.run("sharing", x, weight, out=out)

    def test_answers_that_do_not_fit(self):
        x, weight = np.zeros((1024, 1024), np.float32), np.zeros((5,), np.float32)
        for columns in (lambda number, y: y[:, :number], lambda number, y: y[1:],
                        lambda number, y: y[:, 0], lambda number, y: y[:, None]):
            self.columns, self.numbers = columns, itertools.count(1)
            with FakeServer(self.handler) as server, warpcall.connect(
                    server.address, timeout=60, connections=2) as client:
                with self.assertRaises(warpcall.Internal):
                    client.run("sharing", x, weight)


class EndsTest(unittest.TestCase):
    def setUp(self):
        self.entered, self.told = threading.Semaphore(0), threading.Semaphore(0)

    def held(self, number, data, context):
        """Until the call is cancelled."""
        cancelled = threading.Event()
        if not context.add_callback(cancelled.set):
            cancelled.set()
        self.entered.release()
        if cancelled.wait(120):
            self.told.release()
        return answer(data)

    def all_told(self, count):
        for _ in range(count):
            self.assertTrue(self.told.acquire(timeout=60), "the server was not told")

    def test_each_goes_over_its_own_connection_and_kernels_are_listed_once(self):
        for connect, call in WAYS[:2]:
            handler = Scripted(echo)
            with FakeServer(handler) as server, \
                    connect(server.address, timeout=60, connections=4) as client:
                for _ in range(2):
                    np.testing.assert_array_equal(call(client), X)
                client.gelu(X[:5])
                self.assertEqual((handler.lists, len(handler.peers)), (1, 4))

    def test_one_failure_ends_the_others(self):
        def answer_to(number, data, context):
            if number != 2:
                return self.held(number, data, context)
            for _ in range(3):
                self.assertTrue(self.entered.acquire(timeout=60))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "number 2 is wrong")

        for connect, call in WAYS:
            with FakeServer(Scripted(answer_to)) as server, \
                    connect(server.address, timeout=60, connections=4) as client:
                with self.assertRaises(warpcall.InvalidArgument) as raised:
                    call(client)
                self.assertEqual(raised.exception.message, "number 2 is wrong")
                self.all_told(3)

    def test_one_failure_ends_the_pauses_of_the_others(self):
        def answer_to(number, data, context):
            if number == 1:
                context.set_trailing_metadata(((warpcall.errors.PUSHBACK_KEY, "50000"),))
                context.add_callback(self.entered.release)
                context.abort(grpc.StatusCode.UNAVAILABLE, "later")
            self.assertTrue(self.entered.acquire(timeout=60))
            context.abort(grpc.StatusCode.NOT_FOUND, "gone")

        for connect, call in WAYS:
            with FakeServer(Scripted(answer_to)) as server, \
                    connect(server.address, timeout=100, connections=2) as client:
                begin = time.monotonic()
                with self.assertRaises(warpcall.NotFound):
                    call(client)
                self.assertLess(time.monotonic() - begin, 40)

    def test_each_is_tried_again_by_itself(self):
        seen = []

        def answer_to(number, data, context):
            seen.append(number)
            if number == 3 and seen.count(3) < 3:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return answer(data)

        with FakeServer(Scripted(answer_to)) as server, \
                warpcall.connect(server.address, connections=4, retry=QUICK) as client:
            np.testing.assert_array_equal(client.gelu(X), X)
        self.assertEqual(sorted(seen), [0, 1, 2, 3, 3, 3])

    def test_a_cancelled_future_ends_all(self):
        with FakeServer(Scripted(self.held)) as server, \
                warpcall.connect(server.address, connections=4) as client:
            future = client.submit("gelu", X)
            for _ in range(4):
                self.assertTrue(self.entered.acquire(timeout=60))
            self.assertTrue(future.cancel())
            self.all_told(4)

    def test_a_cancelled_task_ends_all(self):
        async def cancel(address):
            async with warpcall.aio.connect(address, connections=4) as client:
                task = asyncio.create_task(client.gelu(X))
                for _ in range(4):
                    await asyncio.to_thread(self.entered.acquire)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(self.all_told, 4)

        with FakeServer(Scripted(self.held)) as server:
            asyncio.run(cancel(server.address))

    def test_a_timeout_is_of_all(self):
        with FakeServer(Scripted(self.held)) as server, \
                warpcall.connect(server.address, connections=4) as client:
            with self.assertRaises(warpcall.DeadlineExceeded):
                client.gelu(X, timeout=0.5)

    def test_close_ends_all_and_leaves_no_thread(self):
        with FakeServer(Scripted(self.held)) as server:
            before = set(threading.enumerate())
            client = warpcall.connect(server.address, connections=4)
            submitted = client.submit("gelu", X)
            thread, outcome = in_thread(lambda: client.gelu(X))
            # The C++ client has a thread for each connection, beside those that call.
            under_way = 6 if FAST else 8
            for _ in range(under_way):
                self.assertTrue(self.entered.acquire(timeout=60))
            client.close()
            self.assertIsInstance(submitted.exception(60), warpcall.Cancelled)
            self.assertIsInstance(outcome.result(60), warpcall.Cancelled)
            thread.join()
            self.all_told(under_way)
            left = {t for t in set(threading.enumerate()) - before if t.name.startswith("warpcall")}
            self.assertEqual(left, set())

    def test_ctrl_c_ends_all(self):
        # Ctrl-C comes when the main thread waits for its own stripe: a call that is interrupted
        # while it is made belongs to nobody yet.
        program = ("import os, signal, sys, threading, time, numpy, warpcall\n"
                   "client = warpcall.connect(sys.argv[1], connections=4)\n"
                   "def waits():\n"
                   "    at = sys._current_frames()[threading.main_thread().ident]\n"
                   "    while at and at.f_code.co_name not in ('result_of',): at = at.f_back\n"
                   "    return at is not None\n"
                   "def press():\n"
                   "    sys.stdin.readline()\n"
                   "    while not waits(): time.sleep(0.001)\n"
                   "    os.kill(os.getpid(), signal.SIGINT)\n"
                   "threading.Thread(target=press, daemon=True).start()\n"
                   "try:\n"
                   "    client.gelu(numpy.arange(1 << 20, dtype='f4'))\n"
                   "except KeyboardInterrupt:\n"
                   "    print('interrupted', flush=True)\n"
                   "sys.stdin.readline()\n")
        with FakeServer(Scripted(self.held)) as server:
            process = subprocess.Popen(
                [sys.executable, "-c", program, server.address], text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, env=ENVIRONMENT)
            self.addCleanup(process.kill)
            for _ in range(4):
                self.assertTrue(self.entered.acquire(timeout=60))
            process.stdin.write("\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "interrupted\n")
            self.all_told(4)
            process.communicate("\n")
            self.assertEqual(process.returncode, 0)

    def test_an_answer_of_another_shape(self):
        with FakeServer(Scripted(lambda number, data, context: answer(data[1:]))) as server, \
                warpcall.connect(server.address, connections=2) as client:
            for out in (None, np.empty_like(X)):
                with self.assertRaises(warpcall.Internal):
                    client.gelu(X, out=out)

    def test_a_server_that_does_not_list_its_kernels(self):
        def handler(request, context):
            if not request:
                listed.append(request)
                context.abort(getattr(grpc.StatusCode, code), "no list")
            tensor = THEIRS.ExecuteRequest.FromString(request).inputs[0]
            return answer(np.frombuffer(tensor.data, np.float32))

        for code, asked in (("UNIMPLEMENTED", 1), ("PERMISSION_DENIED", 1), ("INTERNAL", 2)):
            listed = []
            with FakeServer(handler) as server, \
                    warpcall.connect(server.address, connections=2) as client:
                for call in (by_run, by_future):
                    y = call(client)
                    self.assertEqual(y.stripes, 1)
                    np.testing.assert_array_equal(y, X)
                self.assertEqual(len(listed), asked)

    def test_who_waits_for_another_that_asks_keeps_half_of_its_time(self):
        listing, done = threading.Event(), threading.Event()

        def handler(request, context):
            if not request:
                listing.set()
                done.wait(60)
                return KERNELS.SerializeToString()
            return echo(0, np.frombuffer(THEIRS.ExecuteRequest.FromString(request).inputs[0].data,
                                         np.float32), context)

        with FakeServer(handler) as server, \
                warpcall.connect(server.address, timeout=60, connections=2) as client:
            asks = client.submit("gelu", X)
            self.assertTrue(listing.wait(60))
            np.testing.assert_array_equal(client.gelu(X, timeout=4), X)
            done.set()
            np.testing.assert_array_equal(asks.result(60), X)


if __name__ == "__main__":
    main()
