#!/usr/bin/env python3
"""The bill of materials of an image, or of programs alone, CycloneDX 1.6 as JSON:

    sbom.py ROOT VERSION FILE

ROOT is the image's file system, as `docker export` gives it, unpacked, or what `vendored.py root` made; VERSION the one
of the image's label. It lists the Debian packages (by debsbom, which comes from PyPI into a temporary environment:
sbom_requirements.txt), what of PyPI lies in /usr/local/cuda, and Warpcall's programs with their digests and the
packages that each is linked with. The same ROOT gives the same bytes where SOURCE_DATE_EPOCH is set. It needs readelf
(binutils), and no privileges. Errors are told on stderr; the exit status is then 1, and FILE is not written.
"""

import datetime
import email
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile
import uuid

from vendored import Failure, run

REQUIREMENTS = pathlib.Path(__file__).resolve().with_name("sbom_requirements.txt")
PROGRAMS = "usr/local/bin"
WHEELS = "usr/local/cuda/dist-info"
SPECIFICATION = "1.6"


def packages(root, version, folder):
    """Returns debsbom's bill of materials for the installed Debian packages."""
    run(sys.executable, "-m", "venv", folder / "venv")
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
        "--retries", "2", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", REQUIREMENTS)
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    run(programs / "debsbom", "generate", "--sbom-type", "cdx", "--cdx-schema-version", SPECIFICATION, "--root", root,
        "--out", folder / "packages", "--distro-name", "warpcall", "--distro-version", version, "--timestamp",
        datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat())
    return json.loads((folder / "packages.cdx.json").read_text(encoding="utf-8"))


def owners(root, bill):
    """{name of a shared library: the reference of the package that has it}"""
    binaries = {part["name"]: part["bom-ref"] for part in bill["components"]
                if not part["bom-ref"].endswith("?arch=source")}
    found = {}
    for path in (root / "var/lib/dpkg/info").glob("*.list"):
        package = path.stem.partition(":")[0]
        for file in path.read_text(encoding="utf-8").splitlines():
            if ".so" in file and package in binaries:
                found[pathlib.PurePath(file).name] = binaries[package]
    return found


def program(path, version, libraries):
    """(component, the references of what it is linked with)"""
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "--dynamic", "--wide", path))
    lacking = sorted(set(needed) - set(libraries))
    if lacking:
        raise Failure(f"{path} is linked with {lacking}, which no installed package has")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    component = {"type": "application", "bom-ref": f"warpcall/{path.name}@{version}", "name": path.name,
                 "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}],
                 "hashes": [{"alg": "SHA-256", "content": digest}]}
    return component, sorted({libraries[name] for name in needed})


def wheel(folder):
    """A component: what a wheel says of itself."""
    says = email.message_from_string((folder / "METADATA").read_text(encoding="utf-8"))
    reference = f"pkg:pypi/{says['Name'].lower().replace('_', '-')}@{says['Version']}"
    return {"type": "library", "bom-ref": reference, "purl": reference, "name": says["Name"],
            "version": says["Version"]}


def bill_of(root, version, folder):
    bill = packages(root, version, folder)
    libraries = owners(root, bill)
    whole = bill["metadata"]["component"]
    # vendored.py's roots are no systems.
    whole["type"] = "container" if (root / "etc/os-release").exists() else "application"
    (contents,) = [entry for entry in bill["dependencies"] if entry["ref"] == whole["bom-ref"]]
    wheels = [wheel(path) for path in sorted((root / WHEELS).glob("*.dist-info"))]
    programs = sorted((root / PROGRAMS).glob("warpcall*"))
    if not programs:
        raise Failure(f"{root / PROGRAMS} has no program of Warpcall's")
    for path in programs:
        component, linked = program(path, version, libraries)
        bill["components"].append(component)
        bill["dependencies"].append({"ref": component["bom-ref"], "dependsOn": linked})
        contents["dependsOn"].append(component["bom-ref"])
    bill["components"] += wheels
    bill["dependencies"] += [{"ref": component["bom-ref"]} for component in wheels]
    contents["dependsOn"] += [component["bom-ref"] for component in wheels]
    bill.pop("serialNumber", None)
    digest = hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).digest()
    bill["serialNumber"] = uuid.UUID(bytes=digest[:16], version=4).urn
    return bill


def main():
    if len(sys.argv) != 4:
        print("usage: sbom.py ROOT VERSION FILE", file=sys.stderr)
        return 2
    root, version, file = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    try:
        if not (root / "var/lib/dpkg/status").is_file():
            raise Failure(f"{root} has no var/lib/dpkg/status: it is no Debian's or Ubuntu's root")
        with tempfile.TemporaryDirectory() as folder:
            bill = bill_of(root, version, pathlib.Path(folder))
        file.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except (Failure, OSError) as failure:
        print(f"sbom.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
