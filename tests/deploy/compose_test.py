#!/usr/bin/env python3
"""deploy/compose: valid by the compose specification's schema, and right about the server and the image.

    compose_test.py WARPCALLD FOLDER

FOLDER keeps what comes from PyPI. Exit status 77: skipped, that can't be had.
"""

import json
import os
import pathlib
import re
import sys
import tempfile
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

SKIPPED = 77
COMPOSE = processes.deployed_folder() / "compose"
DOCKERFILE = COMPOSE.parents[1] / "Dockerfile"
SERVERS = {"cpu": "warpcalld", "gpu": "warpcalld-gpu"}
# Keys that may differ between the server on CPUs and the one on GPUs.
OWN_KEYS = {"profiles", "build", "image", "environment", "networks", "deploy", "ulimits"}

# CUDA's libraries and context on the host.
GPU_HOST_MIB = 1024

WARPCALLD = sys.argv[1] if len(sys.argv) > 1 else ""


def mib(text):
    """Reads a size in Docker's units."""
    number, unit = re.fullmatch(r"(\d+)([mg])", text).groups()
    return int(number) * {"m": 1, "g": 1024}[unit]


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text)[1])


class ComposeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = yaml.safe_load((COMPOSE / "compose.yml").read_text(encoding="utf-8"))
        cls.services = cls.file["services"]
        cls.dockerfile = DOCKERFILE.read_text(encoding="utf-8")

    def servers(self):
        for profile, name in SERVERS.items():
            with self.subTest(profile):
                yield profile, self.services[name]

    def test_it_is_valid(self):
        schema = WHEELS.json("check_jsonschema",
                             "check_jsonschema/builtin_schemas/vendor/compose-spec.json")
        errors = jsonschema.Draft202012Validator(schema).iter_errors(self.file)
        self.assertEqual([f"{error.json_path}: {error.message}" for error in errors], [])

    def test_each_profile_has_one_server_which_prometheus_finds(self):
        for profile, server in self.servers():
            self.assertEqual(server["profiles"], [profile])
        self.assertEqual({name for name, service in self.services.items() if "profiles" in service},
                         set(SERVERS.values()))
        aliases = self.services["warpcalld-gpu"]["networks"]["default"]["aliases"]
        self.assertEqual(aliases, ["warpcalld"])
        lines = (COMPOSE / ".env").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line for line in lines if not line.startswith("#")], ["COMPOSE_PROFILES=cpu"])
        # A service of a profile that is off is none to wait for.
        for service in self.services.values():
            self.assertFalse(set(service.get("depends_on", [])) & set(SERVERS.values()))

    def test_the_servers_differ_in_their_devices_only(self):
        cpu, gpu = (self.services[name] for name in SERVERS.values())
        self.assertEqual({key for key in cpu.keys() | gpu.keys() if cpu.get(key) != gpu.get(key)}, OWN_KEYS)
        (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
        self.assertEqual(device, {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]})

    def test_the_server_on_gpus_is_not_ready_without_one(self):
        words = [f"{name}={value}" for name, value in self.services[SERVERS["gpu"]]["environment"].items()]
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        _, metrics = self.enterContext(processes.warpcalld(WARPCALLD, folder, "--devices=cpu", before=["env", *words]))
        with self.assertRaisesRegex(urllib.error.HTTPError, "503"):
            urllib.request.urlopen(f"http://{metrics}/readyz", timeout=60)

    def test_flags_ports_and_times_are_the_servers(self):
        defaults = facts.flags_of(WARPCALLD)
        for profile, server in self.servers():
            settings = facts.Settings(defaults, server["command"])
            ports = [settings.port("listen"), settings.port("metrics_listen")]
            self.assertEqual(server["ports"], [f"127.0.0.1:{port}:{port}" for port in ports])
            self.assertIn(f"\nEXPOSE {ports[0]} {ports[1]}\n", self.dockerfile)
            self.assertGreaterEqual(seconds(server["stop_grace_period"]), settings.stop_seconds())
            self.assertEqual(server["build"]["target"], profile)
            self.assertRegex(self.dockerfile, rf"(?m)^FROM \S+ AS {profile}$")

    def test_what_was_found_out_outlives_the_container(self):
        defaults = facts.flags_of(WARPCALLD)
        (user,) = set(re.findall(r"(?m)^USER (\d+):\1$", self.dockerfile))
        for _, server in self.servers():
            settings = facts.Settings(defaults, server["command"])
            (mount,) = server["volumes"]
            folder = mount.partition(":")[2]
            self.assertEqual([settings.all["compile_cache"], os.path.dirname(settings.all["tuning_cache"])],
                             [folder, folder])
            # A new volume gets the owner of the image's folder at its place.
            self.assertIn(f"install --directory --owner={user} --group={user} --mode=0700 {folder}\n", self.dockerfile)

    def test_builds_take_from_the_environment_what_the_documents_name(self):
        text = (COMPOSE.parent / "README.md").read_text(encoding="utf-8")
        table = re.search(r"^\| `--build-arg` \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)[1]
        named = re.findall(r"^\| `(\w+)` \|", table, re.M)
        of_gpu, of_cpu = (self.services[SERVERS[profile]]["build"]["args"] for profile in ("gpu", "cpu"))
        # A list without values: variables that the environment lacks have the Dockerfile's default.
        self.assertEqual(of_gpu, sorted(named))
        self.assertEqual(of_cpu, [name for name in of_gpu if not name.startswith("CUDA_")])
        for name in named:
            self.assertRegex(self.dockerfile, rf"(?m)^ARG {name}=\S+$")

    def test_health_is_asked_as_in_the_image(self):
        option = re.compile(r"HEALTHCHECK --interval=(\w+) --timeout=(\w+) --start-period=(\w+) "
                            r'--retries=(\d) \\\n  CMD (\[.*\])\n')
        in_image = option.findall(self.dockerfile)
        self.assertEqual(len(in_image), self.dockerfile.count("HEALTHCHECK"))
        for _, server in self.servers():
            check = server["healthcheck"]
            for *values, command in in_image:
                self.assertEqual(["CMD", *json.loads(command)], [word.replace("$$", "$") for word in check["test"]])
                self.assertEqual(values, [check["interval"], check["timeout"], check["start_period"],
                                          str(check["retries"])])

    def test_everything_is_confined(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertIs(service["read_only"], True)
                self.assertEqual((service["cap_drop"], service["security_opt"]),
                                 (["ALL"], ["no-new-privileges:true"]))
                for port in service.get("ports", []):
                    self.assertRegex(port, r"^127\.0\.0\.1:\d+:\d+$")

    def test_images_of_others_are_pinned_by_their_digests(self):
        """The server's are built."""
        for name, service in self.services.items():
            self.assertRegex(service["image"], r"^warpcall:(cpu|gpu)$" if "build" in service
                             else r"^[\w./-]+:(?!latest@)[\w.-]+@sha256:[0-9a-f]{64}$", name)

    def test_nothing_fills_the_machine(self):
        """Limits of memory, logs, and Prometheus' storage."""
        for name, service in self.services.items():
            self.assertEqual(service["logging"]["driver"], "json-file", name)
            options = service["logging"]["options"]
            self.assertLessEqual(mib(options["max-size"]) * int(options["max-file"]), 100, name)
            self.assertGreaterEqual(mib(service["mem_limit"]), 512, name)
        defaults = facts.flags_of(WARPCALLD)
        for profile, server in self.servers():
            settings = facts.Settings(defaults, server["command"])
            devices = {"cpu": 1, "gpu": 2}[profile]
            needed = (settings.memory_mib(devices) + settings.number("benchmark_mib") + facts.OWN_MIB
                      + (devices - 1) * GPU_HOST_MIB)
            self.assertGreaterEqual(mib(server["mem_limit"]), needed)
        kept = dict(word.removeprefix("--storage.tsdb.retention.").split("=")
                    for word in self.services["prometheus"]["command"] if "retention" in word)
        self.assertEqual(set(kept), {"time", "size"})
        config, data = (word.partition("=")[2] for word in self.services["prometheus"]["command"][:2])
        folders = [mount.split(":")[1] for mount in self.services["prometheus"]["volumes"]]
        self.assertEqual([os.path.dirname(config), data], folders)

    def test_volumes_and_what_is_mounted_are_there(self):
        used = set()
        for service in self.services.values():
            for mount in service.get("volumes", []):
                source = mount.partition(":")[0]
                if source.startswith("."):
                    self.assertTrue((COMPOSE / source).exists(), source)
                    self.assertTrue(mount.endswith(":ro"), mount)
                else:
                    used.add(source)
        self.assertEqual(used, set(self.file["volumes"]))


if __name__ == "__main__":
    try:
        WHEELS = pinned.Wheels(pathlib.Path(sys.argv[2]))
    except pinned.Missing as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
