"""The Python client against the real server: right answers for every kernel, row, type and shape,
the server's own words for errors, and streams."""

import asyncio
import datetime
import os
import random
import tempfile
import unittest

from support import ROOT, SEED, RealServer, main, np
import warpcall
from differential import TYPE_NAMES, Problem
from mixed_problems import ELEMENTS_MAX, KERNELS, arrays_of, dtype_of, wrong_in
from warpcall import _arrays


class AnswersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))

    # ---- right answers ----

    def test_a_whole_number_is_a_real_one_where_the_kernel_takes_such(self):
        x, ones, zeros = np.array([[1, 2, 5]], np.float32), np.ones(3, np.float32), np.zeros(3, np.float32)
        for epsilon in (0, 1):
            np.testing.assert_array_equal(self.gpu.layernorm(x, ones, zeros, epsilon=epsilon),
                                          self.gpu.layernorm(x, ones, zeros, epsilon=float(epsilon)))
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.layernorm(x, ones, zeros, epsilon=True)

    def test_every_row_and_type(self):
        seen = set()
        listed = {(kernel.name, f"{row.name}:{variant}", name) for kernel in self.gpu.kernels()
                  for row in kernel.implementations for name in row.data_types for variant in row.variants
                  if row.device_kind == "cpu" and not row.unavailable}
        rng, numpy_rng = random.Random(SEED), np.random.default_rng(SEED)
        while seen != listed:
            kernel, row, name = rng.choice(sorted(listed - seen))
            problem = Problem(kernel, rng, numpy_rng, ELEMENTS_MAX)
            if TYPE_NAMES[problem.data_type] != name:
                continue
            try:
                result = self.gpu.run(kernel, *arrays_of(problem), implementation=row,
                                      dtype=dtype_of(problem), **problem.sent)
            except warpcall.Unimplemented as error:  # a row may refuse a problem, with its reason
                self.assertIn(row.partition(":")[2], error.message)
                continue
            self.assertEqual((f"{result.implementation}:{result.launch.variant}", result.device), (row, "cpu"))
            self.assertIsNone(wrong_in(problem, result))
            seen.add((kernel, row, name))

    def test_odd_shapes(self):
        for shape in ((0,), (3, 0, 2), (1,), (1,) * 8, (2, 1, 3, 1, 2, 1, 1, 5), (7, 1023),
                      (4097,)):
            x = np.random.default_rng(SEED).standard_normal(shape, np.float32)
            for given in (x, x.T):
                np.testing.assert_array_equal(np.asarray(self.gpu.identity(given)), given)
                y = self.gpu.softmax(given, axis=0)
                self.assertEqual(y.shape, given.shape)
        empty = self.gpu.matmul(np.ones((3, 0), "f4"), np.ones((0, 4), "f4"))
        self.assertEqual(empty.array.tolist(), [[0.0] * 4] * 3)

    def test_every_pattern_of_16_bits_and_special_values(self):
        bits = np.arange(1 << 16, dtype=np.uint16)
        for name, given in (("bfloat16", bits), ("float16", bits.view(np.float16))):
            y = self.gpu.identity(given, dtype=name)
            self.assertEqual(y.dtype_name, name)
            np.testing.assert_array_equal(np.asarray(y).view(np.uint16), bits)
        x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, 1e-45], np.float32)
        y = np.asarray(self.gpu.gelu(x))
        self.assertTrue(np.isnan(y[0]))
        self.assertEqual(y[1:4].tolist(), [np.inf, 0.0, 0.0])
        self.assertTrue(np.isnan(self.gpu.softmax(x[:2]).array).all())

    def test_out_and_chained_results(self):
        x = np.random.default_rng(SEED).standard_normal((4, 33), np.float32)
        out = np.empty_like(x)
        y = self.gpu.gelu(x, out=out)
        self.assertIs(y.outputs[0], out)
        turned = np.empty(x.shape, ">f4")
        np.testing.assert_array_equal(self.gpu.gelu(x, out=turned).array, out)
        z = self.gpu.softmax(y, request_id="mine")
        np.testing.assert_array_equal(z, self.gpu.softmax(out).array)
        self.assertEqual(z.request_id, "mine")
        halves = self.gpu.gelu(x, dtype="bfloat16")
        self.assertEqual(self.gpu.softmax(halves).dtype_name, "bfloat16")
        self.assertGreater(z.timing.total_ns, 0)
        self.assertEqual(z.launch.bytes_moved, 2 * x.nbytes)

    def test_futures_and_map_keep_order(self):
        batches = [np.full((i + 1,), i, np.float32) for i in range(40)]
        futures = [self.gpu.submit("identity", x) for x in batches]
        for x, future in zip(batches, futures):
            np.testing.assert_array_equal(future.result(60), x)
        for window in (1, 3, 100):
            for x, y in zip(batches, self.gpu.map("identity", iter(batches), window=window)):
                np.testing.assert_array_equal(y, x)
        a = np.eye(3, dtype=np.float32)
        self.assertEqual(len(list(self.gpu.map("matmul", [(a, a)] * 5, transpose_b=True))), 5)
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.map("gelu", batches, window=0)

    def test_which_server_it_is(self):
        async def ask():
            async with warpcall.aio.connect(self.server.address) as client:
                return await client.server_info()

        info = self.gpu.server_info(timeout=60)
        self.assertEqual(info, asyncio.run(ask()))
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            self.assertIn(f"VERSION {info.version} ", file.read())
        self.assertEqual(info.changed_flags["devices"], "cpu")
        age = datetime.datetime.now(datetime.timezone.utc) - info.started
        self.assertTrue(-1 < age.total_seconds() < 3600, info)

    # ---- its own words ----

    def test_refusals_are_the_servers_words(self):
        x = np.ones((2, 3), np.float32)
        for cls, call, *mentioned in [
                (warpcall.InvalidArgument, lambda: self.gpu.softmax(x, axis=7), "axis", "7"),
                (warpcall.InvalidArgument, lambda: self.gpu.gelu(x, aproximate="x"), "approximate"),
                (warpcall.InvalidArgument, lambda: self.gpu.matmul(x), "2", "1"),
                (warpcall.NotFound, lambda: self.gpu.glue(x), "glue", *KERNELS),
                (warpcall.NotFound, lambda: self.gpu.gelu(x, device="cuda:7"), "cuda:7", "cpu"),
                (warpcall.Unimplemented, lambda: self.gpu.softmax(
                    x.astype(np.float16), implementation="library"), "onednn_softmax", "float16"),
                (warpcall.ResourceExhausted, lambda: self.gpu.matmul(
                    np.empty((1 << 20, 0), "f4"), np.empty((0, 1 << 20), "f4")), str(1 << 42))]:
            with self.assertRaises(cls) as raised:
                call()
            for text in mentioned:
                self.assertIn(text, raised.exception.message)

    # ---- streams ----

    def test_large_tensors_stream_with_the_bits_of_execute(self):
        rng = np.random.default_rng(SEED)
        x = rng.standard_normal((2600, 2000), np.float32)  # 20 MB
        pieces = [np.asarray(self.gpu.softmax(x[at:at + 650])) for at in range(0, 2600, 650)]
        expected = np.concatenate(pieces)
        for call in (lambda: self.gpu.softmax(x), lambda: self.gpu.submit("softmax", x).result(60)):
            np.testing.assert_array_equal(call(), expected)
        blocks = warpcall.Blocks(x.shape, "float32", (x[at:at + 7] for at in range(0, 2600, 7)))
        with tempfile.TemporaryDirectory() as folder:
            out = np.memmap(os.path.join(folder, "y"), np.float32, "w+", shape=x.shape)
            y = self.gpu.softmax(blocks, out=out)
            self.assertIs(y.outputs[0], out)
            np.testing.assert_array_equal(out, expected)
            del y, out
        turned = np.empty(x.T.shape, np.float32).T
        np.testing.assert_array_equal(self.gpu.softmax(x, out=turned).array, expected)
        small = warpcall.Blocks((2, 3), "bfloat16", [[1, 2, 3], [4, 5, 6]])
        self.assertEqual(_arrays.to_operand(self.gpu.identity(small), "float32").data.tolist(),
                         [[1, 2, 3], [4, 5, 6]])
        self.assertEqual(self.gpu.identity(warpcall.Blocks((0, 3), "f2", [])).shape, (0, 3))
        a = rng.standard_normal((5 << 10, 1 << 10), np.float32)
        np.testing.assert_allclose(self.gpu.matmul(a, a[:1], transpose_b=True).array, a @ a[:1].T,
                                   rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(self.gpu.matmul(a, a[:, :1], transpose_a=True).array,  # one piece
                                   a.T @ a[:, :1], rtol=1e-3, atol=1e-2)

    def test_streams_that_fail(self):
        x = np.ones((6 << 20,), np.float32)
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            self.gpu.softmax(x, axis=3)
        self.assertIn("axis", raised.exception.message)
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.identity(x, out=np.empty(7, np.float32))

        def broken():
            yield x[:3]
            raise KeyError("mine")

        with self.assertRaises(KeyError):
            self.gpu.identity(warpcall.Blocks((9,), "f4", broken()))
        for blocks in ([x[:3]], [x[:12]], [x[:9], x[:1]]):
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                self.gpu.identity(warpcall.Blocks((9,), "f4", blocks))
            self.assertIn("36", raised.exception.message)
        self.assertEqual(self.gpu.identity(x[:3]).shape, (3,))


if __name__ == "__main__":
    main()
