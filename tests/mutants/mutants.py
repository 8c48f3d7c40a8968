#!/usr/bin/env python3
"""Puts each mutant of mutants.toml into a copy of the sources, and demands that a test turns red.

    mutants.py BUILD                  all of them; BUILD is a configured release build of this checkout
    mutants.py BUILD --only NAME      this one, or those that a pattern like 'softmax: *' names; may come again
    mutants.py BUILD --list           prints them
    mutants.py BUILD --check          whether each text still stands in its file, once, and each test exists

The checkout is never touched. The files that git knows, uncommitted changes included, are copied to a tree beside
BUILD, build/mutants, which has a build of its own and stays for the next time: only differing files are written, so a
run that was killed leaves nothing behind either. The tests must pass there without a mutant, as a test that is red
anyway kills nothing. Exit status: 0 when all were killed.
"""

import argparse
import dataclasses
import fcntl
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
# Programs that tests start if they are given a build's folder.
SERVED = ["digits", "warpcall", "warpcalld"]
# Settings of the given build: the copy is compiled the same way.
CARRIED = ["CMAKE_CXX_COMPILER", "CMAKE_CXX_COMPILER_LAUNCHER"]


class Failure(Exception):
    """Something other than a mutant is wrong."""


@dataclasses.dataclass
class Mutant:
    name: str
    file: str   # from the root
    text: str   # stands there once
    by: str     # takes its place
    tests: str  # a regular expression for ctest: one of the tests that it matches whole must fail


def read_table():
    with open(FOLDER / "mutants.toml", "rb") as file:
        return [Mutant(**entry) for entry in tomllib.load(file)["mutant"]]


def tests_of(build):
    """Our programs, built or not, in the command line of each test that ctest would run in
    `build`."""
    programs = {}
    for file in build.rglob("CTestTestfile.cmake"):
        for name, words in re.findall(r'^add_test\(\[=\[(.+?)\]=\] (".*")', file.read_text(), re.MULTILINE):
            paths = [pathlib.Path(word) for word in re.findall('"(.*?)"', words)]
            programs[name] = [path.name for path in paths
                              if path.parent.name == "bin" and path.parts[:2] != ("/", "usr")]
    return programs


def tests_for(mutant, programs):
    return [name for name in programs if re.fullmatch(mutant.tests, name)]


def targets_for(tests, programs):
    """Targets to build before these tests can run."""
    return sorted({target for name in tests for target in programs[name] or SERVED})


def rotten(mutants, programs):
    """A line for each entry that no longer says anything of this checkout."""
    names = set()
    for mutant in mutants:
        if mutant.name in names:
            yield f"{mutant.name}: stands there twice"
        names.add(mutant.name)
        path = ROOT / mutant.file
        count = path.read_text().count(mutant.text) if path.is_file() else 0
        if count != 1:
            yield f"{mutant.name}: its text stands {count} times in {mutant.file}, and must once:\n{mutant.text}"
        if mutant.by == mutant.text:
            yield f"{mutant.name}: changes nothing"
        if not tests_for(mutant, programs):
            yield f"{mutant.name}: ctest has no test {mutant.tests}"


class Copy:
    """The copied tree and its build."""

    def __init__(self, build, jobs):
        self.folder = build.parent / "mutants"
        self.tree = self.folder / "tree"
        self.build = self.tree / "build" / "release"
        self.jobs = str(jobs)
        self.environment = {"CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1",
                            "CCACHE_SLOPPINESS": "pch_defines,time_macros"} | os.environ
        self.tree.mkdir(parents=True, exist_ok=True)
        self.lock = open(self.folder / "lock", "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.lock.close()
            raise Failure(f"another run uses {self.folder}") from None
        self.update()
        self.configure(build)

    def run(self, log, *command):
        """Runs the command, with its output in `log`; returns True if it succeeds."""
        with open(self.folder / log, "ab") as out:
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT,
                                       stdin=subprocess.DEVNULL, env=self.environment, start_new_session=True)
        try:
            return process.wait() == 0
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with whatever it started
            process.wait()
            raise

    def fail(self, log, what):
        lines = (self.folder / log).read_text(errors="replace").splitlines()
        raise Failure("\n".join(lines[-40:] + [f"{what}; all of it: {self.folder / log}"]))

    def update(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                check=True, capture_output=True).stdout
        wanted = {name for name in os.fsdecode(listed).split("\0") if name and (ROOT / name).is_file()}
        for path in [path for path in self.tree.rglob("*") if path.is_file()]:
            name = path.relative_to(self.tree)
            if name.parts[0] not in ("build", ".git") and str(name) not in wanted:
                path.unlink()
        for name in wanted:
            here, there = ROOT / name, self.tree / name
            if there.is_file() and there.read_bytes() == here.read_bytes():
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
        # Tests clone it.
        for words in ("init --quiet", "add --all", "commit --quiet --allow-empty --message copy"):
            subprocess.run(["git", "-C", self.tree, "-c", "user.name=copy", "-c", "user.email=copy@localhost",
                            *words.split()], check=True)

    def configure(self, build):
        """Without batches: a mutant changes one file."""
        cache = (build / "CMakeCache.txt").read_text()
        options = [f"-D{name}={found[1]}" for name in CARRIED
                   if (found := re.search(rf"^{name}:\w+=(.+)$", cache, re.MULTILINE))]
        (self.folder / "configure.log").unlink(missing_ok=True)
        if not self.run("configure.log", "cmake", "-S", self.tree, "-B", self.build, "--preset", "release",
                        "-DWARPCALL_BUILD_TESTS=ON", "-DWARPCALL_UNITY=OFF", *options):
            self.fail("configure.log", "cmake failed")
        self.programs = tests_of(self.build)

    def builds(self, log, *targets):
        return self.run(log, "cmake", "--build", self.build, "--parallel", self.jobs, "--target", *targets)

    def red(self, log, tests):
        """Which of them fail: one at least, if any does."""
        results = self.folder / "results.xml"
        results.unlink(missing_ok=True)
        self.run(log, "ctest", "--test-dir", self.build, "-R", f"^({'|'.join(map(re.escape, tests))})$",
                 "--parallel", self.jobs, "--output-on-failure", "--stop-on-failure", "--output-junit", results)
        if not results.is_file():
            self.fail(log, "ctest failed")
        cases = list(xml.etree.ElementTree.parse(results).getroot().iter("testcase"))
        return [case.get("name") for case in cases if case.get("status") == "fail"]

    def verdict(self, mutant):
        """Returns the test that killed it, or None and the reason why none did."""
        log = re.sub(r"\W+", "_", mutant.name) + ".log"
        (self.folder / log).unlink(missing_ok=True)
        path = self.tree / mutant.file
        original = path.read_bytes()
        tests = tests_for(mutant, self.programs)
        try:
            path.write_bytes(original.replace(mutant.text.encode(), mutant.by.encode()))
            if not self.builds(log, *targets_for(tests, self.programs)):
                return None, f"does not compile, see {self.folder / log}"
            red = self.red(log, tests)
        finally:
            path.write_bytes(original)
        if red:
            return ", ".join(red), ""
        return None, f"SURVIVES {mutant.tests}, see {self.folder / log}"

    def check_green(self, mutants):
        tests = sorted({name for mutant in mutants for name in tests_for(mutant, self.programs)})
        (self.folder / "green.log").unlink(missing_ok=True)
        if not self.builds("green.log", "all"):
            self.fail("green.log", "it does not compile without any mutant")
        if red := self.red("green.log", tests):
            self.fail("green.log", f"red without any mutant: {', '.join(red)}")
        return len(tests)


def run_all(mutants, copy):
    start = time.monotonic()
    print(f"{copy.check_green(mutants)} tests pass without a mutant, in {time.monotonic() - start:.0f} s", flush=True)
    width = max(len(mutant.name) for mutant in mutants)
    killed = 0
    for mutant in mutants:
        start = time.monotonic()
        by, instead = copy.verdict(mutant)
        killed += by is not None
        print(f"{mutant.name:{width}}  {time.monotonic() - start:4.0f} s  {f'killed by {by}' if by else instead}",
              flush=True)
    print(f"{killed} of {len(mutants)} mutants killed")
    return killed == len(mutants)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", metavar="NAME", action="append")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    mutants = read_table()
    for wanted in options.only or []:
        if not fnmatch.filter([mutant.name for mutant in mutants], wanted):
            raise Failure(f"there is no mutant \"{wanted}\"")
    if options.only:
        mutants = [mutant for mutant in mutants if any(fnmatch.fnmatchcase(mutant.name, wanted)
                                                       for wanted in options.only)]
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.file}, by {mutant.tests}")
        return True
    build = options.build.resolve()
    if not (build / "CMakeCache.txt").is_file():
        raise Failure(f"{build} is no configured build")
    if findings := list(rotten(mutants, tests_of(build))):
        raise Failure("\n".join(findings))
    return options.check or run_all(mutants, Copy(build, options.jobs))


if __name__ == "__main__":
    # Ends by an exception, so that a mutant is taken out again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(0 if main() else 1)
    except Failure as failure:
        print(failure, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
