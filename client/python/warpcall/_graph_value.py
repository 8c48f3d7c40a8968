"""The values of a graph, which steps read and make."""

from __future__ import annotations

from typing import Any, NoReturn


class GraphValue:
    """An input of a graph, or the result of one of its steps. An argument of the graph's kernels;
    it has no elements before the graph runs."""

    __slots__ = ("graph", "kernel", "name")

    def __init__(self, graph: Any, name: str, kernel: str = "") -> None:
        """`name`: empty until `Graph.build` makes one up. `kernel`: empty for an input."""
        self.graph = graph
        self.name = name
        self.kernel = kernel

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} has no elements before the graph runs")

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(
            f"{self!r} takes no operators: g.fused(f, value) computes what a function f that"
            " @warpcall.fuse made says"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __neg__ = _refuse
    __matmul__ = __rmatmul__ = _refuse

    def __repr__(self) -> str:
        name = f' "{self.name}"' if self.name else ""
        return f"<warpcall.GraphValue{name}: {self.kernel or 'an input'}>"
