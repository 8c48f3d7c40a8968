"""Arrays of any kind as bytes that the service takes, and its bytes as arrays.

NumPy does not know bfloat16. With ml_dtypes installed such arrays go in and come out as its type;
without it their bits travel in uint16 arrays, told apart by `dtype="bfloat16"` and `BFloat16Bits`.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from ._messages import DATA_TYPE_NUMBERS
from ._proto import DATA_TYPES, TensorSpec
from .errors import Error, InvalidArgument

ml_dtypes: Any = None
with contextlib.suppress(ImportError):
    ml_dtypes = importlib.import_module("ml_dtypes")

Array = npt.NDArray[Any]
# numpy.ndarray, of which type checkers do not conclude that elements are of a type unknown.
NDARRAY: Any = np.ndarray

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_ALIASES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
# A uint16 view of bfloat16 data as it travels.
_BITS: np.dtype[Any] = np.dtype("<u2")
WIRE_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
    "bfloat16": _BITS,
}
# Arrays of these lie in memory as they travel.
READY: dict[np.dtype[Any], int] = {np.dtype("<f4"): 1, np.dtype("<f2"): 2}
# DLPack's device types: kDLCPU, kDLCUDAHost, kDLROCMHost.
_DLPACK_HOST = (1, 3, 11)


# Operations that bfloat16 bits take as bits; all others work on the values.
_BITWISE = {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.left_shift, np.right_shift}


class BFloat16Bits(np.ndarray[Any, np.dtype[np.uint16]]):
    """The bits of bfloat16 values as uint16: the form of bfloat16 results without ml_dtypes. As an
    input it needs no `dtype`.

    Arithmetic, comparisons and `astype` of a floating-point type take the values, in float32;
    `view(numpy.uint16)` gives an array of the bits alone.
    """

    dtype_name = "bfloat16"

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """The values, in a floating-point type; the bits, in another one."""
        if np.dtype(dtype).kind != "f":
            return plain(self).astype(dtype, *args, **kwargs)
        return _widen(self).astype(dtype, *args, **kwargs)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """As an array's, which then is of no class of its own."""
        view: Any = NDARRAY.view(self, *args, **kwargs)
        return plain(view) if args or kwargs else view

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(item, BFloat16Bits) for item in kwargs.get("out", ())):
            raise TypeError("bits of bfloat16 are no place for a result of NumPy's")
        as_bits = ufunc in _BITWISE
        if ufunc in (np.equal, np.not_equal):  # with bits, which np.asarray gives, as bits
            as_bits = all(getattr(item, "dtype", None) == np.uint16 for item in inputs)
        take = plain if as_bits else _widen
        arrays = [take(x) if isinstance(x, BFloat16Bits) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        return _widen(self).argmax(*args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        return _widen(self).argmin(*args, **kwargs)

    def argsort(self, *args: Any, **kwargs: Any) -> Any:
        return _widen(self).argsort(*args, **kwargs)

    def dot(self, *args: Any, **kwargs: Any) -> Any:
        return _widen(self).dot(*args, **kwargs)


class Operand(NamedTuple):
    """An input as it is sent."""

    data_type: int
    """The number of a DataType."""
    shape: tuple[int, ...]
    data: Array
    """C-contiguous and little-endian; bfloat16 as uint16."""
    is_scalar: bool = False
    """Had no dimensions: the service takes one at least."""
    is_own: bool = False
    """`data` was made for this call: nobody else has its memory."""


# ---- data types ---------------------------------------------------------------------------------


def type_name(dtype: object) -> str:
    """One of "float32", "float16" and "bfloat16", for a name, a scalar type, or a dtype of NumPy,
    ml_dtypes or torch. Raises InvalidArgument for any other."""
    name = _ALIASES.get(dtype, dtype) if isinstance(dtype, str) else _name_of(dtype)
    if name not in DATA_TYPE_NUMBERS:
        name = _name_of(name)  # NumPy's short names, "f4"
    if name not in DATA_TYPE_NUMBERS:
        raise InvalidArgument(f"dtype is {name}; it must be float32, float16 or bfloat16")
    return name


def _name_of(dtype: object) -> str:
    try:
        return np.dtype(dtype).name  # type: ignore[call-overload, no-any-return]
    except TypeError:
        return str(dtype).removeprefix("torch.")


def array_type_name(array: Array) -> str:
    """The name of what an array's elements are, bfloat16 among them."""
    if isinstance(array, BFloat16Bits) and array.dtype == np.uint16:
        return "bfloat16"
    return array.dtype.name


def _narrow(values: Array) -> Array:
    """The bits of float32 values rounded to bfloat16, to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    rounded: Array = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(_BITS)
    quiet: Array = (bits >> 16 | 0x40).astype(_BITS)
    np.copyto(rounded, quiet, where=(bits & 0x7FFFFFFF) > 0x7F800000)
    return rounded.reshape(values.shape)  # which was (1,) of a single number


def _cut(array: Array, dtype: Any) -> Array:
    """Floating-point values in a narrower type, rounded to odd: towards zero, and then the last bit
    is set where that changed them. So a second rounding, to nearest and to two bits less or fewer
    still, gives what one alone would."""
    near: Array = array.astype(dtype)
    back = near.astype(array.dtype)
    bits: Array = near.view(f"u{near.dtype.itemsize}")
    bits -= np.abs(back) > np.abs(array)
    bits |= back != array
    return near


def _cut_integers(array: Array) -> Array:
    """Whole numbers of 8 bytes as float64, as _cut."""
    low = array & 0x7FF  # what may be more than float64's 53 bits
    odd = array - low | (low != 0).astype(array.dtype) << 11
    return np.where((array >= 1 << 53) | (array <= -(1 << 53)), odd, array).astype(np.float64)


def plain(array: Array) -> Array:
    """Without the class that it may have of its own."""
    base: Array = NDARRAY.view(array, NDARRAY)
    return base


def _widen(bits: Array) -> Array:
    wide: Array = (np.asarray(bits).astype("<u4") << 16).view("<f4")
    return wide


def _convert(array: Array, target: str) -> Array:
    """The array's values in another type, as it travels, rounded once. uint16 stands for bits of
    bfloat16 already."""
    source = array_type_name(array)
    if target == "bfloat16" and source == "uint16":
        return np.asarray(plain(array), _BITS)
    if array.dtype.kind in "OUSMmVc" and source != "bfloat16":
        raise InvalidArgument(f"an input of dtype {array.dtype}; it must hold numbers")
    if source == "bfloat16":
        array = _widen(array) if array.dtype == np.uint16 else array.astype(np.float32)
    if target != "float32" and array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = _cut(array, np.float64)  # by which NumPy goes, too, but to nearest
    if target == "bfloat16":
        if array.dtype.kind != "f":
            array = _cut_integers(array) if array.dtype.itemsize == 8 else array.astype(np.float64)
        exact = array.dtype.itemsize <= 4
        return _narrow(array.astype(np.float32) if exact else _cut(array, np.float32))
    return array.astype(WIRE_DTYPES[target])


# ---- inputs -------------------------------------------------------------------------------------


def to_operand(value: Any, dtype: object = None) -> Operand:
    """An input as it is sent. Arrays that are contiguous, little-endian and of a type that the
    service has are not copied; others are, once.

    `dtype`: the type to convert to. Arrays need it when theirs is none of the service's; lists and
    numbers are float32 without it; of uint16 arrays "bfloat16" says what their bits are.
    Raises InvalidArgument for what is no array of numbers in this machine's memory.
    """
    if dtype is None and type(value) is NDARRAY:
        number = READY.get(value.dtype)
        if number is not None and value.flags.c_contiguous and value.ndim:
            return Operand(number, value.shape, value)
    array = _to_array(value, dtype)
    name = array_type_name(array) if dtype is None else type_name(dtype)
    if name not in DATA_TYPE_NUMBERS:
        raise InvalidArgument(
            f"an input of dtype {array.dtype}; it must be float32, float16 or bfloat16:"
            ' convert it, or pass dtype="float32"'
        )
    given = array
    if array_type_name(array) != name:
        array = _convert(array, name)
    if name == "bfloat16":
        array = plain(array).view(np.uint16)
    data = np.ascontiguousarray(array, WIRE_DTYPES[name])
    own = not np.may_share_memory(data, given)
    return Operand(DATA_TYPE_NUMBERS[name], array.shape or (1,), data, array.ndim == 0, own)


def _to_array(value: object, dtype: object) -> Array:
    check_meaning(value)
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.partition(".")[0] == "torch":
        return _from_torch(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    if hasattr(value, "__array__"):
        return _from_array_method(value)
    _check_items(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgument(f"an input that is no array: {error}") from None
    if array.dtype.kind not in "biuf":
        # NumPy before 1.24 makes an array of objects of rows that are not equally long.
        name = type(value).__name__
        raise InvalidArgument(f"an input of type {name} that is no array of real numbers")
    # Python numbers have no fixed width. For 16-bit types they are rounded once, by _convert, which
    # takes a uint16 number for a value, not for bits.
    if dtype is None:
        return array.astype(np.float32)
    return array if array.dtype.itemsize >= 8 else array.astype(np.float64)


# Array classes whose elements are all of their content.
_PLAIN_CLASSES = {NDARRAY, BFloat16Bits, np.memmap, np.matrix, np.recarray}
# Other classes: what they add to their elements, and how to get the elements alone; first for
# arrays, then for other objects.
_ARRAY_WAYS = (
    ("filled", "has a mask", ".filled(value)"),
    ("to_value", "has a unit", ".to_value(unit)"),
    ("magnitude", "has a unit", ".magnitude"),
)
_OTHER_WAYS = (
    ("magnitude", "has a unit", ".magnitude"),
    ("toarray", "is sparse", ".toarray()"),
    ("todense", "is sparse", ".todense()"),
)


def check_meaning(value: object, what: str = "an input") -> None:
    """Raises InvalidArgument for what would lose a mask, a unit or whatever else its class adds to
    its elements, and says what to pass instead."""
    cls = type(value)
    if cls in _PLAIN_CLASSES:
        return
    is_array = isinstance(value, np.ndarray)
    ways = _ARRAY_WAYS if is_array else _OTHER_WAYS
    has = [(meaning, way) for method, meaning, way in ways if hasattr(cls, method)]
    if not has and not is_array:
        return
    meaning, way = has[0] if has else ("is more than an array", ".view(numpy.ndarray)")
    name = f"{cls.__module__}.{cls.__qualname__}"
    raise InvalidArgument(
        f"{what} of type {name}, which {meaning} that would be lost: pass its {way}"
    )


def _check_items(value: object) -> None:
    """As check_meaning, for what lists and tuples hold."""
    if not _is_sequence(value) or {*map(type, value)} <= {int, float, bool}:
        return
    for item in value:
        check_meaning(item, "an item of an input")
        if getattr(item, "dtype_name", "") == "bfloat16":
            raise InvalidArgument(
                "an item of an input that holds bits of bfloat16: join such arrays with numpy.stack"
                ' and pass dtype="bfloat16"'
            )
        _check_items(item)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, (list, tuple))


def _from_array_method(value: Any) -> Array:
    """Not by np.asarray, which would forget that bits are of bfloat16."""
    try:
        array: Array = value.__array__()
    except (RuntimeError, TypeError, ValueError) as error:
        name = type(value).__name__
        raise InvalidArgument(f"an input of type {name} that gives no array: {error}") from None
    check_meaning(array)
    return array


def _from_dlpack(value: Any) -> Array:
    kind, index = value.__dlpack_device__()
    if kind not in _DLPACK_HOST:
        raise InvalidArgument(
            f"an input on a device (DLPack type {int(kind)}, number {index}); it must be in host"
            " memory: copy it there first, with .get() of cupy or .cpu() of torch"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:  # bfloat16, or read-only memory
        if hasattr(value, "__array__"):
            return _from_array_method(value)
        raise InvalidArgument(f"an input that NumPy does not take by DLPack: {error}") from None


def _from_torch(value: Any) -> Array:
    if value.device.type != "cpu":
        raise InvalidArgument(
            f"an input on {value.device}; it must be in host memory: copy it there with .cpu()"
        )
    if getattr(value, "is_sparse", False) or getattr(value, "is_sparse_csr", False):
        raise InvalidArgument("an input that is a sparse tensor: pass its .to_dense()")
    tensor = value.detach()
    if str(tensor.dtype) != "torch.bfloat16":
        array: Array = tensor.numpy()
        return array
    # NumPy has no such type: the bits travel under the name of another one of their width.
    bits = tensor.contiguous().view(__import__("torch").int16).numpy()
    return bits.view(np.uint16).view(BFloat16Bits)  # type: ignore[no-any-return]


# ---- outputs ------------------------------------------------------------------------------------


def check_bytes(name: str, shape: Sequence[int], length: int) -> None:
    """Raises ValueError unless `length` bytes are a tensor of this type and shape."""
    expected = math.prod(shape) * ITEM_BYTES[name]
    if length != expected or min(shape, default=0) < 0:
        raise ValueError(f"{length} bytes of data, but {name}{list(shape)} takes {expected}")


def as_type(bits: Array, name: str) -> Array:
    """An array as it travelled, as what its elements are."""
    if name != "bfloat16":
        return bits
    return bits.view(BFloat16Bits if ml_dtypes is None else ml_dtypes.bfloat16)


def from_bytes(data: bytes, span: tuple[int, int], number: int, shape: Sequence[int]) -> Array:
    """The tensor in data[span[0]:span[1]] where it lies, read-only. Raises ValueError when these
    bytes are none of this type and shape."""
    name = DATA_TYPES.get(number)
    if name is None:
        raise ValueError(f"a tensor of data type {number}")
    check_bytes(name, shape, span[1] - span[0])
    # NumPy refuses an offset behind the last byte, also for a tensor that has none.
    at = span[0] if span[0] < span[1] else 0
    array: Array = np.ndarray(shape, WIRE_DTYPES[name], data, at)
    return array if number != 3 else as_type(array, name)


def empty(spec: TensorSpec) -> tuple[Array, memoryview]:
    """Memory for a tensor: the array, and its bytes to be filled in."""
    array = np.empty(spec.shape, WIRE_DTYPES[spec.data_type])
    view = array.reshape(-1).view(np.uint8).data  # a cast refuses arrays without elements
    return as_type(array, spec.data_type), view


def copy_into(out: Array, array: Array, error: type[Error] = InvalidArgument) -> None:
    """Fills the caller's array. Raises `error` when it is not one for this result."""
    check_out(out, TensorSpec(array_type_name(array), array.shape), error)
    if array_type_name(array) == "bfloat16":
        out = plain(out) if out.dtype.kind == "u" else out.view(np.uint16)
        array = array.view(np.uint16)
    np.copyto(out, array)  # also to another order of bytes


def check_out(out: Array, spec: TensorSpec, error: type[Error] = InvalidArgument) -> None:
    """Raises `error` unless a result of `spec` can be written to `out`."""
    name = array_type_name(out)
    bits = spec.data_type == "bfloat16" and name == "uint16"
    if out.shape != spec.shape or (name != spec.data_type and not bits):
        raise error(
            f"out is {name}{list(out.shape)}; the result is {spec.data_type}{list(spec.shape)}"
        )
    if not out.flags.writeable:
        raise error("out is read-only")
