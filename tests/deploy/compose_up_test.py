#!/usr/bin/env python3
"""`docker compose up` of deploy/compose by Docker's engine: server, Prometheus and Grafana's stand-in come up confined,
find each other, and the server ends as it should.

    compose_up_test.py WARPCALLD WARPCALL

The engine is Debian's (engine.py), and so is Prometheus; the server's image is the Dockerfile's `service` with the two
programs. Grafana's stand-in only reads the files provisioned for Grafana, as its user. With WARPCALL_TEST_NIGHTLY=1.
Exit status 77: skipped, without that, or without the things that image_test.py needs.
"""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import yaml  # noqa: E402

import engine  # noqa: E402
import image_test  # noqa: E402
import processes  # noqa: E402

SKIPPED = 77
SOURCE = image_test.SOURCE
# The other server without its GPUs, and the memory locked for them, which this machine need not have.
# Images that are made here have no digest of a registry's.
IMAGES = "services: {" + ", ".join(f"{name}: {{image: '{name}:made'}}" for name in ("prometheus", "grafana")) + "}\n"
BARE = "services: {warpcalld-gpu: {deploy: !reset null, ulimits: !reset null}}\n"
SERVER, WAIT_SECONDS_MAX = "warpcall-warpcalld-1", 120
SERVICES = yaml.safe_load((SOURCE / "deploy/compose/compose.yml").read_text(encoding="utf-8"))["services"]
# Facts of the services' images: the user, the command, and the user's folder.
STAND_INS = {
    "prometheus": """USER 65534
        ENTRYPOINT ["prometheus"]
        VOLUME /prometheus
        CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]""",
    "grafana": """USER 472
        ENTRYPOINT ["tini", "--", "python3", "-m", "http.server", "3000", "--directory", "/etc/grafana"]""",
}
FOLDERS = {"prometheus": 65534, "var/lib/grafana": 472}
OPTIONS = {}  # set by main and setUpModule


def server_image(folder):
    """An archive with the content of target `cpu`: `service`, and the programs already built."""
    buildah = image_test.Buildah(folder / "store")
    image_test.make_base(buildah, folder)
    buildah.build("service", image_test.SERVICE)
    name = buildah.run("from", "--pull-never", image_test.SERVICE)
    buildah.run("copy", "--quiet", name, *OPTIONS["programs"], "/usr/local/bin/")
    buildah.run("commit", "--quiet", "--format", "docker", "--rm", name, image_test.IMAGE)
    archive = folder / "engine/server.tar"
    buildah.run("push", "--quiet", image_test.IMAGE, f"docker-archive:{archive}:warpcall:cpu")
    return f"/{archive.name}"


def setUpModule():
    folder = pathlib.Path(unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="compose")))
    docker = OPTIONS["engine"] = unittest.enterModuleContext(engine.running(folder))
    shutil.copytree(SOURCE / "deploy", docker.root / "src/deploy")
    image_test.run("chmod", "-R", "o+rX", docker.root / "src")
    (docker.root / "src/bare.yml").write_text(BARE, encoding="utf-8")
    (docker.root / "src/images.yml").write_text(IMAGES, encoding="utf-8")
    docker.docker("load", "--input", server_image(folder))
    docker.docker("tag", "warpcall:cpu", "warpcall:gpu")
    (docker.root / "server.tar").unlink()
    for place, user in FOLDERS.items():
        image_test.run("install", "-d", f"--owner={user}", docker.root / place)
    docker.import_root("root:made")
    for service, lines in STAND_INS.items():
        docker.build(f"{service}:made", f"FROM root:made\n{lines}\n")


class ComposeUpTest(unittest.TestCase):
    def setUp(self):
        self.engine = OPTIONS["engine"]
        self.addCleanup(self.compose, "--profile", "*", "down", "--volumes")
        self.compose("up", "--detach", "--wait")

    def compose(self, *words):
        return self.engine.docker("compose", "--file", "/src/deploy/compose/compose.yml",
                                  "--file", "/src/images.yml", *words)

    def ask(self, path):
        return json.loads(self.engine.get(f"http://127.0.0.1:9090/api/v1/{path}"))["data"]

    def is_scraped(self):
        try:
            return [target["health"] for target in self.ask("targets")["activeTargets"]] == ["up"]
        except processes.Failure:  # Prometheus does not listen yet
            return False

    def check_it_serves_and_is_scraped(self):
        call = self.engine.beside(OPTIONS["programs"][1], "run", "gelu", "--shape", "1024")
        self.assertIn("gelu on cpu", call)
        processes.wait_until("a scrape", self.is_scraped, WAIT_SECONDS_MAX)

    def test_every_service_is_confined(self):
        running = self.compose("ps", "--quiet").split()
        self.assertEqual(len(running), 3)
        for container in running:
            with self.subTest(self.engine.inspect(container, "Name")):
                process = self.engine.inspect(container, "State.Pid")
                text = image_test.run(*self.engine.inside("cat", f"/proc/{process}/status", f"/proc/{process}/mounts"))
                self.assertNotIn("0", re.search(r"^Uid:(.*)$", text, re.M)[1].split())
                self.assertEqual(set(re.findall(r"^Cap\w+:\s(\w+)$", text, re.M)), {"0" * 16})
                self.assertRegex(text, r"(?m)^NoNewPrivs:\s1$")
                self.assertRegex(text, r"(?m)^\S+ / \S+ ro,")

    def test_they_serve_this_machine_and_find_each_other(self):
        self.check_it_serves_and_is_scraped()

        def rules():
            return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        processes.wait_until("the rules", lambda: {rule["health"] for rule in rules()} == {"ok"}, WAIT_SECONDS_MAX)
        self.assertGreater(len(rules()), 20)
        # As Grafana's user, in its container: the provisioned files, and the servers they name.
        dashboard = self.engine.get("http://127.0.0.1:3000/dashboards/warpcall.json")
        self.assertEqual(json.loads(dashboard)["uid"], "warpcall")
        source = self.engine.get("http://127.0.0.1:3000/provisioning/datasources/prometheus.yml")
        url = yaml.safe_load(source)["datasources"][0]["url"]
        self.compose("exec", "-T", "grafana", "python3", "-c",
                     f"import urllib.request; urllib.request.urlopen('{url}/-/ready', timeout=60)")

    def chosen_because(self):
        answer = self.engine.beside(OPTIONS["programs"][1], "--json", "describe", "gelu", "--shape", "1024")
        return json.loads(answer)["chosen_because"]

    def test_what_tune_found_outlives_the_container(self):
        self.assertNotIn("tuned", self.chosen_because())
        self.engine.beside(OPTIONS["programs"][1], "tune", "gelu", "--shape", "1024", "--iterations", "5")
        before = self.engine.inspect(SERVER, "Id")
        self.compose("up", "--detach", "--wait", "--force-recreate", "warpcalld")
        self.assertNotEqual(self.engine.inspect(SERVER, "Id"), before)
        self.assertIn("tuned", self.chosen_because())

    def test_the_server_of_the_other_profile_has_its_name_and_ends_with_every_profile(self):
        self.compose("down")
        self.compose("--file", "/src/bare.yml", "--profile", "gpu", "up", "--detach", "--wait")
        self.check_it_serves_and_is_scraped()
        self.compose("--profile", "*", "down")
        self.assertEqual(self.engine.docker("ps", "--all", "--quiet"), "")

    def test_the_server_is_started_again_and_drains_when_it_is_stopped(self):
        self.compose("restart", "warpcalld")
        self.compose("up", "--detach", "--wait")
        self.check_it_serves_and_is_scraped()
        image_test.run(*self.engine.inside("bash", "-c", f"kill -KILL {self.engine.inspect(SERVER, 'State.Pid')}"))
        processes.wait_until("another start", lambda: self.engine.inspect(SERVER, "RestartCount") == 1,
                             WAIT_SECONDS_MAX)
        self.compose("up", "--detach", "--wait")
        started = time.monotonic()
        self.compose("stop", "warpcalld")
        self.assertLess(time.monotonic() - started, int(SERVICES["warpcalld"]["stop_grace_period"].rstrip("s")))
        self.assertEqual(self.engine.inspect(SERVER, "State.ExitCode"), 0)
        self.assertIn("draining", self.engine.docker("logs", SERVER))


def main():
    reason = image_test.obstacle() or engine.obstacle()
    if os.environ.get("WARPCALL_TEST_NIGHTLY") != "1":
        reason = "it makes an engine; WARPCALL_TEST_NIGHTLY=1 runs it, as tests/run.sh --nightly does"
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    OPTIONS["programs"] = [pathlib.Path(word).resolve() for word in sys.argv[1:3]]
    result = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
