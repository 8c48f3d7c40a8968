"""Starts the programs of the wheel warpcall-server: `warpcalld`, `warpcall`, and by `python -m warpcall_server` the
first.

They are in `bin/`, because pip may put scripts anywhere, and the programs find the wheel's shared libraries relative to
their own place. This process becomes the program, which therefore gets the signals, and starts its children from its
own file.
"""

import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_SITE = os.path.dirname(_PACKAGE)


def _version(name):
    """Returns the version of a distribution beside this one, or None. Faster than importlib.metadata."""
    for entry in os.listdir(_SITE):
        if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
            return entry.removesuffix(".dist-info").removeprefix(f"{name}-")
    return None


def _check_client():
    """Warns on stderr if the package warpcall beside this one has another version."""
    own, client = _version("warpcall_server"), _version("warpcall")
    if client is not None and client != own:
        print(f"warpcalld: warning: warpcall-server is {own}, but the client beside it, warpcall, is {client};"
              f" install one version of both: pip install warpcall=={own} warpcall-server=={own}",
              file=sys.stderr, flush=True)


def _environment():
    """Returns this process's environment with CUDA's libraries and headers from NVIDIA's wheels in it, where they stand
    beside this package. What the user set goes first."""
    environment = dict(os.environ)
    nvidia = os.path.join(_SITE, "nvidia")
    if not os.path.isdir(nvidia):
        return environment
    folders = [os.path.join(nvidia, entry, "lib") for entry in sorted(os.listdir(nvidia))]
    folders = [folder for folder in folders if os.path.isdir(folder)]
    if folders:
        own = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([own, *folders] if own else folders)
    headers = os.path.join(nvidia, "cu13", "include")
    if os.path.isfile(os.path.join(headers, "cuda_fp16.h")):
        environment.setdefault("WARPCALLD_CUDA_INCLUDE", headers)
    return environment


def warpcalld():
    """Becomes the server, with this process's arguments."""
    _check_client()
    os.execve(os.path.join(_PACKAGE, "bin", "warpcalld"), ["warpcalld", *sys.argv[1:]], _environment())


def warpcall():
    """Becomes the command line, with this process's arguments."""
    os.execv(os.path.join(_PACKAGE, "bin", "warpcall"), ["warpcall", *sys.argv[1:]])
