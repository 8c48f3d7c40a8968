"""The server's kernels as methods. Types are in _kernels.pyi, which generate_stubs.py makes of what
a server lists; here any name is a kernel, so that those of later servers can be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ._catalog import KERNELS


class KernelMethods:
    """Of the client that blocks: each kernel takes what `run` takes."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return partial(self.run, name)


class AsyncKernelMethods(KernelMethods):
    """Of the client in warpcall.aio: the same, to be awaited."""


def _method(name: str, summary: str) -> Callable[..., Any]:
    def method(self: Any, /, *inputs: Any, **options: Any) -> Any:
        return self.run(name, *inputs, **options)

    method.__name__, method.__doc__ = name, summary
    method.__qualname__ = f"{KernelMethods.__name__}.{name}"
    return method


# Those that are known, as methods of their own: what __getattr__ finds costs a microsecond more.
for _kernel in KERNELS:
    setattr(KernelMethods, _kernel.name, _method(_kernel.name, _kernel.summary))
