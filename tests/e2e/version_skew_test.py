#!/usr/bin/env python3
"""Clients and servers a version apart, as docs/UPGRADE.md promises: messages with fields that the other side
does not know, methods that it lacks.

    version_skew_test.py SOURCE BUILD

The newer version is the proto with one more field in every message. Between a client and the real server stands
a relay that turns answers into the newer version's, or refuses methods as an older server does. Exit status 77:
skipped, Debian's packages for Python are missing.
"""

import concurrent.futures
import contextlib
import sys
import unittest

sys.dont_write_bytecode = True
from access_case import BUILD, SECONDS_MAX, AccessCase, eventually  # noqa: E402
import differential  # noqa: E402
import grpc  # noqa: E402
import numpy as np  # noqa: E402
import warpcall  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: E402

PACKAGE = "warpcall.v1"
SERVICE = differential.SERVICE
ADDED = "from_a_newer_version"
ADDED_NUMBER = 1000
# KernelInfo.independence of a newer version: "A client that does not know a kind takes the problem for one piece".
INDEPENDENCE_NEWER = 99
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def add_field(message):
    """Adds a field to a message's descriptor and all within it, except the entries of maps."""
    if not message.options.map_entry:
        message.field.add(name=ADDED, number=ADDED_NUMBER, type=9, label=1, json_name="fromANewerVersion")
    for nested in message.nested_type:
        add_field(nested)


class Newer:
    """The newer version's messages, and each method's request and response."""

    def __init__(self):
        files = descriptor_pb2.FileDescriptorSet.FromString((BUILD / "warpcall.desc").read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            for message in file.message_type:
                add_field(message)
            pool.Add(file)
        self.methods = {}
        for method in pool.FindServiceByName(f"{PACKAGE}.KernelService").methods:
            self.methods[SERVICE + method.name] = (differential.class_of(method.input_type, pool),
                                                   differential.class_of(method.output_type, pool))

    def request(self, method):
        return self.methods[SERVICE + method][0]()

    def answer(self, method, data):
        return self.methods[SERVICE + method][1].FromString(data)

    def fill(self, message):
        """Sets the new field in the message and in every message within it; counts them."""
        filled = 1
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            if field.message_type.GetOptions().map_entry:
                within = [value[key] for key in value if field.message_type.fields_by_name["value"].message_type]
            else:
                within = value if field.label == field.LABEL_REPEATED else [value]
            filled += sum(self.fill(each) for each in within)
        setattr(message, ADDED, "x" * 40)
        return filled


class Relay:
    """A server of all methods but `lacks`, which it gives to the real server at `address`; answers are those of the
    newer version where `newer` is given. Unary methods and streams are alike on the wire."""

    def __init__(self, address, newer=None, lacks=()):
        self.newer, self.lacks, self.filled, self.refused = newer, set(lacks), 0, []
        self.channel = grpc.insecure_channel(address, options=UNLIMITED)
        self.pool = concurrent.futures.ThreadPoolExecutor(32)
        self.server = grpc.server(self.pool, options=UNLIMITED)
        self.server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        if details.method.removeprefix(SERVICE) in self.lacks:
            self.refused.append(details.method.removeprefix(SERVICE))
            return None  # UNIMPLEMENTED, as gRPC says of every method that a server lacks
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self.pass_on(details.method, requests, context))

    def pass_on(self, method, requests, context):
        calls = self.channel.stream_stream(method)(requests, timeout=context.time_remaining())
        try:
            for data in calls:
                yield self.renew(method, data)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())

    def renew(self, method, data):
        if self.newer is None or method not in self.newer.methods:
            return data
        answer = self.newer.methods[method][1].FromString(data)
        for kernel in getattr(answer, "kernels", ()):
            kernel.independence = INDEPENDENCE_NEWER
        self.filled += self.newer.fill(answer)
        return answer.SerializeToString()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait()
        self.channel.close()
        self.pool.shutdown()


class NewerClientTest(AccessCase):
    """Requests of the newer version, to the real server."""

    def setUp(self):
        super().setUp()
        self.newer = Newer()
        self.server = self.serve()
        self.channel = self.enterContext(contextlib.closing(
            grpc.insecure_channel(self.server.address, options=UNLIMITED)))

    def call(self, method, *requests):
        """The answers, of the newer version's messages; every message of the requests has the new field."""
        filled = sum(self.newer.fill(request) for request in requests)
        self.assertGreaterEqual(filled, len(requests))
        answers = self.channel.stream_stream(SERVICE + method)(
            (request.SerializeToString() for request in requests), timeout=SECONDS_MAX)
        return [self.newer.answer(method, data) for data in answers]

    def gelu(self, method="Execute"):
        request = self.newer.request(method)
        header = request.header if method == "ExecuteStream" else request
        header.kernel = "gelu"
        header.attributes["approximate"].string_value = "none"
        tensor = header.inputs.add(data_type=1, shape=[4])
        return request, tensor, np.array([-1, 0, 1, 2], "<f4").tobytes()

    def test_fields_that_the_server_does_not_know_change_nothing(self):
        plain, tensor, values = self.gelu()
        tensor.data = values
        expected = self.channel.unary_unary(SERVICE + "Execute")(plain.SerializeToString(), timeout=SECONDS_MAX)
        expected = self.newer.answer("Execute", expected).outputs[0].data
        self.assertEqual(len(expected), 16)
        (answer,) = self.call("Execute", plain)
        self.assertEqual(answer.outputs[0].data, expected)
        self.assertEqual(getattr(answer, ADDED), "")  # it is not the server's to send back

        header, _, _ = self.gelu("ExecuteStream")
        chunk = self.newer.request("ExecuteStream")
        chunk.chunk.data = values
        outputs = [answer.chunk.data for answer in self.call("ExecuteStream", header, chunk)]
        self.assertEqual(b"".join(outputs), expected)

    def test_every_other_method_takes_them_too(self):
        for method in ("ListKernels", "ListDevices", "ServerInfo"):
            self.assertEqual(len(self.call(method, self.newer.request(method))), 1, method)
        request = self.newer.request("Describe")
        request.kernel = "gelu"
        request.inputs.add(data_type=1, shape=[64])
        (answer,) = self.call("Describe", request)
        self.assertEqual((answer.implementation, answer.launch.variant), ("cpu", "simd_fused"))
        request = self.newer.request("BenchmarkStream")
        request.kernel, request.iterations = "gelu", 2
        request.implementations.append("reference")
        request.inputs.add(data_type=1, shape=[64])
        self.assertEqual(self.call("BenchmarkStream", request)[-1].device, "cpu")

    def test_a_method_that_the_server_does_not_know_is_unimplemented_and_others_go_on(self):
        for method in (SERVICE + "FromANewerVersion", "/warpcall.v2.KernelService/Execute"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel.unary_unary(method)(b"", timeout=SECONDS_MAX)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED, method)
            request, tensor, values = self.gelu()
            tensor.data = values
            self.assertEqual(len(self.call("Execute", request)), 1)


class ServersOfOtherVersionsTest(AccessCase):
    """Our clients, and a server that is newer or older."""

    def relay(self, **options):
        self.server = self.serve()
        return self.enterContext(Relay(self.server.address, **options))

    def connect(self, relay, **options):
        return self.enterContext(warpcall.connect(relay.address, timeout=SECONDS_MAX,
                                                  retry=warpcall.Retry(attempts_max=1), **options))

    def requests_of(self, call):
        """Number of requests that the server counts for one call."""
        def counted():
            return sum(value for name, value in self.server.metrics().items()
                       if name.startswith("warpcall_requests_total{"))
        before = counted()
        call()
        # An answer may come before its count; the calls of this test are the only ones.
        self.assertTrue(eventually(lambda: counted() > before))
        with warpcall.connect(self.server.address, timeout=SECONDS_MAX) as last:
            last.identity(np.zeros(1, np.float32))
        self.assertTrue(eventually(lambda: counted() > before + 1))
        return counted() - before - 1

    def test_a_newer_servers_answers_are_understood(self):
        relay = self.relay(newer=Newer())
        for words in (["kernels"], ["devices"], ["version"], ["run", "gelu", "--shape", "64"],
                      ["describe", "gelu", "--shape", "64"],
                      ["bench", "gelu", "--shape", "64", "--iterations", "2", "--implementation", "reference"]):
            before = relay.filled
            self.assert_done(relay, *words)
            self.assertGreater(relay.filled, before, words)
        client = self.connect(relay)
        x = np.linspace(-4, 4, 64, dtype=np.float32)
        straight = self.enterContext(warpcall.connect(self.server.address, timeout=SECONDS_MAX))
        np.testing.assert_array_equal(client.gelu(x), straight.gelu(x))
        self.assertEqual([kernel.name for kernel in client.kernels()],
                         [kernel.name for kernel in straight.kernels()])
        self.assertEqual(client.devices()[0].name, "cpu")
        self.assertEqual(client.describe("gelu", "64").implementation, "cpu")
        rows = client.benchmark("gelu", ["64"], implementations=["reference"], iterations=2).rows
        self.assertEqual([row.name for row in rows], ["reference:float64"])

    def test_a_kernel_that_splits_in_a_newer_way_goes_in_one_piece(self):
        """If the older client knows the way, the call goes in one piece for each connection."""
        relay = self.relay(newer=Newer())
        x = np.linspace(-4, 4, 4 << 20, dtype=np.float32).reshape(4096, 1024)
        command = ["run", "gelu", "--shape", "4096x1024", "--connections", "4"]
        for server, requests in ((self.server, 4), (relay, 1)):
            client = self.connect(server, connections=4)
            self.assertEqual(self.requests_of(lambda: client.gelu(x)), requests)  # noqa: B023  (called at once)
            self.assertEqual(self.requests_of(lambda: self.assert_done(server, *command)), requests)  # noqa: B023

    def test_an_older_server_without_some_methods_is_used_for_the_others(self):
        lacks = ["BenchmarkStream", "Tune", "ServerInfo", "Describe"]
        relay = self.relay(lacks=lacks)
        self.assert_done(relay, "run", "gelu", "--shape", "64")
        self.assert_done(relay, "version")
        benchmark = ["gelu", "--shape", "64", "--iterations", "2", "--implementation", "reference"]
        self.assert_done(relay, "bench", *benchmark)
        for command in ("tune", "describe"):
            status, *texts = self.command(relay, command, "gelu", "--shape", "64")
            self.assertEqual(status, 1, texts)
            self.assertIn("UNIMPLEMENTED", "".join(texts))
        client = self.connect(relay)
        self.assertEqual(client.gelu(np.ones(64, np.float32)).shape, (64,))
        rows = client.benchmark("gelu", ["64"], implementations=["reference"], iterations=2).rows
        self.assertEqual([row.name for row in rows], ["reference:float64"])
        with self.assertRaises(warpcall.Unimplemented):
            client.describe("gelu", "64")
        self.assertEqual(set(relay.refused), set(lacks))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
