#!/usr/bin/env python3
"""deploy/kubernetes: rendered by kubectl, valid by Kubernetes' schemas, and right about the server: flags,
ports, probes, times, memory and metrics.

    kubernetes_test.py WARPCALLD FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that can't be had.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
import urllib.error
import urllib.request

try:
    import jsonschema
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-jsonschema, python3-yaml)")
    sys.exit(77)

sys.dont_write_bytecode = True

import facts  # noqa: E402
import pinned  # noqa: E402
import processes  # noqa: E402
from manifests import container_of, example, kubectl, named, pod_of, ports_of, with_components  # noqa: E402

SKIPPED = 77
DEPLOY = processes.deployed_folder()
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = (DEPLOY.parent / "Dockerfile").read_text(encoding="utf-8")
OVERLAYS = ("cpu", "gpu", "gpus", "mutual-tls")
# The oldest version whose API servers know every field, one between, and the newest with schemas.
VERSIONS = ("v1.29.0", "v1.33.0", "v1.37.0")
# Fields that may be used in objects that Kubernetes itself does not know, down to the depth at which they are another's
# (a selector, a scaling rule, Prometheus' own rules) or free.
CUSTOM = {
    "PodMonitor": {"jobLabel": str, "selector": dict,
                   "podMetricsEndpoints": [{"port": str, "path": str, "interval": str,
                                            "scrapeTimeout": str}]},
    "PrometheusRule": {"groups": [{"name": str, "rules": list}]},
    "Issuer": {"selfSigned": dict, "ca": {"secretName": str}},
    "Certificate": {"secretName": str, "commonName": str, "dnsNames": [str], "isCA": bool, "usages": [str],
                    "duration": str, "renewBefore": str,
                    "privateKey": {"algorithm": str, "size": int, "rotationPolicy": str},
                    "issuerRef": {"group": str, "kind": str, "name": str}},
    "ScaledObject": {"scaleTargetRef": {"name": str}, "minReplicaCount": int, "maxReplicaCount": int,
                     "pollingInterval": int, "fallback": {"failureThreshold": int, "replicas": int},
                     "advanced": {"horizontalPodAutoscalerConfig": {"behavior": dict}},
                     "triggers": [{"type": str, "metricType": str,
                                   "metadata": {"serverAddress": str, "query": str, "threshold": str}}]},
}
# Components that change pods of any overlay.
OPTIONAL = ("tuning", "traces", "priority", "gpu-model")
ELSEWHERE, TUNING = "elsewhere", "warpcall tuning table 1"
# Kinds without a namespace.
OF_THE_CLUSTER = {"PriorityClass"}
# Time until endpoints and balancers hear that a pod is not ready, beside its probe.
PROPAGATION_SECONDS = 5
# gRPC's shortest time between two resolutions of a name, by default, and how long a cluster's DNS keeps answers.
RESOLUTION_SECONDS = 30
# CUDA's libraries and context in each process that has a GPU.
GPU_HOST_MIB = 1024

WARPCALLD = sys.argv[1] if len(sys.argv) > 1 else ""


def unknown_fields(what, allowed, path):
    """Fields of a custom object that are not in the table, or have another type."""
    if isinstance(allowed, type):
        return [] if isinstance(what, allowed) else [f"{path}: {what!r} is no {allowed.__name__}"]
    if not isinstance(what, type(allowed)):
        return [f"{path}: {what!r}"]
    if isinstance(allowed, list):
        return list(itertools.chain(*(unknown_fields(entry, allowed[0], f"{path}[{i}]")
                                      for i, entry in enumerate(what))))
    return [f"{path}.{key}: unknown" for key in what.keys() - allowed.keys()] + list(
        itertools.chain(*(unknown_fields(what[key], allowed[key], f"{path}.{key}")
                          for key in what.keys() & allowed.keys())))


def folder_of(flag, path):
    """Mount point for the flag's path: a folder itself, a file's folder."""
    return path if flag == "compile_cache" else os.path.dirname(path)


def thousandths(quantity):
    """250m -> 0.25."""
    return float(re.fullmatch(r"(\d+)m", quantity)[1]) / 1000


def adapted(rule, series):
    """The query that Prometheus Adapter makes of a rule for the pods of the namespace."""
    query = rule["metricsQuery"]
    for placeholder, text in (("<<.GroupBy>>", "pod"), ("<<.Series>>", series),
                              ("<<.LabelMatchers>>", 'namespace="warpcall"')):
        query = query.replace(placeholder, text)
    return query


def http_status(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def call(address, *words):
    """Returns the output of warpcall."""
    program = pathlib.Path(WARPCALLD).with_name("warpcall")
    return subprocess.run([program, "--server", address, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=True, timeout=120).stdout


def chosen_because(address):
    return json.loads(call(address, "--json", "describe", "gelu", "--shape", "64"))["chosen_because"]


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rendered = {name: kubectl(WHEELS, KUBERNETES / "overlays" / name) for name in OVERLAYS}
        cls.rendered["hpa"] = with_components(WHEELS, example(), ["monitoring", "dashboard", "hpa"])
        cls.rendered["keda"] = with_components(WHEELS, example(), ["monitoring", "keda"])
        cls.rendered["tls"] = with_components(WHEELS, example(), ["monitoring", "mutual-tls", "cert-manager"])
        # Every component but `hpa`, which `keda` replaces, in a namespace of another name.
        cls.rendered["all"] = with_components(
            WHEELS, example(), ["monitoring", "dashboard", "mutual-tls", "cert-manager", "keda", *OPTIONAL],
            namespace=ELSEWHERE,
            configMapGenerator=[{"name": "warpcall-tuning", "literals": [f"tuning.txt={TUNING}"]}])
        cls.flags = facts.flags_of(WARPCALLD)

    def each(self):
        for name, objects in self.rendered.items():
            with self.subTest(name):
                yield objects

    def settings(self, objects):
        return facts.Settings(self.flags, container_of(objects)["args"])

    # ---- by itself ------------------------------------------------------------------------------

    def test_every_object_is_valid(self):
        for version in VERSIONS:
            folder = f"kubernetes_validate/kubernetes-json-schema/{version}-local-strict"
            definitions = WHEELS.json("kubernetes_validate", f"{folder}/_definitions.json")["$defs"]
            kinds = {(known["group"], known["version"], known["kind"]): name
                     for name, schema in definitions.items()
                     for known in schema.get("x-kubernetes-group-version-kind", [])}
            for objects in self.each():
                for each in objects:
                    group, _, api = each["apiVersion"].rpartition("/")
                    if each["kind"] in CUSTOM:
                        continue
                    schema = {"$ref": f"#/$defs/{kinds[group, api, each['kind']]}", "$defs": definitions}
                    errors = jsonschema.Draft202012Validator(schema).iter_errors(each)
                    self.assertEqual([f"{error.json_path}: {error.message}" for error in errors], [],
                                     (version, each["kind"]))

    def test_custom_objects_have_known_fields(self):
        seen = set()
        for objects in self.each():
            for each in objects:
                if each["kind"] not in CUSTOM:
                    continue
                seen.add((each["kind"], each["apiVersion"]))
                self.assertEqual(unknown_fields(each["spec"], CUSTOM[each["kind"]], each["kind"]), [])
        self.assertEqual(seen, {("PodMonitor", "monitoring.coreos.com/v1"),
                                ("PrometheusRule", "monitoring.coreos.com/v1"),
                                ("Issuer", "cert-manager.io/v1"), ("Certificate", "cert-manager.io/v1"),
                                ("ScaledObject", "keda.sh/v1alpha1")})

    def test_pods_keep_to_the_restricted_profile(self):
        """https://kubernetes.io/docs/concepts/security/pod-security-standards/, and a read-only root."""
        user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)
        for objects in self.each():
            pod, container = pod_of(objects)["spec"], container_of(objects)
            self.assertFalse({"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod))
            self.assertEqual(pod["securityContext"],
                             {"runAsNonRoot": True, "runAsUser": int(user[1]), "runAsGroup": int(user[2]),
                              "fsGroup": int(user[2]), "seccompProfile": {"type": "RuntimeDefault"}})
            self.assertEqual(container["securityContext"],
                             {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                              "capabilities": {"drop": ["ALL"]}})
            self.assertFalse(any("hostPort" in port for port in container["ports"]))
            for volume in pod.get("volumes", []):
                (kind,) = set(volume) - {"name"}
                self.assertIn(kind, {"emptyDir", "secret", "configMap"})
                self.assertEqual("sizeLimit" in volume[kind], kind == "emptyDir")
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertIs(pod["enableServiceLinks"], False)

    def test_objects_mean_the_pods(self):
        for objects in self.each():
            labels = pod_of(objects)["metadata"]["labels"].items()
            selectors = [named(objects, "Deployment")["spec"]["selector"]["matchLabels"],
                         named(objects, "Service")["spec"]["selector"],
                         named(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
            selectors += [rule["labelSelector"]["matchLabels"]
                          for rule in pod_of(objects)["spec"]["topologySpreadConstraints"]]
            for each in objects:
                if each["kind"] == "NetworkPolicy":
                    selectors.append(each["spec"]["podSelector"]["matchLabels"])
                if each["kind"] == "PodMonitor":
                    selectors.append(each["spec"]["selector"]["matchLabels"])
                if "scaleTargetRef" in each.get("spec", {}):
                    self.assertEqual(each["spec"]["scaleTargetRef"]["name"], "warpcall")
            for selector in selectors:
                self.assertTrue(selector and selector.items() <= labels, selector)

    def test_ports_go_by_their_names(self):
        for objects in self.each():
            ports = ports_of(objects)
            self.assertEqual(set(ports), {"grpc", "metrics"})
            (port,) = named(objects, "Service")["spec"]["ports"]
            self.assertEqual((port["targetPort"], port["port"]), ("grpc", ports["grpc"]))
            self.assertEqual(named(objects, "Service")["spec"]["clusterIP"], "None")
            (rule,) = named(objects, "NetworkPolicy")["spec"]["ingress"]
            self.assertEqual(rule["ports"], [{"port": "grpc"}])
            self.assertTrue(rule["from"])
        for name in ("hpa", "keda", "tls"):
            (endpoint,) = named(self.rendered[name], "PodMonitor")["spec"]["podMetricsEndpoints"]
            policy = named(self.rendered[name], "NetworkPolicy", "warpcall-metrics")
            self.assertEqual((endpoint["port"], policy["spec"]["ingress"][0]["ports"]),
                             ("metrics", [{"port": "metrics"}]))

    def test_autoscalers_agree_and_have_the_replicas_to_themselves(self):
        hpa = named(self.rendered["hpa"], "HorizontalPodAutoscaler")["spec"]
        keda = named(self.rendered["keda"], "ScaledObject")["spec"]
        self.assertEqual((hpa["minReplicas"], hpa["maxReplicas"]),
                         (keda["minReplicaCount"], keda["maxReplicaCount"]))
        self.assertEqual(hpa["behavior"], keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])
        self.assertEqual([(trigger["metricType"], float(trigger["metadata"]["threshold"])) for trigger in keda["triggers"]],
                         [(metric["pods"]["target"]["type"], thousandths(metric["pods"]["target"]["averageValue"]))
                          for metric in hpa["metrics"]])
        for name in OVERLAYS:
            deployment = named(self.rendered[name], "Deployment")
            self.assertEqual(deployment["spec"]["replicas"], hpa["minReplicas"])
        for name in ("hpa", "keda"):
            self.assertNotIn("replicas", named(self.rendered[name], "Deployment")["spec"])
            # Clients with open connections find pods that are added.
            self.assertEqual(self.settings(self.rendered[name]).given["max_connection_age_seconds"], "300")

    def test_the_example_sets_namespace_and_image(self):
        for name in ("hpa", "keda", "tls"):
            self.assertEqual({each["metadata"]["namespace"] for each in self.rendered[name]}, {"warpcall"})
            self.assertNotIn("warpcall:", container_of(self.rendered[name])["image"].partition("/")[0])

    def test_nothing_but_the_kustomization_names_the_namespace(self):
        for name, namespace in [("keda", "warpcall"), ("tls", "warpcall"), ("all", ELSEWHERE)]:
            objects = self.rendered[name]
            self.assertEqual({each["metadata"].get("namespace") for each in objects
                              if each["kind"] not in OF_THE_CLUSTER}, {namespace})
            self.assertNotIn("NAMESPACE", json.dumps(objects))
            if name != "keda":
                service = f"warpcall.{namespace}"
                self.assertEqual(named(objects, "Certificate")["spec"]["dnsNames"],
                                 ["warpcall", service, f"{service}.svc", f"{service}.svc.cluster.local", "localhost"])
            if name != "tls":
                for trigger in named(objects, "ScaledObject")["spec"]["triggers"]:
                    selectors = re.findall(r"\bwarpcall_\w+{(.*?)}", trigger["metadata"]["query"])
                    self.assertTrue(selectors)
                    for selector in selectors:
                        self.assertIn(f'namespace="{namespace}"', selector)
        texts = {path.name: path.read_text(encoding="utf-8") for path in KUBERNETES.rglob("*.yaml")}
        self.assertEqual([name for name, text in texts.items()
                          if re.search(r'warpcall\.warpcall|namespace="warpcall"|namespace: warpcall', text)], [])

    def test_only_traces_let_the_server_call_and_only_its_collector(self):
        for name, objects in self.rendered.items():
            policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
            self.assertIn("Egress", named(objects, "NetworkPolicy")["spec"]["policyTypes"])
            leaving = {each["metadata"]["name"]: each["spec"]["egress"] for each in policies
                       if "egress" in each["spec"]}
            self.assertEqual(set(leaving), {"warpcall-traces"} if name == "all" else set())
        collector, names = leaving["warpcall-traces"]
        endpoint = self.settings(self.rendered["all"]).given["otlp_endpoint"]
        namespace, port = re.fullmatch(r"http://[\w-]+\.([\w-]+):(\d+)", endpoint).groups()
        self.assertEqual(collector["to"], [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}])
        self.assertEqual(collector["ports"], [{"port": int(port), "protocol": "TCP"}])
        self.assertEqual([entry["port"] for entry in names["ports"]], [53, 53])

    def test_pods_have_the_priority_and_the_nodes_that_components_give(self):
        pod = pod_of(self.rendered["all"])["spec"]
        (priority,) = [each for each in self.rendered["all"] if each["kind"] == "PriorityClass"]
        self.assertEqual(pod["priorityClassName"], priority["metadata"]["name"])
        self.assertEqual((priority["globalDefault"], priority["preemptionPolicy"]), (False, "Never"))
        self.assertEqual(list(pod["nodeSelector"]), ["nvidia.com/gpu.product"])
        for name in OVERLAYS:
            self.assertFalse({"priorityClassName", "nodeSelector"} & set(pod_of(self.rendered[name])["spec"]))

    def test_the_readmes_patch_for_another_model_fits(self):
        text = (DEPLOY / "README.md").read_text(encoding="utf-8")
        (found,) = re.findall(r"^  ```yaml\n(  patches:\n.*?)^  ```", text, re.M | re.S)
        patch = textwrap.dedent(found)
        objects = with_components(WHEELS, example(), ["gpu-model"], **yaml.safe_load(patch))
        (model,) = set(re.findall(r"value: (NVIDIA-\S+)", patch))
        self.assertEqual(pod_of(objects)["spec"]["nodeSelector"], {"nvidia.com/gpu.product": model})
        self.assertNotEqual(model, pod_of(self.rendered["all"])["spec"]["nodeSelector"]["nvidia.com/gpu.product"])

    # ---- beside the rules -----------------------------------------------------------------------

    def test_rules_and_scrapes_are_those_of_prometheus(self):
        script = KUBERNETES / "prometheus_rule.py"
        made = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True,
                              timeout=60)
        committed = (KUBERNETES / "components/monitoring/prometheus_rule.yaml").read_text(encoding="utf-8")
        self.assertEqual(made.stdout, committed, f"{script} says how to make it anew")
        scrape = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
        (job,) = scrape["scrape_configs"]
        monitor = named(self.rendered["hpa"], "PodMonitor")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        self.assertEqual((endpoint["path"], endpoint["interval"], endpoint["scrapeTimeout"]),
                         (job["metrics_path"], scrape["global"]["scrape_interval"],
                          scrape["global"]["scrape_timeout"]))
        # The label's value is the job's name, by which alerts know the server.
        labels = pod_of(self.rendered["hpa"])["metadata"]["labels"]
        self.assertEqual(labels[monitor["spec"]["jobLabel"]], job["job_name"])
        self.assertEqual(set(re.findall(r'job="(\w+)"', committed)), {job["job_name"]})

    def test_grafanas_sidecar_gets_the_dashboard(self):
        text = (DEPLOY / "kubernetes/components/dashboard/warpcall.json").read_text(encoding="utf-8")
        component = named(self.rendered["hpa"], "ConfigMap", "warpcall-dashboard")
        self.assertEqual(component["data"], {"warpcall.json": text})
        self.assertEqual(component["metadata"]["labels"]["grafana_dashboard"], "1")
        # `kubectl apply` keeps all of it in an annotation of limited size.
        self.assertLess(len(json.dumps(component)), 256 * 1024)

    def test_promtool_takes_the_rules(self):
        if shutil.which("promtool") is None:
            self.skipTest("there is no promtool (Debian: package prometheus)")
        rule = named(self.rendered["hpa"], "PrometheusRule")["spec"]
        status, said = processes.promtool(["check", "rules"], rule)
        self.assertEqual(status, 0, said)

    def test_what_scales_sees_overload_by_clients_with_deadlines(self):
        """One pod misses half a second in 855 of 904 calls, which keeps its queue below that age; the other idles."""
        if shutil.which("promtool") is None:
            self.skipTest("there is no promtool (Debian: package prometheus)")
        queues, lost = self.queries()
        self.assertEqual(len(queues), 2)
        pod = '{{namespace="warpcall", pod="{}", {}}}'
        series = {"warpcall_queue_work_seconds" + pod.format("a", 'device="cpu"'): "0.9x20",
                  "warpcall_queue_work_seconds" + pod.format("a", 'device="cuda:0"'): "0x20",
                  "warpcall_queue_work_seconds" + pod.format("b", 'device="cpu"'): "0x20"}
        for name, of_code in (("a", {"OK": 49, "DEADLINE_EXCEEDED": 855}), ("b", {"OK": 0})):
            for code, count in of_code.items():
                series["warpcall_requests_total" + pod.format(name, f'code="{code}"')] = f"0+{count}x20"
            for reason, count in (("deadline", 0), ("deadline_unmeetable", 555), ("queue_work", 300), ("draining", 7),
                                  ("message_bytes", 9)):
                count = count if name == "a" else 0
                series["warpcall_rejected_total" + pod.format(name, f'reason="{reason}"')] = f"0+{count}x20"
        by_pod = [{"labels": f'{{pod="{name}"}}', "value": value} for name, value in (("a", 0.9), ("b", 0))]
        ratios = [{"labels": f'{{pod="{name}"}}', "value": value} for name, value in (("a", 0.946), ("b", 0))]
        expected = [(queues[0], by_pod), (queues[1], [{"labels": "{}", "value": 0.9}]),
                    (lost[0], ratios), (lost[1], [{"labels": "{}", "value": 0.946}])]
        tests = {"rule_files": [], "evaluation_interval": "1m", "tests": [{
            "interval": "1m",
            "input_series": [{"series": each, "values": values} for each, values in series.items()],
            "promql_expr_test": [{"expr": f"round({query}, 0.001)", "eval_time": "10m", "exp_samples": samples}
                                 for query, samples in expected]}]}
        status, said = processes.promtool(["test", "rules"], tests)
        self.assertEqual(status, 0, said)

    def queries(self):
        """Queries for the queue and for lost calls: Prometheus Adapter's and KEDA's."""
        text = (KUBERNETES / "components/hpa/adapter_rules.yaml").read_text(encoding="utf-8")
        rules = yaml.safe_load(text)["rules"]
        series = [rule["seriesQuery"].partition("{")[0] for rule in rules]
        metrics = named(self.rendered["hpa"], "HorizontalPodAutoscaler")["spec"]["metrics"]
        self.assertEqual([rule.get("name", {}).get("as", name) for rule, name in zip(rules, series)],
                         [metric["pods"]["metric"]["name"] for metric in metrics])
        triggers = named(self.rendered["keda"], "ScaledObject")["spec"]["triggers"]
        return [(adapted(rule, name), trigger["metadata"]["query"])
                for rule, name, trigger in zip(rules, series, triggers)]

    # ---- beside the server ----------------------------------------------------------------------

    def test_flags_and_ports_are_the_servers(self):
        exposed = re.search(r"^EXPOSE (\d+) (\d+)$", DOCKERFILE, re.M)
        for objects in self.each():
            settings = self.settings(objects)
            self.assertEqual(ports_of(objects), {"grpc": settings.port("listen"),
                                                 "metrics": settings.port("metrics_listen")})
            self.assertEqual(ports_of(objects), {"grpc": int(exposed[1]), "metrics": int(exposed[2])})
            volume_mounts = container_of(objects)["volumeMounts"]
            mounts = {mount["mountPath"] for mount in volume_mounts if "subPath" not in mount}
            files = {mount["mountPath"] for mount in volume_mounts if "subPath" in mount}
            self.assertLessEqual(files, {settings.given["tuning_cache"]})
            self.assertEqual({folder_of(flag, value) for flag, value in settings.given.items()
                              if value.startswith("/")}, mounts)

    def test_pods_with_gpus_do_without_none_of_them(self):
        seen = set()
        for objects in self.each():
            gpus = int(container_of(objects)["resources"]["limits"].get("nvidia.com/gpu", 0))
            given = self.settings(objects).given
            expected = {1: ("cuda:0", None), 0: (None, None)}.get(gpus, (None, str(gpus)))
            self.assertEqual((given.get("devices"), given.get("gpus_min")), expected)
            seen.add(gpus)
        self.assertEqual(seen, {0, 1, 8})

    def test_there_is_time_to_drain_and_to_start(self):
        for objects in self.each():
            settings, container = self.settings(objects), container_of(objects)
            grace = pod_of(objects)["spec"]["terminationGracePeriodSeconds"]
            self.assertGreaterEqual(grace, settings.stop_seconds() + PROPAGATION_SECONDS)
            ready, start, live = (container[f"{name}Probe"] for name in ("readiness", "startup", "liveness"))
            seen = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
            self.assertGreaterEqual(settings.number("lame_duck_seconds"), seen + PROPAGATION_SECONDS)
            self.assertGreaterEqual(start["periodSeconds"] * start["failureThreshold"], 300)
            self.assertGreaterEqual(live["periodSeconds"] * live["failureThreshold"], 30)
            self.assertEqual([probe["httpGet"]["path"] for probe in (ready, start, live)],
                             ["/readyz", "/readyz", "/healthz"])
            self.assertEqual({probe["httpGet"]["port"] for probe in (ready, start, live)}, {"metrics"})

    def test_a_rollout_waits_until_clients_know_the_new_pod(self):
        for objects in self.each():
            ready = named(objects, "Deployment")["spec"]["minReadySeconds"]
            self.assertGreaterEqual(ready, RESOLUTION_SECONDS + PROPAGATION_SECONDS)

    def test_memory_holds_what_the_flags_allow(self):
        seen = set()
        for objects in self.each():
            resources, settings = container_of(objects)["resources"], self.settings(objects)
            gpus = int(resources["limits"].get("nvidia.com/gpu", 0))
            processes_of_server = 1 + (gpus if gpus > 1 else 0)
            needed = (settings.memory_mib(1 + gpus) + settings.number("benchmark_mib")
                      + processes_of_server * facts.OWN_MIB + gpus * GPU_HOST_MIB)
            self.assertGreaterEqual(facts.quantity(resources["limits"]["memory"]) / facts.MIB, needed)
            self.assertEqual(resources["limits"]["memory"], resources["requests"]["memory"])
            seen.add((container_of(objects)["image"].rpartition(":")[2], gpus))
        self.assertLessEqual({("cpu", 0), ("gpu", 1), ("gpu", 8)}, seen)

    def test_a_server_with_these_flags_is_what_the_pods_are_thought_to_be(self):
        """Runs on free ports, as a lame duck until the next signal: checks its probes, its metrics, its end."""
        container = container_of(self.rendered["keda"])
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            changed = {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "lame_duck_seconds": "3600",
                       "compile_cache": str(folder / "compiled"), "tuning_cache": str(folder / "tuning.txt"),
                       "devices": "cpu"}
            words = facts.given(container["args"]) | changed
            arguments = [WARPCALLD, *(f"--{flag}={value}" for flag, value in words.items())]
            log = folder / "log"
            with processes.running(arguments, log) as process:
                address = processes.wait_until(
                    "the server", lambda: re.search(r"metrics on ([^\s\"]+)[\n\"]", log.read_text()),
                    processes.START_SECONDS_MAX)[1]
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    self.assertEqual(http_status(address, container[probe]["httpGet"]["path"]), 200)
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
                    metrics = response.read().decode()
                process.send_signal(signal.SIGTERM)
                processes.wait_until("not ready", lambda: http_status(
                    address, container["readinessProbe"]["httpGet"]["path"]) == 503, processes.START_SECONDS_MAX)
                self.assertEqual(http_status(address, container["livenessProbe"]["httpGet"]["path"]), 200)
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=processes.STOP_SECONDS_MAX)
            (sum_mib,) = re.findall(r'"sum_mib":(\d+)', log.read_text())
        self.assertEqual(int(sum_mib), facts.Settings(self.flags, container["args"]).memory_mib(1))
        self.check_metrics(metrics)

    def test_a_tuning_file_that_was_made_once_is_every_pods(self):
        """Mounted as the component `tuning` has it: read-only, in a folder in which files can be made."""
        (mount,) = [each for each in container_of(self.rendered["all"])["volumeMounts"] if "subPath" in each]
        (volume,) = [each["configMap"] for each in pod_of(self.rendered["all"])["spec"]["volumes"]
                     if each["name"] == mount["name"]]
        made = named(self.rendered["all"], "ConfigMap", volume["name"])
        self.assertEqual(made["data"], {mount["subPath"]: TUNING})
        self.assertEqual([item["path"] for item in volume["items"]], [mount["subPath"]])
        in_a_namespace = ["unshare", "--user", "--map-root-user", "--mount"]
        if subprocess.run([*in_a_namespace, "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("no mounts can be made in a namespace of its own here")
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        once, pod = folder / "once.txt", folder / "pod" / os.path.basename(mount["mountPath"])
        pod.parent.mkdir()
        pod.touch()
        with processes.warpcalld(WARPCALLD, folder, "--devices=cpu", f"--tuning_cache={once}") as (address, _):
            self.assertNotIn("tuned", chosen_because(address))
            call(address, "tune", "gelu", "--shape", "64", "--iterations", "3")
        script = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'
        before = [*in_a_namespace, "sh", "-c", script, "sh", once, pod]
        with processes.warpcalld(WARPCALLD, folder, "--devices=cpu", f"--tuning_cache={pod}", before=before) as (
                address, metrics):
            self.assertIn("tuned", chosen_because(address))
            # Tune's findings count in this pod.
            call(address, "tune", "gelu", "--shape", "4096", "--iterations", "3")
            with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as response:
                self.assertIn('warpcall_tuning_cache_errors_total{operation="write"} 1\n', response.read().decode())

    def check_metrics(self, metrics):
        """Everything that scales names a metric that a server without load has."""
        for query in itertools.chain(*self.queries()):
            names = set(re.findall(r"\bwarpcall_\w+", query))
            self.assertTrue(names, query)
            for name in names:
                self.assertRegex(metrics, rf"(?m)^{name}[{{ ]")


if __name__ == "__main__":
    try:
        WHEELS = pinned.Wheels(pathlib.Path(sys.argv[2]))
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
