#!/usr/bin/env python3
"""The Debian packages whose code is in programs that are linked with their shared libraries:

    vendored.py licenses FOLDER PROGRAM...
    vendored.py root FOLDER PROGRAM...

`licenses` makes FOLDER with the licences that a wheel of the programs has to bring: LICENSE, a NOTICE that lists the
packages, each package's copyright file, and the licences that these refer to. It leaves out packages whose libraries
every system for wheels has (manylinux). `root` makes FOLDER a root for sbom.py, with the programs and all these
packages as dpkg knows them. Errors go to stderr, with exit status 1.
"""

import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[1]
# auditwheel leaves their libraries to the system.
LEFT_OUT = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}
# Templates whose code is in the programs, though no library of theirs is: CLI11, JSON, Boost.Beast.
HEADERS = ("/usr/include/CLI/CLI.hpp", "/usr/include/nlohmann/json.hpp", "/usr/include/boost/version.hpp")
DPKG = pathlib.Path("/var/lib/dpkg")


class Failure(Exception):
    """What was asked for can't be made; the message says why."""


def run(*command):
    """Returns the standard output of a command. Failure: it ended with an error."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Failure(f"{' '.join(map(str, command))} ended with status {done.returncode}: {said}")
    return done.stdout


def libraries(program):
    """{soname: path} of the shared libraries that a program loads at start, those of libraries included."""
    said = run("ldd", program)
    lacking = re.findall(r"^\t(\S+) => not found$", said, re.M)
    if lacking:
        raise Failure(f"{program} needs {lacking}, which this system lacks")
    # "name => path", or a path alone where a program names its library so.
    return {pathlib.PurePath(name).name: path or name
            for name, path in re.findall(r"^\t(\S+)(?: => (\S+))? \(0x", said, re.M) if path or name[0] == "/"}


def names_of(path):
    """The names by which dpkg may know a file: it has some in /lib and some in /usr/lib, and links are files too."""
    real = str(pathlib.Path(path).resolve())
    return [str(path), real, real.removeprefix("/usr")]


def owners(paths):
    """{path: its package}. One question, as each costs dpkg a tenth of a second."""
    names = {name for path in paths for name in names_of(path)}
    said = subprocess.run(["dpkg-query", "--search", *sorted(names)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False).stdout
    known = {name: package for package, name in re.findall(r"^([\w.+-]+)(?::\w+)?: (/.*)$", said, re.M)}
    found = {}
    for path in paths:
        package = next((known[name] for name in names_of(path) if name in known), None)
        if package is None:
            raise Failure(f"{path} belongs to no package: its licence is unknown")
        found[path] = package
    return found


def packages(programs):
    """{package: the sonames of its libraries} for the programs; no sonames: templates alone."""
    linked = {soname: path for program in programs for soname, path in libraries(program).items()}
    owner = owners([*linked.values(), *HEADERS])
    found = {owner[path]: set() for path in HEADERS}
    for soname, path in linked.items():
        found.setdefault(owner[path], set()).add(soname)
    return found


def write_licenses(folder, programs):
    found = packages(programs)
    folder.mkdir(parents=True)
    shutil.copy(SOURCE / "LICENSE", folder)
    notice, common = ["warpcalld and warpcall are Warpcall's, under LICENSE. The wheel also has code of these Debian",
                      "packages; each one's licence is the file of its name.", ""], set()
    versions = dict(line.split() for line in run("dpkg-query", "--show", "--showformat=${Package} ${Version}\\n",
                                                 *found).splitlines())
    for package, sonames in sorted(found.items()):
        if package in LEFT_OUT:
            continue
        text = pathlib.Path("/usr/share/doc", package, "copyright").read_text(encoding="utf-8", errors="replace")
        (folder / f"{package}.txt").write_text(text, encoding="utf-8")
        common |= set(re.findall(r"/usr/share/common-licenses/([\w.-]*[\w-])", text))
        notice.append(f"{package} {versions[package]}: {', '.join(sorted(sonames)) or 'templates, compiled in'}")
    for name in sorted(common):
        path = pathlib.Path("/usr/share/common-licenses", name)
        if path.is_file():
            shutil.copyfile(path, folder / f"common-{name}.txt")
    (folder / "NOTICE").write_text("\n".join(notice) + "\n", encoding="utf-8")


def make_root(folder, programs):
    names = sorted(packages(programs))
    place = folder / "usr/local/bin"
    place.mkdir(parents=True)
    for program in programs:
        shutil.copy(program, place)
    info = folder / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (folder / "var/lib/dpkg/status").write_text("\n".join(run("dpkg-query", "--status", name) for name in names),
                                                encoding="utf-8")
    (folder / "var/lib/dpkg/arch-native").write_text(run("dpkg", "--print-architecture"), encoding="utf-8")
    for name in names:
        for path in (*DPKG.glob(f"info/{name}.list"), *DPKG.glob(f"info/{name}:*.list")):
            shutil.copy(path, info)


def main():
    makers = {"licenses": write_licenses, "root": make_root}
    if len(sys.argv) < 4 or sys.argv[1] not in makers:
        print("usage: vendored.py licenses|root FOLDER PROGRAM...", file=sys.stderr)
        return 2
    try:
        makers[sys.argv[1]](pathlib.Path(sys.argv[2]), [pathlib.Path(word) for word in sys.argv[3:]])
    except (Failure, OSError) as failure:
        print(f"vendored.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
