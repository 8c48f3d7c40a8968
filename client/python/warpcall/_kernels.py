"""The server's kernels as methods. Types are in _kernels.pyi, which generate_stubs.py makes of what
a server lists; here any name is a kernel, so that those of later servers can be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class KernelMethods:
    """Of the client that blocks: each kernel takes what `run` takes."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return partial(self.run, name)


class AsyncKernelMethods(KernelMethods):
    """Of the client in warpcall.aio: the same, to be awaited."""
