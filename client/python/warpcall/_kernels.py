"""The server's kernels as methods. Types are in _kernels.pyi, which generate_stubs.py makes of what
a server lists; here any name is a kernel, so that those of later servers can be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ._catalog import KERNELS
from ._messages import KernelInfo


class KernelMethods:
    """Of the client that blocks: each kernel takes what `run` takes."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return partial(self.run, name)


class AsyncKernelMethods(KernelMethods):
    """Of the client in warpcall.aio: the same, to be awaited."""


def _method(kernel: KernelInfo) -> Callable[..., Any]:
    name = kernel.name
    reals = [a.name for a in kernel.attributes if isinstance(a.default_value, float)]

    def method(self: Any, /, *inputs: Any, **options: Any) -> Any:
        for real in reals:  # a whole number is one of them: epsilon=1
            if type(options.get(real)) is int:
                options[real] = float(options[real])
        return self.run(name, *inputs, **options)

    method.__name__, method.__doc__ = name, kernel.summary
    method.__qualname__ = f"{KernelMethods.__name__}.{name}"
    return method


# Those that are known, as methods of their own: what __getattr__ finds costs a microsecond more.
for _kernel in KERNELS:
    setattr(KernelMethods, _kernel.name, _method(_kernel))
