#!/usr/bin/env python3
"""deploy/kubernetes' overlay mutual-tls: the server with the very flags of its pods, the files where they are mounted,
admits clients with a certificate, within the policies, and no others.

    mutual_tls_test.py SOURCE BUILD FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that, openssl or a Debian package can't be had.
"""

import os
import pathlib
import re
import shutil
import sys
import types
import unittest
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from access_case import PROGRAMS, SKIPPED, AccessCase, eventually  # noqa: E402

import facts  # noqa: E402
import pinned  # noqa: E402
import processes  # noqa: E402
import warpcall  # noqa: E402

try:
    import manifests  # noqa: E402
    import yaml
except ImportError as error:
    print(f"skipped: {error} (Debian: python3-yaml)")
    sys.exit(SKIPPED)

OVERLAY = processes.deployed_folder() / "kubernetes" / "overlays" / "mutual-tls"
CLIENT = "warpcall-client"


def mount(folder, files):
    """A folder as the kubelet makes and changes it: names stay, and lead to the newest version's files."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..{len(list(folder.glob('..[0-9]*')))}"
    version.mkdir()
    for name, text in files.items():
        (version / name).write_text(text, encoding="utf-8")
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..new").symlink_to(version.name)
    os.replace(folder / "..new", folder / "..data")


class MutualTlsTest(AccessCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = manifests.kubectl(WHEELS, OVERLAY)
        cls.container = manifests.container_of(cls.objects)
        cls.volumes = {volume["name"]: volume for volume in manifests.pod_of(cls.objects)["spec"]["volumes"]}
        components = ["mutual-tls", "cert-manager"]
        cls.managed = manifests.with_components(WHEELS, manifests.example(), components)

    def setUp(self):
        super().setUp()
        for name in ("server", "authority", "other"):
            self.make_certificate(name)
        for name in (CLIENT, "bob"):
            self.make_signed(name, "authority")
        self.make_signed("mallory", "other")

    def text(self, name):
        return pathlib.Path(self.path(name)).read_text(encoding="utf-8")

    def contents(self, volume):
        """{name: text} of the files that a volume brings."""
        if "emptyDir" in volume:
            return {}
        if "configMap" in volume:
            return manifests.named(self.objects, "ConfigMap", volume["configMap"]["name"])["data"]
        secret = {"tls.crt": self.text("server.pem"), "tls.key": self.text("server.key"),
                  "ca.crt": self.text("authority.pem")}
        self.assertTrue(volume["secret"]["defaultMode"] & 0o040)  # fsGroup's
        return {item["path"]: secret[item["key"]] for item in volume["secret"]["items"]}

    def start(self):
        """A server by the pod's arguments, with free ports, and this test's folders in the place of its mounts."""
        words = facts.given(self.container["args"]) | {
            "listen": "0.0.0.0:0", "metrics_listen": "127.0.0.1:0", "lame_duck_seconds": "0",
            "devices": "cpu", "self_test": "off"}
        self.folders = {}
        for each in self.container["volumeMounts"]:
            self.folders[each["name"]] = folder = self.folder / each["name"]
            mount(folder, self.contents(self.volumes[each["name"]]))
            words = {flag: value.replace(each["mountPath"] + "/", f"{folder}/")
                     for flag, value in words.items()}
        self.log = self.folder / "log"
        arguments = [PROGRAMS / "warpcalld", *(f"--{flag}={value}" for flag, value in words.items())]
        process = self.enterContext(processes.running(arguments, self.log))

        def serves():
            if process.poll() is not None:
                raise processes.Failure(f"it left: {self.log.read_text()}")
            return re.search(r"serving on \S+:(\d+), metrics on ([^\s\"]+)[\n\"]", self.log.read_text())
        port, metrics = processes.wait_until("the server", serves, processes.START_SECONDS_MAX).groups()
        return types.SimpleNamespace(address=f"127.0.0.1:{port}", metrics_address=metrics)

    def both(self, server, name):
        """Outcome of identity by the Python client, and warpcall's exit status for `devices`."""
        own = [self.path(f"{name}.pem"), self.path(f"{name}.key")] if name else []
        ca = self.path("server.pem")
        options = ["--tls_cert", own[0], "--tls_key", own[1]] if name else []
        return (self.ends(server, tls=warpcall.TLS(ca, *own)),
                self.command(server, "--tls_ca", ca, *options, "devices")[0])

    def test_who_has_a_certificate_gets_in_and_nobody_else(self):
        server = self.start()
        self.assertEqual({name: self.both(server, name) for name in (CLIENT, "bob", "mallory", None)},
                         {CLIENT: ("OK", 0), "bob": ("PERMISSION_DENIED", 0), "mallory": ("UNAVAILABLE", 1),
                          None: ("UNAVAILABLE", 1)})
        self.assertEqual(self.ends(server), "UNAVAILABLE")  # without TLS
        self.assertEqual(self.command(server, "devices")[0], 1)

    def test_probes_and_prometheus_need_no_certificate(self):
        server = self.start()
        paths = [self.container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")]
        for path in (*paths, "/metrics"):
            with urllib.request.urlopen(f"http://{server.metrics_address}{path}", timeout=30) as answer:
                self.assertEqual(answer.status, 200)

    def test_changed_policies_and_certificates_count_without_a_restart(self):
        server = self.start()
        policies = self.contents(self.volumes["policies"])["policies.json"].replace(f"CN={CLIENT}", "CN=bob")
        mount(self.folders["policies"], {"policies.json": policies})
        self.assertTrue(eventually(lambda: self.both(server, "bob")[0] == "OK"))
        self.assertEqual(self.both(server, CLIENT)[0], "PERMISSION_DENIED")
        before = self.shown(server)
        self.make_certificate("server")
        mount(self.folders["tls"], self.contents(self.volumes["tls"]))
        self.assertTrue(eventually(lambda: self.shown(server) != before))
        self.assertEqual(self.both(server, "bob")[0], "OK")

    def test_nobody_gets_in_without_a_certificate_by_a_flag(self):
        given = facts.given(self.container["args"])
        self.assertNotIn("insecure", given)
        self.assertLessEqual({"tls_cert", "tls_key", "tls_client_ca", "policy_file"}, set(given))
        (port,) = manifests.named(self.objects, "Service")["spec"]["ports"]
        self.assertNotIn("appProtocol", port)

    def test_the_rest_is_the_plain_overlays(self):
        """Probes, ports, resources and scrapers are as without certificates."""
        plain = manifests.kubectl(WHEELS, OVERLAY.with_name("cpu"))
        ours, theirs = self.container, manifests.container_of(plain)
        self.assertEqual({key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)},
                         {"args", "volumeMounts"})
        monitors = [manifests.named(manifests.with_components(WHEELS, manifests.example(), names), "PodMonitor")
                    for names in (["monitoring"], ["monitoring", "mutual-tls"])]
        self.assertEqual(*monitors)

    def test_cert_manager_makes_what_the_pods_and_the_policies_name(self):
        certificates = {each["metadata"]["name"]: each["spec"] for each in self.managed
                        if each["kind"] == "Certificate"}
        issuers = {each["metadata"]["name"]: each["spec"] for each in self.managed if each["kind"] == "Issuer"}
        server, client, authority = (certificates[name] for name in ("warpcall", CLIENT, "warpcall-authority"))
        self.assertEqual(server["secretName"], self.volumes["tls"]["secret"]["secretName"])
        policies = yaml.safe_load(self.contents(self.volumes["policies"])["policies.json"])
        self.assertEqual(list(policies["principals"]), [f"CN={client['commonName']}"])
        for signed in (server, client):
            self.assertEqual(issuers[signed["issuerRef"]["name"]], {"ca": {"secretName": authority["secretName"]}})
        self.assertEqual((authority["isCA"], issuers[authority["issuerRef"]["name"]]), (True, {"selfSigned": {}}))
        self.assertEqual((server["usages"][-1], client["usages"][-1]), ("server auth", "client auth"))
        service = manifests.named(self.managed, "Service")["metadata"]
        self.assertIn(f"{service['name']}.{service['namespace']}", server["dnsNames"])
        self.assertEqual(len({each["secretName"] for each in certificates.values()}), 3)


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: there is no openssl")
        sys.exit(SKIPPED)
    try:
        WHEELS = pinned.Wheels(pathlib.Path(sys.argv[3]))
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
