#!/usr/bin/env python3
"""Output of `cmake --install` and `cpack`: a folder that may be moved, a package for C++ programs elsewhere, Debian
packages.

    install_test.py BUILD_FOLDER SOURCE_FOLDER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import processes  # noqa: E402

BUILD, SOURCE = (pathlib.Path(path).resolve() for path in (sys.argv[1:3] or ["build/release", "."]))
CONSUMER = SOURCE / "tests/deploy/consumer"
SECONDS_MAX = 240


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS_MAX, **options)
    if done.returncode != 0:
        raise processes.Failure(f"{command} ended with status {done.returncode}: {done.stdout[-4000:]}")
    return done.stdout


def links_of(path):
    """Files that a Markdown document links to."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
    return {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)
            if "://" not in link and not link.startswith("#")}


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        first = cls.folder / "first"
        run("cmake", "--install", BUILD, "--prefix", first)
        cls.root = cls.folder / "moved" / "elsewhere"
        cls.root.parent.mkdir()
        first.rename(cls.root)

    def files(self, below):
        return {path.name for path in (self.root / below).rglob("*") if path.is_file()}

    def test_it_has_what_people_use_and_nothing_of_the_machine_it_was_built_on(self):
        self.assertEqual(self.files("bin"), {"warpcalld", "warpcall"})
        self.assertLessEqual({"LICENSE", "README.md"}, self.files("share/doc"))
        self.assertEqual(self.files("share/warpcall"),
                         {"warpcall.proto", "alerts.yml", "prometheus.yml", "rules.yml", "warpcall.json", "haproxy.cfg",
                          "haproxy-replicas.cfg", "haproxy-tls.cfg"})
        self.assertEqual({path.name for path in (self.root / "include/warpcall").iterdir() if path.is_dir()},
                         {"client", "proto", "v1"})
        (package,) = self.root.glob("lib/**/cmake/warpcall")
        for file in package.iterdir():
            text = file.read_text(encoding="utf-8")
            for path in (BUILD, SOURCE, self.folder):
                self.assertNotIn(str(path), text, file.name)

    def test_documents_lead_to_what_is_installed_with_them(self):
        """Alerts lead to their runbook, where Debian's package has it."""
        folder = self.root / "share/doc/warpcall"
        documents = list(folder.rglob("*.md"))
        self.assertGreater(len(documents), 10)
        missing = [(str(path.relative_to(folder)), link) for path in documents for link in links_of(path)
                   if not (path.parent / link).exists()]
        self.assertEqual(missing, [])
        # Nothing is there to which no other leads.
        led_to = {(path.parent / link).resolve() for path in documents for link in links_of(path)}
        alone = {path.resolve() for path in folder.rglob("*") if path.is_file()} - led_to
        self.assertEqual(alone - {(folder / "README.md").resolve()}, {(folder / "LICENSE").resolve()})
        (base,) = set(re.findall(r"runbook_url: file:///usr/(.*)#",
                                 (self.root / "share/warpcall/prometheus/alerts.yml").read_text(encoding="utf-8")))
        self.assertTrue((self.root / base).exists(), base)

    def test_programs_elsewhere_build_with_it_and_call_the_server(self):
        """With every public header, by its name and by its old one, out of a copy of the source."""
        shutil.copytree(CONSUMER, self.folder / "consumer")
        for program, headers in ("consumer", "warpcall/*.h"), ("old_names", "warpcall/client/cpp/*.h"):
            source = (CONSUMER / f"{program}.cc").read_text(encoding="utf-8")
            included = {pathlib.PurePath(header).name for header in re.findall(r'#include [<"](.*/.*)[>"]', source)}
            self.assertEqual(included, {path.name for path in (self.root / "include").glob(headers)}, program)
        build = self.folder / "build"
        run("cmake", "-S", self.folder / "consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={self.root}",
            "-DCMAKE_BUILD_TYPE=Release", "-G", "Ninja")
        run("cmake", "--build", build)
        with processes.warpcalld(self.root / "bin/warpcalld", self.folder) as (address, _):
            self.assertEqual(run(build / "consumer", address), "0\n0\n2.5\ncpu\n")
            self.assertEqual(run(build / "old_names", address), "-1.5\n2\n")
            self.assertIn("gelu", run(self.root / "bin/warpcall", "--server", address, "kernels"))

    def test_what_configuring_looks_for(self):
        """gRPC, Protobuf and Abseil, and their dependencies."""
        (package,) = self.root.glob("lib/**/cmake/warpcall/warpcall-config.cmake")
        found = re.findall(r"find_dependency\((\w+)", package.read_text(encoding="utf-8"))
        self.assertEqual(set(found), {"Threads", "absl", "Protobuf", "gRPC"})


class PackagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("dpkg-deb", "dpkg-shlibdeps"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"there is no {program}")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        # Packages and their staging folder go elsewhere: the build's folder is left as it is.
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder / "packages")
        cls.packages = {}
        for path in (cls.folder / "packages").glob("*.deb"):
            cls.packages[run("dpkg-deb", "--field", path, "Package").strip()] = path

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.packages[package], name).strip()

    def contents(self, package):
        """{path: mode} of its files."""
        lines = run("dpkg-deb", "--contents", self.packages[package]).splitlines()
        return {line.split()[5].lstrip("."): line[:10] for line in lines if not line.endswith("/")}

    def test_there_are_three(self):
        self.assertEqual(set(self.packages), {"warpcall-server", "warpcall", "libwarpcall-dev"})
        for package in self.packages:
            self.assertRegex(self.field(package, "Version"), r"^\d+\.\d+\.\d+")
            self.assertTrue(self.field(package, "Maintainer") and self.field(package, "Description"))

    def test_they_hold_what_they_should(self):
        server = self.contents("warpcall-server")
        self.assertLessEqual({"/usr/bin/warpcalld", "/usr/lib/systemd/system/warpcalld.service",
                              "/etc/warpcall/warpcalld.flags", "/usr/share/doc/warpcall/docs/RUNBOOK.md",
                              "/usr/share/warpcall/prometheus/alerts.yml",
                              "/usr/share/warpcall/haproxy/haproxy.cfg"}, set(server))
        self.assertEqual(server["/usr/bin/warpcalld"], "-rwxr-xr-x")
        self.assertEqual(set(self.contents("warpcall")), {"/usr/bin/warpcall"})
        development = self.contents("libwarpcall-dev")
        self.assertIn("/usr/include/warpcall/client.h", development)
        self.assertFalse([path for path in development if path.startswith(("/usr/bin", "/etc"))])
        conffiles = run("dpkg-deb", "--info", self.packages["warpcall-server"], "conffiles")
        self.assertEqual(conffiles.split(), ["/etc/warpcall/warpcalld.flags"])

    def test_they_depend_on_the_libraries_that_they_are_linked_with(self):
        for package in ("warpcall-server", "warpcall"):
            self.assertRegex(self.field(package, "Depends"), r"\blibgrpc\+\+1")
        self.assertIn("libdnnl", self.field("warpcall-server", "Depends"))
        self.assertRegex(self.field("warpcall-server", "Depends"), r"\bpasswd\b")  # postinst calls its groupadd
        self.assertNotIn("libdnnl", self.field("warpcall", "Depends"))
        for package in ("libgrpc++-dev", "protobuf-compiler-grpc"):
            self.assertIn(package, self.field("libwarpcall-dev", "Depends"))

    def test_the_server_starts_as_its_unit_starts_it(self):
        root = self.folder / "root"
        run("dpkg-deb", "--extract", self.packages["warpcall-server"], root)
        unit = (root / "usr/lib/systemd/system/warpcalld.service").read_text(encoding="utf-8")
        program, flags = re.search(r"^ExecStart=.* && exec (\S+) --flagfile=(\S+)'$", unit, re.M).groups()
        with processes.warpcalld(root / program[1:], self.folder, f"--flagfile={root / flags[1:]}",
                                 f"--compile_cache={self.folder / 'compiled'}",
                                 f"--tuning_cache={self.folder / 'tuning.txt'}"):
            pass

    def test_maintainers_scripts_are_shell(self):
        folder = self.folder / "control"
        run("dpkg-deb", "--control", self.packages["warpcall-server"], folder)
        for name in ("postinst", "prerm", "postrm"):
            self.assertTrue(os.access(folder / name, os.X_OK), name)
            run("sh", "-n", folder / name)

    def test_purging_leaves_nothing_secret(self):
        """The package's own script, in a root of its own: dpkg has DPKG_ROOT for that."""
        control = self.folder / "postrm"
        run("dpkg-deb", "--control", self.packages["warpcall-server"], control)
        root = self.folder / "purged"
        secrets = ["etc/warpcall/server.key", "etc/warpcall/tokens", "var/cache/private/warpcall/tuning.txt"]
        for path in secrets:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("secret", encoding="utf-8")
        (root / "var/cache/warpcall").symlink_to("private/warpcall")
        (root / "etc/hosts").touch()
        # Leaves out the programs that would act on this machine.
        environment = {"DPKG_ROOT": str(root), "PATH": str(self.folder / "none")}
        (self.folder / "none").mkdir()
        (self.folder / "none/rm").symlink_to(shutil.which("rm"))
        for action, left in [("remove", secrets), ("upgrade", secrets), ("purge", [])]:
            run("/bin/sh", control / "postrm", action, env=environment)
            self.assertEqual([path for path in secrets if (root / path).exists()], left, action)
        self.assertEqual(sorted(path.name for path in root.rglob("*") if not path.is_dir()), ["hosts"])


class ReleaseTest(unittest.TestCase):
    """Releases from a clone, which has no changes, with the programs of this build."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.clone = cls.folder / "clone"
        run("git", "clone", "--quiet", "--shared", SOURCE, cls.clone)

    def release(self, name):
        run("bash", self.clone / "deploy/release.sh", "--offline", self.folder / name, BUILD)
        return self.folder / name

    def test_it_is_whole_and_its_sums_are_right_and_made_again_it_is_the_same(self):
        first, second = self.release("first"), self.release("second")
        names = {path.name for path in first.iterdir()}
        for pattern in (r"warpcall-[\d.]+\.tar\.gz", r"warpcall-[\d.]+-linux-\w+\.tar\.gz",
                        r"warpcall-[\d.]+-kubernetes\.tar\.gz", r"warpcall-[\d.]+-dashboard\.json",
                        r"warpcall_.*\.deb", r"warpcall-server_.*\.deb", r"libwarpcall-dev_.*\.deb"):
            self.assertEqual(len([name for name in names if re.fullmatch(pattern, name)]), 1, (pattern, names))
        sums = run("sha256sum", "--check", "SHA256SUMS", cwd=first)
        self.assertEqual(len(sums.splitlines()), len(names) - 1)
        for name in names:
            self.assertTrue((first / name).read_bytes() == (second / name).read_bytes(), name)

    def test_changes_are_not_released(self):
        changed = self.clone / "README.md"
        text = changed.read_text(encoding="utf-8")
        changed.write_text(text + "\n", encoding="utf-8")
        try:
            with self.assertRaisesRegex(processes.Failure, "not committed"):
                self.release("changed")
        finally:
            changed.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
