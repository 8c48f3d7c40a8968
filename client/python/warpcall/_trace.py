"""Traced values: what a function that `fuse` traces gets in place of arrays. Each operation on them
returns the text of an expression of the kernel fused, as kernels/expression/parser.h defines it.
"""

from __future__ import annotations

import itertools
import linecache
import math
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .errors import InvalidArgument

# The server's limits, from kernels/expression/parser.h; a test compares.
INPUTS_MAX = 8
OPERATIONS_MAX = 256
DEPTH_MAX = 64
CHARACTERS_MAX = 4096
_NUMBER_MAX = float(np.finfo(np.float32).max)
_REALS: Any = (int, float, np.bool_, np.integer, np.floating)

# How tightly a text binds: the grammar's sum, product and factor.
_SUM, _PRODUCT, FACTOR = range(1, 4)


class Text(NamedTuple):
    """Part of an expression, with what the server's limits count."""

    text: str
    level: int = FACTOR
    operations: int = 0
    depth: int = 0
    """Parentheses, calls and unary minus inside each other."""
    dropouts: frozenset[int] = frozenset()
    """The calls of dropout in it."""


class Trace:
    """One run of a function on traced values."""

    def __init__(self) -> None:
        self.dropouts = itertools.count()


class UnknownAttribute(InvalidArgument, AttributeError):
    """A traced value has no attribute of that name: so `hasattr` is False."""


# ---- refusals -----------------------------------------------------------------------------------


def _is_internal(frame: FrameType) -> bool:
    """True for this package's code and NumPy's."""
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in ("warpcall", "numpy")


def _place() -> str:
    """The line of the user's that is running: "model.py:12 (`if x > 0:`)"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_internal(frame):
        frame = frame.f_back
    path, number = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(path, number, frame.f_globals).strip()
    return f"{path}:{number} (`{line}`)" if line else f"{path}:{number}"


def refuse(what: str, error: type[InvalidArgument] = InvalidArgument) -> NoReturn:
    """Raises `error` with the line of the user's that is running."""
    raise error(f"{_place()}: {what}")


# ---- texts --------------------------------------------------------------------------------------


def _number(value: Any) -> float | None:
    """A real number of Python's or NumPy's; None for other objects. Refuses numbers that no
    expression may contain."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, _REALS):
        return None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= _NUMBER_MAX:
        refuse(
            f"{value} cannot stand in an expression; its numbers are finite, the largest is"
            f" {_NUMBER_MAX}: pass it as an input of the function"
        )
    return number


def _literal(value: float) -> Text:
    """The shortest decimal that reads back as `value`."""
    text = repr(abs(value)).removesuffix(".0")
    if math.copysign(1, value) > 0:
        return Text(text)
    return Text("-" + text, operations=1, depth=1)


def _text_of(value: Any) -> Text:
    """The text of an operand: a traced value or a number."""
    if isinstance(value, Traced):
        return value.part
    if isinstance(value, Condition):
        refuse(
            f"the comparison {value.part.text} stands only as the first argument of where: write"
            " where(condition, 1.0, 0.0) for its value"
        )
    number = _number(value)
    if number is not None:
        return _literal(number)
    if hasattr(value, "shape"):
        refuse(
            f"a {type(value).__name__} of shape {list(value.shape)} cannot be a constant of an"
            " expression: make it a parameter of the function"
        )
    refuse(f"an operand is a {type(value).__name__}; it must be a traced value or a real number")


def _trace_of(values: tuple[object, ...]) -> Trace:
    """The run that the traced ones among the values belong to."""
    traces = {id(value.trace): value.trace for value in values if isinstance(value, _Value)}
    if len(traces) > 1:
        refuse("this mixes traced values of two functions, or of two runs of one: use parameters")
    if not traces:
        kinds = ", ".join(type(value).__name__ for value in values)
        refuse(
            f"no operand is a traced value (got {kinds}): this works in functions that"
            " warpcall.fuse traces; for arrays call a client's kernels, for numbers use math"
        )
    return next(iter(traces.values()))


def _wrapped(part: Text, level: int) -> Text:
    """In parentheses, if it binds less tightly than `level`."""
    if part.level >= level:
        return part
    return part._replace(text=f"({part.text})", level=FACTOR, depth=part.depth + 1)


def _joined(text: str, level: int, parts: list[Text], deeper: int = 0) -> Text:
    """The text of an operation on `parts`. Refuses what crosses the server's limits."""
    dropouts: frozenset[int] = frozenset()
    for part in parts:
        if dropouts & part.dropouts:
            refuse(
                "a result of dropout is used twice, and the expression would draw a mask for each"
                " use: keep it in a call of its own, and pass the result as an input"
            )
        dropouts |= part.dropouts
    operations = 1 + sum(part.operations for part in parts)
    depth = deeper + max(part.depth for part in parts)
    for value, limit, what in (
        (operations, OPERATIONS_MAX, "operations"),
        (depth, DEPTH_MAX, "levels of parentheses, calls and unary minus"),
        (len(text), CHARACTERS_MAX, "characters"),
    ):
        if value > limit:
            refuse(
                f"the expression has {value} {what} here; at most {limit} are allowed, and a value"
                " that is used twice counts twice: split the function into several"
            )
    return Text(text, level, operations, depth, dropouts)


# ---- the grammar --------------------------------------------------------------------------------


def call(name: str, *values: object) -> Traced:
    """name(values) of the grammar."""
    return _called(name, _trace_of(values), [_text_of(value) for value in values])


def _called(name: str, trace: Trace, parts: list[Text]) -> Traced:
    text = f"{name}({', '.join(part.text for part in parts)})"
    return Traced(trace, _joined(text, FACTOR, parts, deeper=1))


def _binary(sign: str, level: int, a: object, b: object) -> Traced:
    # From left to right: a + (b + c) keeps its parentheses, since sums are rounded.
    parts = [_wrapped(_text_of(a), level), _wrapped(_text_of(b), level + 1)]
    text = f"{parts[0].text} {sign} {parts[1].text}"
    return Traced(_trace_of((a, b)), _joined(text, level, parts))


def _multiply(a: object, b: object) -> Traced:
    # The server computes pow(a, 2) as a * a, and here its text has `a` once.
    if a is b and isinstance(a, Traced) and a.part.operations:
        return call("pow", a, 2)
    return _binary("*", _PRODUCT, a, b)


def _negative(a: object) -> Traced:
    part = _wrapped(_text_of(a), FACTOR)
    return Traced(_trace_of((a,)), _joined(f"-{part.text}", FACTOR, [part], deeper=1))


def _positive(a: object) -> object:
    _text_of(a)
    return a


def _square(a: object) -> Traced:
    return _multiply(a, a)


def _reciprocal(a: object) -> Traced:
    return _binary("/", _PRODUCT, 1, a)


def power(a: object, b: object) -> Traced:
    if isinstance(b, _Value):
        if _number(a) == 2:
            return call("exp2", b)
        refuse(
            "the exponent is traced; it must be a number: for a number a write exp(x * log(a)) in"
            " place of a ** x"
        )
    return call("pow", a, b)


def dropout(a: object, probability: object) -> Traced:
    number = _number(probability)
    if number is None or not 0 <= number <= 1:
        refuse(f"dropout's probability is {probability}; it must be a number from 0 to 1")
    made = call("dropout", a, number)
    own = frozenset((next(made.trace.dropouts),))
    return Traced(made.trace, made.part._replace(dropouts=made.part.dropouts | own))


def _comparison(sign: str, a: object, b: object, negated: bool = False) -> Condition:
    parts = [_text_of(a), _text_of(b)]
    text = f"{parts[0].text} {sign} {parts[1].text}"
    return Condition(_trace_of((a, b)), _joined(text, _SUM, parts), negated)


def _not(a: object) -> Condition:
    if not isinstance(a, Condition):
        refuse("~ and logical_not take a comparison")
    return Condition(a.trace, a.part, not a.negated)


def where(condition: object, a: object = None, b: object = None) -> Traced:
    if not isinstance(condition, Condition):
        what = condition if isinstance(condition, Traced) else f"a {type(condition).__name__}"
        refuse(f"the first argument of where is {what}; it must be a comparison, such as x > 0")
    yes, no = (b, a) if condition.negated else (a, b)
    parts = [condition.part, _text_of(yes), _text_of(no)]
    return _called("where", _trace_of((condition, a, b)), parts)


def clip(a: object, a_min: object, a_max: object) -> Traced:
    return call("min", call("max", a, a_min), a_max)


def reduce(
    name: str,
    a: object,
    axis: object = None,
    *positional: object,
    keepdims: object = False,
    **others: object,
) -> Traced:
    """A reduction with NumPy's arguments, which must be those of the grammar's."""
    if positional or others:
        given = ", ".join(others) or f"{2 + len(positional)} arguments"
        refuse(f"{name} takes a value, axis=-1 and keepdims=True, got {given}")
    check_axis(name, axis)
    if keepdims is not True:
        refuse(f"{name} keeps the last axis, with size 1: pass keepdims=True")
    return call(name, a)


def check_axis(name: str, axis: object) -> None:
    if axis != -1:
        over = "all axes" if axis is None else f"axis {axis}"
        refuse(f"{name} over {over}; fused has the last axis alone: pass axis=-1")


_UFUNCS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: partial(_binary, "+", _SUM),
    np.subtract: partial(_binary, "-", _SUM),
    np.multiply: _multiply,
    np.divide: partial(_binary, "/", _PRODUCT),
    np.negative: _negative,
    np.positive: _positive,
    np.power: power,
    np.square: _square,
    np.reciprocal: _reciprocal,
    np.absolute: partial(call, "abs"),
    np.fabs: partial(call, "abs"),
    np.exp: partial(call, "exp"),
    np.exp2: partial(call, "exp2"),
    np.log: partial(call, "log"),
    np.sqrt: partial(call, "sqrt"),
    np.tanh: partial(call, "tanh"),
    np.minimum: partial(call, "min"),
    np.maximum: partial(call, "max"),
    np.less: partial(_comparison, "<"),
    np.less_equal: partial(_comparison, "<="),
    np.greater: partial(_comparison, ">"),
    np.greater_equal: partial(_comparison, ">="),
    np.equal: partial(_comparison, "=="),
    np.not_equal: partial(_comparison, "==", negated=True),
    np.invert: _not,
    np.logical_not: _not,
}
_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.where: where,
    np.clip: clip,
    np.sum: partial(reduce, "sum"),
    np.mean: partial(reduce, "mean"),
    np.var: partial(reduce, "var"),
    np.max: partial(reduce, "max"),
    np.amax: partial(reduce, "max"),
    np.min: partial(reduce, "min"),
    np.amin: partial(reduce, "min"),
}
_KNOWN = (
    "+ - * / ** < <= > >= == !=, exp, exp2, log, sqrt, rsqrt, tanh, erf, sigmoid, relu, abs, gelu,"
    " gelu_erf, silu, min, max, pow, where, clip, dropout, softmax, and sum, mean, var, max and min"
    " of the last axis"
)
_COMBINES = "comparisons are not combined: nest them, where(a, where(b, x, y), y) for a & b"
_INSTEAD = {
    "matmul": "a product of matrices is a kernel of its own: gpu.matmul(a, b)",
    "dot": "a product of matrices is a kernel of its own: gpu.matmul(a, b)",
    "bitwise_and": _COMBINES,
    "bitwise_or": _COMBINES,
    "logical_and": _COMBINES,
    "logical_or": _COMBINES,
}
_ONCE = "the function is traced once, without data"
_ATTRIBUTES = {
    "astype": "inputs have one type, which the result has: dtype= of the call converts them",
    "dtype": f"{_ONCE}, for inputs of any type",
    "shape": f"{_ONCE}, for inputs of any shape",
    "ndim": f"{_ONCE}, for inputs of any shape",
    "size": f"{_ONCE}, for inputs of any shape",
    "item": _ONCE,
}


class _Value(NDArrayOperatorsMixin):
    """A traced value or comparison. The mixin makes Python's operators NumPy's functions."""

    __slots__ = ("part", "trace")

    def __init__(self, trace: Trace, part: Text) -> None:
        self.trace, self.part = trace, part

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        if "out" in kwargs:
            refuse(f"{name} in place; a traced value never changes: write x = x + y for x += y")
        if method != "__call__":
            refuse(f"numpy.{name}.{method} of a traced value; fused has {_KNOWN}")
        if kwargs:
            refuse(f"numpy.{name} of a traced value takes no {', '.join(kwargs)}")
        if ufunc not in _UFUNCS:
            instead = _INSTEAD.get(name, f"fused has {_KNOWN}")
            refuse(f"numpy.{name} of a traced value: {instead}")
        return _UFUNCS[ufunc](*inputs)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        if function not in _FUNCTIONS:
            name = function.__name__
            instead = _INSTEAD.get(name, f"fused has {_KNOWN}")
            refuse(f"numpy.{name} of a traced value: {instead}")
        return _FUNCTIONS[function](*args, **kwargs)

    def __bool__(self) -> bool:
        refuse(
            f"{self.part.text} is neither true nor false, as {_ONCE}: use"
            " warpcall.where(condition, a, b) in place of if, and, or and chains such as 0 < x < 1,"
            " and warpcall.min() and max() in place of Python's"
        )

    def __float__(self) -> float:
        refuse(
            f"{self.part.text} is no number, as {_ONCE}: in place of float() and functions of math"
            " use warpcall's, or NumPy's"
        )

    def __int__(self) -> int:
        refuse(f"{self.part.text} is no number, as {_ONCE}: int() has no counterpart")

    def __index__(self) -> int:
        refuse(f"{self.part.text} is no integer, as {_ONCE}: make the number a constant")

    def __len__(self) -> int:
        refuse(f"{self.part.text} has no length, as {_ONCE}: make the number a constant")

    def __iter__(self) -> Any:
        refuse(f"{self.part.text} cannot be iterated over: write the operation on the whole value")

    def __getitem__(self, key: object) -> Any:
        refuse(f"{self.part.text} cannot be indexed: slice the array before the call")

    def __setitem__(self, key: object, value: object) -> None:
        refuse(
            f"{self.part.text} cannot be assigned to by index: use warpcall.where(condition, a, b)"
        )

    def __array__(self, *_: object, **__: object) -> Any:
        refuse(f"{self.part.text} cannot become an array, as {_ONCE}: fused has {_KNOWN}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        instead = _ATTRIBUTES.get(name, f"fused has {_KNOWN}")
        refuse(f"a traced value has no {name}: {instead}", UnknownAttribute)

    def __repr__(self) -> str:
        return f"<traced {self.part.text}>"


class Condition(_Value):
    """A comparison of traced values."""

    __slots__ = ("negated",)

    def __init__(self, trace: Trace, part: Text, negated: bool) -> None:
        super().__init__(trace, part)
        self.negated = negated
        """It holds where `part` does not."""


class Traced(_Value):
    """A tensor of a traced function."""

    __slots__ = ()

    def clip(self, a_min: Any, a_max: Any) -> Any:
        return clip(self, a_min, a_max)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        return reduce("sum", self, *args, **kwargs)

    def mean(self, *args: Any, **kwargs: Any) -> Any:
        return reduce("mean", self, *args, **kwargs)

    def var(self, *args: Any, **kwargs: Any) -> Any:
        return reduce("var", self, *args, **kwargs)

    def max(self, *args: Any, **kwargs: Any) -> Any:
        return reduce("max", self, *args, **kwargs)

    def min(self, *args: Any, **kwargs: Any) -> Any:
        return reduce("min", self, *args, **kwargs)
