"""Graphs: what the Python client writes down, sends and makes of the answer. On a server that computes graphs by NumPy
and loses what a test says."""

import asyncio
import copy
import pathlib
import pickle
import tempfile
import threading
import unittest

from google.protobuf.message import DecodeError

from support import SECONDS_MAX, FakeServer, Messages, RealServer, grpc, main, np
import warpcall
from warpcall._arrays import ml_dtypes
from ways import QUICK

THEIRS = Messages()
X = np.linspace(-2, 2, 3 * 8, dtype=np.float32).reshape(3, 8)
W1 = np.linspace(-1, 1, 5 * 8, dtype=np.float32).reshape(5, 8)
B1 = np.linspace(0, 1, 5, dtype=np.float32)
W2 = np.linspace(-1, 2, 4 * 5, dtype=np.float32).reshape(4, 5)
B2 = np.linspace(1, 2, 4, dtype=np.float32)
DTYPES = {1: "<f4", 2: "<f2", 3: "<u2"}


def linear(x, weight, bias, activation="none"):
    y = x @ weight.T + bias
    return np.maximum(y, 0) if activation == "relu" else y


KERNELS = {"identity": lambda x: x, "linear": linear, "later": lambda x, scale=1.0: x * scale,
           "fused": lambda *xs, expression: eval(expression, {f"x{i}": x for i, x in enumerate(xs)})}


def two_layers():
    return np.maximum(X @ W1.T + B1, 0) @ W2.T + B2


class GraphServer(FakeServer):
    """Computes graphs. `requests`: all that came. `lost`: reasons by handle; NOT_FOUND names them."""

    def __init__(self):
        self.requests, self.lost, self.tensors = [], {}, {}
        self.refusals, self.change = [], lambda response: None
        super().__init__(self.answer, put_handler=self.put)

    def put(self, messages, context):
        header, *chunks = [THEIRS.PutRequest.FromString(message) for message in messages]
        tensor = header.header.tensor
        tensor.data = b"".join(chunk.chunk.data for chunk in chunks)
        handle = f"handle{len(self.tensors)}"
        self.tensors[handle] = array_of(tensor)
        return THEIRS.PutResponse(handle=handle, device="cpu", bytes=len(tensor.data)).SerializeToString()

    def answer(self, data, context):
        try:
            request = THEIRS.ExecuteGraphRequest.FromString(data)
        except DecodeError:  # Free's handles are no inputs
            return THEIRS.FreeResponse().SerializeToString()
        self.requests.append(request)
        lost = [f"{each.tensor.handle} {self.lost[each.tensor.handle]}" for each in request.inputs
                if each.tensor.handle in self.lost]
        if lost:
            context.set_trailing_metadata(((warpcall.errors.LOST_HANDLES_KEY, ",".join(lost)),))
            context.abort(grpc.StatusCode.NOT_FOUND, "lost")
        if self.refusals:
            context.abort(*self.refusals.pop(0))
        return self.computed(request).SerializeToString()

    def computed(self, request):
        values = {each.name: self.tensors[each.tensor.handle] if each.tensor.handle else array_of(each.tensor)
                  for each in request.inputs}
        response = THEIRS.ExecuteGraphResponse(device=request.device or "cpu", request_id=request.request_id or "made",
                                               resident_bytes=24, intermediate_bytes=4096, replayed=True)
        response.timing.kernel_ns, response.timing.total_ns = 4000, 6000
        for step in request.steps:
            attributes = {name: getattr(value, value.WhichOneof("value")) for name, value in step.attributes.items()}
            values[step.name] = KERNELS[step.kernel](*(values[name] for name in step.inputs), **attributes)
            result = response.steps.add(name=step.name, implementation=step.implementation or "cpu",
                                        kernel_ns=1500 if request.step_times else 0)
            result.launch.bytes_moved, result.launch.flops, result.launch.gpu_kernels = 100, 7, 1
        for output in request.outputs:
            value = values[output.name]
            tensor = response.outputs.add(data_type=2 if value.dtype == np.float16 else 1, shape=value.shape)
            if output.keep:
                tensor.handle = f"kept{len(self.tensors)}"
                self.tensors[tensor.handle] = value
            else:
                tensor.data = value.tobytes()
        self.change(response)
        return response


def array_of(tensor):
    return np.frombuffer(tensor.data, DTYPES[tensor.data_type]).reshape(tuple(tensor.shape))


class GraphTest(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(GraphServer())
        self.gpu = self.enterContext(warpcall.connect(self.server.address, timeout=SECONDS_MAX, retry=QUICK))

    def layers(self, w1=W1, **output):
        """Two layers of x, as a function."""
        with self.gpu.graph() as g:
            h = g.linear(g.input("x"), w1, B1, activation="relu")
            g.output(g.linear(h, W2, B2), **output)
        return g.build()

    def refuse(self, error, pattern):
        return self.assertRaisesRegex(error, pattern)

    def test_a_graph_is_one_request(self):
        f = self.layers(self.gpu.put(W1))
        y = f(x=X)
        np.testing.assert_array_equal(y, two_layers())
        (request,) = self.server.requests
        self.assertEqual([(each.name, each.kernel, list(each.inputs)) for each in request.steps],
                         [("linear", "linear", ["x", "input", "input_2"]),
                          ("linear_2", "linear", ["linear", "input_3", "input_4"])])
        self.assertEqual(request.steps[0].attributes["activation"].string_value, "relu")
        self.assertEqual({each.name: each.tensor.handle for each in request.inputs if each.tensor.handle},
                         {"input": "handle0"})
        self.assertEqual([each.name for each in request.outputs], ["linear_2"])
        self.assertFalse(request.step_times)
        self.assertIsInstance(y, warpcall.Result)
        self.assertEqual((y.kernel, y.device, y.implementation, y.request_id), ("linear_2", "cpu", "cpu", "made"))
        self.assertEqual((y.timing.kernel_ns, y.launch.flops, y.launch.bytes_moved, y.launch.gpu_kernels),
                         (4000, 14, 200, 2))
        self.assertEqual((y.resident_bytes, y.intermediate_bytes, y.replayed), (24, 4096, True))
        self.assertIn("linear_2 -> float32[3,4] by 2 steps on cpu: kernels 4.00 µs, replayed", repr(y))

    def test_calls_have_options(self):
        f = self.layers()
        y = f(x=X, step_times=True, device="cuda:1", request_id="mine", timeout=30)
        (request,) = self.server.requests
        self.assertEqual((request.step_times, request.device, request.request_id), (True, "cuda:1", "mine"))
        self.assertEqual([(row.name, row.kernel, row.kernel_ns) for row in y.steps],
                         [("linear", "linear", 1500), ("linear_2", "linear", 1500)])
        self.assertRegex(repr(y.steps), r"(?s)^2 steps on cuda:1: 4.00 µs, replayed\n\nstep +kernel +implementation +time\n"
                                        r"linear +linear +cpu +1.50 µs\nlinear_2 +linear +cpu +1.50 µs$")
        self.assertIn("step_times=True times each step", repr(f(x=X).steps))
        self.assertIn("<th>step</th>", y.steps._repr_html_())

    def test_steps_and_outputs_have_names(self):
        with self.gpu.graph() as g:
            h = g.identity(g.input("x"), name="h", implementation="cuda:fast")
            y = g.later(h, scale=2.0)
            g.output(y, "y")
            g.output(h)
        f = g.build()
        self.assertEqual((f.inputs, f.outputs), (("x",), ("y", "h")))
        doubled, same = f(x=X)
        np.testing.assert_array_equal(doubled, 2 * X)
        np.testing.assert_array_equal(same, X)
        self.assertEqual(doubled.steps[0].implementation, "cuda:fast")
        self.assertEqual(repr(f), "<warpcall.GraphFunction (x):\n"
                                  "  h = identity(x, implementation='cuda:fast')\n"
                                  "  y = later(h, scale=2.0)\n"
                                  "  return y, h>")
        self.assertEqual(repr(y), '<warpcall.GraphValue "y": later>')
        with self.refuse(TypeError, "no elements before the graph runs"):
            np.asarray(y)

    def test_outputs_stay(self):
        f = self.layers(keep=True, ttl=90, label="w")
        y = f(x=X)
        (output,) = self.server.requests[-1].outputs
        self.assertEqual((output.keep, output.ttl_ns, output.label), (True, 90_000_000_000, "w"))
        resident = y.resident
        self.assertEqual((resident.handle[:4], resident.shape, resident.device, resident.label, resident.nbytes),
                         ("kept", (3, 4), "cpu", "w", 48))
        self.assertEqual(y.outputs, [])
        self.assertIn("(kept)", repr(y))
        with self.refuse(TypeError, "neither copied nor pickled"):
            pickle.dumps(y)
        # The result is an input of graphs, written down or given.
        with self.gpu.graph() as g:
            g.output(g.fused("x0 + x1", y, g.input("z")))
        np.testing.assert_array_equal(g.build()(z=resident), 2 * two_layers())

    def test_a_result_is_copied_and_pickled(self):
        y = self.layers()(x=X, step_times=True)
        for twin in (copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
            np.testing.assert_array_equal(twin, y)
            self.assertEqual((repr(twin), repr(twin.steps)), (repr(y), repr(y.steps)))

    def test_the_same_tensor_is_one_input_and_arrays_are_copied(self):
        weight = W1.copy()
        with self.gpu.graph() as g:
            x = g.input("x")
            g.output(g.fused("x0 + x1", g.linear(x, weight, B1), g.linear(x, weight, B1)))
        f = g.build()
        weight[:] = 0
        np.testing.assert_array_equal(f(x=X), 2 * (X @ W1.T + B1))
        self.assertEqual(len(self.server.requests[0].inputs), 3)

    def test_residents_are_named_for_their_labels(self):
        with self.gpu.graph() as g:
            for label in ("w1", "w1", "no name", "x"):
                g.output(g.fused("x0 + x1", g.input(f"a{label[0]}{len(g._inputs)}"), self.gpu.put(X, label=label)))
            g.input("x")
            g.output(g.identity(g._inputs["x"]))
        g.build()(aw0=X, aw1=X, an2=X, ax3=X, x=X)
        names = [each.name for each in self.server.requests[0].inputs if each.tensor.handle]
        self.assertEqual(names, ["w1", "w1_2", "no_name", "x_2"])

    def test_inputs_of_every_type(self):
        with self.gpu.graph() as g:
            g.output(g.identity(g.input("x")))
        f = g.build()
        for x in (X, X.astype("f2"), X[:, ::2], X.astype(">f4"), np.zeros((0, 4), np.float32), [1.0, 2.0], 3.0):
            expected = np.asarray(x, np.float32 if isinstance(x, (list, float)) else None)
            y = f(x=x)
            np.testing.assert_array_equal(y, expected)
            self.assertEqual(y.shape, expected.shape)
        with self.refuse(warpcall.InvalidArgument, 'input "x": an input of dtype float64'):
            f(x=X.astype(np.float64))
        with self.gpu.graph(dtype="float16") as g:
            g.output(g.fused("x0 + x1", g.input("x"), X.astype(np.float64)))
        y = g.build()(x=X.astype(np.float64))
        self.assertEqual((y.dtype_name, self.server.requests[-1].inputs[0].tensor.data_type), ("float16", 2))
        if ml_dtypes is not None:
            f(x=X.astype(ml_dtypes.bfloat16))
            self.assertEqual(self.server.requests[-1].inputs[0].tensor.data_type, 3)

    def test_functions_become_steps(self):
        @warpcall.fuse
        def f(a, b):
            return a * 2 + b

        with self.gpu.graph() as g:
            x = g.input("x")
            y = f(x, X)
            g.output(g.fused(f, y, x, name="z"))
            g.output(f(x, x, name="seeded", implementation="compiled", seed=3), keep=True)
        self.server.refusals = [(grpc.StatusCode.INVALID_ARGUMENT, "enough")]
        with self.refuse(warpcall.InvalidArgument, "enough"):
            g.build()(x=X)
        steps = self.server.requests[0].steps
        self.assertEqual([(each.name, each.kernel, each.attributes["expression"].string_value) for each in steps],
                         [(name, "fused", "x0 * 2 + x1") for name in ("fused", "z", "seeded")])
        self.assertEqual((steps[2].implementation, steps[2].attributes["seed"].int_value), ("compiled", 3))
        with self.refuse(warpcall.InvalidArgument, "runs on a server"):
            f(X, X)

    def test_wrong_graphs_are_refused_with_names(self):
        g, other = self.gpu.graph(), self.gpu.graph()
        x, h = g.input("x"), g.identity(g.input("u"), name="h")
        foreign = other.identity(other.input("z"), name="theirs")
        invalid = warpcall.InvalidArgument
        for error, pattern, call in (
            (invalid, '"theirs": identity> is a value of another graph', lambda: g.identity(foreign)),
            (invalid, '"theirs": identity> is a value of another graph', lambda: g.output(foreign)),
            (invalid, '"x" is an input; outputs are results', lambda: g.output(x)),
            (TypeError, "a ndarray; it must be a value of the graph", lambda: g.output(X)),
            (invalid, 'the name "x" is taken', lambda: g.input("x")),
            (invalid, 'the name "h" is taken', lambda: g.input("h")),
            (invalid, 'the name "x" is taken', lambda: g.identity(x, name="x")),
            (invalid, "a name is '1x'; it must have 1 to 63", lambda: g.input("1x")),
            (invalid, "a name is 3; it must", lambda: g.input(3)),
            (invalid, "it must have 1 to 63", lambda: g.identity(x, name="n" * 64)),
            (invalid, "it must have 1 to 63", lambda: g.input("n\n")),
            (invalid, 'input "device" has the name of an option', lambda: g.input("device")),
            (invalid, "device is no option of a step", lambda: g.identity(x, device="cpu")),
            (invalid, "keep is no option of a step", lambda: g.identity(x, keep=True)),
            (invalid, "attribute axis is a list", lambda: g.softmax(x, axis=[1])),
            (invalid, "ttl and label are for an output that stays", lambda: g.output(h, ttl=3)),
            (invalid, "ttl is -1 s", lambda: g.output(h, keep=True, ttl=-1)),
            (invalid, 'step "h" has a name; output\\(\\) named it "y"', lambda: g.output(h, "y")),
            (invalid, "Blocks are read once", lambda: g.identity(warpcall.Blocks((1,), "float32", []))),
            (invalid, "an input of dtype float64", lambda: g.identity(np.ones(3))),
            (invalid, "kernel is 7; it must be a name", lambda: g.run(7, x)),
            (invalid, "the graph has no output", g.build),
            (AttributeError, "no attribute '_hidden'", lambda: g._hidden),
        ):
            with self.subTest(pattern), self.refuse(error, pattern):
                call()
        self.assertTrue(issubclass(invalid, ValueError))
        g.output(h)
        with self.refuse(invalid, '"h": identity> is an output already'):
            g.output(h)
        with self.refuse(invalid, 'no step uses input "x"'):
            g.build()
        unused = g.identity(x)
        with self.refuse(invalid, f"no output needs {unused!r}: make it an output"):
            g.build()
        g.output(unused)
        with g:
            self.assertEqual(g.build().inputs, ("x", "u"))
        for call in (lambda: g.input("y"), lambda: g.identity(x), lambda: g.output(h)):
            with self.refuse(invalid, "the graph is complete"):
                call()

    def test_limits(self):
        for count, attribute, make in ((64, "inputs", lambda g, i: g.identity(g.input(f"x{i}"))),
                                       (256, "steps", lambda g, i: g.identity(X))):
            for over in (0, 1):
                g = self.gpu.graph()
                for i in range(count + over):
                    g.output(make(g, i))
                if over:
                    with self.refuse(warpcall.InvalidArgument, f"has {count + 1} {attribute}; at most {count}"):
                        g.build()
                else:
                    g.build()

    def test_wrong_calls_are_refused_with_names(self):
        with self.gpu.graph() as g:
            g.output(g.fused("x0 + x1", g.input("x"), g.input("b")))
        f = g.build()
        with self.refuse(TypeError, 'the graph has no input "y"; it has x, b'):
            f(x=X, y=X, b=X)
        with self.refuse(TypeError, "no value for b; the graph's inputs: x, b"):
            f(x=X)
        with self.refuse(warpcall.InvalidArgument, 'input "b": Blocks are for calls that stream'):
            f(x=X, b=warpcall.Blocks((1,), "float32", [X]))
        with self.refuse(warpcall.InvalidArgument, 'input "b": '):
            f(x=X, b="text")
        freed = self.gpu.put(X)
        freed.free()
        with self.refuse(warpcall.InvalidArgument, "was freed by this program"):
            f(x=X, b=freed)
        with warpcall.connect(self.server.address.replace("127.0.0.1", "localhost")) as other:
            with self.refuse(warpcall.InvalidArgument, "this client calls"):
                f(x=X, b=other.put(X))
        self.assertEqual(self.server.requests, [])

    def test_what_is_kept_needs_one_server(self):
        with warpcall.connect("ipv4:127.0.0.1:1,127.0.0.1:2") as several:
            g = several.graph()
            g.output(g.identity(g.input("x")), keep=True)
            with self.refuse(warpcall.InvalidArgument, "name one server"):
                g.build()(x=X)

    def test_a_lost_resident_is_put_again(self):
        weight = self.gpu.put(W1)
        f = self.layers(weight)
        self.server.lost = {"handle0": "expired"}
        np.testing.assert_array_equal(f(x=X), two_layers())
        self.assertEqual(weight.handle, "handle1")
        self.assertEqual([[each.tensor.handle for each in request.inputs if each.tensor.handle]
                          for request in self.server.requests], [["handle0"], ["handle1"]])
        self.server.lost["handle1"] = "expired"  # not twice a minute
        with self.refuse(warpcall.NotFound, "lost"):
            f(x=X)
        self.assertEqual(len(self.server.requests), 3)

    def test_what_is_lost_again_in_one_call_is_said(self):
        f = self.layers(self.gpu.put(W1))
        self.server.lost = {"handle0": "expired", "handle1": "evicted"}
        with self.refuse(warpcall.NotFound, "the client had put it again in this call"):
            f(x=X)
        self.assertEqual(len(self.server.requests), 2)

    def test_a_refusal_for_now_is_tried_again(self):
        self.server.refusals = [(grpc.StatusCode.UNAVAILABLE, "busy")] * 2
        np.testing.assert_array_equal(self.layers()(x=X), two_layers())
        self.assertEqual(len(self.server.requests), 3)

    def test_an_older_server_is_named(self):
        for message in warpcall.errors.NO_METHOD:
            self.server.refusals = [(grpc.StatusCode.UNIMPLEMENTED, message)]
            with self.refuse(warpcall.Unimplemented, "no method ExecuteGraph: its version is too old"):
                self.layers()(x=X)
        self.server.refusals = [(grpc.StatusCode.UNIMPLEMENTED, 'step "linear": nothing takes it')]
        with self.refuse(warpcall.Unimplemented, 'step "linear"'):
            self.layers()(x=X)

    def test_answers_that_contradict_themselves_are_internal(self):
        def cut(response):
            response.outputs[0].data = b"123"

        for change, pattern in ((lambda response: response.ClearField("outputs"), "0 outputs; the graph has 1"),
                                (cut, "contradicts itself"),
                                (lambda response: setattr(response.outputs[0], "data_type", 0), "data type 0")):
            self.server.change = change
            with self.refuse(warpcall.Internal, pattern):
                self.layers()(x=X)
        self.server.change = lambda response: None
        with self.refuse(warpcall.Internal, "an output without a handle"):
            self.server.change = lambda response: setattr(response.outputs[0], "handle", "")
            self.layers(keep=True)(x=X)

    def test_threads_share_a_function(self):
        f, wrong = self.layers(self.gpu.put(W1)), []

        def use(factor):
            for _ in range(5):
                if not np.array_equal(f(x=factor * X), np.maximum(factor * X @ W1.T + B1, 0) @ W2.T + B2):
                    wrong.append(factor)

        threads = [threading.Thread(target=use, args=(np.float32(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class InspectingServer(GraphServer):
    """Describes and profiles graphs, which it keeps in `requests`, and whole ProfileRequests in `profiles`."""

    def __init__(self):
        self.profiles = []
        super().__init__()

    def answer(self, data, context):
        try:
            described, profiled = (cls.FromString(data) for cls in (THEIRS.DescribeRequest, THEIRS.ProfileRequest))
        except DecodeError:  # a copy's benchmark, and Free's handles
            return b""
        if not data:
            devices = THEIRS.ListDevicesResponse()
            devices.devices.add(name="cpu:0", kind="cpu", multiprocessors=2, measured_bandwidth_bytes_per_second=1e10)
            return devices.SerializeToString()
        profiles = profiled.HasField("graph")
        if profiles:
            self.profiles.append(profiled)
        super().answer((profiled if profiles else described).graph.SerializeToString(), context)  # or its refusals
        return (self.profile(profiled) if profiles else self.describe(described)).SerializeToString()

    def computed(self, request):
        return THEIRS.ExecuteGraphResponse()

    def describe(self, request):
        response = THEIRS.DescribeResponse(device=request.graph.device or "cpu:0", workspace_bytes=9,
                                           intermediate_bytes=4160, launch=dict(bytes_moved=2_000_000, flops=14))
        response.steps.add(name="h", kernel="linear", implementation="cpu", launch=dict(variant="fast", flops=7),
                           result_bytes=4096, is_intermediate=True, fuses_with="y", fused_saves_bytes=8192)
        response.steps.add(name="y", kernel="gelu", implementation="manual", result_bytes=64)
        return response

    def profile(self, request):
        response = THEIRS.ProfileResponse(device="cpu:0", implementation="graph", iterations=2)
        for name, kind, step, total_ns in (("linear", "kernel", "h", 600_000), ("gelu", "kernel", "y", 400_000),
                                           ("idle", "gap", "", 1000), ("run", "host", "", 1_100_000)):
            response.rows.add(name=name, kind=kind, step=step, calls=2, total_ns=total_ns, mean_ns=total_ns / 2,
                              fraction=0.5, achieved_occupancy=-1, sm_throughput=-1, dram_throughput=-1)
        if request.trace:
            response.trace_json = b"{}"
        return response


STEPS_TABLE = """\
graph x=3x8 on cpu:0, not run

step  kernel  implementation    result  intermediate  fused saves  with
h     linear        cpu:fast  4.00 KiB           yes     8.00 KiB     y
y       gelu          manual      64 B            no            -     -
intermediates take 4.06 KiB of device memory"""


class InspectTest(unittest.TestCase):
    """A graph is described and profiled, by the client that blocks and by asyncio's."""

    def setUp(self):
        self.server = self.enterContext(InspectingServer())
        self.gpu = self.enterContext(warpcall.connect(self.server.address, timeout=SECONDS_MAX, retry=QUICK))

    def graph(self, gpu, weight):
        g = gpu.graph()
        h = g.linear(g.input("x"), weight, B1, name="h", activation="relu")
        g.output(h, keep=True, ttl=9, label="kept")
        g.output(g.gelu(h, implementation="cpu"), "y")
        return g.build()

    def by_asyncio(self, work):
        """What `work` returns of a graph of asyncio's."""
        async def run():
            async with warpcall.aio.connect(self.server.address, timeout=SECONDS_MAX, retry=QUICK) as gpu:
                return await work(self.graph(gpu, await gpu.put(W1)))
        return asyncio.run(run())

    def check_graph(self, graph, x):
        """The graph that was sent keeps nothing, and its inputs are `x`, a handle, and B1 with data or without."""
        self.assertEqual([(each.name, each.tensor.data, bool(each.tensor.handle)) for each in graph.inputs],
                         [("x", x, False), ("input", b"", True), ("input_2", B1.tobytes() if x else b"", False)])
        self.assertEqual(list(graph.inputs[0].tensor.shape), [3, 8])
        self.assertEqual([(each.name, each.kernel, each.implementation) for each in graph.steps],
                         [("h", "linear", ""), ("y", "gelu", "cpu")])
        self.assertEqual([(each.name, each.keep, each.ttl_ns, each.label) for each in graph.outputs],
                         [("h", False, 0, ""), ("y", False, 0, "")])
        self.assertEqual(graph.device, "cpu:1")

    def test_a_graph_is_described_without_data(self):
        huge = np.broadcast_to(np.float32(0), (1 << 20, 8))  # takes no memory
        for described in (self.graph(self.gpu, self.gpu.put(W1)).describe(x=X, device="cpu:1", timeout=30),
                          self.by_asyncio(lambda f: f.describe(x=X, device="cpu:1", timeout=30))):
            self.check_graph(self.server.requests.pop(), b"")
            self.assertIsInstance(described, warpcall.GraphDescription)
            self.assertEqual(described.device, "cpu:1")
            step = described.steps[0]
            self.assertEqual((step.name, step.kernel, step.implementation, step.launch.flops, step.result_bytes),
                             ("h", "linear", "cpu", 7, 4096))
            self.assertEqual((step.is_intermediate, step.fuses_with, step.fused_saves_bytes), (True, "y", 8192))
            self.assertEqual((described.workspace_bytes, described.intermediate_bytes, described.launch.flops), (9, 4160, 14))
            self.assertEqual(repr(described), STEPS_TABLE.replace("cpu:0", "cpu:1"))
            self.assertEqual(described.to_dict()["steps"][1]["implementation"], "manual")
            self.assertIn("<th>fused saves</th>", described._repr_html_())
        g = self.gpu.graph()
        g.output(g.gelu(g.input("x")))
        g.build().describe(x=huge)
        self.assertEqual(list(self.server.requests[-1].inputs[0].tensor.shape), [1 << 20, 8])

    def test_a_profile_names_the_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            options = dict(x=X, iterations=7, trace=path, device="cpu:1", timeout=30)
            for make in (lambda: self.graph(self.gpu, self.gpu.put(W1)).profile(**options),
                         lambda: self.by_asyncio(lambda f: f.profile(**options))):
                profile = make()
                self.assertEqual(path.read_bytes(), b"{}")
                path.unlink()
                sent = self.server.profiles.pop()
                self.assertEqual((sent.iterations, sent.trace, sent.HasField("request")), (7, True, False))
                self.check_graph(sent.graph, X.tobytes())
                described = self.server.requests[-1]  # of the device that the profile names, without data
                self.assertEqual((described.device, described.inputs[0].tensor.data), ("cpu:0", b""))
                self.assertIsInstance(profile, warpcall.Profile)
                self.assertEqual([row.step for row in profile.rows], ["h", "y", "", ""])
                self.assertEqual((profile.figures.kernel_ns, profile.figures.least_bytes), (500_000, 2_000_000))
                self.assertEqual(profile.to_dict()["rows"][0]["step"], "h")
                text = repr(profile)
                self.assertTrue(text.startswith("graph x=3x8 on cpu:0, 2 iterations\n"), text)
                self.assertRegex(text, r"\nstep +name +kind +calls .*\nh +linear +kernel +2 .*\ny +gelu +kernel +2 "
                                       r".*\n- +idle +gap +2 ")

    def test_what_the_server_lost_is_put_again(self):
        for inspect in ("describe", "profile"):
            for by_asyncio in (False, True):
                self.server.requests.clear()
                self.server.lost = {f"handle{len(self.server.tensors)}": "expired"}  # the next one
                if by_asyncio:
                    self.by_asyncio(lambda f: getattr(f, inspect)(x=X))
                else:
                    getattr(self.graph(self.gpu, self.gpu.put(W1)), inspect)(x=X)
                first, second = (request.inputs[1].tensor.handle for request in self.server.requests[:2])
                self.assertIn(first, self.server.lost)
                self.assertNotIn(second, self.server.lost)

    def test_asyncios_errors_are_the_servers(self):
        for inspect in ("describe", "profile"):
            self.server.refusals = [(grpc.StatusCode.NOT_FOUND, 'kernel "" is unknown; available: gelu')]
            with self.assertRaisesRegex(warpcall.Unimplemented, "its version is too old"):
                self.by_asyncio(lambda f: getattr(f, inspect)(x=X))

    def test_wrong_calls_are_refused_with_names(self):
        f = self.graph(self.gpu, W1)
        for inspect in (f.describe, f.profile):
            with self.assertRaisesRegex(TypeError, 'the graph has no input "y"; it has x'):
                inspect(x=X, y=X)
            with self.assertRaisesRegex(TypeError, "no value for x"):
                inspect()
            with self.assertRaisesRegex(TypeError, 'no input "step_times"'):
                inspect(x=X, step_times=True)
            # A server that knows kernels alone says this.
            self.server.refusals = [(grpc.StatusCode.NOT_FOUND, 'kernel "" is unknown; available: gelu')]
            with self.assertRaisesRegex(warpcall.Unimplemented, "its version is too old"):
                inspect(x=X)
            self.server.refusals = [(grpc.StatusCode.NOT_FOUND, 'step "h": kernel "" is unknown')]
            with self.assertRaisesRegex(warpcall.NotFound, 'step "h": kernel'):
                inspect(x=X)
            self.server.refusals = [(grpc.StatusCode.INVALID_ARGUMENT, 'step "h": linear takes 3 inputs')]
            with self.assertRaisesRegex(warpcall.InvalidArgument, 'step "h": linear takes 3 inputs'):
                inspect(x=X)
        for name in ("trace", "iterations"):
            with self.assertRaisesRegex(warpcall.InvalidArgument, f'"{name}" has the name of an option'):
                self.gpu.graph().input(name)


class RealTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer("--resident_mib=1"))
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=SECONDS_MAX))

    def graph(self, weight):
        with self.gpu.graph() as g:
            h = g.linear(g.input("x"), weight, B1, activation="gelu", implementation="cpu", name="h")
            g.output(g.softmax(h, implementation="cpu"), "y")
        return g.build()

    def by_calls(self):
        h = self.gpu.linear(X, W1, B1, activation="gelu", implementation="cpu")
        return self.gpu.softmax(h, implementation="cpu")

    def test_a_graph_is_what_its_steps_are(self):
        with self.gpu.put(W1) as weight:
            y = self.graph(weight)(x=X, step_times=True)
        np.testing.assert_array_equal(y, self.by_calls())
        self.assertEqual([(row.name, row.kernel, row.implementation) for row in y.steps],
                         [("h", "linear", "cpu"), ("y", "softmax", "cpu")])
        for row in y.steps:
            self.assertGreater(row.kernel_ns, 0)
        self.assertEqual((y.resident_bytes, y.replayed), (W1.nbytes, False))
        self.assertGreaterEqual(y.intermediate_bytes, 3 * 5 * 4)

    def test_what_would_run_is_what_runs(self):
        with self.gpu.put(W1) as weight:
            f = self.graph(weight)
            described, y = f.describe(x=X), f(x=X)
            self.assertEqual([(step.name, step.kernel, step.implementation, step.is_intermediate)
                              for step in described.steps],
                             [("h", "linear", "cpu", True), ("y", "softmax", "cpu", False)])
            self.assertEqual([step.result_bytes for step in described.steps], [3 * 5 * 4] * 2)
            self.assertEqual((described.device, described.intermediate_bytes, described.launch.flops),
                             (y.device, y.intermediate_bytes, y.launch.flops))
            profile = f.profile(x=X, iterations=2)
        kernels = {row.step: row for row in profile.rows if row.kind == "kernel"}
        self.assertEqual(set(kernels), {"h", "y"})
        self.assertEqual((profile.iterations, [row.calls for row in kernels.values()]), (2, [2, 2]))
        self.assertEqual((profile.plan_missing, profile.figures.flops), ("", y.launch.flops))

    def test_what_the_server_lost_is_put_again(self):
        weight = self.gpu.put(W1, evictable=True)
        handle = weight.handle
        self.gpu.put(np.zeros(1 << 18, np.float32)).free()  # took all room
        np.testing.assert_array_equal(self.graph(weight)(x=X), self.by_calls())
        self.assertNotEqual(weight.handle, handle)
        weight.free()

    def test_fused_functions_and_kept_outputs(self):
        @warpcall.fuse
        def scaled(x, y):
            return x * 2 + y

        with self.gpu.graph() as g:
            y = scaled(g.input("x"), g.input("x2"))
            g.output(y, keep=True, label="kept")
            g.output(scaled(y, X))
        kept, sent = g.build()(x=X, x2=X)
        np.testing.assert_array_equal(sent, 2 * (2 * X + X) + X)
        np.testing.assert_array_equal(kept.resident.get(), 2 * X + X)
        self.assertEqual([each.label for each in self.gpu.tensors()], ["kept"])
        kept.resident.free()

    def test_errors_name_the_step(self):
        g = self.gpu.graph()
        g.output(g.linear(g.input("x"), W2, B1, name="wrong"))
        with self.assertRaisesRegex(warpcall.InvalidArgument, '^INVALID_ARGUMENT: step "wrong": '):
            g.build()(x=X)


class AioGraphTest(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(GraphServer())

    def run_with(self, work):
        async def run():
            async with warpcall.aio.connect(self.server.address, timeout=SECONDS_MAX, retry=QUICK) as gpu:
                return await work(gpu)
        return asyncio.run(run())

    async def function(self, gpu):
        weight = await gpu.put(W1)
        with gpu.graph() as g:
            h = g.linear(g.input("x"), weight, B1, activation="relu")
            g.output(g.linear(h, W2, B2), "y")
            g.output(h, keep=True)
        return g.build(), weight

    def test_a_call_is_awaited(self):
        async def work(gpu):
            f, _ = await self.function(gpu)
            return await f(x=X, step_times=True)

        y, h = self.run_with(work)
        np.testing.assert_array_equal(y, two_layers())
        self.assertEqual([row.kernel_ns for row in y.steps], [1500, 1500])
        self.assertIsInstance(h.resident, warpcall.aio.Resident)

    def test_a_lost_resident_is_put_again(self):
        async def work(gpu):
            f, weight = await self.function(gpu)
            self.server.lost = {weight.handle: "expired"}
            y, _ = await f(x=X)
            np.testing.assert_array_equal(y, two_layers())
            self.server.lost[weight.handle] = "expired"
            with self.assertRaisesRegex(warpcall.NotFound, "lost"):
                await f(x=X)

        self.run_with(work)
        self.assertEqual(len(self.server.requests), 3)

    def test_what_is_lost_again_in_one_call_is_said(self):
        async def work(gpu):
            f, weight = await self.function(gpu)
            self.server.lost = {f"handle{number}": "expired" for number in range(9)}
            with self.assertRaisesRegex(warpcall.NotFound, "the client had put it again in this call"):
                await f(x=X)
            self.assertEqual(weight.handle, f"handle{len(self.server.tensors) - 1}")

        self.run_with(work)
        self.assertEqual(len(self.server.requests), 2)

    def test_errors_are_the_servers(self):
        async def work(gpu):
            f, _ = await self.function(gpu)
            await f(x=X)

        self.server.refusals = [(grpc.StatusCode.UNIMPLEMENTED, "")]
        with self.assertRaisesRegex(warpcall.Unimplemented, "no method ExecuteGraph"):
            self.run_with(work)
        self.server.refusals = [(grpc.StatusCode.UNAVAILABLE, "busy")]
        self.run_with(work)


if __name__ == "__main__":
    main()
