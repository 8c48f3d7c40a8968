"""Which version of the package this is."""

from importlib import metadata

CHECKOUT = "0+checkout"

try:
    VERSION = metadata.version("warpcall")
except metadata.PackageNotFoundError:  # in a checkout, by PYTHONPATH
    VERSION = CHECKOUT
