#!/usr/bin/env python3
"""ModelStreamInfer, tokens and TLS of the Open Inference Protocol: NVIDIA Triton's Python client, unchanged,
against the real server.

    inference_stream_test.py SOURCE BUILD

Exit status 77: skipped, the client can't be had from PyPI.
"""

import os
import pathlib
import queue
import subprocess
import sys
import unittest

import inference_protocol as support

BUILD = pathlib.Path(sys.argv[2]).resolve()
support.enter(BUILD)

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import tritonclient.grpc as triton  # noqa: E402
from tritonclient.grpc import service_pb2, service_pb2_grpc  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

import differential  # noqa: E402

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
TOKEN = "alice-0123456789abcdef"


def tensor(name, array):
    made = triton.InferInput(name, list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return made


def request(model, number, **parameters):
    made = service_pb2.ModelInferRequest(model_name=model, id=str(number))
    made.inputs.add(name="x", datatype="FP32", shape=[1])
    made.raw_input_contents.append(np.float32(number).tobytes())
    for name, value in parameters.items():
        made.parameters[name].string_param = value
    return made


def serve(test, *flags):
    return test.enterContext(differential.Server(
        str(BUILD), "--devices=cpu", "--self_test=off", "--test_fault_injection", "--lanes_per_device=1",
        *flags))


class StreamTest(unittest.TestCase):
    def setUp(self):
        self.server = serve(self)
        self.channel = self.enterContext(grpc.insecure_channel(self.server.address))
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def tearDown(self):
        self.channel.close()
        self.assertEqual(self.server.stop(), 0)

    def counted(self, code):
        return support.total(self.server, "warpcall_requests_total", f'code="{code}"')

    def test_answers_come_in_the_order_of_the_requests(self):
        requests = [request("gelu_fp32" if i % 3 else "identity", i) for i in range(200)]
        answers = list(self.stub.ModelStreamInfer(iter(requests)))
        self.assertEqual([a.infer_response.id for a in answers], [str(i) for i in range(200)])
        self.assertEqual({a.error_message for a in answers}, {""})
        for i in range(0, 200, 3):
            self.assertEqual(np.frombuffer(answers[i].infer_response.raw_output_contents[0], np.float32), i)
        self.assertTrue(all(a.infer_response.parameters["triton_final_response"].bool_param
                            for a in answers))
        self.assertEqual(self.counted("OK"), 200)

    def test_a_later_one_that_is_done_waits_for_an_earlier_one(self):
        gate = support.Gate(self)
        answers = self.stub.ModelStreamInfer(iter([
            request("held", 0, gate=gate.path), request("nosuch", 1), request("identity", 2)]))
        support.eventually(lambda: self.counted("NOT_FOUND") == 1)
        gate.open()
        self.assertEqual([a.infer_response.id for a in answers], ["0", "1", "2"])

    def test_one_that_fails_says_so_and_the_stream_goes_on(self):
        wrong = request("identity", 1)
        wrong.raw_input_contents[0] = b"123"
        answers = list(self.stub.ModelStreamInfer(iter(
            [request("identity", 0), wrong, request("nosuch", 2), request("identity", 3)])))
        self.assertEqual([a.infer_response.id for a in answers], ["0", "1", "2", "3"])
        self.assertIn("has 3 bytes of data", answers[1].error_message)
        self.assertIn("unknown model: 'nosuch'", answers[2].error_message)
        self.assertEqual([bool(a.error_message) for a in answers], [False, True, True, False])
        self.assertEqual((self.counted("OK"), self.counted("INVALID_ARGUMENT"), self.counted("NOT_FOUND")),
                         (2, 1, 1))

    def test_with_triton_grpc_error_the_first_that_fails_ends_it(self):
        answers = self.stub.ModelStreamInfer(
            iter([request("identity", 0), request("nosuch", 1), request("identity", 2)]),
            metadata=[("triton_grpc_error", "true")])
        self.assertEqual(next(answers).infer_response.id, "0")
        with self.assertRaises(grpc.RpcError) as caught:
            next(answers)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertIn("'nosuch'", caught.exception.details())

    def test_a_stream_that_is_cancelled_leaves_nothing_behind(self):
        gate = support.Gate(self)
        more = queue.Queue()
        for i in range(4):
            more.put(request("held", i, gate=gate.path))
        answers = self.stub.ModelStreamInfer(iter(more.get, None))
        used = lambda: support.total(self.server, "warpcall_staging_bytes", 'state="used"')
        waiting = lambda: support.total(self.server, "warpcall_queue_depth")
        support.eventually(lambda: used() > 0 and waiting() == 3)  # all four have come
        answers.cancel()
        support.eventually(lambda: self.counted("CANCELLED") == 4)
        more.put(None)
        gate.open()
        support.eventually(lambda: used() == 0)
        self.assertEqual(self.stub.ModelInfer(request("identity", 5)).id, "5")

    def test_the_clients_own_stream(self):
        answers = queue.Queue()
        with triton.InferenceServerClient(self.server.address) as client:
            client.start_stream(callback=lambda result, error: answers.put((result, error)))
            for i in range(20):
                client.async_stream_infer("gelu", [tensor("x", X)], request_id=str(i),
                                          enable_empty_final_response=True)
            client.async_stream_infer("gelu", [tensor("z", X)], request_id="20")
            results = [answers.get(timeout=support.SECONDS_MAX) for _ in range(21)]
            client.stop_stream()
        self.assertEqual([result.get_response().id for result, _ in results[:20]],
                         [str(i) for i in range(20)])
        np.testing.assert_allclose(results[7][0].as_numpy("y"), differential.gelu(X, "tanh"), atol=1e-6)
        self.assertIsInstance(results[20][1], InferenceServerException)
        self.assertIn("unexpected inference input 'z'", results[20][1].message())

    def test_a_stream_that_stays_open_ends_with_the_drain(self):
        server = serve(self, "--drain_seconds=1")
        more = queue.Queue()
        with grpc.insecure_channel(server.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            answers = stub.ModelStreamInfer(iter(more.get, None))
            more.put(request("identity", 0))
            self.assertEqual(next(answers).infer_response.id, "0")
            self.assertEqual(server.stop(), 3)
            with self.assertRaises(grpc.RpcError) as caught:
                next(answers)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            more.put(None)


class CallerTest(unittest.TestCase):
    def test_tls_is_the_ports(self):
        folder = self.enterContext(support.tempfile.TemporaryDirectory())
        key, certificate = (os.path.join(folder, name) for name in ("key", "certificate"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-days", "2", "-subj", "/CN=server", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True, timeout=support.SECONDS_MAX)
        server = serve(self, f"--tls_cert={certificate}", f"--tls_key={key}")
        with triton.InferenceServerClient(server.address, ssl=True, root_certificates=certificate) as client:
            np.testing.assert_array_equal(client.infer("identity", [tensor("x", X)]).as_numpy("y"), X)
        with triton.InferenceServerClient(server.address) as client:
            with self.assertRaises(InferenceServerException) as caught:
                client.infer("identity", [tensor("x", X)])
            self.assertEqual(caught.exception.status(), "StatusCode.UNAVAILABLE")
        self.assertEqual(server.stop(), 0)

    def test_every_method_but_health_asks_for_a_token(self):
        folder = pathlib.Path(self.enterContext(support.tempfile.TemporaryDirectory()))
        (folder / "tokens").write_text(f"alice {TOKEN}\n", encoding="utf-8")
        server = serve(self, f"--token_file={folder / 'tokens'}")
        with triton.InferenceServerClient(server.address) as client:
            self.assertTrue(client.is_server_live() and client.is_server_ready())
            self.assertTrue(client.is_model_ready("gelu"))
            calls = [lambda h: client.infer("gelu", [tensor("x", X)], headers=h),
                     lambda h: client.get_server_metadata(headers=h),
                     lambda h: client.get_model_metadata("gelu", headers=h),
                     lambda h: client.get_model_config("gelu", headers=h),
                     lambda h: client.get_inference_statistics("gelu", headers=h),
                     lambda h: client.get_model_repository_index(headers=h),
                     lambda h: client.get_system_shared_memory_status(headers=h),
                     lambda h: client.unregister_system_shared_memory(headers=h)]
            for call in calls:
                for headers in (None, {"authorization": f"Bearer {TOKEN}x"}):
                    with self.assertRaises(InferenceServerException) as caught:
                        call(headers)
                    self.assertEqual(caught.exception.status(), "StatusCode.UNAUTHENTICATED")
                call({"authorization": f"Bearer {TOKEN}"})
        with grpc.insecure_channel(server.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            with self.assertRaises(grpc.RpcError) as caught:
                list(stub.ModelStreamInfer(iter([request("identity", 0)])))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(support.total(server, "warpcall_requests_total", 'code="UNAUTHENTICATED"'), 3)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
