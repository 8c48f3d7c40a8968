"""Functions of the kernel fused, for functions that `warpcall.fuse` traces. Each takes traced
values and numbers, one of them traced, and returns a traced value. Shapes broadcast as NumPy's do.

Each raises InvalidArgument, which names the caller's line, for other operands and for expressions
larger than the server allows.
"""

from __future__ import annotations

from typing import Any

from . import _trace


def exp(x: Any) -> Any:
    """e to the power of x."""
    return _trace.call("exp", x)


def exp2(x: Any) -> Any:
    """2 to the power of x."""
    return _trace.call("exp2", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return _trace.call("log", x)


def sqrt(x: Any) -> Any:
    """The square root."""
    return _trace.call("sqrt", x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _trace.call("rsqrt", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _trace.call("tanh", x)


def erf(x: Any) -> Any:
    """The error function."""
    return _trace.call("erf", x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _trace.call("sigmoid", x)


def relu(x: Any) -> Any:
    """The greater of x and 0."""
    return _trace.call("relu", x)


def abs(x: Any) -> Any:
    """The absolute value."""
    return _trace.call("abs", x)


def gelu(x: Any) -> Any:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the kernel gelu's approximate="tanh"."""
    return _trace.call("gelu", x)


def gelu_erf(x: Any) -> Any:
    """0.5 x (1 + erf(x / sqrt(2))): the kernel gelu's approximate="none"."""
    return _trace.call("gelu_erf", x)


def silu(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return _trace.call("silu", x)


def pow(x: Any, exponent: float) -> Any:
    """x to the power of a number."""
    return _trace.power(x, exponent)


def where(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b. The condition is a comparison: `x > 0`; != and ~ too."""
    return _trace.where(condition, a, b)


def dropout(x: Any, probability: float) -> Any:
    """Sets elements of x to 0 with a probability from 0 to 1, and multiplies the others by
    1 / (1 - probability). The call's `seed=` decides which. The result is used once: each use would
    draw a mask of its own."""
    return _trace.dropout(x, probability)


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x - max) / sum along the last axis."""
    _trace.check_axis("softmax", axis)
    return _trace.call("softmax", x)


def sum(x: Any, axis: int = -1, keepdims: bool = True) -> Any:
    """The sum along the last axis, which stays with size 1."""
    return _trace.reduce("sum", x, axis, keepdims=keepdims)


def mean(x: Any, axis: int = -1, keepdims: bool = True) -> Any:
    """The mean along the last axis, which stays with size 1."""
    return _trace.reduce("mean", x, axis, keepdims=keepdims)


def var(x: Any, axis: int = -1, keepdims: bool = True) -> Any:
    """The mean square of the distance from the mean along the last axis, which stays with size
    1."""
    return _trace.reduce("var", x, axis, keepdims=keepdims)


def max(x: Any, other: Any = None, *, axis: int = -1, keepdims: bool = True) -> Any:
    """The greater of two values, element by element; of one alone, its greatest along the last
    axis, which stays with size 1. NaN wins."""
    if other is None:
        return _trace.reduce("max", x, axis, keepdims=keepdims)
    return _trace.call("max", x, other)


def min(x: Any, other: Any = None, *, axis: int = -1, keepdims: bool = True) -> Any:
    """The less of two values, element by element; of one alone, its least along the last axis,
    which stays with size 1. NaN wins."""
    if other is None:
        return _trace.reduce("min", x, axis, keepdims=keepdims)
    return _trace.call("min", x, other)
