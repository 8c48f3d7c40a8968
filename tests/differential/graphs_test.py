#!/usr/bin/env python3
"""ExecuteGraph of a real server, seen by an independent client: random graphs beside NumPy, and what is refused.

    graphs_test.py BUILD_FOLDER

WARPCALL_TEST_SEED repeats a run's graphs, WARPCALL_TEST_REQUESTS says how many there are. Exit status 77: skipped,
Debian's packages for Python are missing.
"""

import json
import os
import random
import sys
import tempfile
import unittest

SKIPPED = 77
SANITIZED = os.environ.get("WARPCALL_TEST_SANITIZED") == "1"
REQUESTS = int(os.environ.get("WARPCALL_TEST_REQUESTS", 200 if SANITIZED else 2000))
SEED = int(os.environ.get("WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 30)))

sys.dont_write_bytecode = True
try:
    import grpc
    import numpy as np
    from differential import FLOAT32, Client, Server, eventually, load_messages
    from graphs import Graph
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(SKIPPED)

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


class GraphsTest(unittest.TestCase):
    pack = ""

    @classmethod
    def setUpClass(cls):
        cls.messages = load_messages(cls.pack)
        cls.server = Server(cls.pack, "--devices=cpu", "--self_test=off")
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = Client(cls.server.address, cls.messages)
        cls.addClassCleanup(cls.client.channel.close)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        if status != 0:
            raise AssertionError(f"the server ended with {status}: {cls.server.log_text()}")

    def run_random(self, seed):
        """One random graph; None, or what is wrong."""
        graph = Graph(random.Random(seed), np.random.default_rng(seed))
        handles = {name: self.client.put(graph.data_type, graph.shapes[name], graph.data[name]).handle
                   for name in graph.resident}
        response = self.client.execute_graph(graph.request(self.messages, handles))
        wrong = graph.check(response, self.client.get)
        kept = [output.handle for output in response.outputs if output.handle]
        if handles or kept:
            self.client.free(*handles.values(), *kept)
        return wrong, len(graph.steps)

    def test_random_graphs(self):
        steps = 0
        for number in range(REQUESTS):
            seed = SEED + number
            try:
                wrong, count = self.run_random(seed)
            except grpc.RpcError as error:
                self.fail(f"WARPCALL_TEST_SEED={seed}: {error.code()}: {error.details()}")
            self.assertIsNone(wrong, f"WARPCALL_TEST_SEED={seed} WARPCALL_TEST_REQUESTS=1")
            steps += count
        print(f"  {REQUESTS} graphs of {steps} steps")
        metrics = self.server.metrics()
        answered = sum(value for name, value in metrics.items()
                       if name.startswith("warpcall_requests_total{") and 'kernel="graph"' in name)
        self.assertGreaterEqual(answered, REQUESTS)
        self.assertEqual(metrics['warpcall_resident_bytes{device="cpu",state="used"}'], 0)

    # ---- what is refused ------------------------------------------------------------------------

    def request(self):
        """gelu, then softmax, of a tensor of 2 x 3."""
        request = self.messages.ExecuteGraphRequest()
        tensor = request.inputs.add(name="x").tensor
        tensor.data_type, tensor.data = FLOAT32, np.arange(6, dtype=np.float32).tobytes()
        tensor.shape.extend([2, 3])
        request.steps.add(name="h", kernel="gelu", inputs=["x"])
        request.steps.add(name="y", kernel="softmax", inputs=["h"])
        request.outputs.add(name="y")
        return request

    def refused(self, code, message, change):
        request = self.request()
        change(request)
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.execute_graph(request)
        self.assertEqual((raised.exception.code(), raised.exception.details()), (code, message))

    def test_the_request_that_the_refused_ones_change_is_right(self):
        response = self.client.execute_graph(self.request())
        values = np.frombuffer(response.outputs[0].data, np.float32).reshape(2, 3)
        np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-6)
        self.assertEqual((response.device, response.replayed, response.resident_bytes), ("cpu", False, 0))
        self.assertEqual(response.intermediate_bytes, 256)
        self.assertRegex(response.request_id, "^warpcall-")
        self.assertGreater(response.timing.kernel_ns, 0)
        self.assertEqual([step.launch.flops > 0 for step in response.steps], [True, True])

    def test_steps_that_are_alike_but_for_their_implementation(self):
        request = self.request()
        request.steps[1].kernel = "gelu"
        request.steps[1].inputs[0] = "x"
        request.steps[1].implementation = "reference"
        request.outputs.add(name="h")
        implementations = [step.implementation for step in self.client.execute_graph(request).steps]
        self.assertNotEqual(implementations[0], "reference")
        self.assertEqual(implementations[1], "reference")

    def test_names(self):
        rule = ('names have 1 to 63 of A-Z, a-z, 0-9, "_", "." and "-", the first a letter or "_"')
        for name in ("", "1x", "a b", "-", "x" * 64, "ä"):
            def change(request, name=name):
                request.inputs[0].name = name
            shown = "".join(c if c.isascii() else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in name[:63])
            self.refused(INVALID, f'input "{shown}": the name has {len(name.encode())} bytes; {rule}', change)
        def twice(request):
            request.steps[1].name = "x"
        self.refused(INVALID, 'step "x": the name stands for an input or a step before it already', twice)

    def test_order_and_uses(self):
        def later(request):
            request.steps[0].inputs[0] = "y"
        self.refused(INVALID, 'step "h": it reads "y", which is no input and no earlier step', later)
        def itself(request):
            request.steps[0].inputs[0] = "h"
        self.refused(INVALID, 'step "h": it reads "h", which is no input and no earlier step', itself)
        def unread(request):
            request.inputs.add(name="z").tensor.CopyFrom(request.inputs[0].tensor)
        self.refused(INVALID, 'input "z": no step reads it', unread)
        def unneeded(request):
            request.steps.add(name="z", kernel="gelu", inputs=["h"])
        self.refused(INVALID, 'step "z": no output needs it', unneeded)

    def test_outputs(self):
        def unknown(request):
            request.outputs[0].name = "z"
        self.refused(INVALID, 'output "z": no step has this name', unknown)
        def is_input(request):
            request.outputs[0].name = "x"
        self.refused(INVALID, 'output "x": it is an input; an output is the result of a step', is_input)
        def twice(request):
            request.outputs.add(name="h")
            request.outputs.add(name="h")
        self.refused(INVALID, "the graph has 3 outputs; it takes 1 to 2", twice)
        def again(request):
            request.outputs.add(name="y")
        self.refused(INVALID, 'output "y": it is an output already; each is one once', again)
        def label(request):
            request.outputs[0].label = "w"
        self.refused(INVALID, 'output "y": it has a time to live or a label, and no keep', label)
        def none(request):
            del request.outputs[:]
        self.refused(INVALID, "the graph has 0 outputs; it takes 1 to 2", none)

    def test_limits(self):
        def steps(request):
            for number in range(255):
                request.steps.add(name=f"s{number}", kernel="gelu", inputs=["x"])
        self.refused(INVALID, "the graph has 257 steps; it takes 1 to 256", steps)
        def inputs(request):
            for number in range(64):
                request.inputs.add(name=f"i{number}")
        self.refused(INVALID, "the graph has 65 inputs; it takes 1 to 64", inputs)

    def test_a_step_that_its_kernel_refuses(self):
        def unknown(request):
            request.steps[1].kernel = "graph"
        with self.assertRaises(grpc.RpcError) as raised:
            request = self.request()
            unknown(request)
            self.client.execute_graph(request)
        self.assertEqual(raised.exception.code(), NOT_FOUND)
        self.assertRegex(raised.exception.details(), '^step "y": kernel "graph" is unknown; available: .*gelu')
        self.assertNotRegex(raised.exception.details(), "there are.*graph")
        def attribute(request):
            request.steps[1].attributes["axis"].int_value = 2
        with self.assertRaisesRegex(grpc.RpcError, '(?s)step "y": .*axis'):
            request = self.request()
            attribute(request)
            self.client.execute_graph(request)
        for implementation in ("none", "cuda"):
            with self.assertRaisesRegex(grpc.RpcError, '(?s)step "y": '):
                request = self.request()
                request.steps[1].implementation = implementation
                self.client.execute_graph(request)

    def test_a_policy_counts_for_every_step(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as policies:
            json.dump({"default": {"methods": ["ExecuteGraph"], "kernels": ["gelu", "softmax"],
                                   "implementations": ["cpu", "manual", "online"]}}, policies)
            policies.flush()
            with Server(self.pack, "--devices=cpu", "--self_test=off", f"--policy_file={policies.name}") as server:
                client = Client(server.address, self.messages)
                self.addCleanup(client.channel.close)
                response = client.execute_graph(self.request())
                self.assertTrue({step.implementation for step in response.steps} <= {"cpu", "manual"})
                for change, label in ((lambda step: setattr(step, "kernel", "identity"), "y"),
                                      (lambda step: setattr(step, "implementation", "reference"), "y")):
                    request = self.request()
                    change(request.steps[1])
                    with self.assertRaises(grpc.RpcError) as raised:
                        client.execute_graph(request)
                    self.assertEqual(raised.exception.code(), grpc.StatusCode.PERMISSION_DENIED)
                    self.assertIn(f'step "{label}": ', raised.exception.details())
                self.assertEqual(server.stop(), 0)

    def test_intermediate_results_have_a_limit(self):
        with Server(self.pack, "--devices=cpu", "--self_test=off", "--graph_mib=1") as server:
            client = Client(server.address, self.messages)
            self.addCleanup(client.channel.close)
            request = self.request()
            del request.inputs[0].tensor.shape[:]
            request.inputs[0].tensor.shape.extend([1 << 18])
            request.inputs[0].tensor.data = bytes(1 << 20)
            self.assertEqual(client.execute_graph(request).intermediate_bytes, 1 << 20)
            request.inputs[0].tensor.shape[0] += 1
            request.inputs[0].tensor.data += bytes(4)
            with self.assertRaises(grpc.RpcError) as raised:
                client.execute_graph(request)
            self.assertEqual(raised.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(raised.exception.details(), "the graph's intermediate results take 1048832 bytes; the "
                                                         "limit is 1048576 (graph_mib)")
            self.assertEqual(server.stop(), 0)

    def test_a_deadline_ends_a_graph_between_its_steps(self):
        request = self.messages.ExecuteGraphRequest()
        tensor = request.inputs.add(name="x").tensor
        tensor.data_type, tensor.data = FLOAT32, np.full((256, 256), 2**-8, np.float32).tobytes()
        tensor.shape.extend([256, 256])
        before = "x"
        for number in range(250):  # by the slowest row there is
            name = f"s{number}"
            request.steps.add(name=name, kernel="matmul", inputs=[before, "x"], implementation="reference")
            before = name
        request.outputs.add(name=before)
        ended = lambda: sum(value for name, value in self.server.metrics().items() if 'code="DEADLINE_EXCEEDED"' in name
                            and name.startswith("warpcall_requests_total{") and 'kernel="graph"' in name)
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.execute_graph(request, timeout=0.5)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertTrue(eventually(lambda: ended() >= 1))
        self.client.execute_graph(self.request(), timeout=60)

    # ---- inspections ----------------------------------------------------------------------------

    def described(self, change=lambda graph: None):
        request = self.messages.DescribeRequest(graph=self.request())
        request.graph.inputs[0].tensor.ClearField("data")
        change(request)
        return self.client.describe(request)

    def test_describe(self):
        handle = self.client.put(FLOAT32, [2, 3], bytes(24)).handle
        def by_handle(request):
            del request.graph.inputs[0].tensor.shape[:]
            request.graph.inputs[0].tensor.data_type = 0
            request.graph.inputs[0].tensor.handle = handle
        for response in (self.described(), self.described(by_handle)):
            facts = [(step.name, step.kernel, step.result_bytes, step.is_intermediate, step.fuses_with,
                      step.fused_saves_bytes) for step in response.steps]
            self.assertEqual(facts, [("h", "gelu", 24, True, "y", 48), ("y", "softmax", 24, False, "", 0)])
            self.assertTrue({step.implementation for step in response.steps} <= {"cpu", "manual", "library"})
            self.assertEqual((response.device, response.intermediate_bytes, response.implementation), ("cpu", 256, ""))
            self.assertEqual(response.launch.bytes_moved, 4 * 24)
            self.assertEqual([step.launch.bytes_moved for step in response.steps], [48, 48])
        self.assertEqual(self.client.free(handle).bytes, 24)

    def test_describe_says_what_no_fused_step_would_save(self):
        def two_readers(request):
            request.graph.steps.add(name="z", kernel="gelu", inputs=["h"])
            request.graph.outputs.add(name="z")
        def another_axis(request):
            request.graph.steps[1].attributes["axis"].int_value = 0
        def output(request):
            request.graph.outputs.add(name="h")
        def product(request):
            request.graph.steps[1].kernel = "matmul"
            request.graph.steps[1].inputs.append("h")
            request.graph.steps[1].attributes["transpose_b"].bool_value = True
        for change in (two_readers, another_axis, output, product):
            self.assertEqual([step.fuses_with for step in self.described(change).steps][:2], ["", ""], change)

    def test_profile(self):
        handle = self.client.put(FLOAT32, [2, 3], bytes(24)).handle
        for by_handle in (False, True):
            request = self.messages.ProfileRequest(graph=self.request(), iterations=3, trace=True)
            if by_handle:
                request.graph.inputs[0].tensor.Clear()
                request.graph.inputs[0].tensor.handle = handle
            response = self.client.profile(request)
            rows = {(row.step, row.name, row.calls) for row in response.rows if row.kind == "kernel"}
            self.assertEqual(rows, {("h", "gelu", 3), ("y", "softmax", 3)})
            self.assertEqual((response.iterations, response.device), (3, "cpu"))
            names = [event["name"] for event in json.loads(response.trace_json)["traceEvents"]]
            self.assertEqual((names.count("h: gelu"), names.count("y: softmax")), (3, 3))
        self.assertEqual(self.client.free(handle).bytes, 24)

    def test_inspections_that_are_refused(self):
        def refused(code, message, call):
            with self.assertRaises(grpc.RpcError) as raised:
                call()
            self.assertEqual((raised.exception.code(), raised.exception.details()), (code, message))
        def data(request):
            request.graph.inputs[0].tensor.data = bytes(24)
        refused(INVALID, 'input "x" has 24 bytes of data; Describe takes a type and a shape, or a handle',
                lambda: self.described(data))
        def kernel(request):
            request.kernel = "gelu"
        refused(INVALID, "a request with a graph must leave kernel, implementation, inputs, attributes and device "
                         "empty; the graph has its own", lambda: self.described(kernel))
        def unneeded(request):
            request.graph.steps.add(name="z", kernel="gelu", inputs=["h"])
        refused(INVALID, 'step "z": no output needs it', lambda: self.described(unneeded))
        profile = lambda **fields: self.client.profile(self.messages.ProfileRequest(graph=graph, **fields))
        graph = self.request()
        graph.outputs[0].keep = True
        refused(INVALID, 'output "y": keep is true; Profile keeps no outputs', profile)
        graph = self.request()
        refused(INVALID, "there are a request and a graph; one must be absent",
                lambda: profile(request=self.messages.ExecuteRequest(kernel="gelu")))
        specs = [{"data_type": FLOAT32, "shape": [2, 3]}]
        refused(INVALID, "there are 1 input_specs; the inputs of a graph have data, or are handles",
                lambda: profile(input_specs=specs))
        graph.inputs[0].tensor.data = b"1234"
        refused(INVALID, 'input "x": 4 bytes of data, but float32[2,3] takes 24', profile)

    def test_data_and_handles(self):
        def short(request):
            request.inputs[0].tensor.data = b"1234"
        self.refused(INVALID, 'input "x": 4 bytes of data, but float32[2,3] takes 24', short)
        def both(request):
            request.inputs[0].tensor.handle = "h"
        self.refused(INVALID, 'input "x" has both a handle and 24 bytes of data', both)
        def untyped(request):
            request.inputs[0].tensor.data_type = 9
        self.refused(INVALID, 'input "x": data type 9 is unknown; known: 1 (float32), 2 (float16), 3 (bfloat16)',
                     untyped)
        def device(request):
            request.device = "cuda:7"
        self.refused(NOT_FOUND, 'device "cuda:7" does not exist; available: cpu', device)


if __name__ == "__main__":
    GraphsTest.pack = sys.argv.pop(1)
    unittest.main()
