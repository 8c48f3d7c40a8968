"""Which version of the package this is."""

from importlib import metadata

CHECKOUT = "0+checkout"


def _installed() -> str:
    try:
        return metadata.version("warpcall")
    except metadata.PackageNotFoundError:  # in a checkout, by PYTHONPATH
        return CHECKOUT


VERSION = _installed()
