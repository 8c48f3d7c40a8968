"""The Python client's operators of torch: torch's own opcheck on each, models under torch.compile,
refusals. Skipped where there is no torch of 2.4 or later.

    torch_test.py BUILD_FOLDER [unittest's arguments]

On a GPU machine BUILD_FOLDER is tests/gpu/pack.sh's folder, with its lib/ on LD_LIBRARY_PATH.
"""

import sys
import unittest

from support import SEED, SKIPPED, RealServer, main
import warpcall

try:
    import torch
    import warpcall.torch
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)
if not hasattr(torch.library, "opcheck"):
    print(f"skipped: torch {torch.__version__} has no opcheck")
    sys.exit(SKIPPED)

OPS = torch.ops.warpcall
TYPES = (torch.float32, torch.float16, torch.bfloat16)


def calls(kernel):
    """(inputs' shapes, options) that between them use every attribute of a kernel."""
    if kernel == "matmul":
        yield ((2, 1, 3, 4), (5, 4, 6)), {}
        yield ((4, 3), (6, 4)), {"transpose_a": True, "transpose_b": True, "precision": "ieee"}
        return
    if kernel == "fused":
        yield ((3, 5),), {"expression": "gelu(x0)"}
        yield ((2, 1, 4), (3, 1)), {"expression": "dropout(x0, 0.5) + sum(x1)", "seed": 3}
        return
    if kernel == "linear":
        yield ((3, 5), (4, 5), (4,)), {}
        yield ((2, 3, 5), (4, 5), (4,)), {"activation": "gelu", "precision": "ieee"}
        return
    if kernel in ("layernorm", "rmsnorm"):
        parameters = 2 if kernel == "layernorm" else 1
        yield ((3, 5), *[(5,)] * parameters), {}
        yield ((2, 3, 4), *[(4,)] * parameters), {"epsilon": 1e-3}
        return
    yield ((3, 5),), {}
    yield ((2, 3, 4),), {"gelu": {"approximate": "none"}, "softmax": {"axis": 1}}.get(kernel, {})
    yield ((0, 3),), {"device": "cpu", "implementation": "cpu"}


class TorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.client = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))
        warpcall.torch.use(cls.client)

    def setUp(self):
        torch.manual_seed(SEED)
        torch.compiler.reset()

    def test_every_kernel_of_the_server_is_an_operator(self):
        for kernel in self.client.kernels():
            schema = getattr(OPS, kernel.name).default._schema
            self.assertEqual([a.name for a in schema.arguments],
                             [*kernel.input_names, *(a.name for a in kernel.attributes),
                              "implementation", "device"])
            defaults = {a.name: a.default_value for a in schema.arguments if a.kwarg_only}
            for attribute in kernel.attributes:
                expected = None if attribute.required else attribute.default_value
                self.assertEqual(defaults[attribute.name], expected)

    def test_opcheck(self):
        for kernel in self.client.kernels():
            for dtype in TYPES:
                for shapes, options in calls(kernel.name):
                    inputs = tuple(torch.randn(shape).to(dtype) for shape in shapes)
                    torch.library.opcheck(getattr(OPS, kernel.name).default, inputs, options)

    def test_what_tracing_sees_is_what_comes(self):
        looks = lambda tensor: (tensor.shape, tensor.dtype, tensor.stride(), tensor.device)
        for kernel in self.client.kernels():
            op = getattr(OPS, kernel.name)
            for shapes, options in calls(kernel.name):
                inputs = [torch.randn(shape, dtype=torch.bfloat16) for shape in shapes]
                inputs[0] = inputs[0].mT.contiguous().mT  # rows are not contiguous
                with FakeTensorMode() as mode:
                    fake = op(*map(mode.from_tensor, inputs), **options)
                self.assertEqual(looks(fake), looks(op(*inputs, **options)))

    def test_right_answers_as_new_contiguous_tensors(self):
        x = torch.randn(33, 7)
        for given in (x, x.T, x[::2, 1:]):
            for mine, theirs in [
                    (OPS.identity(given), given),
                    (OPS.gelu(given), torch.nn.functional.gelu(given, approximate="tanh")),
                    (OPS.softmax(given, axis=0), torch.softmax(given, 0)),
                    (OPS.matmul(given, given, transpose_b=True), given @ given.T)]:
                torch.testing.assert_close(mine, theirs)
                self.assertTrue(mine.is_contiguous())
                self.assertNotEqual(mine.data_ptr(), given.data_ptr())
        self.assertEqual(OPS.gelu(torch.tensor(1.0)).shape, ())
        bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
        y = OPS.identity(bits.view(torch.bfloat16))
        self.assertTrue(torch.equal(y.view(torch.int16), bits))
        y.add_(1)  # its memory is its own

    def test_a_compiled_model(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(16, 8))

            def forward(self, x):
                hidden = OPS.gelu(OPS.matmul(x, self.weight, transpose_b=True) + 1)
                return OPS.softmax(hidden * 2, axis=-1).sum(0)

        model = Model().eval()
        for dynamic in (False, True):
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
            with torch.no_grad():
                for rows in (3, 5, 17):
                    x = torch.randn(rows, 8)
                    torch.testing.assert_close(compiled(x), model(x))

    def test_refusals(self):
        with self.assertRaises(warpcall.InvalidArgument) as raised:
            OPS.softmax(torch.ones(2, 3), axis=5)
        self.assertIn("-2 to 1", raised.exception.message)
        with self.assertRaises(warpcall.InvalidArgument):
            OPS.gelu(torch.ones(3, dtype=torch.float64))
        with self.assertRaises(warpcall.InvalidArgument):
            warpcall.torch.use(self.client, timeout=1)
        if torch.cuda.is_available():
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                OPS.gelu(torch.ones(3, device="cuda"))
            self.assertIn(".cpu()", raised.exception.message)
        try:
            warpcall.torch._client = None
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                OPS.gelu(torch.ones(3))
            self.assertIn("warpcall.torch.use", raised.exception.message)
        finally:
            warpcall.torch.use(self.client)

    def test_an_address(self):
        with warpcall.torch.use(self.server.address, timeout=60):
            self.assertEqual(OPS.gelu(torch.ones(3)).shape, (3,))
        warpcall.torch.use(self.client)


if __name__ == "__main__":
    main()
