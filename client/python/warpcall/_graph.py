"""Several kernels in one call: a graph, the function that it becomes, and that function's calls."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from . import _wire as wire
from ._arrays import Operand, from_bytes, to_operand
from ._execute import MESSAGE_BYTES_MAX, Call, TensorView, handle_field, tensor_fields
from ._fuse import with_expressions
from ._graph_result import GraphAnswer, GraphResult, read_outputs
from ._graph_value import GraphValue
from ._inspect import ProfileOptions, encode_runs
from ._kernels import GraphKernelMethods
from ._messages import encode, encode_attributes
from ._profile import GRAPH
from ._proto import GraphOutput, GraphStep, ProfileResponse
from ._request import Blocks
from ._residents import ResidentBase, ttl_ns
from ._result import Ceiling, Finisher, MakeResident, Result, bad_response
from .errors import NO_METHOD, InvalidArgument, NotFound, Unimplemented

INPUTS_MAX, STEPS_MAX = 64, 256
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_.-]")
# Leaves a name that is made up room for a number: "_256".
_BASE_CHARACTERS_MAX = 59
# Options of a function's calls and profiles, which are no inputs.
_OPTIONS = ("step_times", "iterations", "trace", "device", "request_id", "timeout")
# Options of `Client.run` that a step does not take.
_NOT_OF_STEPS = ("device", "timeout", "out", "dtype", "request_id", "keep", "keep_ttl")

# A tensor of a graph's call.
Item: TypeAlias = "Operand | ResidentBase"


class _Step(NamedTuple):
    value: GraphValue
    implementation: str
    inputs: list[GraphValue]
    attributes: Mapping[str, object]


class _Output(NamedTuple):
    value: GraphValue
    keep_ttl_ns: int | None
    label: str


class Graph(GraphKernelMethods):
    """A graph that is being written down. Made by `Client.graph`; for one thread.

    Each kernel is a method that takes the arguments of the client's, with `implementation` and
    `name` (the step's) as its only options, and returns the step's result, for later steps. Nothing
    runs before a call of the function that `build` returns. As a context manager: the graph takes
    no more steps after the block.
    """

    def __init__(self, client: Any, dtype: object = None) -> None:
        self._client, self._dtype = client, dtype
        self._inputs: dict[str, GraphValue] = {}
        self._constants: dict[int, tuple[GraphValue, Item, object]] = {}
        self._steps: list[_Step] = []
        self._outputs: list[_Output] = []
        self._is_open = True

    def input(self, name: str) -> GraphValue:
        """Adds an input, which each call gives by this name.

        `name`: 1 to 63 letters, digits, "_", "." or "-", the first a letter or "_". Raises
        InvalidArgument for another name, one that is taken, and the options of calls.
        """
        self._check_open()
        if name in _OPTIONS:
            raise InvalidArgument(f'input "{name}" has the name of an option of calls; rename it')
        self._check_name(name)
        self._inputs[name] = GraphValue(self, name)
        return self._inputs[name]

    def run(
        self, kernel: str, *inputs: Any, implementation: str = "", name: str = "", **attributes: Any
    ) -> GraphValue:
        """Adds a step that runs a kernel, and returns its result.

        `inputs`: values of this graph, Residents, and arrays as for `Client.run`. An array is read
        now, kept, or a copy of it if it is writeable, and sent with each call: `gpu.put(array)`
        sends a weight once.
        `implementation`, `attributes`: as for `Client.run`.
        `name`: the step's, for `GraphResult.steps` and errors; default: made of the kernel's.

        Raises InvalidArgument for values of another graph and what no server could take. The server
        checks kernels, shapes and types when the graph runs.
        """
        self._check_open()
        for option in _NOT_OF_STEPS:
            if option in attributes:
                raise InvalidArgument(
                    f"{option} is no option of a step: calls of the graph take device, timeout and"
                    " request_id, output() takes keep, and graph() dtype"
                )
        values = [self._value_of(x) for x in inputs]
        call = with_expressions(Call(kernel, implementation, attributes=attributes), len(inputs))
        encode_attributes(5, call.attributes)
        if name:
            self._check_name(name)
        step = _Step(GraphValue(self, name, kernel), implementation, values, call.attributes)
        self._steps.append(step)
        return step.value

    def output(
        self,
        value: GraphValue,
        name: str | None = None,
        *,
        keep: bool = False,
        ttl: float | None = None,
        label: str = "",
    ) -> None:
        """Makes the result of a step an output of the graph. Calls return outputs in this order.

        `name`: the step's, if it has none yet.
        `keep`: True leaves the output on the device: the result has a Resident, no array.
        `ttl`: seconds after its last use when the server ends a kept output; None: the server's
        `--resident_ttl_seconds`. `label`: for people, in `tensors()`.

        Raises InvalidArgument for an input, a value of another graph and a second time.
        """
        self._check_open()
        self._check_value(value)
        if not value.kernel:
            raise InvalidArgument(f'"{value.name}" is an input; outputs are results of steps')
        if any(output.value is value for output in self._outputs):
            raise InvalidArgument(f"{value!r} is an output already")
        if not keep and (ttl is not None or label):
            raise InvalidArgument("ttl and label are for an output that stays: keep=True")
        if name is not None and name != value.name:
            if value.name:
                raise InvalidArgument(f'step "{value.name}" has a name; output() named it "{name}"')
            self._check_name(name)
            value.name = name
        self._outputs.append(_Output(value, ttl_ns("ttl", ttl) if keep else None, label))

    def build(self) -> GraphFunction:
        """Returns the graph as a function of its inputs.

        Raises InvalidArgument for a graph without outputs, with inputs or steps that no output
        needs, or with more than 64 inputs or 256 steps.
        """
        self._check_use()
        self._name_all()
        for count, limit, what in (
            (len(self._inputs) + len(self._constants), INPUTS_MAX, "inputs"),
            (len(self._steps), STEPS_MAX, "steps"),
        ):
            if count > limit:
                raise InvalidArgument(f"the graph has {count} {what}; at most {limit} are allowed")
        steps = [
            GraphStep(
                step.value.name,
                step.value.kernel,
                step.implementation,
                tuple(value.name for value in step.inputs),
                step.attributes,
            )
            for step in self._steps
        ]
        outputs = [
            GraphOutput(
                output.value.name,
                output.keep_ttl_ns is not None,
                output.keep_ttl_ns or 0,
                output.label,
            )
            for output in self._outputs
        ]
        constants = {value.name: item for value, item, _ in self._constants.values()}
        plan = Plan(tuple(self._inputs), constants, steps, outputs, self._dtype)
        return GraphFunction(self._client, plan)

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False

    def __repr__(self) -> str:
        return f"<warpcall.Graph of {len(self._steps)} steps>"

    def _known_kernels(self) -> Sequence[str] | None:
        known: Sequence[str] | None = self._client._known_kernels()
        return known

    def _listed_kernels(self) -> Sequence[str]:
        listed: Sequence[str] = self._client._listed_kernels()
        return listed

    # ---- checks ----

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidArgument("the graph is complete: it takes steps within its block alone")

    def _taken(self) -> set[str]:
        return {*self._inputs, *(step.value.name for step in self._steps)}

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f'a name is {name!r}; it must have 1 to 63 letters, digits, "_", "." or "-",'
                ' the first a letter or "_"'
            )
        if name in self._taken():
            raise InvalidArgument(f'the name "{name}" is taken by an input or a step')

    def _check_value(self, value: object) -> None:
        if not isinstance(value, GraphValue):
            raise TypeError(f"a {type(value).__name__}; it must be a value of the graph")
        if value.graph is not self:
            raise InvalidArgument(f"{value!r} is a value of another graph")

    def _value_of(self, x: object) -> GraphValue:
        """An argument of a step as a value of the graph."""
        if isinstance(x, GraphValue):
            self._check_value(x)
            return x
        if isinstance(x, Result) and x.residents:
            x = x.residents[0]
        # One tensor makes one input, however often steps use it. No other object has its id while
        # the graph keeps it.
        found = self._constants.get(id(x))
        if found is not None:
            return found[0]
        value = GraphValue(self, "")
        is_one = isinstance(x, (ResidentBase, np.ndarray))
        self._constants[id(x) if is_one else id(value)] = value, _constant_of(x, self._dtype), x
        return value

    def _check_use(self) -> None:
        """Raises InvalidArgument for inputs and steps that no output needs."""
        if not self._outputs:
            raise InvalidArgument("the graph has no output: output(value) makes one")
        needed = {output.value for output in self._outputs}
        for step in reversed(self._steps):
            if step.value in needed:
                needed.update(step.inputs)
        for step in self._steps:
            if step.value not in needed:
                raise InvalidArgument(
                    f"no output needs {step.value!r}: make it an output, or leave it out"
                )
        for value in self._inputs.values():
            if value not in needed:
                raise InvalidArgument(f'no step uses input "{value.name}"')

    def _name_all(self) -> None:
        """Gives names to what has none: of their kernels to steps, of their labels to Residents."""
        taken = self._taken()
        unnamed = [(step.value, step.value.kernel) for step in self._steps]
        unnamed += [
            (value, item.label if isinstance(item, ResidentBase) else "")
            for value, item, _ in self._constants.values()
        ]
        for value, wish in unnamed:
            if value.name:
                continue
            wish = _NOT_OF_NAMES.sub("_", wish)[:_BASE_CHARACTERS_MAX]
            base = wish if _NAME.fullmatch(wish) else "input"
            value.name, number = base, 2
            while value.name in taken:
                value.name, number = f"{base}_{number}", number + 1
            taken.add(value.name)


def _constant_of(x: object, dtype: object) -> Item:
    """A tensor that all calls have in common."""
    if isinstance(x, ResidentBase):
        return x
    if isinstance(x, Blocks):
        raise InvalidArgument("Blocks are read once, in a stream; a graph takes arrays")
    item = to_operand(x, dtype)
    read_only = isinstance(x, np.ndarray) and not x.flags.writeable
    return item if item.is_own or read_only else item._replace(data=item.data.copy())


@dataclasses.dataclass(frozen=True)
class Plan:
    """A graph that is complete."""

    inputs: tuple[str, ...]
    constants: Mapping[str, Item]
    steps: list[GraphStep]
    outputs: list[GraphOutput]
    dtype: object


class GraphFunction:
    """A graph as a function. Made by `Graph.build`; thread-safe; prints its steps.

        y = f(x=x)
        y = f(x=x, step_times=True, device="", request_id="", timeout=None)

    A call runs the graph, in one request, and returns a GraphResult; of several outputs a tuple of
    them. Of a graph of `warpcall.aio` a coroutine returns these. It takes every input by its name,
    as `Client.run` takes inputs.
    `step_times`: True times each step separately, at a cost of a few microseconds per step.
    `device`, `request_id`, `timeout`: as for `Client.run`. A call with Residents runs on their
    device; the client puts those that the server lost again if it can, as in `run`.

    Calls raise TypeError for an input that is missing or that the graph does not have, else a class
    of warpcall.Error; the message of InvalidArgument begins with the step, input or output that is
    wrong.
    """

    __slots__ = ("_client", "_encoded", "_kernels", "_plan")

    def __init__(self, client: Any, plan: Plan) -> None:
        self._client, self._plan = client, plan
        self._kernels = {step.name: step.kernel for step in plan.steps}
        self._encoded = _encode_graph(plan.steps, plan.outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that a call takes."""
        return self._plan.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in the order in which a call returns them."""
        return tuple(output.name for output in self._plan.outputs)

    def __call__(
        self,
        /,
        *unnamed: Any,
        step_times: bool = False,
        device: str = "",
        request_id: str = "",
        timeout: float | None = None,
        **inputs: Any,
    ) -> Any:
        """As the class says."""
        if unnamed:
            named = ", ".join(f"{name}=..." for name in self.inputs)
            raise TypeError(f"a graph takes its inputs by name: f({named})")
        items = self._items(inputs)
        head = self._encoded
        for number, text in ((4, device), (5, request_id)):
            if text:
                head += wire.bytes_field(number, text.encode())
        if step_times:
            head += wire.varint_field(6, True)
        items.update(self._plan.constants)
        request = GraphRequest(head, items, self._plan.outputs, self._kernels, timeout)
        return self._client._run_graph(request)

    def describe(self, /, *, device: str = "", timeout: float | None = None, **inputs: Any) -> Any:
        """Describes what would run for a call with these inputs, step by step; runs nothing, and
        sends types and shapes alone: `x=numpy.empty((64, 1024), "float32")` will do.

        Returns a GraphDescription; of a graph of `warpcall.aio` a coroutine returns it. Raises the
        errors of a call.
        """
        return self._client._describe_graph(self._inspected(inputs, device, timeout))

    def profile(
        self,
        /,
        *,
        iterations: int = 0,
        trace: bool | str | os.PathLike[str] = False,
        device: str = "",
        timeout: float | None = None,
        **inputs: Any,
    ) -> Any:
        """Profiles calls with these inputs and finds the bound of their speed. What a call sends is
        copied in each run, what stays on the device is not. The outputs are neither returned nor
        kept. Options as for `Client.profile`.

        Returns a Profile whose rows name their steps, where the server knows them; of a graph of
        `warpcall.aio` a coroutine returns it. Raises the errors of a call.
        """
        options = ProfileOptions(iterations, bool(trace))
        graph = self._inspected(inputs, device, timeout)
        return self._client._profile_graph(graph, options, trace)

    def _items(self, inputs: Mapping[str, object]) -> dict[str, Item]:
        """The inputs of a call. Raises TypeError unless they are those that the graph has."""
        own = self._plan.inputs
        for name in inputs:
            if name in ("keep", "keep_ttl") and name not in own:
                raise TypeError(
                    f"{name} is no input; g.output(..., keep=True) keeps an output on the server"
                )
            if name not in own:
                raise TypeError(f'the graph has no input "{name}"; it has {_listed(own)}')
        missing = [name for name in own if name not in inputs]
        if missing:
            raise TypeError(f"no value for {_listed(missing)}; the graph's inputs: {_listed(own)}")
        return {name: _item_of(name, inputs[name], self._plan.dtype) for name in own}

    def _inspected(
        self, inputs: Mapping[str, object], device: str, timeout: float | None
    ) -> InspectedGraph:
        """Of a call that keeps no outputs."""
        items = self._items(inputs)
        shapes = [f"{name}={'x'.join(map(str, item.shape))}" for name, item in items.items()]
        items.update(self._plan.constants)
        head = _encode_graph(self._plan.steps, [GraphOutput(name) for name in self.outputs])
        head += wire.bytes_field(4, device.encode())
        request = GraphRequest(head, items, [], self._kernels, timeout)
        return InspectedGraph(request, ", ".join(shapes))

    def __repr__(self) -> str:
        lines = [f"<warpcall.GraphFunction ({', '.join(self.inputs)}):"]
        for step in self._plan.steps:
            arguments = [*step.inputs, *(f"{k}={v!r}" for k, v in step.attributes.items())]
            if step.implementation:
                arguments.append(f"implementation={step.implementation!r}")
            lines.append(f"  {step.name} = {step.kernel}({', '.join(arguments)})")
        kept = [f"{each.name}{' (kept)' if each.keep else ''}" for each in self._plan.outputs]
        return "\n".join([*lines, f"  return {', '.join(kept)}>"])


def _encode_graph(steps: Sequence[GraphStep], outputs: Sequence[GraphOutput]) -> bytes:
    """These fields of an ExecuteGraphRequest."""
    return b"".join(
        [wire.bytes_field(2, encode(step)) for step in steps]
        + [wire.bytes_field(3, encode(output)) for output in outputs]
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _item_of(name: str, x: object, dtype: object) -> Item:
    """An input of a call."""
    if isinstance(x, Result) and x.residents:
        x = x.residents[0]
    if isinstance(x, ResidentBase):
        return x
    if isinstance(x, Blocks):
        raise InvalidArgument(f'input "{name}": Blocks are for calls that stream; pass an array')
    try:
        return to_operand(x, dtype)
    except InvalidArgument as error:
        raise InvalidArgument(f'input "{name}": {error.message}') from None


class GraphRequest(NamedTuple):
    """A call of a graph. Keeps its tensors' memory alive."""

    head: bytes
    """The ExecuteGraphRequest but for its inputs."""
    items: Mapping[str, Item]
    outputs: Sequence[GraphOutput]
    kernels: Mapping[str, str]
    """By the names of their steps."""
    timeout: float | None

    @property
    def residents(self) -> list[ResidentBase]:
        return [item for item in self.items.values() if isinstance(item, ResidentBase)]

    @property
    def keeps(self) -> bool:
        return any(output.keep for output in self.outputs)

    def encode(self) -> bytes:
        """An ExecuteGraphRequest; the one copy of the tensors. Raises InvalidArgument for more than
        a message holds."""
        return b"".join(self._pieces())

    def encode_as(self, number: int, head: bytes) -> bytes:
        """A message of the fields of `head` and, as field `number`, this request; otherwise as
        encode."""
        pieces = self._pieces()
        size = sum(memoryview(piece).nbytes for piece in pieces)
        return b"".join([head, wire.bytes_prefix(number, size), *pieces])

    def encode_without_data(self) -> bytes:
        """An ExecuteGraphRequest for a graph that does not run."""
        out = self.head
        for name, item in self.items.items():
            tensor = (
                handle_field(item)
                if isinstance(item, ResidentBase)
                else tensor_fields(item.data_type, item.shape, None)
            )
            content = wire.bytes_field(1, name.encode()) + wire.bytes_field(2, tensor)
            out += wire.bytes_field(1, content)
        return out

    def _pieces(self) -> list[Any]:
        pieces: list[Any] = [self.head]
        for name, item in self.items.items():
            content = wire.bytes_field(1, name.encode())
            if isinstance(item, ResidentBase):
                content += wire.bytes_field(2, handle_field(item))
                pieces.append(wire.bytes_field(1, content))
                continue
            fields = tensor_fields(item.data_type, item.shape, item.data.nbytes)
            content += wire.bytes_prefix(2, len(fields) + item.data.nbytes) + fields
            pieces += wire.bytes_prefix(1, len(content) + item.data.nbytes), content, item.data
        total = sum(memoryview(piece).nbytes for piece in pieces)
        if total > MESSAGE_BYTES_MAX:
            raise InvalidArgument(
                f"the request has {total} bytes; a graph is one message of at most"
                f" {MESSAGE_BYTES_MAX}: put() its large inputs first"
            )
        return pieces

    def finish(
        self, data: bytes, ceiling: Ceiling, resident: MakeResident
    ) -> GraphResult | tuple[GraphResult, ...]:
        """The results in an answer. Raises Internal for one that contradicts itself."""
        try:
            answer, views = GraphAnswer(data, self.kernels), read_outputs(data)
            if len(views) != len(self.outputs):
                raise ValueError(f"{len(views)} outputs; the graph has {len(self.outputs)}")
            results = tuple(
                self._result(data, (answer, view), output, (ceiling, resident))
                for output, view in zip(self.outputs, views, strict=True)
            )
        except ValueError as error:  # WireError is one
            raise bad_response(error) from None
        return results[0] if len(results) == 1 else results

    def _result(
        self,
        data: bytes,
        said: tuple[GraphAnswer, TensorView],
        output: GraphOutput,
        means: tuple[Ceiling, MakeResident],
    ) -> GraphResult:
        (answer, view), (ceiling, resident) = said, means
        if output.keep:
            residents = [resident(view.kept(answer.device, output.label))]
            return GraphResult(output.name, answer, [], ceiling, residents)
        array = from_bytes(data, view.span, view.data_type, view.shape)
        is_scalar = all(
            isinstance(item, Operand) and item.is_scalar for item in self.items.values()
        )
        shaped = Finisher(output.name, ceiling, is_scalar).shaped([array])
        return GraphResult(output.name, answer, shaped, ceiling)


@dataclasses.dataclass(frozen=True)
class InspectedGraph:
    """A graph to profile or to describe."""

    request: GraphRequest
    problem: str
    """The shapes of a call's inputs: "x=3x8"."""
    kernel = GRAPH

    @property
    def residents(self) -> list[ResidentBase]:
        return self.request.residents

    def encode_profile(self, options: ProfileOptions) -> bytes:
        return self.request.encode_as(7, encode_runs(options))

    def encode_describe(self, ran: ProfileResponse | None = None) -> bytes:
        """`ran`: a profile on whose device it is described."""
        graph = self.request.encode_without_data()
        if ran is not None:
            graph += wire.bytes_field(4, ran.device.encode())  # of two the later counts
        return wire.bytes_field(6, graph)


@contextlib.contextmanager
def calling_graph() -> Generator[None, None, None]:
    """Says of a server that is too old that it is."""
    try:
        yield
    except Unimplemented as error:
        if error.message not in NO_METHOD:
            raise
        text = "the server has no method ExecuteGraph: its version is too old"
        raise Unimplemented(text) from None


@contextlib.contextmanager
def inspecting_graph() -> Generator[None, None, None]:
    """Likewise where the server sees a kernel without a name in place of the graph."""
    try:
        yield
    except NotFound as error:
        if not error.message.startswith('kernel ""'):
            raise
        text = "the server neither describes nor profiles graphs: its version is too old"
        raise Unimplemented(text) from None
