#!/usr/bin/env python3
"""Spans of requests, as a collector of OpenTelemetry's protocol gets them that knows nothing of this project:
grpcio, and the protocol's own messages.

    traces_test.py SOURCE BUILD

Exit status 77: skipped, Debian's packages for Python or the messages from PyPI can't be had.
"""

import concurrent.futures
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from unittest import mock

sys.dont_write_bytecode = True
SKIPPED = 77
SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
sys.path[:0] = [str(SOURCE / folder) for folder in ("client/python", "tests/differential", "tests/deploy")]
try:
    import grpc
    import numpy as np
    from prometheus_client.openmetrics import parser

    import differential
    import pinned
    import warpcall
    from differential import eventually

    MESSAGES = tempfile.TemporaryDirectory()
    with pinned.Wheels(BUILD / "tests" / "deploy" / "pinned").wheel("opentelemetry_proto") as wheel:
        wheel.extractall(MESSAGES.name)
    sys.path.insert(0, MESSAGES.name)
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    from opentelemetry.proto.trace.v1 import trace_pb2
except (ImportError, pinned.Missing) as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

SECONDS_MAX = 90
PROGRAMS = pathlib.Path(os.environ.get("WARPCALL_TEST_BIN_DIR", BUILD / "bin"))
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PHASES = ["receive", "queue", "copy_in", "prepare", "h2d", "kernel", "copy_out", "reply"]
X = np.linspace(-4, 4, 3000, dtype=np.float32)


class Collector:
    """Takes spans, after refusing as many times as it is told, with a code."""

    def __init__(self, refusals=()):
        self.requests = queue.Queue()
        self.refusals = list(refusals)
        self.answers = threading.Event()
        self.answers.set()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
            "opentelemetry.proto.collector.trace.v1.TraceService",
            {"Export": grpc.unary_unary_rpc_method_handler(
                self.export, trace_service_pb2.ExportTraceServiceRequest.FromString,
                trace_service_pb2.ExportTraceServiceResponse.SerializeToString)})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.set()
        self.server.stop(None)

    def export(self, request, context):
        if self.refusals:
            context.abort(self.refusals.pop(0), "not now")
        self.requests.put(request)
        self.answers.wait()
        return trace_service_pb2.ExportTraceServiceResponse()

    def spans(self, enough):
        """The spans that come until `enough` says of the list that they are."""
        spans, end = [], time.monotonic() + SECONDS_MAX
        while not enough(spans):
            request = self.requests.get(timeout=max(0.01, end - time.monotonic()))
            self.resource = {each.key: each.value.string_value
                             for each in request.resource_spans[0].resource.attributes}
            spans += [span for each in request.resource_spans for scope in each.scope_spans
                      for span in scope.spans]
        return spans


def roots(spans):
    return [span for span in spans if span.kind == trace_pb2.Span.SPAN_KIND_SERVER]


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def traceparent(flags):
    return [("traceparent", f"00-{TRACE}-{PARENT}-{flags}")]


class TracesTest(unittest.TestCase):
    def serve(self, collector, *flags):
        server = self.enterContext(differential.Server(
            str(BUILD), "--devices=cpu", "--self_test=off",
            f"--otlp_endpoint=http://127.0.0.1:{collector.port}", *flags))
        self.messages = differential.load_messages(str(BUILD))
        return server, differential.Client(server.address, self.messages)

    def request(self, kernel="gelu", request_id="one"):
        request = self.messages.ExecuteRequest(kernel=kernel, request_id=request_id)
        request.inputs.add(data_type=differential.FLOAT32, shape=X.shape, data=X.tobytes())
        return request

    def assert_nested(self, root, phases):
        """Spans follow each other, each within the request."""
        at = root.start_time_unix_nano
        for phase in phases:
            self.assertEqual(phase.parent_span_id, root.span_id, phase.name)
            self.assertEqual(phase.trace_id, root.trace_id, phase.name)
            self.assertEqual(phase.start_time_unix_nano, max(at, phase.start_time_unix_nano), phase.name)
            self.assertLessEqual(phase.start_time_unix_nano, phase.end_time_unix_nano, phase.name)
            at = phase.end_time_unix_nano
        self.assertLessEqual(at, root.end_time_unix_nano)

    def test_a_request_is_a_span_of_its_callers_trace_and_its_phases_agree_with_timing(self):
        with Collector() as collector:
            _, client = self.serve(collector)
            before = time.time_ns()
            response = client.execute(self.request(), metadata=traceparent("01"))
            after = time.time_ns()
            spans = collector.spans(lambda spans: len(spans) == 1 + len(PHASES))
        (root,), phases = roots(spans), spans[1:]
        self.assertEqual((root.trace_id.hex(), root.parent_span_id.hex()), (TRACE, PARENT))
        self.assertEqual(root.name, "warpcall.v1.KernelService/Execute")
        self.assertEqual(len({span.span_id for span in spans}), len(spans))
        self.assertEqual(attributes(root), {
            "rpc.system": "grpc", "rpc.service": "warpcall.v1.KernelService", "rpc.method": "Execute",
            "rpc.grpc.status_code": 0, "warpcall.request_id": "one", "warpcall.kernel": "gelu",
            "warpcall.data_type": "float32", "warpcall.implementation": response.implementation,
            "warpcall.variant": response.launch.variant,
            "warpcall.device": "cpu"})
        self.assertEqual(root.status.code, trace_pb2.Status.STATUS_CODE_UNSET)
        self.assertEqual(collector.resource["service.name"], "warpcalld")
        self.assertEqual([span.name for span in phases], PHASES)
        self.assert_nested(root, phases)
        took = {span.name: span.end_time_unix_nano - span.start_time_unix_nano for span in spans}
        timing = response.timing
        self.assertEqual(took[root.name], timing.total_ns)
        self.assertEqual([took[name] for name in ("queue", "copy_in", "h2d", "kernel", "copy_out")],
                         [timing.queue_ns, timing.copy_in_ns, timing.h2d_ns, timing.kernel_ns, timing.d2h_ns])
        self.assertGreater(took["kernel"], 0)
        # All times are of one machine's clock, up to the distance between two clocks' readings.
        self.assertGreater(root.start_time_unix_nano, before - 10_000_000)
        self.assertLess(root.end_time_unix_nano, after + 10_000_000)

    def test_a_graph_that_times_its_steps_has_a_span_for_each(self):
        with Collector() as collector:
            _, client = self.serve(collector)
            graph = self.messages.ExecuteGraphRequest(step_times=True)
            tensor = graph.inputs.add(name="x").tensor
            tensor.data_type, tensor.data = differential.FLOAT32, X.tobytes()
            tensor.shape.extend(X.shape)
            graph.steps.add(name="h", kernel="gelu", inputs=["x"])
            graph.steps.add(name="y", kernel="softmax", inputs=["h"])
            graph.outputs.add(name="y")
            response = client.execute_graph(graph, metadata=traceparent("01"))
            spans = collector.spans(lambda spans: len(spans) == 3 + len(PHASES))
        (root,) = roots(spans)
        self.assertEqual(root.name, "warpcall.v1.KernelService/ExecuteGraph")
        self.assertEqual(attributes(root)["warpcall.kernel"], "graph")
        (whole,) = (span for span in spans if span.name == "kernel")
        steps = [span for span in spans if span.name.startswith("step ")]
        self.assertEqual([span.name for span in steps], ["step h", "step y"])
        self.assertEqual([span.end_time_unix_nano - span.start_time_unix_nano for span in steps],
                         [step.kernel_ns for step in response.steps])
        self.assert_nested(whole, [])
        self.assert_nested(root, steps)
        self.assertGreaterEqual(steps[0].start_time_unix_nano, whole.start_time_unix_nano)
        self.assertEqual([(attributes(span)["warpcall.kernel"], attributes(span)["warpcall.implementation"])
                          for span in steps],
                         list(zip(["gelu", "softmax"], [step.implementation for step in response.steps])))

    def test_histograms_name_the_last_traced_request_of_each_bucket(self):
        with Collector() as collector:
            server, client = self.serve(collector, "--otlp_sample_ratio=0")
            client.execute(self.request("identity"))  # which nobody traces
            client.execute(self.request(), metadata=traceparent("01"))
            before, families = time.time(), self.open_metrics(server)
        found = {}
        for family in families:
            for sample in family.samples:
                if sample.exemplar is None:
                    continue
                self.assertEqual(sample.exemplar.labels, {"trace_id": TRACE})
                self.assertLessEqual(sample.exemplar.value, float(sample.labels["le"]))
                self.assertAlmostEqual(float(sample.exemplar.timestamp), before, delta=SECONDS_MAX)
                self.assertEqual(sample.labels["kernel"], "gelu")
                found.setdefault(family.name, []).append(sample)
        self.assertEqual({name: len(samples) for name, samples in found.items()},
                         {"warpcall_request_duration_seconds": 1, "warpcall_phase_duration_seconds": 5,
                          "warpcall_kernel_duration_seconds": 1})

    def open_metrics(self, server):
        """Reads metrics by the format's own parser, which is strict."""
        request = urllib.request.Request(
            f"http://{server.metrics_address}/metrics",
            headers={"Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3"})
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as reply:
            self.assertEqual(reply.headers["Content-Type"],
                             "application/openmetrics-text; version=1.0.0; charset=utf-8")
            return list(parser.text_string_to_metric_families(reply.read().decode()))

    def test_what_a_caller_does_not_trace_is_not_traced_and_others_by_the_ratio(self):
        with Collector() as collector:
            _, client = self.serve(collector, "--otlp_sample_ratio=0.5")
            for _ in range(400):
                client.execute(self.request(request_id="theirs"), metadata=traceparent("00"))
                client.execute(self.request(request_id="ours"))
            client.execute(self.request(request_id="last"), metadata=traceparent("01"))
            last = lambda spans: any(attributes(span)["warpcall.request_id"] == "last" for span in roots(spans))
            spans = collector.spans(last)
        ids = [attributes(span)["warpcall.request_id"] for span in roots(spans)]
        self.assertEqual(set(ids), {"ours", "last"})
        self.assertTrue(120 < len(ids) < 280, len(ids))  # 200, and eight times their deviation of 10
        self.assertEqual(len({span.trace_id for span in roots(spans)}), len(ids))

    def test_refusals_say_their_code_and_only_the_servers_own_failures_are_errors(self):
        with Collector() as collector:
            _, client = self.serve(collector)
            with self.assertRaises(grpc.RpcError):
                client.execute(self.request(kernel="nothing"))
            half = self.messages.ExecuteRequest(kernel="softmax", implementation="onednn_softmax")
            half.inputs.add(data_type=differential.FLOAT16, shape=[4], data=b"01234567")
            with self.assertRaises(grpc.RpcError):
                client.execute(half)
            spans = collector.spans(lambda spans: len(roots(spans)) == 2)
        unknown, lacking = sorted(roots(spans), key=lambda span: span.start_time_unix_nano)
        self.assertEqual(attributes(unknown)["rpc.grpc.status_code"], grpc.StatusCode.NOT_FOUND.value[0])
        self.assertNotIn("warpcall.kernel", attributes(unknown))
        self.assertEqual(unknown.status.code, trace_pb2.Status.STATUS_CODE_UNSET)
        self.assertEqual(attributes(lacking)["rpc.grpc.status_code"], grpc.StatusCode.UNIMPLEMENTED.value[0])
        self.assertEqual(lacking.status.code, trace_pb2.Status.STATUS_CODE_ERROR)
        self.assertEqual(len(spans), 2)

    def test_windows_of_a_stream_have_phases_of_their_own(self):
        with Collector() as collector:
            server, _ = self.serve(collector)
            x = np.ones(20 << 20, dtype=np.float32)  # 80 MiB in, as many out
            with warpcall.connect(server.address, timeout=SECONDS_MAX) as client, mock.patch(
                    "warpcall._calls.call_metadata", lambda own: (*own, *traceparent("01"))):
                client.identity(x)
            spans = collector.spans(lambda spans: len(roots(spans)) == 1)
        (root,) = roots(spans)
        self.assertEqual(root.name, "warpcall.v1.KernelService/ExecuteStream")
        phases = [span for span in spans if span is not root]
        windows = [phases[at:at + 6] for at in range(0, len(phases), 6)]
        self.assertEqual(len(windows), 10)  # 16 MiB of operands each
        for window in windows:
            self.assertEqual([span.name for span in window], PHASES[1:-1])
            self.assert_nested(root, window)

    def test_a_collector_that_refuses_gets_them_again_and_one_that_is_gone_costs_spans_alone(self):
        with Collector([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED]) as collector:
            server, client = self.serve(collector)
            client.execute(self.request())
            self.assertEqual(len(roots(collector.spans(lambda spans: len(spans) > 0))), 1)
            count = lambda result: server.metrics()[f'warpcall_traced_requests_total{{result="{result}"}}']
            self.assertTrue(eventually(lambda: count("sent") == 1))
            collector.refusals = [grpc.StatusCode.INVALID_ARGUMENT]  # once and for all
            client.execute(self.request())
            self.assertTrue(eventually(lambda: count("failed") == 1))
        client.execute(self.request())
        self.assertEqual(server.stop(), 0)
        self.assertIn("the collector takes no spans", server.log_text())

    def test_what_is_there_when_the_server_ends_is_sent(self):
        with Collector() as collector:
            server, client = self.serve(collector)
            client.execute(self.request())
            self.assertEqual(server.stop(), 0)
            self.assertEqual(len(roots(collector.spans(lambda spans: len(spans) > 0))), 1)

    def test_a_collector_that_does_not_answer_delays_the_end_by_two_seconds_at_most(self):
        with Collector() as collector:
            collector.answers.clear()
            server, client = self.serve(collector)
            client.execute(self.request())
            collector.requests.get(timeout=SECONDS_MAX)
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 7)  # a call to a collector has ten

    def test_an_address_that_is_none_is_refused_at_the_start(self):
        for address in ("collector", "http://collector:4317/v1/traces", "ftp://collector:1", ":4317",
                        "collector:65536", "collector:0", "unix:"):
            done = subprocess.run([PROGRAMS / "warpcalld", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                                   f"--otlp_endpoint={address}"], capture_output=True, text=True, check=False,
                                  timeout=SECONDS_MAX)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'--otlp_endpoint: "{address}" is not a collector\'s address', done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
