#!/usr/bin/env python3
"""The Open Inference Protocol: NVIDIA Triton's Python client, unchanged, against the real server.

    inference_protocol_test.py SOURCE BUILD

Exit status 77: skipped, the client can't be had from PyPI.
"""

import pathlib
import queue
import subprocess
import sys
import threading
import unittest

import inference_protocol as support

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
support.enter(BUILD)

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import differential  # noqa: E402

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(12, dtype=np.float32).reshape(3, 4)
LIMIT_MIB = 4


def tensor(name, array, datatype="FP32"):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def raw_request(model="identity", *, array=X, **more):
    """A request by protobuf's own messages, since the client's classes refuse to send it."""
    request = service_pb2.ModelInferRequest(model_name=model, **more)
    if not request.inputs:
        request.inputs.add(name="x", datatype="FP32", shape=array.shape)
        if "raw_input_contents" not in more:
            request.raw_input_contents.append(array.tobytes())
    return request


class ProtocolTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off", "--test_fault_injection",
            "--lanes_per_device=1", f"--max_message_mib={LIMIT_MIB}"))
        cls.client = triton.InferenceServerClient(cls.server.address)
        cls.channel = cls.enterClassContext(grpc.insecure_channel(cls.server.address))
        cls.stub = service_pb2_grpc.GRPCInferenceServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0, cls.server.log_text()

    def infer(self, model, *inputs, **more):
        return self.client.infer(model, list(inputs), **more)

    def assert_refused(self, code, text, call):
        with self.assertRaises((InferenceServerException, grpc.RpcError)) as caught:
            call()
        error = caught.exception
        status, message = (str(error.status()), error.message()) if hasattr(error, "status") else \
            (f"StatusCode.{error.code().name}", error.details())
        self.assertEqual(status, f"StatusCode.{code}", message)
        self.assertIn(text, message)

    def assert_raw_refused(self, text, request, code="INVALID_ARGUMENT"):
        self.assert_refused(code, text, lambda: self.stub.ModelInfer(request))

    # ---- the contract ---------------------------------------------------------------------------

    def test_our_messages_have_the_names_and_numbers_of_tritons(self):
        out = BUILD / "tritonclient" / f"ours.{id(self)}.desc"
        subprocess.run(["protoc", f"-I{SOURCE / 'proto'}", "--include_imports", f"--descriptor_set_out={out}",
                        str(SOURCE / "proto" / "inference" / "grpc_service.proto")], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
        out.unlink()
        theirs = {}
        for module in (service_pb2, model_config_pb2):
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            self.collect(file, theirs)
        ours = {}
        for file in files:
            self.collect(file, ours)
        self.assertGreater(len(ours), 200)
        self.assertEqual({name: theirs.get(name) for name in ours}, ours)

    def collect(self, file, into):
        def fields(prefix, message):
            for field in message.field:
                if field.type_name.startswith(".inference.Model") or field.type_name:
                    kind = (field.type, field.type_name)
                else:
                    kind = (field.type,)
                into[f"{prefix}{message.name}.{field.name}"] = (field.number, field.label, *kind)
            for inner in message.nested_type:
                fields(f"{prefix}{message.name}.", inner)
        for message in file.message_type:
            fields("", message)
        for enum in file.enum_type:
            for value in enum.value:
                into[f"{enum.name}.{value.name}"] = value.number
        for service in file.service:
            for method in service.method:
                into[f"{service.name}.{method.name}"] = (method.input_type, method.output_type,
                                                         method.client_streaming)

    # ---- health and metadata --------------------------------------------------------------------

    def test_a_client_connects_when_it_asks_something(self):
        client = triton.InferenceServerClient("127.0.0.1:9")  # nobody listens there
        client.close()
        before = support.total(self.server, "warpcall_requests_total")
        with triton.InferenceServerClient(self.server.address) as client:
            self.assertTrue(client.is_server_live() and client.is_server_ready())
        self.assertEqual(support.total(self.server, "warpcall_requests_total"), before)

    def test_health_knows_the_service(self):
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check")
        service = b"inference.GRPCInferenceService"
        self.assertEqual(check(bytes([10, len(service)]) + service), bytes([8, 1]))  # SERVING

    def test_models_are_kernels_their_types_and_their_rows(self):
        for model in ("gelu", "gelu_fp32", "gelu_bf16__cpu", "softmax_fp16__reference"):
            self.assertTrue(self.client.is_model_ready(model), model)
            self.assertTrue(self.client.is_model_ready(model, "1"), model)
        for model, version in (("nosuch", ""), ("gelu_fp64", ""), ("gelu", "2"), ("gelu__cpu", "")):
            self.assertFalse(self.client.is_model_ready(model, version), model)
        with self.assertRaisesRegex(triton.InferenceServerException, '"x" is no number'):
            self.client.is_model_ready("gelu", "x")
        index = self.client.get_model_repository_index()
        names = [model.name for model in index.models]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({"gelu", "matmul_fp32", "rmsnorm_bf16__reference"}, set(names))
        self.assertEqual({(m.version, m.state, m.reason) for m in index.models if m.name == "gelu_fp32"},
                         {("1", "READY", "")})

    def test_server_metadata_advertises_what_works(self):
        metadata = self.client.get_server_metadata()
        self.assertEqual(metadata.name, "warpcall")
        self.assertRegex(metadata.version, r"^\d+\.\d+\.\d+$")
        self.assertEqual(set(metadata.extensions), {"model_repository", "model_configuration",
                                                    "binary_tensor_data", "parameters", "statistics"})

    def test_model_metadata_and_configuration_agree(self):
        shapes = {"gelu": ([("x", 2)], ("y", 2)), "matmul_fp16": ([("a", 2), ("b", 2)], ("c", 2)),
                  "layernorm_bf16": ([("x", 2), ("weight", 1), ("bias", 1)], ("y", 2)),
                  "linear": ([("x", 2), ("weight", 2), ("bias", 1)], ("y", 2)),
                  "fused": ([(f"x{i}", 2) for i in range(8)], ("y", 2))}
        types = {"gelu": ("FP32", "TYPE_FP32"), "matmul_fp16": ("FP16", "TYPE_FP16"),
                 "layernorm_bf16": ("BF16", "TYPE_BF16"), "linear": ("FP32", "TYPE_FP32"),
                 "fused": ("FP32", "TYPE_FP32")}
        for model, (inputs, output) in shapes.items():
            metadata = self.client.get_model_metadata(model)
            self.assertEqual((metadata.name, list(metadata.versions)), (model, ["1"]))
            self.assertEqual([(t.name, list(t.shape)) for t in metadata.inputs],
                             [(name, [-1] * rank) for name, rank in inputs], model)
            self.assertEqual([(t.name, list(t.shape)) for t in metadata.outputs],
                             [(output[0], [-1] * output[1])])
            self.assertEqual({t.datatype for t in metadata.inputs}, {types[model][0]})
            response = self.client.get_model_config(model)
            self.assertTrue(response.HasField("config"))
            config = response.config
            self.assertEqual((config.name, config.max_batch_size, config.platform),
                             (model, 0, "warpcall"))
            self.assertFalse(config.HasField("sequence_batching"))
            self.assertFalse(config.HasField("ensemble_scheduling"))
            self.assertEqual([(t.name, list(t.dims)) for t in config.input],
                             [(t.name, list(t.shape)) for t in metadata.inputs])
            self.assertEqual({model_config_pb2.DataType.Name(t.data_type)
                              for t in [*config.input, *config.output]}, {types[model][1]})
            self.assertEqual([t.optional for t in config.input],
                             [model == "fused" and i > 0 for i in range(len(inputs))])

    def test_what_there_is_not_is_refused_in_words(self):
        refused = "UNIMPLEMENTED"
        self.assert_refused(refused, "kernels are part of the server", lambda: self.client.load_model("gelu"))
        self.assert_refused(refused, "kernels are part", lambda: self.client.unload_model("gelu"))
        self.assert_refused(refused, "Profile", lambda: self.client.get_trace_settings())
        self.assert_refused(refused, "log_level", lambda: self.client.get_log_settings())
        unknown = "Request for unknown model: 'nosuch' is not found"
        for call in (lambda: self.client.get_model_metadata("nosuch"),
                     lambda: self.client.get_model_config("nosuch"),
                     lambda: self.client.get_inference_statistics("nosuch"),
                     lambda: self.infer("nosuch", tensor("x", X))):
            self.assert_refused("NOT_FOUND", unknown, call)

    # ---- ModelInfer -----------------------------------------------------------------------------

    def test_raw_tensors_of_every_type(self):
        result = self.infer("gelu_fp32", tensor("x", X), request_id="an id",
                            outputs=[triton.InferRequestedOutput("y")])
        response = result.get_response()
        self.assertEqual((response.id, response.model_name, response.model_version),
                         ("an id", "gelu_fp32", "1"))
        self.assertEqual([list(o.shape) for o in response.outputs], [[3, 4]])
        self.assertEqual(response.parameters["device"].string_param, "cpu")
        np.testing.assert_allclose(result.as_numpy("y"), differential.gelu(X, "tanh"), atol=1e-6)
        halves = X.astype(np.float16)
        result = self.infer("softmax", tensor("x", halves, "FP16"))
        self.assertEqual(result.get_output("y").datatype, "FP16")
        np.testing.assert_allclose(result.as_numpy("y"), differential.softmax(halves, -1), atol=1e-3)
        result = self.infer("identity_bf16", tensor("x", A, "BF16"))
        self.assertEqual(result.get_output("y").datatype, "BF16")
        np.testing.assert_array_equal(result.as_numpy("y"), A)

    def test_inputs_go_by_name_and_results_are_the_same_as_executes(self):
        for inputs in ([tensor("a", A), tensor("b", B)], [tensor("b", B), tensor("a", A)]):
            result = self.infer("matmul", *inputs)
            np.testing.assert_array_equal(result.as_numpy("c"), A @ B)

    def test_parameters_are_attributes_of_any_type_that_holds_them(self):
        for axis in (0, "0"):
            result = self.infer("softmax", tensor("x", X), parameters={"axis": axis})
            np.testing.assert_allclose(result.as_numpy("y"), differential.softmax(X, 0), atol=1e-6)
        ones = np.ones(4, np.float32)
        results = [self.infer("rmsnorm", tensor("x", X), tensor("weight", ones), parameters={"epsilon": eps})
                   .as_numpy("y") for eps in (1.0, "1.0", 1)]
        np.testing.assert_allclose(results[0], X / np.sqrt((X**2).mean(-1, keepdims=True) + 1), rtol=1e-5)
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        turned = self.infer("matmul", tensor("a", A.T.copy()), tensor("b", B),
                            parameters={"transpose_a": "true"})
        np.testing.assert_array_equal(turned.as_numpy("c"), A @ B)
        for parameters, text in (({"axsi": 1}, 'attribute "axsi" is unknown'), ({"axis": "x"}, "whole number"),
                                 ({"axis": 0.5}, "whole number"), ({"axis": True}, "whole number")):
            self.assert_refused("INVALID_ARGUMENT", text,
                                lambda p=parameters: self.infer("softmax", tensor("x", X), parameters=p))

    def test_implementation_and_device(self):
        def ran(model, **parameters):
            response = self.infer(model, tensor("x", X), parameters=parameters).get_response()
            return ":".join(response.parameters[name].string_param for name in ("implementation", "variant"))
        self.assertEqual(ran("gelu", implementation="reference"), "reference:float64")
        self.assertEqual(ran("gelu_fp32__reference", device="cpu"), "reference:float64")
        self.assertEqual(ran("gelu_fp32__float64", implementation="float64"), "reference:float64")
        self.assertEqual(ran("gelu_fp32__reference", implementation="auto"), "reference:float64")
        self.assertNotEqual(ran("gelu_fp32"), "reference:float64")
        self.assert_refused("INVALID_ARGUMENT", "leave it out",
                            lambda: ran("gelu_fp32__reference", implementation="cpu"))
        self.assert_refused("NOT_FOUND", "available: ", lambda: ran("gelu", implementation="nosuch"))
        self.assert_refused("NOT_FOUND", "cpu", lambda: ran("gelu", device="cuda:9"))

    def test_outputs_are_all_unless_some_are_named(self):
        self.assertEqual([o.name for o in self.infer("matmul", tensor("a", A), tensor("b", B))
                          .get_response().outputs], ["c"])
        wanted = triton.InferRequestedOutput
        for outputs, text in (([wanted("z")], "outputs: y"), ([wanted("y"), wanted("y")], "given twice"),
                              ([wanted("y", class_count=2)], "classification")):
            self.assert_refused("INVALID_ARGUMENT", text,
                                lambda o=outputs: self.infer("gelu", tensor("x", X), outputs=o))

    def test_typed_contents(self):
        request = raw_request("gelu", raw_input_contents=[])
        request.inputs[0].contents.fp32_contents.extend(X.flatten().tolist())
        response = self.stub.ModelInfer(request)
        self.assertEqual(response.raw_output_contents[0],
                         self.infer("gelu", tensor("x", X)).get_response().raw_output_contents[0])
        large = raw_request("identity", array=np.ones(1 << 18, np.float32), raw_input_contents=[])
        large.inputs[0].contents.fp32_contents.extend([1.0] * (1 << 18))
        self.assertEqual(len(self.stub.ModelInfer(large).raw_output_contents[0]), 1 << 20)
        request.raw_input_contents.append(X.tobytes())
        self.assert_raw_refused("must not be specified", request)
        integers = service_pb2.ModelInferRequest(model_name="identity")
        integers.inputs.add(name="x", datatype="INT8", shape=[2]).contents.int_contents.extend([1, 2])
        self.assert_raw_refused('datatype "INT8" is taken by no kernel', integers)
        integers.inputs[0].datatype = "FP16"
        self.assert_raw_refused("contents of another", integers)

    def test_inputs_that_are_not_as_they_must_be(self):
        both = raw_request("matmul", array=A)
        both.inputs[0].name = "a"
        self.assert_raw_refused("'b' of model 'matmul' is missing", both)
        both.inputs.add(name="a", datatype="FP32", shape=A.shape)
        self.assert_raw_refused("given twice", both)
        both.inputs[1].name = "z"
        self.assert_raw_refused("inputs: a, b", both)
        for change, text in (({"raw_input_contents": []}, "has no data"),
                             ({"raw_input_contents": [b"", b""]}, "has 2 entries"),
                             ({"raw_input_contents": [b"1234"]}, "has 4 bytes of data, but"),
                             ({"model_version": "x"}, "is no number"),
                             ({"id": "i" * 257}, "257 bytes")):
            self.assert_raw_refused(text, raw_request(**change))
        self.assert_raw_refused("version 2 is not found", raw_request(model_version="2"), "NOT_FOUND")
        self.assert_raw_refused("takes FP16", raw_request("gelu_fp16"))
        self.assertEqual(self.stub.ModelInfer(raw_request(model_version="1")).model_version, "1")
        self.assertEqual(self.stub.ModelInfer(raw_request()).id, "")

    def test_shapes_at_the_edge(self):
        empty = self.infer("identity", tensor("x", np.zeros((0, 4), np.float32)))
        self.assertEqual(list(empty.get_output("y").shape), [0, 4])
        self.assertEqual(list(empty.get_response().raw_output_contents), [b""])
        for shape, text in (([], "rank is 0"), ([1 << 40, 1 << 40], "overflows"), ([-1, 4], "dimension"),
                            ([1] * 9, "rank is 9")):
            request = raw_request()
            del request.inputs[0].shape[:]
            request.inputs[0].shape.extend(shape)
            self.assert_raw_refused(text, request)

    def test_parameters_of_triton(self):
        for key, value in (("priority", 5), ("timeout", 5_000_000), ("timeout", 0), ("sequence_id", 0),
                           ("sequence_start", False), ("triton_enable_empty_final_response", False)):
            request = raw_request()
            kind = "bool_param" if isinstance(value, bool) else "int64_param"
            setattr(request.parameters[key], kind, value)
            self.assertEqual(self.stub.ModelInfer(request).outputs[0].name, "y", key)
        request = raw_request()
        request.parameters["priority"].uint64_param = (1 << 64) - 1
        self.assertEqual(self.stub.ModelInfer(request).outputs[0].name, "y")
        for key, kind, value in (("timeout", "int64_param", -1), ("timeout", "bool_param", True),
                                 ("priority", "double_param", 1), ("sequence_id", "int64_param", 7),
                                 ("triton_other", "bool_param", True), ("device", "int64_param", 0)):
            request = raw_request()
            setattr(request.parameters[key], kind, value)
            self.assert_raw_refused(key, request)

    def test_a_thousand_at_a_time_are_each_answered_once(self):
        answers = queue.Queue()
        for i in range(1000):
            self.client.async_infer("identity", [tensor("x", np.full((1, 2), i, np.float32))],
                                    callback=lambda result, error: answers.put((result, error)),
                                    request_id=str(i))
        seen = {}
        for _ in range(1000):
            result, error = answers.get(timeout=support.SECONDS_MAX)
            self.assertIsNone(error)
            seen[int(result.get_response().id)] = result.as_numpy("y")[0, 0]
        self.assertEqual(seen, {i: i for i in range(1000)})

    def test_compressed_requests(self):
        zeros = np.zeros((100, 1000), np.float32)
        for algorithm in ("gzip", "deflate"):
            result = self.infer("identity", tensor("x", zeros), compression_algorithm=algorithm)
            np.testing.assert_array_equal(result.as_numpy("y"), zeros)

    def test_a_message_beyond_the_limit_is_refused_and_the_server_lives(self):
        large = np.zeros((LIMIT_MIB << 18) + (1 << 16), np.float32)
        self.assert_refused("RESOURCE_EXHAUSTED", "max_message_mib",
                            lambda: self.infer("identity", tensor("x", large)))
        self.assertTrue(self.client.is_server_ready())

    def test_a_deadline_that_passes_in_the_queue(self):
        gate = support.Gate(self)
        self.client.async_infer("held", [tensor("x", X)], callback=lambda result, error: None,
                                parameters={"gate": gate.path})
        support.eventually(lambda: support.total(self.server, "warpcall_staging_bytes", 'state="used"') > 0)
        before = support.total(self.server, "warpcall_kernel_duration_seconds_count", 'kernel="held"')
        self.assert_refused("DEADLINE_EXCEEDED", "", lambda: self.infer(
            "held", tensor("x", X), parameters={"gate": gate.path}, client_timeout=0.05))
        self.assert_refused("DEADLINE_EXCEEDED", "", lambda: self.infer(
            "held", tensor("x", X), parameters={"gate": gate.path}, timeout=50_000))
        gate.open()
        counted = lambda: support.total(self.server, "warpcall_kernel_duration_seconds_count",
                                        'kernel="held"') - before
        support.eventually(lambda: counted() == 1)
        # Requests past their deadline were not launched.
        self.infer("held", tensor("x", X))
        support.eventually(lambda: counted() == 2)

    # ---- statistics and metrics -----------------------------------------------------------------

    def test_statistics_grow_by_what_was_asked(self):
        def read(model):
            (found,) = self.client.get_inference_statistics(model).model_stats
            return found
        before = read("layernorm_fp32")
        ones = np.ones(4, np.float32)
        inputs = [tensor("x", X), tensor("weight", ones), tensor("bias", ones)]
        for _ in range(3):
            self.infer("layernorm_fp32", *inputs)
        self.assert_refused("INVALID_ARGUMENT", "missing", lambda: self.infer("layernorm_fp32", *inputs[:2]))
        after = read("layernorm_fp32")
        self.assertEqual((after.name, after.version), ("layernorm_fp32", "1"))
        self.assertEqual(after.inference_count - before.inference_count, 3)
        self.assertEqual(after.execution_count - before.execution_count, 3)
        counts = lambda s: [getattr(s.inference_stats, part).count for part in
                            ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")]
        self.assertEqual(np.subtract(counts(after), counts(before)).tolist(), [3, 1, 4, 3, 3, 3])
        self.assertGreater(after.inference_stats.compute_infer.ns, before.inference_stats.compute_infer.ns)
        self.assertGreaterEqual(after.inference_stats.success.ns, sum(
            getattr(after.inference_stats, part).ns
            for part in ("compute_input", "compute_infer", "compute_output")))
        self.assertGreater(after.last_inference, 1_600_000_000_000)
        self.assertEqual(after.batch_stats[0].batch_size, 1)
        self.assertEqual([s.name for s in self.client.get_inference_statistics().model_stats
                          if s.name.startswith("layernorm")], ["layernorm_fp32"])

    def test_requests_are_counted_as_executes_once_each(self):
        counted = lambda code: support.total(self.server, "warpcall_requests_total", 'kernel="linear"',
                                             f'code="{code}"')
        weight, bias = np.ones((4, 4), np.float32), np.ones(4, np.float32)
        before = counted("OK"), counted("INVALID_ARGUMENT")
        copied_out = lambda: support.total(self.server, "warpcall_host_copy_bytes_total", 'where="copy_out"')
        copies = copied_out()
        self.infer("linear", tensor("x", X), tensor("weight", weight), tensor("bias", bias))
        self.assert_refused("INVALID_ARGUMENT", "", lambda: self.infer(
            "linear", tensor("x", X), tensor("weight", weight[:1]), tensor("bias", bias)))
        self.assertEqual((counted("OK"), counted("INVALID_ARGUMENT")), (before[0] + 1, before[1] + 1))
        self.assertEqual(copied_out(), copies)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
