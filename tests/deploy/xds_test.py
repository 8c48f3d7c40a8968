#!/usr/bin/env python3
"""deploy/xds for gRPC's own clients: a management server gives out the resources as they stand there, and `warpcall`
spreads its calls by them, and leaves a server that they no longer name before it stops.

    xds_test.py WARPCALLD WARPCALL FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that or a Debian package can't be had.
"""

import concurrent.futures
import importlib
import json
import os
import pathlib
import queue
import sys
import tempfile
import threading
import unittest

try:
    import google
    import grpc
    import yaml
    from google.protobuf import any_pb2, json_format
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-grpcio, python3-protobuf, python3-yaml)")
    sys.exit(77)

sys.dont_write_bytecode = True

import pinned  # noqa: E402
import processes  # noqa: E402
from replicas_test import ENOUGH, NETWORK, SECONDS_MAX, Replicas  # noqa: E402

SKIPPED = 77
XDS = processes.deployed_folder() / "xds"
REQUIREMENTS = pathlib.Path(__file__).with_name("envoy_requirements.txt")
# Messages that the resources are, or contain.
MODULES = ["config.listener.v3.listener", "config.route.v3.route", "config.cluster.v3.cluster",
           "config.endpoint.v3.endpoint", "extensions.filters.http.router.v3.router",
           "extensions.filters.network.http_connection_manager.v3.http_connection_manager"]


def import_messages(folder):
    """The module of the discovery service, with the types of all resources known to protobuf."""
    with pinned.Wheels(pathlib.Path(sys.argv[3]), REQUIREMENTS).wheel("xds_protos") as wheel:
        wheel.extractall(folder)
    sys.path.insert(0, folder)
    google.__path__.append(os.path.join(folder, "google"))  # beside Debian's
    for module in MODULES:
        importlib.import_module(f"envoy.{module}_pb2")
    return importlib.import_module("envoy.service.discovery.v3.discovery_pb2")


def parsed(resources):
    """{(type, name): message}; fields that there are not, are refused."""
    return {(each["@type"], each.get("name", each.get("cluster_name"))): json_format.ParseDict(each, any_pb2.Any())
            for each in resources}


class ManagementServer:
    """Serves resources by the aggregated discovery service, and sends changes."""

    METHOD = "StreamAggregatedResources"

    def __init__(self, resources):
        self.lock, self.resources, self.version = threading.Lock(), parsed(resources), 1
        self.streams, self.asked, self.refused = [], set(), []
        handler = grpc.stream_stream_rpc_method_handler(
            self.stream, request_deserializer=DISCOVERY.DiscoveryRequest.FromString,
            response_serializer=DISCOVERY.DiscoveryResponse.SerializeToString)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
            "envoy.service.discovery.v3.AggregatedDiscoveryService", {self.METHOD: handler})])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def change(self, resources):
        with self.lock:
            self.resources, self.version = parsed(resources), self.version + 1
            for events in self.streams:
                events.put("changed")

    def answer(self, kind, names):
        found = [message for key, message in self.resources.items() if key in {(kind, name) for name in names}]
        return DISCOVERY.DiscoveryResponse(version_info=str(self.version), type_url=kind, nonce=str(self.version),
                                           resources=found)

    def stream(self, requests, context):
        events, names = queue.Queue(), {}
        context.add_callback(lambda: events.put(None))

        def read():
            try:
                for request in requests:
                    events.put(request)
            except grpc.RpcError:  # the client left
                pass
        threading.Thread(target=read, daemon=True).start()
        with self.lock:
            self.streams.append(events)
        while (event := events.get()) is not None:
            with self.lock:
                if event == "changed":
                    kinds = list(names)
                else:
                    kinds = self.take(event, names)
                answers = [self.answer(kind, names[kind]) for kind in kinds]
            yield from answers

    def take(self, request, names):
        """Returns the type that the client requests; nothing for a mere acknowledgement."""
        if request.HasField("error_detail"):
            self.refused.append(request.error_detail.message)
        if names.get(request.type_url) == set(request.resource_names):
            return []
        names[request.type_url] = set(request.resource_names)
        self.asked.add(request.type_url.rpartition(".")[2])
        return [request.type_url]


class XdsTest(Replicas):
    def setUp(self):
        super().setUp()
        self.management = ManagementServer(self.of_servers((1, 2, 3)))
        self.addCleanup(lambda: self.management.server.stop(None).wait())
        text = (XDS / "grpc_bootstrap.json").read_text(encoding="utf-8")
        (server,) = json.loads(text)["xds_servers"]
        bootstrap = self.folder / "bootstrap.json"
        bootstrap.write_text(text.replace(server["server_uri"], self.management.address), encoding="utf-8")
        os.environ["GRPC_XDS_BOOTSTRAP"] = str(bootstrap)

    def of_servers(self, numbers):
        """deploy's resources, with those of its servers, on this test's addresses."""
        text = (XDS / "grpc_resources.yaml").read_text(encoding="utf-8")
        for number in (1, 2, 3):
            self.assertEqual(text.count(f"address: 10.0.0.{number},"), 1)
            text = text.replace(f"address: 10.0.0.{number},", f"address: {NETWORK}.{number},")
        resources = yaml.safe_load(text)
        (locality,) = resources[-1]["endpoints"]
        locality["lb_endpoints"] = [locality["lb_endpoints"][number - 1] for number in numbers]
        return resources

    def test_calls_go_to_all_and_leave_one_that_is_taken_out_before_it_stops(self):
        with self.load("xds:///warpcall"):
            self.management.change(self.of_servers((1, 2)))
            last = self.replicas[2]

            def rests():
                before = last.answered()
                self.replicas[0].wait_to_answer(ENOUGH)
                return last.answered() == before
            processes.wait_until("the third to get no more calls", rests, SECONDS_MAX)
            last.end()
            self.replicas[0].wait_to_answer(ENOUGH)
            last.start()
            self.management.change(self.of_servers((1, 2, 3)))
        self.assertEqual(self.management.refused, [])
        self.assertEqual(self.management.asked,
                         {"Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as messages:
        try:
            DISCOVERY = import_messages(messages)
        except (ImportError, pinned.Missing) as error:
            print(f"skipped: {error}")
            sys.exit(SKIPPED)
        unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
