"""The result of a call."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ._arrays import Array, array_type_name, copy_into, plain
from ._execute import Response, Unread, read_answer
from ._format import bytes_per_second, flops_per_second, nanoseconds
from ._wire import WireError
from .errors import Error, Internal, InvalidArgument

if TYPE_CHECKING:
    from ._fast import FastResponse
    from ._graph_result import GraphAnswer
    from ._proto import LaunchInfo, TensorInfo, Timing
    from ._stripes import StripedResponse

Part = TypeVar("Part")
# Returns a device's copy speed, in bytes per second, by its name; None if it was not measured.
Ceiling = Callable[[str], "float | None"]
# Returns the client's object for a tensor that stays.
MakeResident = Callable[["TensorInfo"], Any]
NO_OUTPUTS = "it has no outputs"


class Result(NDArrayOperatorsMixin):
    """The outputs of a call, with what ran and where its time went.

    It can be used as its first output: `np.asarray(y)`, `y[0]`, `y + 1`, `y.sum()`, `y.T`;
    NumPy's operations return arrays, not Results. Outputs lie in the memory of the server's answer
    and are read-only, unless they were written to `out`. Copies (`copy.deepcopy`) and pickles have
    their own memory, and keep all fields except `ceiling_bytes_per_second`.

    The result of a call with `keep=True` stays on the server: its outputs are `residents`, not
    arrays, and it can be an input of further calls.
    """

    # Not a subclass of ndarray: slices and sums would inherit times and a launch that are not
    # theirs, and a call may have several outputs.

    __slots__ = ("_answer", "_ceiling", "kernel", "outputs", "residents", "stripes")

    def __init__(
        self,
        kernel: str,
        answer: Response | StripedResponse | GraphAnswer | KeptAnswer | Unread,
        outputs: list[Array],
        ceiling: Ceiling,
        stripes: int = 1,
        residents: Sequence[Any] = (),
    ) -> None:
        self.kernel = kernel
        self.outputs = outputs
        self.residents = residents
        """Outputs of a call with `keep=True`, as Residents; `outputs` is empty then."""
        self.stripes = stripes
        """Number of calls that this one was split into, for several connections. For more than one,
        `timing` and `launch` add up the work of all, except `total_ns`, which is the longest; other
        fields are the first call's."""
        self._answer: (
            Response | StripedResponse | FastResponse | GraphAnswer | KeptAnswer | Unread
        ) = answer
        self._ceiling = ceiling

    @property
    def _response(self) -> Response | StripedResponse | FastResponse | GraphAnswer | KeptAnswer:
        if isinstance(self._answer, KeptAnswer) or not isinstance(self._answer, tuple):
            return self._answer
        make, *said = self._answer
        answer: Response | StripedResponse | FastResponse | KeptAnswer = make(*said)
        self._answer = answer
        return answer

    # ---- what ran, and how fast ----

    @property
    def implementation(self) -> str:
        """The implementation that ran, e.g. "simd_rows"."""
        return self._response.implementation

    @property
    def device(self) -> str:
        """The device that it ran on, e.g. "cuda:0"."""
        return self._response.device

    @property
    def request_id(self) -> str:
        """The request's ID in the server's log."""
        return self._response.request_id

    @property
    def timing(self) -> Timing:
        """Durations of the request's phases on the server, in nanoseconds."""
        return _readable(self._response.timing)

    @property
    def launch(self) -> LaunchInfo:
        """Work and launch of the kernel."""
        return _readable(self._response.launch)

    @property
    def resident(self) -> Any:
        """The first output of a call with `keep=True`, as a Resident. Raises InvalidArgument for
        other results."""
        if not self.residents:
            raise InvalidArgument("the result was sent; keep=True lets it stay on the server")
        return self.residents[0]

    @property
    def resident_bytes(self) -> int:
        """Bytes of operands that did not travel: inputs that were on the device, outputs that stay
        there."""
        return self._response.resident_bytes

    @property
    def achieved_bytes_per_second(self) -> float:
        """The least bytes that the kernel must move divided by its time on the device; 0 if that
        time was not measurable."""
        return _rate(self.launch.bytes_moved, self.timing.kernel_ns)

    @property
    def achieved_flops_per_second(self) -> float:
        return _rate(self.launch.flops, self.timing.kernel_ns)

    @property
    def ceiling_bytes_per_second(self) -> float | None:
        """The device's measured copy bandwidth; None if unknown. The first access asks the server,
        once per client; a result of an `aio` client needs `await devices()` first."""
        return self._ceiling(self.device)

    @property
    def percent_of_ceiling(self) -> float | None:
        """achieved_bytes_per_second as a share of the ceiling; None if that is unknown. Data that
        fits into a cache can exceed 100."""
        ceiling = self.ceiling_bytes_per_second
        return 100 * self.achieved_bytes_per_second / ceiling if ceiling else None

    # ---- as an array ----

    @property
    def array(self) -> Array:
        """The first output. Raises InvalidArgument for one that stays on the server."""
        if self.residents:
            raise InvalidArgument("the result stays on the server: resident.get() returns it")
        return self.outputs[0]

    @property
    def _first(self) -> Any:
        """What has the first output's shape and type."""
        return self.resident if self.residents else self.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._first.shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type; uint16 for bfloat16 where ml_dtypes is not installed."""
        dtype: np.dtype[Any] = self._first.dtype
        return dtype

    @property
    def dtype_name(self) -> str:
        """ "float32", "float16" or "bfloat16"."""
        return _type_name(self._first)

    def numpy(self) -> Array:
        """The first output."""
        return self.array

    def torch(self) -> Any:
        """Returns the first output as a torch tensor with its own memory."""
        torch = importlib.import_module("torch")
        # Flat, as NumPy gives arrays without elements strides that torch's own have not.
        array = np.array(plain(self.array)).reshape(-1)
        if self.dtype_name == "bfloat16":
            flat = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            flat = torch.from_numpy(array)
        return flat.view(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to make {dtype} of {array.dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:  # y += 1
            kwargs["out"] = tuple(map(_array_of, kwargs["out"]))
        return getattr(ufunc, method)(*map(_array_of, inputs), **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"'Result' object has no attribute '{name}'")
        return getattr(self.array, name)

    def __dir__(self) -> list[str]:
        public = (name for name in dir(np.ndarray) if not name.startswith("_"))
        return sorted({*super().__dir__(), *public})

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)

    def __contains__(self, item: object) -> bool:
        return item in self.array

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value

    def __bool__(self) -> bool:
        return bool(self.array)

    def __int__(self) -> int:
        return int(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __complex__(self) -> complex:
        return complex(self.array)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.residents:
            raise TypeError("a result that stays on the server is neither copied nor pickled")
        said = KeptAnswer(
            self.implementation,
            self.device,
            self.request_id,
            self.timing,
            self.launch,
            self.resident_bytes,
        )
        return Result, (self.kernel, said, list(self.outputs), unknown_ceiling, self.stripes)

    def __repr__(self) -> str:
        outputs = ", ".join(map(output_text, self.residents or self.outputs))
        timing = self.timing
        rates = [bytes_per_second(self.achieved_bytes_per_second)] if timing.kernel_ns else []
        if self.achieved_flops_per_second:
            rates.append(flops_per_second(self.achieved_flops_per_second))
        kernel = nanoseconds(timing.kernel_ns) + (f" ({', '.join(rates)})" if rates else "")
        stripes = f" in {self.stripes} stripes" if self.stripes > 1 else ""
        kept = " (kept)" if self.residents else ""
        return (
            f"<warpcall.Result {self.kernel} -> {outputs}{kept} by {self.implementation}"
            f" on {self.device}{stripes}: kernel {kernel}, server {nanoseconds(timing.total_ns)}>"
        )


def _array_of(item: Any) -> Any:
    return item.array if isinstance(item, Result) else item


def _type_name(output: Any) -> str:
    name: str = array_type_name(output) if isinstance(output, np.ndarray) else output.dtype_name
    return name


def output_text(output: Any) -> str:
    """ "float32[2,3]"."""
    return f"{_type_name(output)}[{','.join(map(str, output.shape))}]"


def make_none(info: TensorInfo) -> Any:
    """A MakeResident for calls that keep nothing."""
    return None


def unknown_ceiling(device: str) -> float | None:
    """A ceiling that nobody measured."""
    return None


class KeptAnswer(NamedTuple):
    """Fields of an answer beside its outputs, kept without its memory."""

    implementation: str
    device: str
    request_id: str
    kept_timing: Timing
    kept_launch: LaunchInfo
    resident_bytes: int = 0

    def timing(self) -> Timing:
        return self.kept_timing

    def launch(self) -> LaunchInfo:
        return self.kept_launch


def _readable(part: Callable[[], Part]) -> Part:
    try:
        return part()
    except WireError as error:
        raise bad_response(error) from None


def _rate(amount: int, duration_ns: int) -> float:
    return amount / (duration_ns * 1e-9) if duration_ns > 0 else 0.0


class Finisher:
    """Makes results of a call's answers."""

    __slots__ = ("_ceiling", "_is_scalar", "_kernel", "_resident")

    def __init__(
        self,
        kernel: str,
        ceiling: Ceiling,
        is_scalar: bool = False,
        resident: MakeResident = make_none,
    ) -> None:
        """`is_scalar`: no input had a dimension, so a single number has none either."""
        self._kernel, self._ceiling, self._is_scalar = kernel, ceiling, is_scalar
        self._resident = resident

    def __call__(
        self,
        data: bytes,
        out_for: Callable[[tuple[int, ...]], Array | None] = lambda shape: None,
        misfit: type[Error] = InvalidArgument,
    ) -> Result:
        """`out_for`: where a first output of that shape is to be written; None: it stays where it
        is. Raises Internal for an answer that contradicts itself, `misfit` when it does not fit
        there."""
        answer, outputs = _read(data)
        if not outputs:
            raise bad_response(NO_OUTPUTS)
        out = out_for(outputs[0].shape)
        if out is not None:
            copy_into(out, self.shaped_as(out, outputs)[0], misfit)
            outputs[0] = out
        else:
            outputs = self.shaped(outputs)
        return self.made_of(answer, outputs)

    def kept(self, answer: Response) -> Result:
        """A result that stays on the server. Raises Internal for an answer without handles."""
        try:
            residents = [self._resident(info) for info in answer.kept()]
        except ValueError as error:
            raise bad_response(error) from None
        if not residents:
            raise bad_response(NO_OUTPUTS)
        return Result(self._kernel, answer, [], self._ceiling, residents=residents)

    def shaped_as(self, out: Array, outputs: list[Array]) -> list[Array]:
        """For an `out` without dimensions as it would be without it; for others as it came."""
        return self.shaped(outputs) if out.ndim == 0 else outputs

    def shaped(self, outputs: list[Array]) -> list[Array]:
        """Drops dimensions from the result if the inputs had none."""
        if not self._is_scalar:
            return outputs
        return [array.reshape(()) if array.size == 1 else array for array in outputs]

    def made_of(
        self,
        answer: Response | StripedResponse | Unread,
        outputs: list[Array],
        stripes: int = 1,
    ) -> Result:
        if not outputs:
            raise bad_response(NO_OUTPUTS)
        return Result(self._kernel, answer, outputs, self._ceiling, stripes)


def ready_result(kernel: str, data: bytes, ceiling: Ceiling) -> Result:
    """As Finisher, for calls that ask for nothing special."""
    answer, outputs = _read(data)
    return Result(kernel, answer, outputs, ceiling)


def read_response(data: bytes) -> Response:
    """An ExecuteResponse. Raises Internal for bytes that are none."""
    try:
        return Response(data)
    except WireError as error:
        raise bad_response(error) from None


def _read(data: bytes) -> tuple[Response | Unread, list[Array]]:
    try:
        answer, outputs = read_answer(data)
    except ValueError as error:  # WireError is one
        raise bad_response(error) from None
    if not outputs:
        raise bad_response(NO_OUTPUTS)
    return answer, outputs


def bad_response(what: object) -> Internal:
    return Internal(f"the server's answer contradicts itself: {what}")
