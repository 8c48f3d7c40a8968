"""What the package refuses of itself says what to write instead."""

import asyncio
import io
import pickle
import pydoc
import unittest
from contextlib import redirect_stdout
from unittest import mock

from support import RealServer, main, np
import warpcall

X = np.ones((2, 4), np.float32)


class RefusalsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))

    def refused(self, error, text, call):
        with self.assertRaises(error) as raised:
            call()
        self.assertIn(text, str(raised.exception))

    def test_inputs_by_name(self):
        w, b = np.ones((3, 4), np.float32), np.ones(3, np.float32)
        said = "bias is an input: pass it by position, linear(x, weight, bias)"
        self.refused(warpcall.InvalidArgument, said, lambda: self.gpu.linear(X, w, bias=b))
        with self.gpu.graph() as g:
            self.refused(warpcall.InvalidArgument, said, lambda: g.linear(g.input("x"), w, bias=b))
        self.refused(warpcall.InvalidArgument, "If bias is an input, pass it by position",
                     lambda: self.gpu.run("linear", X, w, bias=b))

    def test_calls_of_a_graph(self):
        with self.gpu.graph() as g:
            h = g.gelu(g.input("x"))
            for operate in (lambda: h + 1, lambda: 2 * h, lambda: h @ h, lambda: -h):
                self.refused(TypeError, "g.fused", operate)
            g.output(h)
        f = g.build()
        self.refused(TypeError, "by name: f(x=...)", lambda: f(X))
        self.refused(TypeError, "g.output(..., keep=True)", lambda: f(x=X, keep=True))
        self.assertEqual(f(x=X).shape, X.shape)

    def test_a_graph_prints_labels(self):
        with self.gpu.put(X, label="block 0/norm") as w, self.gpu.graph() as g:
            g.output(g.rmsnorm(g.input("x"), w))
        self.assertIn("rmsnorm(x, block_0_norm)", repr(g.build()))

    def test_a_function_that_is_not_fused(self):
        def swish(x):
            return x

        self.refused(warpcall.InvalidArgument, "swish is a plain function: decorate it with @warpcall.fuse",
                     lambda: self.gpu.fused(swish, X))

    def test_types(self):
        self.refused(warpcall.InvalidArgument, "the address is 8512; it must be text",
                     lambda: warpcall.connect(8512))
        self.refused(warpcall.InvalidArgument, "ttl is '1h'; it must be a number of seconds",
                     lambda: self.gpu.put(X, ttl="1h"))

    def test_which_input(self):
        wide = X.astype(np.float64)
        self.refused(warpcall.InvalidArgument, "input 1: an input of dtype float64",
                     lambda: self.gpu.matmul(X, wide))
        batches = [(X, X.T), (X, wide.T)]
        self.refused(warpcall.InvalidArgument, "batch 1: input 1: an input of dtype float64",
                     lambda: list(self.gpu.map("matmul", batches)))

        async def each():
            async with warpcall.aio.connect(self.server.address, timeout=60) as gpu:
                return [y async for y in gpu.map("matmul", batches)]

        self.refused(warpcall.InvalidArgument, "batch 1: input 1: an input of dtype float64",
                     lambda: asyncio.run(each()))

    def test_tensors_of_another_program(self):
        with self.gpu.put(X, label="w") as w:
            self.refused(TypeError, "gpu.resident(handle)", lambda: pickle.dumps(w))
            with warpcall.connect(self.server.address, timeout=60) as other:
                np.testing.assert_array_equal(other.identity(other.resident(w.handle)), X)
                np.testing.assert_array_equal(other.identity(other.tensors()[-1]), X)
                self.refused(warpcall.NotFound, "no tensor of the handle 'none'", lambda: other.resident("none"))

            async def there():
                async with warpcall.aio.connect(self.server.address, timeout=60) as gpu:
                    return (await (await gpu.resident(w.handle)).get()).copy()

            np.testing.assert_array_equal(asyncio.run(there()), X)

    def test_when_a_tensor_may_be_put_again(self):
        w = self.gpu.put(X, label="w")
        with mock.patch("time.monotonic", return_value=1000.0):
            w._restorable_at = 1041.5
            self.assertIn("again ('w'), and last did so less than 60 s ago; it may in 42 s",
                          w.restore({w.handle: "evicted"}, None, None))
        w.free()

    def test_help(self):
        said = io.StringIO()
        with redirect_stdout(said):
            print(pydoc.plain(pydoc.render_doc(self.gpu.linear)))
        self.assertIn("Inputs, by position: x, weight, bias.", said.getvalue())
        self.assertIn("activation (default 'none'): activation of the sums", said.getvalue())
        self.assertIn("one of 'none', 'relu', 'gelu', 'gelu_erf'", said.getvalue())


if __name__ == "__main__":
    main()
