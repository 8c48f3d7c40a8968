"""The Python client's operators of torch: torch's own opcheck on each, models under torch.compile,
weights that stay, refusals. Skipped where there is no torch of 2.4 or later.

    torch_test.py BUILD_FOLDER [unittest's arguments]

On a GPU machine BUILD_FOLDER is tests/gpu/pack.sh's folder, with its lib/ on LD_LIBRARY_PATH. WARPCALL_TEST_FETCH=1:
with torch from PyPI, 3 GB, in BUILD_FOLDER/python_torch, where it stays until torch_requirements.txt changes.
"""

import os
import pathlib
import re
import sys
import unittest

from support import BUILD, ROOT, SEED, SKIPPED, RealServer, main, np
import warpcall

if os.environ.pop("WARPCALL_TEST_FETCH", "") == "1":
    sys.path.insert(0, os.path.join(ROOT, "tests", "deploy"))
    import pinned
    requirements = pathlib.Path(__file__).resolve().with_name("torch_requirements.txt")
    try:
        programs = pinned.environment(pathlib.Path(BUILD, "python_torch").resolve(), requirements, seconds_max=1200)
    except pinned.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    os.execv(programs / "python", [str(programs / "python"), *sys.argv])

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

    def uses(self, resident):
        """How many calls have used a tensor on the server."""
        (found,) = [each for each in self.client.tensors() if each.handle == resident.handle]
        return found.info.uses

    def check_use(self, residents, call, expected, used=True):
        """`call` returns what is expected, and each of the residents is an input of one call, or of none."""
        before = [self.uses(resident) for resident in residents]
        torch.testing.assert_close(call(), expected)
        self.assertEqual([self.uses(resident) for resident in residents],
                         [count + used for count in before])

    def test_operators_use_weights_that_were_put(self):
        x = torch.randn(3, 16)
        for kernel, *weights in [("linear", (16, 16), (16,)), ("layernorm", (16,), (16,)),
                                 ("rmsnorm", (16,)), ("matmul", (16, 5))]:
            op = getattr(OPS, kernel)
            for dtype in TYPES:
                given = [x.to(dtype), *(torch.randn(shape).to(dtype) for shape in weights)]
                expected = op(*given)
                residents = [self.enterContext(warpcall.torch.put(each)) for each in given[1:]]
                self.check_use(residents, lambda: op(*given), expected)
        square = torch.randn(16, 16)
        with warpcall.torch.put(square.T) as resident:  # not contiguous
            for given, used in ((square.T, True), (square, False), (square.T[:5], False)):
                self.check_use([resident], lambda: OPS.softmax(given), torch.softmax(given, -1), used)
        both = torch.nn.Linear(16, 16)
        with warpcall.torch.put(both.weight), warpcall.torch.put(both.bias), torch.no_grad():
            torch.library.opcheck(OPS.linear.default, (x, both.weight.detach(), both.bias.detach()),
                                  test_utils=("test_schema", "test_faketensor"))

    def test_compiled_models_use_parameters_that_were_put(self):
        model = torch.nn.Linear(8, 16)
        compiled = torch.compile(lambda x: OPS.linear(x * 2, model.weight, model.bias) + 1,
                                 backend="aot_eager", fullgraph=True)
        residents = [self.enterContext(warpcall.torch.put(each)) for each in model.parameters()]
        with torch.no_grad():
            for rows in (3, 5):
                x = torch.randn(rows, 8)
                self.check_use(residents, lambda: compiled(x), model(x * 2) + 1)

    def test_writes_end_the_use(self):
        x, weight = torch.randn(3, 8), torch.nn.Parameter(torch.randn(16, 8))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        weight.grad = torch.ones_like(weight)

        def step_in_inference_mode():
            with torch.inference_mode():
                weight.mul_(2)

        for write in (optimizer.step, lambda: weight.detach().view(-1)[3:4].zero_(),
                      lambda: torch.nn.init.ones_(weight), step_in_inference_mode):
            with torch.no_grad(), warpcall.torch.put(weight) as resident:
                call = lambda: OPS.matmul(x, weight, transpose_b=True)
                self.check_use([resident], call, x @ weight.T)
                write()
                self.check_use([resident], call, x @ weight.T, used=False)
                with warpcall.torch.put(weight) as another:
                    self.check_use([another], call, x @ weight.T)
        self.assertEqual(self.client.tensors(), [])
        warpcall.torch.put(x).free()
        self.assertEqual(len(warpcall.torch._puts), 1)  # the weight's, freed, went with that put

    def test_what_the_server_lost_is_put_again(self):
        weight = torch.randn(64, 64)
        mib = np.ones((1 << 20) // 4, np.float32)
        with RealServer("--resident_mib=1") as server, warpcall.connect(server.address, timeout=60) as client:
            warpcall.torch.use(client)
            for keep_source in (True, False):
                resident = warpcall.torch.put(weight, evictable=True, keep_source=keep_source)
                lost = resident.handle
                client.put(mib).free()  # needs all memory
                if keep_source:
                    torch.testing.assert_close(OPS.identity(weight), weight)
                    self.assertNotEqual(resident.handle, lost)
                    resident.free()
                    continue
                with self.assertRaises(warpcall.NotFound) as raised:
                    OPS.identity(weight)
                self.assertEqual(raised.exception.lost_handles, {lost: "evicted"})
            warpcall.torch.use(self.client)
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                OPS.gelu(weight)
            self.assertIn(f"this client calls {self.server.address}", raised.exception.message)
            resident.free()
        torch.testing.assert_close(OPS.identity(weight), weight)

    def test_there_are_no_gradients(self):
        x, weight = torch.randn(3, 8), torch.randn(16, 8, requires_grad=True)
        with warpcall.torch.put(weight):
            y = OPS.matmul(x, weight, transpose_b=True)
        with self.assertRaises(RuntimeError) as raised:
            y.sum().backward()
        self.assertIn("warpcall::matmul", str(raised.exception).replace(".", "::"))

    def test_tensors_that_can_not_be_put(self):
        with torch.inference_mode():
            uncounted = torch.ones(3)
        for tensor, options, words in [
                (uncounted, {}, "torch.inference_mode()"),
                (np.ones(3), {}, "a ndarray to put; it must be a torch.Tensor"),
                (torch.ones(3), {"dtype": "float16"}, "dtype is float16, the tensor's torch.float32"),
                (torch.tensor(1.0), {}, "rank 0"),
                (torch.ones(3, dtype=torch.int32), {}, "int32"),
                (torch.ones(3), {"ttl": -1}, "ttl is -1 s")]:
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                warpcall.torch.put(tensor, **options)
            self.assertIn(words, raised.exception.message)
        self.assertEqual(self.client.tensors(), [])
        weight = torch.randn(4, 4)
        with warpcall.torch.put(weight) as resident:
            with self.assertRaises(RuntimeError) as raised:
                OPS.gelu(resident)
            self.assertIn("found type 'Resident'", str(raised.exception))
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                OPS.matmul(torch.ones(2, 4, dtype=torch.float16), weight)
            self.assertIn("float16", raised.exception.message)

    def test_readme(self):
        with open(os.path.join(ROOT, "client", "python", "README.md"), encoding="utf-8") as file:
            section = file.read().partition("\n## torch")[2].partition("\n## ")[0]
        blocks = re.findall(r"```\n(.*?)```", section, re.S)
        self.assertEqual(len(blocks), 2)
        x = torch.randn(5, 32)
        names = {"x": x}
        exec("\n".join(blocks).replace("127.0.0.1:8470", self.server.address), names)
        with names["warpcall"].torch._client:
            expected = torch.nn.functional.gelu(names["model"](x), approximate="tanh")
            torch.testing.assert_close(names["y"], expected.detach())
            for resident in names["residents"]:
                self.assertEqual(self.uses(resident), 1)
                resident.free()
        warpcall.torch.use(self.client)

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
