"""The server's kernels as methods. Types are in _kernels.pyi, which generate_stubs.py makes of what
a server lists. Kernels of later servers are methods too, by what the server says that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ._catalog import KERNELS
from ._fuse import Fused
from ._proto import KernelInfo
from .errors import InvalidArgument, NotFound


class UnknownKernel(NotFound, AttributeError):
    """The server has no kernel of that name: so `hasattr` is False."""


class KernelMethods:
    """Kernels as methods of the blocking client: each takes the arguments of `run`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        known = self._known_kernels()
        if known is not None and name not in known:
            raise UnknownKernel(
                f"kernel '{name}' is unknown, and no attribute of {type(self).__name__} has that"
                f" name; the server has: {', '.join(known)}"
            )
        return partial(self.run, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._listed_kernels()})

    def _known_kernels(self) -> Sequence[str] | None:
        """The server's kernels, for which it may be asked; None: it does not say, and any name may
        be one."""
        return None

    def _listed_kernels(self) -> Sequence[str]:
        """Those of which the server was asked before."""
        return ()


class AsyncKernelMethods(KernelMethods):
    """Kernels as methods of warpcall.aio's client; they return awaitables."""


class GraphKernelMethods(KernelMethods):
    """Kernels as methods of a graph: each adds a step and returns its result."""


def _method(kernel: KernelInfo) -> Callable[..., Any]:
    name = kernel.name
    reals = [a.name for a in kernel.attributes if isinstance(a.default_value, float)]

    # As on the command line: warpcall fused EXPRESSION, then inputs, which are no text.
    first = next((a.name for a in kernel.attributes if a.required), None)
    own = {a.name for a in kernel.attributes}
    names = [each for each in kernel.input_names if each not in own]

    def method(self: Any, /, *inputs: Any, **options: Any) -> Any:
        for real in reals:  # a whole number is one of them: epsilon=1
            if type(options.get(real)) is int:
                options[real] = float(options[real])
        for each in names:
            if each in options:
                raise InvalidArgument(
                    f"{each} is an input: pass it by position, {name}({', '.join(names)})"
                )
        if first is not None and inputs and isinstance(inputs[0], (str, Fused)):
            if first in options:
                raise InvalidArgument(f"{first} is given twice: {inputs[0]!r}, {options[first]!r}")
            options[first], inputs = inputs[0], inputs[1:]
        elif name == "fused" and inputs and callable(inputs[0]) and not hasattr(inputs[0], "shape"):
            raise InvalidArgument(
                f"{getattr(inputs[0], '__name__', inputs[0])} is a plain function: decorate it"
                " with @warpcall.fuse"
            )
        return self.run(name, *inputs, **options)

    method.__name__, method.__doc__ = name, _doc_of(kernel)
    method.__qualname__ = f"{KernelMethods.__name__}.{name}"
    return method


def _doc_of(kernel: KernelInfo) -> str:
    """For help(): the inputs and the attributes."""
    lines = [kernel.summary, "", f"Inputs, by position: {', '.join(kernel.input_names)}."]
    if kernel.attributes:
        lines.append("Attributes, by name:")
    for each in kernel.attributes:
        default = "required" if each.required else f"default {each.default_value!r}"
        allowed = each.allowed_values
        choices = f"; one of {', '.join(map(repr, allowed))}" if allowed else ""
        lines.append(f"    {each.name} ({default}): {each.summary}{choices}")
    return "\n".join([*lines, "Options: those of Client.run."])


# Those that are known, as methods of their own: what __getattr__ finds costs a microsecond more.
for _kernel in KERNELS:
    setattr(KernelMethods, _kernel.name, _method(_kernel))
