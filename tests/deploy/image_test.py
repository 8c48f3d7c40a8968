#!/usr/bin/env python3
"""The image of target `cpu`, built by buildah upon a new Debian, and run as engines run it: as its user, as process 1,
on a network of its own, nothing writable. Checks its files, its bill of materials, and that its programs built a second
time, in another folder, have the same bytes. For target `gpu`, checks the parts of CUDA and the compiler that it takes.

    image_test.py PINNED_FOLDER [--store FOLDER] [unittest's arguments]

With WARPCALL_TEST_NIGHTLY=1, as it compiles everything twice; FOLDER keeps buildah's layers for the next run. Nothing
else stays. Exit status 77: skipped, without that, or for want of root, namespaces, buildah or debootstrap.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import jsonschema  # noqa: E402

import pinned  # noqa: E402
import processes  # noqa: E402
from processes import Failure  # noqa: E402

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD_SECONDS_MAX, END_SECONDS_MAX = 4000, 60
MB = 10**6
ABOVE_BASE_MB_MAX = 120
REVISION = "0123456789abcdef0123456789abcdef01234567"
VERSION = re.search(r"^project\(warpcall VERSION (\S+) ", (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8"),
                    re.M)[1]
BASE, BUILT, IMAGE = "localhost/warpcall-base", "localhost/warpcall-build", "localhost/warpcall:cpu"
SERVICE, CUDA = "localhost/warpcall-service", "localhost/warpcall-cuda"
USER = 10001
TOOLS = ("as", "c++", "cc", "clang", "cmake", "cpp", "g++", "gcc", "ld", "make", "ninja", "nvcc", "pip", "protoc",
         "python3")
OPTIONS = {}  # set by main


def run(*command, seconds_max=BUILD_SECONDS_MAX, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=seconds_max, **options)
    if done.returncode != 0:
        raise Failure(f"{command} ended with status {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


class Buildah:
    """Its storage and temporary files, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "temporary").mkdir(parents=True, exist_ok=True)
        self.words = ["buildah", "--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def run(self, *command):
        return run(*self.words, *command, env=os.environ | {"TMPDIR": str(self.folder / "temporary")}).strip()

    def has(self, image):
        return image in self.run("images", "--format", "{{.Name}}").split()

    def build(self, target, tag):
        # Docker's format, as the other has no health check.
        self.run("build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--layers",
                 "--build-arg", f"BASE_IMAGE={BASE}", "--build-arg", f"REVISION={REVISION}",
                 "--target", target, "--tag", tag, SOURCE)

    def container(self, image):
        """(name, root) of a new one."""
        name = self.run("from", "--pull-never", image)
        return name, pathlib.Path(self.run("mount", name))

    def config(self, image):
        return json.loads(self.run("inspect", "--type", "image", image))["Docker"]["config"]


def make_base(buildah, folder):
    """Debian's own images have no more than this; the archive is the one that this machine uses."""
    root = folder / "base"
    text = pathlib.Path("/etc/os-release").read_text(encoding="utf-8")
    run("debootstrap", "--variant=minbase", re.search(r"^VERSION_CODENAME=(\w+)$", text, re.M)[1], root)
    sources = pathlib.Path("/etc/apt/sources.list.d/debian.sources")
    if sources.exists():
        (root / "etc/apt/sources.list").unlink()
        shutil.copy(sources, root / "etc/apt/sources.list.d")
    if "PIP_CERT" in os.environ:  # trust the same proxies to PyPI there as here
        shutil.copy(os.environ["PIP_CERT"], root / "etc/machine.crt")
        (root / "etc/pip.conf").write_text("[global]\ncert = /etc/machine.crt\n", encoding="utf-8")
    run("chroot", root, "apt-get", "clean")
    shutil.rmtree(root / "var/lib/apt/lists")
    name = buildah.run("from", "scratch")
    buildah.run("copy", "--quiet", name, root, "/")
    buildah.run("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", name)
    buildah.run("commit", "--quiet", "--rm", name, BASE)
    shutil.rmtree(root)


def bytes_in(root):
    """Disk space of its files, each counted once."""
    seen = {}
    for folder, _, files in os.walk(root):
        for file in files:
            status = os.lstat(os.path.join(folder, file))
            seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


class Container:
    """The image's command in namespaces of its own: read_only, user and network as in Docker and Kubernetes."""

    # Without a tmpfs: nothing there is writable but /dev.
    START = """set -e
        mount --bind "$0" "$0"
        mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc"
        mount -o remount,bind,ro "$0"
        ip link set lo up
        exec chroot --userspec="$1" "$0" "${@:2}" """

    def __init__(self, root, config, log):
        self.root, self.user, self.log = root, config["User"], log
        self.environment = dict(pair.split("=", 1) for pair in config["Env"])
        with open(log, "wb") as output:
            self.parent = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--net", "--fork", "bash", "-c", self.START, root,
                 self.user, *config["Entrypoint"], *config["Cmd"], "--lame_duck_seconds=600"],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def said(self):
        return self.log.read_text(encoding="utf-8")

    def process(self):
        """The process id of the server, as seen from outside."""
        children = pathlib.Path(f"/proc/{self.parent.pid}/task/{self.parent.pid}/children").read_text(encoding="utf-8")
        return int(children.split()[0])

    def serves(self):
        if self.parent.poll() is not None:
            raise Failure(f"the server left at start: {self.said()}")
        return "serving on" in self.said()

    def start(self, user, *command):
        """A command beside the server, as `docker exec` starts one."""
        return subprocess.Popen(
            ["nsenter", "--target", str(self.process()), "--mount", "--pid", "--net", "chroot",
             f"--userspec={user}", self.root, *command], env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def call(self, *command, user=None):
        """(status, output)"""
        process = self.start(user or self.user, *command)
        output = process.communicate(timeout=END_SECONDS_MAX)[0]
        return process.returncode, output


@contextlib.contextmanager
def running(root, config, folder):
    container = Container(root, config, folder / "log")
    try:
        processes.wait_until("the server", container.serves, END_SECONDS_MAX)
        yield container
    finally:
        if container.parent.poll() is None:
            os.kill(container.process(), signal.SIGKILL)
        container.parent.wait()


def setUpModule():
    folder = pathlib.Path(unittest.enterModuleContext(tempfile.TemporaryDirectory(prefix="image")))
    buildah = Buildah(OPTIONS["store"] or folder / "store")
    unittest.addModuleCleanup(buildah.run, "rm", "--all")
    if not buildah.has(BASE):
        make_base(buildah, folder)
    OPTIONS["folder"], OPTIONS["buildah"] = folder, buildah


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder, cls.buildah = OPTIONS["folder"], OPTIONS["buildah"]
        started = time.monotonic()
        cls.buildah.build("build", BUILT)
        cls.buildah.build("cpu", IMAGE)
        print(f"built in {(time.monotonic() - started) / 60:.1f} minutes")
        cls.config = cls.buildah.config(IMAGE)
        cls.base, cls.root = (cls.buildah.container(image)[1] for image in (BASE, IMAGE))

    def test_it_says_what_it_is(self):
        labels = {name.removeprefix("org.opencontainers.image."): value
                  for name, value in self.config["Labels"].items() if name.startswith("org.opencontainers.image.")}
        self.assertLessEqual({"title": "warpcall", "licenses": "Apache-2.0", "version": VERSION,
                              "revision": REVISION, "base.name": BASE}.items(), labels.items())
        self.assertTrue(labels["description"])
        self.assertEqual(set(self.config["ExposedPorts"]), {"8470/tcp", "9470/tcp"})
        self.assertEqual(self.config["User"], f"{USER}:{USER}")
        self.assertEqual(self.config["Healthcheck"]["Test"][:3], ["CMD", "bash", "-c"])

    def test_it_has_the_programs_and_what_they_load_and_nothing_that_built_them(self):
        self.assertEqual(set(os.listdir(self.root / "usr/local/bin")), {"warpcalld", "warpcall"})
        self.assertTrue((self.root / "usr/share/doc/warpcall/LICENSE").is_file())
        search = ":".join(f"{self.root}/{folder}" for folder in ("usr/local/bin", "usr/bin", "usr/sbin"))
        self.assertEqual([tool for tool in TOOLS if shutil.which(tool, path=search)], [])
        self.assertEqual([name for name in ("src", "out", "build") if (self.root / name).exists()], [])
        added = [path for suffix in ("cc", "cu", "h", "proto", "o", "a", "deb")
                 for path in self.root.rglob(f"*.{suffix}") if path.is_file()]
        self.assertEqual([path for path in added if not (self.base / path.relative_to(self.root)).exists()], [])
        self.assertEqual(list((self.root / "tmp").iterdir()), [])
        lists = self.root / "var/lib/apt/lists"
        self.assertEqual([path for path in lists.rglob("*") if path.is_file()], [])
        for program in ("warpcalld", "warpcall"):
            linked = run("chroot", self.root, "ldd", f"/usr/local/bin/{program}")
            self.assertNotIn("not found", linked)
            self.assertNotIn(".symtab", run("readelf", "--sections", self.root / "usr/local/bin" / program))

    def test_it_adds_little_to_its_base(self):
        above = (bytes_in(self.root) - bytes_in(self.base)) / MB
        print(f"{above:.0f} MB above its base")
        self.assertGreater(above, 10)
        self.assertLessEqual(above, ABOVE_BASE_MB_MAX)

    def test_it_serves_as_its_user_from_a_root_that_nobody_can_write_and_drains_when_told_to_end(self):
        with running(self.root, self.config, self.folder) as container:
            status = pathlib.Path(f"/proc/{container.process()}/status").read_text(encoding="utf-8")
            self.assertEqual(re.search(r"^Uid:(.*)$", status, re.M)[1].split(), [str(USER)] * 4)
            self.assertEqual(re.search(r"^NSpid:.*\s(\d+)$", status, re.M)[1], "1")
            self.assertIn("Read-only", container.call("touch", "/tmp/file", user="0:0")[1])
            health = self.config["Healthcheck"]["Test"]
            self.assertEqual(container.call(*health[1:])[0], 0)
            done, output = container.call("warpcall", "run", "gelu", "--shape", "1024")
            self.assertEqual(done, 0, output)
            self.assertIn("gelu on cpu", output)
            self.assertIn(REVISION[:12], container.call("warpcall", "--json", "version")[1])
            # Load balancers hear first, and their remaining calls are answered; the second signal ends that.
            os.kill(container.process(), signal.SIGTERM)
            processes.wait_until("the lame duck", lambda: "lame_duck_seconds" in container.said(), END_SECONDS_MAX)
            self.assertNotEqual(container.call(*health[1:])[0], 0)
            done, output = container.call("warpcall", "run", "gelu", "--shape", "1024")
            self.assertEqual(done, 0, output)
            os.kill(container.process(), signal.SIGTERM)
            self.assertEqual(container.parent.wait(END_SECONDS_MAX), 0, container.said())
            self.assertIn("draining", container.said())

    def test_its_programs_built_again_elsewhere_are_the_same(self):
        name, root = self.buildah.container(BUILT)
        build = ("mkdir /other && cp -r /src /other/folder && rm -rf /other/folder/build && "
                 f"WARPCALL_REVISION={REVISION} bash /other/folder/deploy/build_programs.sh release /again")
        started = time.monotonic()
        self.buildah.run("run", "--isolation", "chroot", name, "--", "bash", "-c", build)
        print(f"built again in {(time.monotonic() - started) / 60:.1f} minutes")
        self.assertEqual(digests(root / "again"), digests(self.root / "usr/local/bin"))

    def bill(self, name):
        file = self.folder / name
        run(sys.executable, SOURCE / "deploy/sbom.py", self.root, VERSION, file,
            env=os.environ | {"SOURCE_DATE_EPOCH": "1700000000"})
        return file.read_text(encoding="utf-8")

    def check_schema(self, bill):
        """The specification's, as the wheel of its library brings it."""
        wheels = pinned.Wheels(OPTIONS["pinned"], SOURCE / "deploy/sbom_requirements.txt")

        def schema(name):
            return wheels.json("cyclonedx_python_lib", f"cyclonedx/schema/_res/{name}.SNAPSHOT.schema.json")
        whole = schema(f"bom-{bill['specVersion']}")
        store = {f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": schema(name)
                 for name in ("spdx", "jsf-0.82")}
        resolver = jsonschema.RefResolver.from_schema(whole, store=store)
        jsonschema.Draft7Validator(whole, resolver=resolver).validate(bill)

    def test_its_bill_of_materials_lists_all_that_is_installed_and_what_the_server_is_linked_with(self):
        text = self.bill("first")
        self.assertEqual(text, self.bill("second"))
        bill = json.loads(text)
        self.check_schema(bill)
        listed = {(part["name"], part["version"]) for part in bill["components"]
                  if part.get("purl", "").startswith("pkg:deb/") and not part["purl"].endswith("arch=source")}
        query = run("chroot", self.root, "dpkg-query", "--show", "--showformat=${Package} ${Version}\n")
        self.assertEqual(listed, {tuple(line.split()) for line in query.splitlines()})
        print(f"{len(listed)} packages in its bill of materials")
        parts = {part["name"]: part for part in bill["components"] if part["type"] == "application"}
        self.assertEqual({name: part["hashes"][0]["content"] for name, part in parts.items()},
                         digests(self.root / "usr/local/bin"))
        linked = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
        names = {part["bom-ref"]: part["name"] for part in bill["components"]}
        server = {names[reference] for reference in linked[parts["warpcalld"]["bom-ref"]]}
        for pattern in (r"libgrpc\+\+", "libprotobuf", "libdnnl", "libabsl", "libssl", "libprometheus-cpp", "libc6"):
            self.assertTrue([name for name in server if re.match(pattern, name)], (pattern, server))

    def test_there_is_no_bill_of_what_is_no_system(self):
        with self.assertRaisesRegex(Failure, "no var/lib/dpkg/status"):
            run(sys.executable, SOURCE / "deploy/sbom.py", self.folder, VERSION, self.folder / "none")
        self.assertFalse((self.folder / "none").exists())


class CudaTest(unittest.TestCase):
    """The packages that target `gpu` takes from PyPI, without the half hour that compiling its programs takes: the
    programs are built with this toolkit and load these libraries."""

    SONAMES = re.compile(r'"(lib(?:cublasLt|cudnn|cupti|nvrtc)\.so\.\d+)"')
    MB_MAX = 1300

    @classmethod
    def setUpClass(cls):
        buildah = OPTIONS["buildah"]
        buildah.build("service", SERVICE)
        buildah.build("cuda", CUDA)
        cls.root = buildah.container(SERVICE)[1]
        cls.buildah, (cls.toolkit, cls.built) = buildah, buildah.container(CUDA)
        shutil.copytree(cls.built / "opt/cuda", cls.root / "usr/local/cuda", symlinks=True)

    def test_every_library_finds_what_it_is_linked_with(self):
        """Uses only these libraries and those that both images have."""
        libraries = sorted((self.root / "usr/local/cuda/lib64").iterdir())
        for library in libraries:
            linked = run("chroot", self.root, "env", "LD_LIBRARY_PATH=/usr/local/cuda/lib64", "ldd",
                         f"/usr/local/cuda/lib64/{library.name}")
            self.assertNotIn("not found", linked, library.name)
        size = sum(library.stat().st_size for library in libraries) / MB
        print(f"{len(libraries)} libraries of CUDA, {size:.0f} MB")
        self.assertLessEqual(size, self.MB_MAX)

    def test_the_server_finds_each_by_the_name_that_it_opens(self):
        names = {name for folder in ("kernels", "server") for path in (SOURCE / folder).rglob("*.cc")
                 for name in self.SONAMES.findall(path.read_text(encoding="utf-8")) if not name.endswith("nvrtc.so.12")}
        self.assertEqual({name.partition(".")[0] for name in names},
                         {"libcublasLt", "libcudnn", "libcupti", "libnvrtc"})
        self.assertLessEqual(names, set(os.listdir(self.root / "usr/local/cuda/lib64")))

    def test_what_compiles_is_there_for_the_build_and_not_in_the_image(self):
        self.assertEqual(set(os.listdir(self.root / "usr/local/cuda")), {"dist-info", "lib64"})
        (self.built / "tmp/kernel.cu").write_text(
            "#include <cublasLt.h>\n#include <cuda_bf16.h>\n#include <cudnn.h>\n#include <cupti.h>\n"
            "#include <nvtx3/nvToolsExt.h>\n__global__ void Twice(float* x) { x[threadIdx.x] *= 2; }\n",
            encoding="utf-8")
        self.buildah.run("run", "--isolation", "chroot", self.toolkit, "--", "/usr/local/cuda/bin/nvcc", "-std=c++20",
                         "-arch=sm_90a", "-c", "-o", "/tmp/kernel.o", "/tmp/kernel.cu")
        self.assertIn("nv_fatbin", run("readelf", "--sections", "--wide", self.built / "tmp/kernel.o"))


def obstacle():
    """Why this machine skips it; None: it does not."""
    if os.environ.get("WARPCALL_TEST_NIGHTLY") != "1":
        return "it compiles everything twice; WARPCALL_TEST_NIGHTLY=1 runs it, as tests/run.sh --nightly does"
    lacking = [name for name in ("buildah", "debootstrap", "ip", "nsenter", "readelf", "unshare")
               if shutil.which(name) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}"
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], check=False,
                                           stderr=subprocess.DEVNULL).returncode != 0:
        return "it needs root, and namespaces"
    return None


def main():
    reason = obstacle()
    if reason is not None:
        print(f"skipped: {reason}")
        return SKIPPED
    folder, *rest = sys.argv[1:]
    OPTIONS["pinned"], OPTIONS["store"] = pathlib.Path(folder).resolve(), None
    if rest[:1] == ["--store"]:
        OPTIONS["store"], rest = pathlib.Path(rest[1]).resolve(), rest[2:]
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
