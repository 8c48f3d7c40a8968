"""Tensors that stay on the server, through the Python client: put, get, free and list, calls that take them and calls
that keep their results, and what is put again. On the real server, and on one that loses what a test says."""

import asyncio
import pickle
import tempfile
import threading
import time
import unittest
from unittest import mock

from support import FAST, SECONDS_MAX, FakeServer, Messages, RealServer, answer, eventually, grpc, main, np
import warpcall
from warpcall import _calls, _residents, _stream
from warpcall._arrays import ml_dtypes
from warpcall._request import put_of
from warpcall._stream import GetSession, PutSession
from ways import QUICK

THEIRS = Messages()
X = np.linspace(-2, 2, 3 * 64, dtype=np.float32).reshape(3, 64)
WEIGHT = np.linspace(-1, 1, 16 * 64, dtype=np.float32).reshape(16, 64)
BIAS = np.linspace(0, 1, 16, dtype=np.float32)
MIB = 1 << 20


def bits(array):
    return np.atleast_1d(np.asarray(array)).view(np.uint8).tobytes()


def run_all(client, kernel, *inputs):
    """The result of each way to make a call that blocks."""
    return [client.run(kernel, *inputs), client.submit(kernel, *inputs).result(SECONDS_MAX),
            next(client.map(kernel, [inputs]))]


class RealTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=SECONDS_MAX))

    def tearDown(self):
        if listed := self.gpu.tensors():
            self.gpu.free(*listed)

    def expire(self, *residents):
        """Waits for the server to end tensors."""
        for resident in residents:
            self.assertTrue(eventually(lambda handle=resident.handle: handle not in
                                       [each.handle for each in self.gpu.tensors()]))

    def test_tensors_come_back_bit_by_bit(self):
        noise = np.random.default_rng(7).integers(0, 1 << 16, 3_000_000, dtype=np.uint16)
        noise &= 0xbfff  # no NaN
        cases = [(X, None), (X.astype("f2"), None), (X[:, ::2], None), (X.astype(">f4"), None),
                 (np.zeros((0, 4), "f4"), None), ([1.0, 2.5], None), (3.0, None),
                 (noise, "bfloat16"), (noise.view("f2"), None), (X, "float16")]
        if ml_dtypes is not None:
            cases.append((X.astype(ml_dtypes.bfloat16), None))
        for x, dtype in cases:
            expected = self.gpu.identity(x, dtype=dtype).array
            for sha256 in (False, True):
                with self.gpu.put(x, dtype=dtype, sha256=sha256) as resident:
                    back = resident.get()
                    self.assertEqual((back.dtype, type(back)), (expected.dtype, type(expected)))
                    self.assertEqual(back.shape, expected.shape or (1,))
                    self.assertEqual(bits(back), bits(expected))
                    self.assertTrue(back.flags.writeable)
                    self.assertEqual((resident.shape, resident.dtype, resident.nbytes, resident.device),
                                     (back.shape, back.dtype, back.nbytes, "cpu"))
                    np.testing.assert_array_equal(self.gpu.identity(resident), back)
        self.assertEqual(len(self.gpu.tensors()), 0)

    def test_blocks_are_put_as_they_come(self):
        rows = (X[i:i + 1] for i in range(3))
        with self.gpu.put(warpcall.Blocks((3, 64), "float32", rows)) as resident:
            np.testing.assert_array_equal(resident.get(), X)
        with self.assertRaisesRegex(warpcall.InvalidArgument, "blocks of 256 bytes for an input of 768"):
            self.gpu.put(warpcall.Blocks((3, 64), "float32", [X[:1]]))
        with self.assertRaisesRegex(warpcall.InvalidArgument, "sha256 takes an array"):
            self.gpu.put(warpcall.Blocks((3, 64), "float32", [X]), sha256=True)

    def test_numpy_takes_none(self):
        with self.gpu.put(np.ones(4, np.float32), label="w") as resident:
            for use in (np.asarray, np.sum, lambda x: np.ones(4, np.float32) @ x):
                with self.assertRaisesRegex(TypeError, r"'w' .*get\(\) returns the array"):
                    use(resident)

    def test_calls_take_residents_as_arrays(self):
        expected = self.gpu.linear(X, WEIGHT, BIAS)
        self.assertEqual(expected.resident_bytes, 0)
        weight, bias = self.gpu.put(WEIGHT), self.gpu.put(BIAS)
        for result in run_all(self.gpu, "linear", X, weight, bias):
            np.testing.assert_array_equal(result, expected)
            self.assertEqual(result.resident_bytes, WEIGHT.nbytes + BIAS.nbytes)
        out = np.empty((3, 16), np.float32)
        self.gpu.linear(X, weight, bias, out=out)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(self.gpu.linear(self.gpu.put(X), weight, BIAS), expected)

    def test_kept_results_do_not_travel(self):
        expected = self.gpu.gelu(self.gpu.linear(X, WEIGHT, BIAS))
        for kept in [self.gpu.linear(X, WEIGHT, BIAS, keep=True),
                     self.gpu.submit("linear", X, WEIGHT, BIAS, keep=True).result(SECONDS_MAX),
                     *self.gpu.map("linear", [(X, WEIGHT, BIAS)], keep=True, keep_ttl=1000)]:
            self.assertEqual((kept.outputs, kept.shape, kept.dtype, kept.dtype_name, kept.size),
                             ([], (3, 16), np.float32, "float32", 48))
            self.assertEqual(kept.resident_bytes, 3 * 16 * 4)
            self.assertGreater(kept.timing.total_ns, 0)
            self.assertIn("float32[3,16] (kept) by", repr(kept))
            for y in (kept, kept.resident):
                np.testing.assert_array_equal(self.gpu.gelu(y), expected)
            np.testing.assert_array_equal(self.gpu.gelu(kept.resident.get()), expected)
            for use in (np.asarray, len, pickle.dumps, lambda y: y + 1, lambda y: y.sum()):
                with self.assertRaises((warpcall.InvalidArgument, TypeError)):
                    use(kept)
        ttl = self.gpu.tensors()[-1].info
        self.assertAlmostEqual((ttl.expires_unix_ns - ttl.created_unix_ns) / 1e9, 1000, delta=SECONDS_MAX)
        self.gpu.free(kept)
        with self.assertRaisesRegex(warpcall.InvalidArgument, "was freed by this program"):
            self.gpu.gelu(kept)
        sent = self.gpu.gelu(X)
        with self.assertRaisesRegex(warpcall.InvalidArgument, "the result was sent"):
            sent.resident

    def test_streams_with_residents(self):
        x = np.ones((4 * MIB // 64 + 1, 64), np.float32)  # over 16 MiB
        weight = self.gpu.put(WEIGHT)
        expected = self.gpu.linear(x, WEIGHT, BIAS)
        resident = self.gpu.put(x)
        with mock.patch.object(_calls, "StreamSession", wraps=_calls.StreamSession) as sessions, \
                mock.patch.object(_stream, "empty", wraps=_stream.empty) as memory:
            for kept in (True, False):
                y = self.gpu.linear(x, weight, BIAS, keep=kept)
                self.assertEqual(memory.call_count, 0 if kept else 2, "memory of a result that is not sent")
                np.testing.assert_array_equal(y.resident.get() if kept else y, expected)
            self.assertEqual(sessions.call_count, 2)
            # Each part has a piece of this one, which a stream does not take.
            np.testing.assert_array_equal(self.gpu.fused("x0 + x1", x, resident), 2 * x)
            self.assertEqual(sessions.call_count, 2)

    def test_tensors_are_listed_and_freed(self):
        first = self.gpu.put(WEIGHT, label="w1", ttl=3000, evictable=True)
        second = self.gpu.put(BIAS)
        self.gpu.linear(X, first, second)
        listed = self.gpu.tensors()
        self.assertEqual([(each.handle, each.label, each.shape, each.info.uses, each.info.evictable)
                          for each in listed],
                         [(first.handle, "w1", (16, 64), 1, True), (second.handle, "", (16,), 1, False)])
        left = (first.expires - listed[1].expires).total_seconds()
        self.assertTrue(2000 < left < 2500, left)
        for text in (repr(listed), listed._repr_html_()):
            for word in (first.handle, "w1", "16x64", "4.00 KiB", "2 tensors of"):
                self.assertIn(word, text)
        np.testing.assert_array_equal(listed[0].get(), WEIGHT)
        freed = self.gpu.free(first, second.handle, "abc")
        self.assertEqual((freed.bytes, freed.unknown), (WEIGHT.nbytes + BIAS.nbytes, ("abc",)))
        first.free()  # nothing more to do
        self.assertEqual(self.gpu.tensors(), [])
        for use in (lambda: self.gpu.gelu(first), first.get):
            with self.assertRaisesRegex(warpcall.InvalidArgument, "'w1'.* was freed by this program"):
                use()
        with self.assertRaisesRegex(warpcall.InvalidArgument, "a float to free"):
            self.gpu.free(1.0)

    def test_a_block_frees_its_tensor_though_it_fails(self):
        with self.assertRaises(KeyError), self.gpu.put(X):
            raise KeyError
        self.assertEqual(self.gpu.tensors(), [])
        gpu = warpcall.connect(self.server.address)
        with self.assertRaises(KeyError), gpu.put(X):
            gpu.close()
            raise KeyError
        gpu = warpcall.connect(self.server.address)
        with self.assertRaises(warpcall.Cancelled), gpu.put(X):
            gpu.close()

    def test_a_digest_finds_what_is_there(self):
        first = self.gpu.put(WEIGHT, sha256=True)
        second = self.gpu.put(WEIGHT, sha256=True)
        self.assertEqual((first.existed, second.existed), (False, True))
        first.free()
        np.testing.assert_array_equal(second.get(), WEIGHT)

    def test_what_nobody_puts_again(self):
        other = self.enterContext(warpcall.connect(self.server.address))
        freed = self.gpu.put(WEIGHT)
        other.free(freed.handle)
        sourceless = self.gpu.put(WEIGHT, ttl=0.01, keep_source=False)
        blocks = self.gpu.put(warpcall.Blocks(WEIGHT.shape, "float32", [WEIGHT]), ttl=0.01)
        kept = self.gpu.identity(WEIGHT, keep=True, keep_ttl=0.01).resident
        listed = None
        while listed is None:  # it may be gone before it is listed
            handle = self.gpu.put(WEIGHT, ttl=0.05).handle
            listed = next((each for each in self.gpu.tensors() if each.handle == handle), None)
        self.expire(sourceless, blocks, kept, listed)
        for resident, why in [(freed, "freed"), (sourceless, "expired"), (blocks, "expired"),
                              (kept, "expired"), (listed, "expired")]:
            for use in (resident.get, lambda w=resident: self.gpu.linear(X, w, BIAS),
                        lambda w=resident: self.gpu.submit("linear", X, w, BIAS).result(SECONDS_MAX)):
                with self.assertRaises(warpcall.NotFound) as raised:
                    use()
                self.assertEqual(raised.exception.lost_handles, {resident.handle: why})
                reason = {"freed": "does not put again what was freed",
                          "expired": "can't put it again because it keeps no copy of the content"}[why]
                self.assertTrue(raised.exception.message.endswith(f"; the client {reason}"), raised.exception)

    def test_what_is_put_again_is_what_was_put(self):
        array = WEIGHT.copy()
        source = self.gpu.put(array)._source.item.data
        array += 1
        np.testing.assert_array_equal(source, WEIGHT)
        array.flags.writeable = False
        self.assertTrue(np.shares_memory(self.gpu.put(array)._source.item.data, array), "it was copied")
        self.assertIsNone(self.gpu.put(array, keep_source=False)._source)

    def test_calls_with_residents_are_not_striped(self):
        x = np.ones((8 * MIB // 256, 64), np.float32)  # 8 MiB: 4 stripes
        with warpcall.connect(self.server.address, connections=4, timeout=SECONDS_MAX) as gpu:
            expected = gpu.linear(x, WEIGHT, BIAS)
            self.assertEqual(expected.stripes, 4)
            weight = gpu.put(WEIGHT)
            for result in run_all(gpu, "linear", x, weight, BIAS):
                self.assertEqual(result.stripes, 1)
                np.testing.assert_array_equal(result, expected)
            kept = gpu.linear(x, WEIGHT, BIAS, keep=True)
            self.assertEqual((kept.stripes, len(kept.residents)), (1, 1))
            np.testing.assert_array_equal(kept.resident.get(), expected)

    def test_bad_input_is_refused_with_its_value(self):
        weight = self.gpu.put(WEIGHT)
        elsewhere = self.enterContext(warpcall.connect("127.0.0.1:1"))
        for text, call in [
                ("ttl is 0 s", lambda: self.gpu.put(X, ttl=0)),
                ("ttl is inf s", lambda: self.gpu.put(X, ttl=float("inf"))),
                ("keep_ttl is -1 s; it must", lambda: self.gpu.gelu(X, keep=True, keep_ttl=-1)),
                ("keep_ttl is 3 s; it takes keep=True", lambda: self.gpu.gelu(X, keep_ttl=3)),
                ("out and keep=True", lambda: self.gpu.gelu(X, keep=True, out=X.copy())),
                ("label has 300 bytes", lambda: self.gpu.put(X, label="x" * 300)),
                ("is on .*; this client calls 127.0.0.1:1", lambda: elsewhere.gelu(weight)),
                ("type Resident that gives no array: .* is on the server", lambda: self.gpu.put(weight))]:
            with self.assertRaisesRegex(warpcall.InvalidArgument, text):
                call()

    def test_asyncio(self):
        expected = self.gpu.gelu(self.gpu.linear(X, WEIGHT, BIAS))

        async def use():
            async with warpcall.aio.connect(self.server.address, timeout=SECONDS_MAX) as gpu:
                async with await gpu.put(WEIGHT, label="w1") as weight:
                    np.testing.assert_array_equal(await weight.get(), WEIGHT)
                    kept = await gpu.linear(X, weight, BIAS, keep=True)
                    np.testing.assert_array_equal(await gpu.gelu(kept), expected)
                    async for y in gpu.map("linear", [(X, weight, BIAS)], keep=True):
                        np.testing.assert_array_equal(await y.resident.get(), await kept.resident.get())
                    self.assertEqual([each.label for each in await gpu.tensors()], ["w1", "", ""])
                    # A client that blocks uses it as well.
                    np.testing.assert_array_equal(self.gpu.linear(X, weight, BIAS), await kept.resident.get())
                    big = np.ones((4 * MIB // 64 + 1, 64), np.float32)
                    self.assertEqual((await gpu.linear(big, weight, BIAS)).shape, (len(big), 16))
                self.assertEqual((await gpu.free(kept)).unknown, ())
                for use in (gpu.gelu(weight), weight.get()):
                    with self.assertRaisesRegex(warpcall.InvalidArgument, "was freed by this program"):
                        await use

        asyncio.run(use())


class RestartTest(unittest.TestCase):
    def test_what_a_restarted_server_lost_is_put_again_once_a_minute(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        start = lambda: RealServer(f"--listen=unix:{folder}/socket")
        rows = np.ones((4 * MIB // 64 + 1, 64), np.float32)  # for a stream
        gpu = self.enterContext(warpcall.connect(f"unix:{folder}/socket", timeout=SECONDS_MAX))
        ways = [lambda w: gpu.linear(X, w, BIAS),
                lambda w: gpu.submit("linear", X, w, BIAS).result(SECONDS_MAX),
                lambda w: next(gpu.map("linear", [(X, w, BIAS)])),
                lambda w: gpu.linear(X, w.get(), BIAS),
                lambda w: gpu.linear(rows, w, BIAS)]
        with start():
            weights = [gpu.put(WEIGHT, label="w1") for _ in ways]
            expected = [way(WEIGHT if number != 3 else weights[3]) for number, way in enumerate(ways)]
        handles = [weight.handle for weight in weights]
        with start():
            for way, weight, y in zip(ways, weights, expected):
                np.testing.assert_array_equal(way(weight), y)
                self.assertEqual((weight.label, weight.shape), ("w1", WEIGHT.shape))
        self.assertFalse({weight.handle for weight in weights} & {*handles})
        with start():
            for way, weight, y in zip(ways, weights, expected):
                with self.assertRaises(warpcall.NotFound) as raised:
                    way(weight)
                lost = raised.exception.lost_handles
                self.assertIn(lost, [{weight.handle: why} for why in ("lost", "unknown")])
                self.assertRegex(raised.exception.message, "; the client tries once a minute to put it again"
                                 r"( \('\w+'\))?, and last did so less than 60 s ago; it may in [1-9]\d? s$")
                self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).lost_handles, lost)
                weight._restorable_at -= _residents._RESTORED_SECONDS_MIN
                np.testing.assert_array_equal(way(weight), y)


class SeveralTest(unittest.TestCase):
    def test_a_name_for_several_servers_is_refused(self):
        def calls(client):
            return [lambda: client.put(X), lambda: client.gelu(X, keep=True)]

        async def use(address):
            async with warpcall.aio.connect(address) as gpu:
                for call in calls(gpu):
                    with self.assertRaisesRegex(warpcall.InvalidArgument, "name one server, or a sticky front"):
                        await call()

        for address in ("dns:///localhost:1", "ipv4:127.0.0.1:1,127.0.0.1:2"):
            with warpcall.connect(address) as gpu:
                for call in calls(gpu):
                    with self.assertRaisesRegex(warpcall.InvalidArgument, "name one server, or a sticky front"):
                        call()
            asyncio.run(use(address))


class LosingServer(FakeServer):
    """Loses handles: a call with one that is not in `alive` is NOT_FOUND for the reason `why`. `headers`: of the Puts;
    `calls`: the handles of each Execute. While `holds` is set Put does not answer: `held` counts such Puts, `left` those
    whose client left."""

    def __init__(self):
        self.headers, self.calls, self.alive, self.why = [], [], set(), "lost"
        self.holds, self.guard = threading.Event(), threading.Lock()
        self.held, self.left = threading.Semaphore(0), threading.Semaphore(0)
        super().__init__(self.execute, put_handler=self.put)

    def execute(self, request, context):
        message = THEIRS.ExecuteRequest.FromString(request)
        handles = [each.handle for each in message.inputs if each.handle]
        with self.guard:
            self.calls.append(handles)
            lost = [handle for handle in handles if handle not in self.alive]
        if lost:
            context.set_trailing_metadata(
                (("warpcall-lost-handles", ",".join(f"{handle} {self.why}" for handle in lost)),))
            context.abort(grpc.StatusCode.NOT_FOUND, "a tensor is not on the server")
        return answer(X)

    def put(self, requests, context):
        header, sent = None, 0
        for request in requests:
            message = THEIRS.PutRequest.FromString(request)
            if message.HasField("header"):
                header = message.header
            sent += len(message.chunk.data)
        with self.guard:
            self.headers.append(header)
            handle = f"h{len(self.headers)}"
            self.alive.add(handle)
        if self.holds.is_set():
            self.held.release()
            while self.holds.is_set() and context.is_active():
                time.sleep(0.01)
            if not context.is_active():
                self.left.release()
        return THEIRS.PutResponse(handle=handle, device="cuda:1", bytes=sent).SerializeToString()


class LostTest(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(LosingServer())
        self.gpu = self.enterContext(warpcall.connect(self.server.address, timeout=SECONDS_MAX, retry=QUICK))

    def test_the_first_put_decides_the_device_of_the_next(self):
        self.gpu.put(X, device="cpu")
        for _ in range(3):
            self.gpu.put(X)
        self.gpu.put(X, device="cuda:7")
        self.assertEqual([header.device for header in self.server.headers],
                         ["cpu", "", "cuda:1", "cuda:1", "cuda:7"])

    def test_it_is_put_again_as_it_was_on_its_device(self):
        weight = self.gpu.put(X, ttl=5, label="w1", evictable=True, dtype="float16")
        self.server.alive.clear()
        self.gpu.linear(X, weight, weight)
        first, second = self.server.headers
        self.assertEqual((first.device, second.device), ("", "cuda:1"))
        second.device = ""
        self.assertEqual(first, second)
        self.assertEqual(self.server.calls, [["h1", "h1"], ["h2", "h2"]])

    def test_once_a_call(self):
        weights = [self.gpu.put(X), self.gpu.put(X)]
        with mock.patch.object(self.server, "alive", mock.MagicMock(__contains__=lambda *_: False)), \
                mock.patch.object(_residents, "_RESTORED_SECONDS_MIN", 0):
            for _ in range(2):
                with self.assertRaisesRegex(warpcall.NotFound, "; the client had put it again in this call$"):
                    self.gpu.linear(X, *weights)
        self.assertEqual(self.server.calls,
                         [["h1", "h2"], ["h3", "h4"], ["h3", "h4"], ["h5", "h6"]])

    def test_asyncio(self):
        async def use():
            async with warpcall.aio.connect(self.server.address, timeout=SECONDS_MAX) as gpu:
                weight = await gpu.put(X)
                self.server.alive.clear()
                np.testing.assert_array_equal(await gpu.gelu(weight), X)
                self.server.alive.clear()
                with self.assertRaises(warpcall.NotFound) as raised:
                    await gpu.gelu(weight)
                self.assertEqual(raised.exception.lost_handles, {"h2": "lost"})

        asyncio.run(use())
        self.assertEqual(len(self.server.headers), 2)

    def test_every_reason_but_freed(self):
        for why in ("expired", "evicted", "lost", "unknown", "freed"):
            weight = self.gpu.put(X)
            self.server.alive.clear()
            self.server.why = why
            if why != "freed":
                self.gpu.gelu(weight)
                continue
            with self.assertRaises(warpcall.NotFound):
                self.gpu.gelu(weight)

    def test_calls_at_the_same_time_put_it_again_once(self):
        weight = self.gpu.put(X)
        self.server.alive.clear()
        self.server.holds.set()
        futures = [self.gpu.submit("gelu", weight) for _ in range(2)]
        self.server.held.acquire(timeout=SECONDS_MAX)
        self.assertTrue(eventually(lambda: len(self.server.calls) >= (2 if FAST else 4)))
        self.server.holds.clear()
        for future in futures:
            np.testing.assert_array_equal(future.result(SECONDS_MAX), X)
        self.assertEqual(len(self.server.headers), 2)

    def test_putting_again_ends_with_the_call(self):
        weight = self.gpu.put(X)
        self.server.alive.clear()
        self.server.holds.set()
        self.addCleanup(self.server.holds.clear)
        with self.assertRaises(warpcall.DeadlineExceeded):
            self.gpu.gelu(weight, timeout=0.5)

    def test_a_tensor_that_is_freed_while_it_is_put_again_is_gone(self):
        weight = self.gpu.put(X)
        self.server.alive.clear()
        self.server.holds.set()
        future = self.gpu.submit("gelu", weight)
        self.server.held.acquire(timeout=SECONDS_MAX)
        frees = []
        with mock.patch.object(type(self.gpu), "free", lambda _, tensor, **options: frees.append(tensor)):
            frees.append(weight.end())
            self.server.holds.clear()
            future.exception(SECONDS_MAX)
        self.assertEqual(frees, ["h1", "h2"])

    def test_a_closed_client_puts_nothing_again(self):
        weight = self.gpu.put(X)
        self.server.alive.clear()
        self.server.holds.set()
        self.addCleanup(self.server.holds.clear)
        future = self.gpu.submit("gelu", weight)
        self.server.held.acquire(timeout=SECONDS_MAX)
        self.gpu.close()
        with self.assertRaises(warpcall.Cancelled):
            future.result(SECONDS_MAX)

    def test_cancelling_a_future_ends_the_put(self):
        weight = self.gpu.put(X)
        self.server.alive.clear()
        self.server.holds.set()
        self.addCleanup(self.server.holds.clear)
        future = self.gpu.submit("gelu", weight, timeout=10 * SECONDS_MAX)
        self.server.held.acquire(timeout=SECONDS_MAX)
        self.assertTrue(future.cancel())
        self.assertTrue(self.server.left.acquire(timeout=SECONDS_MAX))

    def test_cancelling_a_task_ends_the_put(self):
        self.server.holds.set()
        self.addCleanup(self.server.holds.clear)

        async def use():
            async with warpcall.aio.connect(self.server.address) as gpu:
                task = asyncio.ensure_future(gpu.put(X))
                await asyncio.to_thread(self.server.held.acquire, timeout=SECONDS_MAX)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertTrue(await asyncio.to_thread(self.server.left.acquire, timeout=SECONDS_MAX))

        asyncio.run(use())

    def test_answers_that_contradict_themselves(self):
        with self.assertRaisesRegex(warpcall.Internal, "an output without a handle"):
            self.gpu.gelu(X, keep=True)
        header = THEIRS.GetResponse(header=THEIRS.Tensor(data_type=1, shape=[2]))
        chunk = lambda offset, data: THEIRS.GetResponse(chunk=THEIRS.Chunk(offset=offset, data=data))
        untyped = THEIRS.GetResponse(header=THEIRS.Tensor(data_type=9, shape=[2]))
        for text, messages in [("ended too soon", []), ("has no header", [chunk(0, b"abcd")]),
                               ("ends after 4 of the 8 bytes", [header, chunk(0, b"abcd")]),
                               ("5 bytes at offset 4", [header, chunk(4, b"abcde")]),
                               ("second header", [header, header]), ("one of a 9", [untyped])]:
            session = GetSession("h1")
            with self.assertRaisesRegex(warpcall.Internal, text):
                for message in messages:
                    session.take(message.SerializeToString())
                session.result()
        put = put_of(X, None, "", None, "", False, False, True)
        with self.assertRaisesRegex(warpcall.Internal, "a tensor without a handle"):
            PutSession(put).take(b"")
        with self.assertRaisesRegex(warpcall.Internal, "ended too soon"):
            PutSession(put).result()


if __name__ == "__main__":
    main()
