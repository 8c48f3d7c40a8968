"""The user's functions as expressions of the kernel fused."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, overload

from ._arrays import to_operand, type_name
from ._execute import Call
from ._graph_value import GraphValue
from ._proto import DATA_TYPES, AttributeValue
from ._residents import ResidentBase
from ._result import Result
from ._trace import INPUTS_MAX, Condition, Text, Trace, Traced
from .errors import InvalidArgument

if TYPE_CHECKING:
    from . import aio
    from ._client import Client
    from ._reports import Description


class Fused:
    """A function that a server runs as one kernel. Made by `warpcall.fuse`; thread-safe.

    Calls take it in place of an expression: `gpu.fused(f, x, b)`, `expression=f`. Called with
    traced values, by another such function, it becomes part of that one. Called with values of a
    graph it becomes a step.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)
        self._parameters = _parameters_of(function, self._name)
        self._lock = threading.RLock()
        self._expressions: dict[int, str] = {}  # by the number of inputs

    @property
    def expression(self) -> str:
        """The expression, of a function that takes only one number of inputs. Raises as
        `expression_for`, and InvalidArgument for other functions."""
        parameters = self._parameters
        if parameters.least != parameters.most:
            self._refuse(
                f"{self._name} takes {parameters.counts}, and each number has an expression of its"
                " own: use expression_for(number)"
            )
        return self.expression_for(parameters.most)

    def expression_for(self, inputs: int) -> str:
        """The expression for that number of inputs; x0 is the first parameter. Runs the function
        on traced values, once.

        Raises InvalidArgument, with the file and line of the function, for what an expression
        cannot say, and whatever the function raises.
        """
        found = self._expressions.get(inputs)
        if found is not None:
            return found
        with self._lock:
            if inputs not in self._expressions:
                self._expressions[inputs] = self._traced(inputs)
            return self._expressions[inputs]

    @overload
    def describe(
        self, gpu: Client, *inputs: Any, dtype: Any = ..., **options: Any
    ) -> Description: ...

    @overload
    def describe(
        self, gpu: aio.Client, *inputs: Any, dtype: Any = ..., **options: Any
    ) -> Coroutine[Any, Any, Description]: ...

    def describe(self, gpu: Any, *inputs: Any, dtype: Any = None, **options: Any) -> Any:
        """Describes what would run for these inputs of a call; runs nothing, and sends their types
        and shapes alone. `dtype` as for `Client.run`, `options` as for `Client.describe`.

        Raises InvalidArgument for inputs of several types, else as `Client.describe`.
        """
        expression = self.expression_for(len(inputs))
        specs = [_spec_of(x, dtype) for x in inputs]
        kind = specs[0][0]
        for i, (other, _) in enumerate(specs):
            if other != kind:
                raise InvalidArgument(f"input {i} is {other} and input 0 {kind}; give all one type")
        shapes = tuple(shape for _, shape in specs)
        return gpu.describe("fused", shapes, dtype=kind, expression=expression, **options)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Returns a traced value, or a graph's. Raises InvalidArgument unless an input is one."""
        if any(isinstance(x, (Traced, Condition)) for x in (*inputs, *options.values())):
            return self._function(*inputs, **options)
        graph = next((x.graph for x in inputs if isinstance(x, GraphValue)), None)
        if graph is not None:  # a step, whose options these are
            return graph.run("fused", *inputs, **options, expression=self)
        self._refuse(
            f"{self._name} runs on a server: call gpu.fused({self._name}, ...) of a client gpu;"
            f" {self._name}.__wrapped__ is the function itself"
        )

    def __repr__(self) -> str:
        return f"<warpcall.Fused {self._name}({', '.join(self._parameters.names)})>"

    def _refuse(self, what: str) -> NoReturn:
        _refuse(self._function, what)

    def _traced(self, inputs: int) -> str:
        parameters = self._parameters
        if not parameters.least <= inputs <= parameters.most:
            self._refuse(
                f"{self._name}({', '.join(parameters.names)}) takes {parameters.counts}, got"
                f" {inputs}"
            )
        trace = Trace()
        result = self._function(*(Traced(trace, Text(f"x{i}")) for i in range(inputs)))
        if not isinstance(result, Traced):
            self._refuse(f"{self._name} returns {_result_name(result)}")
        if result.trace is not trace:
            self._refuse(f"{self._name} returns a value of another function, or of another run")
        text = result.part.text
        named = set(re.findall(r"\bx\d\b", text))
        for i in range(inputs):
            if f"x{i}" not in named:
                self._refuse(
                    f"parameter {parameters.name_of(i)} of {self._name} has no part in the result:"
                    " remove it"
                )
        return text


def fuse(function: Callable[..., Any]) -> Fused:
    """Makes a Python function a kernel of its own, which a server compiles.

        @warpcall.fuse
        def f(x, bias):
            return warpcall.gelu(x + bias)

        y = gpu.fused(f, x, bias)  # the kernel fused, with the expression "gelu(x0 + x1)"

    The first call for each number of inputs runs the function on traced values, which record their
    operations as the expression. Traced values take Python's arithmetic and comparisons, real
    numbers, the functions of this package (exp, gelu, where, ...), and NumPy's of the same meaning.
    Reductions are those of the last axis, which stays with size 1: `x.sum(axis=-1, keepdims=True)`
    or `warpcall.sum(x)`. All other code runs during that call alone: it unrolls loops and reads
    globals.

    Parameters are the inputs in their order: 1 to 8 tensors of one type, float32, float16 or
    bfloat16, whose shapes broadcast. A parameter without an input keeps its default, as a constant.
    The result has the inputs' type and the shape that all inputs broadcast to; the sum of a row is
    repeated along the row. Arithmetic is float32, and numbers are rounded to float32.

    Raises InvalidArgument for a function whose parameters cannot be inputs: more than 8,
    `**options`, or keywords without a default. Calls raise InvalidArgument, with the file and line
    of the function, for what an expression cannot say: `if`, `[]`, `len()` or `float()` of a traced
    value, other axes, a parameter without a part in the result, a result of dropout that is used
    twice, more than 256 operations, 64 levels of nesting or 4096 characters. A value that is used
    twice counts twice.
    """
    return Fused(function)


# An attribute of a call; a fused function stands for its expression.
Attribute: TypeAlias = "AttributeValue | Fused"


def expressed(attributes: Mapping[str, object], inputs: int) -> Mapping[str, object]:
    """A call's attributes, with the expression for that number of inputs in place of a Fused."""
    for value in attributes.values():
        if isinstance(value, Fused):
            return {
                name: item.expression_for(inputs) if isinstance(item, Fused) else item
                for name, item in attributes.items()
            }
    return attributes


def with_expressions(call: Call, inputs: int) -> Call:
    """As `expressed`."""
    if not isinstance(call.kernel, str):
        raise InvalidArgument(
            f"kernel is {call.kernel!r}; it must be a name. A fused function is the expression of"
            ' the kernel "fused": run("fused", x, expression=f)'
        )
    attributes = expressed(call.attributes, inputs)
    return call if attributes is call.attributes else call._replace(attributes=attributes)


class _Parameters(NamedTuple):
    """The parameters of a function that may be inputs."""

    names: tuple[str, ...]
    """A last one that takes any number has its star."""
    least: int
    most: int

    @property
    def counts(self) -> str:
        if self.least != self.most:
            return f"{self.least} to {self.most} inputs"
        return f"{self.most} input{'s' if self.most != 1 else ''}"

    def name_of(self, i: int) -> str:
        return self.names[min(i, len(self.names) - 1)]


def _parameters_of(function: Callable[..., Any], name: str) -> _Parameters:
    """Raises InvalidArgument for a function whose parameters cannot be inputs."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{function!r} has no parameters that Python knows; it must be a function that `def` or"
            " `lambda` made"
        ) from None
    names: list[str] = []
    least = most = 0
    for each in signature.parameters.values():
        if each.kind is each.VAR_POSITIONAL:
            names.append(f"*{each.name}")
            most = max(most, INPUTS_MAX)
        elif each.kind is each.VAR_KEYWORD or (
            each.kind is each.KEYWORD_ONLY and each.default is each.empty
        ):
            _refuse(
                function,
                f"{name} has the parameter {each}, to be given by name; inputs have no names: make"
                " it one by position, or give it a default, which then is a constant",
            )
        elif each.kind is not each.KEYWORD_ONLY:
            names.append(each.name)
            most += 1
            least += each.default is each.empty
    if most == 0 or least > INPUTS_MAX:
        _refuse(function, f"{name} takes {max(least, most)} inputs; it must be 1 to {INPUTS_MAX}")
    return _Parameters(tuple(names), max(least, 1), min(most, INPUTS_MAX))


def _refuse(function: Callable[..., Any], what: str) -> NoReturn:
    """Raises InvalidArgument with the line where the function begins."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
    raise InvalidArgument(place + what)


def _result_name(result: object) -> str:
    """A result that is no traced value, and what to return in its place."""
    if isinstance(result, Condition):
        return "a comparison: return where(condition, 1.0, 0.0) for its value"
    kind = type(result).__name__
    if kind in ("tuple", "list"):
        return f"a {kind}; fused has one result: fuse a function for each"
    if result is None:
        return "None: a return is missing"
    return f"a {kind}; it must return a value computed from its inputs"


def _spec_of(x: Any, dtype: object) -> tuple[str, tuple[int, ...]]:
    """The type and the shape of an input of a call."""
    if isinstance(x, (ResidentBase, Result)):
        stays = isinstance(x, ResidentBase) or bool(x.residents)
        return x.dtype_name if dtype is None or stays else type_name(dtype), x.shape or (1,)
    operand = to_operand(x, dtype)
    return DATA_TYPES[operand.data_type], operand.shape
