"""The service's small messages as dataclasses, and the table by which they are encoded and decoded.

Names and meanings are those of proto/warpcall/v1/warpcall.proto. Tensors are not among them: see
_execute.py.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from . import _wire as wire
from .errors import InvalidArgument

AttributeValue: TypeAlias = "bool | int | float | str"
Message = TypeVar("Message")

DATA_TYPES = {1: "float32", 2: "float16", 3: "bfloat16"}
DATA_TYPE_NUMBERS = {name: number for number, name in DATA_TYPES.items()}
_INDEPENDENCE = {
    0: "none",
    1: "elements",
    2: "before_axis",
    3: "rows",
    4: "broadcast_rows",
    5: "product_rows",
}
_ROLES = {0: "split", 1: "shared"}


@dataclasses.dataclass(frozen=True)
class Timing:
    """Where the time of one request went, as the server saw it, in nanoseconds."""

    queue_ns: int = 0
    """Waiting for a lane."""
    copy_in_ns: int = 0
    """Request bytes to staging memory."""
    h2d_ns: int = 0
    """Staging to device memory."""
    kernel_ns: int = 0
    """Device time of the kernel."""
    d2h_ns: int = 0
    """Device memory to staging."""
    total_ns: int = 0
    """Request parsed to response handed to gRPC."""


@dataclasses.dataclass(frozen=True)
class LaunchInfo:
    """What the kernel had to do, and how it was launched."""

    bytes_moved: int = 0
    """The least that it must move: inputs read once plus outputs written once."""
    flops: int = 0
    theoretical_occupancy: float = 0.0
    """0 to 1."""
    waves: float = 0.0
    """Grid blocks over blocks that the device holds at once."""
    gpu_kernels: int = 0


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor."""

    data_type: str = "float32"
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class AttributeInfo:
    name: str = ""
    summary: str = ""
    default_value: AttributeValue | None = None
    allowed_values: tuple[str, ...] = ()
    """Empty: all of the type."""
    required: bool = False
    """The default value is only there for its type."""


@dataclasses.dataclass(frozen=True)
class ImplementationInfo:
    name: str = ""
    family: str = ""
    device_kind: str = ""
    """"cpu" or "cuda"."""
    summary: str = ""
    data_types: tuple[str, ...] = ()
    unavailable: str = ""
    """Why the server's machine can't run it; empty when it can."""


@dataclasses.dataclass(frozen=True)
class TunedClass:
    """A class of problems of which the server has measured the implementations."""

    problem: str = ""
    """The one that was measured: "float32[16384,4096] axis=-1"."""
    device_model: str = ""
    """"NVIDIA H200, 132 multiprocessors"."""
    implementation: str = ""
    """What "auto" runs for such problems, if it takes them; empty when nothing was right."""
    chosen_because: str = ""


@dataclasses.dataclass(frozen=True)
class KernelInfo:
    name: str = ""
    summary: str = ""
    input_names: tuple[str, ...] = ()
    attributes: tuple[AttributeInfo, ...] = ()
    implementations: tuple[ImplementationInfo, ...] = ()
    """In the order in which the server prefers them."""
    independence: str = "none"
    """Which parts of its problems depend on no other: "none", "elements", "before_axis", "rows"."""
    input_roles: tuple[str, ...] = ()
    """What a part has of each input: "split", its own piece, or "shared", all of it. Inputs beyond
    these are split."""
    inputs_min: int = 0
    """Where not 0, it takes as many inputs as its attributes say: so many at least."""
    tuned: tuple[TunedClass, ...] = ()
    """With kernels(tuned=True)."""


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    name: str = ""
    """"cpu", "cuda:0"."""
    kind: str = ""
    description: str = ""
    memory_bytes: int = 0
    multiprocessors: int = 0
    l2_bytes: int = 0
    shared_memory_per_block_bytes: int = 0
    compute_capability: str = ""
    healthy: bool = False
    measured_bandwidth_bytes_per_second: float = 0.0
    """Read plus written; 0 until measured."""


@dataclasses.dataclass(frozen=True)
class ListKernelsResponse:
    kernels: tuple[KernelInfo, ...] = ()


@dataclasses.dataclass(frozen=True)
class ListDevicesResponse:
    devices: tuple[DeviceInfo, ...] = ()


@dataclasses.dataclass(frozen=True)
class ServerInfoResponse:
    """Which server this is, since when, and what it was told."""

    version: str = ""
    revision: str = ""
    """Of the source that it was built from; empty when that was no checkout."""
    grpc_version: str = ""
    started_unix_ns: int = 0
    changed_flags: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Those whose values differ from their defaults."""
    hostname: str = ""

    @property
    def started(self) -> datetime.datetime:
        """In UTC."""
        return datetime.datetime.fromtimestamp(self.started_unix_ns / 1e9, datetime.timezone.utc)


class Field(NamedTuple):
    """A field of a message. `kind`: "text", "bytes", "bool", "int", "int32", "uint", "double",
    "type" (DataType, by name), "independence", "role", "attribute", "attributes" (the map), "texts"
    (a map of them), or the class of a message."""

    number: int
    name: str
    kind: Any
    repeated: bool = False


def _scalars(kind: str, *names: str, first: int = 1) -> list[Field]:
    return [Field(first + i, name, kind) for i, name in enumerate(names)]


TABLE: dict[type, list[Field]] = {
    Timing: _scalars("int", "queue_ns", "copy_in_ns", "h2d_ns", "kernel_ns", "d2h_ns", "total_ns"),
    LaunchInfo: [
        *_scalars("int", "bytes_moved", "flops"),
        *_scalars("double", "theoretical_occupancy", "waves", first=3),
        Field(5, "gpu_kernels", "int32"),
    ],
    TensorSpec: [Field(1, "data_type", "type"), Field(2, "shape", "int", True)],
    AttributeInfo: [
        *_scalars("text", "name", "summary"),
        Field(3, "default_value", "attribute"),
        Field(4, "allowed_values", "text", True),
        Field(5, "required", "bool"),
    ],
    ImplementationInfo: [
        *_scalars("text", "name", "family", "device_kind", "summary"),
        Field(5, "data_types", "type", True),
        Field(6, "unavailable", "text"),
    ],
    TunedClass: _scalars("text", "problem", "device_model", "implementation", "chosen_because"),
    KernelInfo: [
        *_scalars("text", "name", "summary"),
        Field(3, "input_names", "text", True),
        Field(4, "attributes", AttributeInfo, True),
        Field(5, "implementations", ImplementationInfo, True),
        Field(6, "independence", "independence"),
        Field(7, "input_roles", "role", True),
        Field(8, "inputs_min", "int32"),
        Field(9, "tuned", TunedClass, True),
    ],
    DeviceInfo: [
        *_scalars("text", "name", "kind", "description"),
        Field(4, "memory_bytes", "int"),
        Field(5, "multiprocessors", "int32"),
        *_scalars("int", "l2_bytes", "shared_memory_per_block_bytes", first=6),
        Field(8, "compute_capability", "text"),
        Field(9, "healthy", "bool"),
        Field(10, "measured_bandwidth_bytes_per_second", "double"),
    ],
    ListKernelsResponse: [Field(1, "kernels", KernelInfo, True)],
    ListDevicesResponse: [Field(1, "devices", DeviceInfo, True)],
    ServerInfoResponse: [
        *_scalars("text", "version", "revision", "grpc_version"),
        Field(4, "started_unix_ns", "int"),
        Field(5, "changed_flags", "texts"),
        Field(6, "hostname", "text"),
    ],
}


def list_kernels_request(tuned: bool) -> bytes:
    return wire.varint_field(1, tuned)


# ---- attributes ---------------------------------------------------------------------------------


def encode_attribute(name: str, value: object) -> bytes:
    """An Attribute. Raises InvalidArgument for a value that is none of its types."""
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool):
        return wire.varint_field(1, value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(f"attribute {name} is {value}; it must fit into 64 bits")
        return wire.varint_field(2, value)
    if isinstance(value, float):
        return wire.double_field(3, value)
    if isinstance(value, str):
        return wire.bytes_field(4, value.encode())
    raise InvalidArgument(
        f"attribute {name} is a {type(value).__name__}; it must be a bool, int, float or str"
    )


def encode_attributes(number: int, attributes: Mapping[str, object]) -> bytes:
    """A map<string, Attribute> as field `number`."""
    out = b""
    for name, value in attributes.items():
        entry = wire.bytes_field(1, name.encode())
        entry += wire.bytes_field(2, encode_attribute(name, value))
        out += wire.bytes_field(number, entry)
    return out


def decode_attribute(data: bytes) -> AttributeValue | None:
    """The value that came last, as of any oneof; None when there is none."""
    found: AttributeValue | None = None
    for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
        if (number, wire_type) == (1, wire.VARINT):
            found = bool(value)
        elif (number, wire_type) == (2, wire.VARINT):
            found = wire.signed(value)
        elif (number, wire_type) == (3, wire.FIXED64):
            found = wire.read_double(data, value)
        elif (number, wire_type) == (4, wire.BYTES):
            found = wire.read_text(data, value, stop)
    return found


# ---- by the table -------------------------------------------------------------------------------


def decode(cls: type[Message], data: bytes) -> Message:
    """A message of TABLE. Raises WireError for bytes that are none."""
    values: dict[str, Any] = {}
    known = {field.number: field for field in TABLE[cls]}
    for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
        field = known.get(number)
        if field is not None:
            _take(field, data, (wire_type, value, stop), values)
    for field in TABLE[cls]:
        if field.repeated and field.name in values:
            values[field.name] = tuple(values[field.name])
        elif field.name in values and isinstance(field.kind, type):
            values[field.name] = decode(field.kind, values[field.name])
        elif field.name in values and field.kind == "attribute":
            values[field.name] = decode_attribute(values[field.name])
    return cls(**values)


_NUMBERS: dict[str, Callable[[int], Any]] = {
    "bool": bool,
    "int": wire.signed,
    "int32": wire.signed32,
    "uint": lambda value: value & 0xFFFFFFFFFFFFFFFF,
    "type": lambda value: DATA_TYPES.get(wire.signed32(value), str(wire.signed32(value))),
    "independence": lambda value: _INDEPENDENCE.get(value, str(value)),
    "role": lambda value: _ROLES.get(value, str(value)),
}


def _take(field: Field, data: bytes, found: tuple[int, int, int], values: dict[str, Any]) -> None:
    """Adds one occurrence of a field to a message's values. A wire type that is not the field's
    makes it an unknown field, which is left out."""
    wire_type, value, stop = found
    items: list[Any]
    if field.kind in _NUMBERS:
        convert = _NUMBERS[field.kind]
        if wire_type == wire.BYTES and not field.repeated:
            return
        items = [convert(item) for item in wire.read_integers(data, wire_type, value, stop)]
    elif field.kind == "double":
        items = [wire.read_double(data, value)] if wire_type == wire.FIXED64 else []
    elif wire_type != wire.BYTES:
        return
    elif field.kind == "text":
        items = [wire.read_text(data, value, stop)]
    elif field.kind == "bytes":
        items = [data[value:stop]]
    elif field.kind == "texts":
        items = [{**values.get(field.name, {}), **_read_entry(data, value, stop)}]
    elif field.repeated:
        items = [decode(field.kind, data[value:stop])]
    else:  # encodings one after the other are the encoding of the messages merged
        items = [values.get(field.name, b"") + data[value:stop]]
    if field.repeated:
        values.setdefault(field.name, []).extend(items)
    elif items:
        values[field.name] = items[-1]


def _read_entry(data: bytes, at: int, end: int) -> dict[str, str]:
    """An entry of a map of texts."""
    texts = {1: "", 2: ""}
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if wire_type == wire.BYTES:
            texts[number] = wire.read_text(data, value, stop)
    return {texts[1]: texts[2]}


def encode(message: object) -> bytes:
    """A message of TABLE; what has its default value is left out. Raises InvalidArgument for
    integers over 64 bits and data types that there are not."""
    out = b""
    for field in TABLE[type(message)]:
        value = getattr(message, field.name)
        if field.kind == "attributes":
            out += encode_attributes(field.number, value)
        elif field.repeated:
            for item in value:
                out += _encode_field(field, item)
        elif isinstance(field.kind, type) or value not in (0, "", b"", None):
            out += _encode_field(field, value)
    return out


def _encode_field(field: Field, value: Any) -> bytes:
    if isinstance(field.kind, type):
        return wire.bytes_field(field.number, encode(value))
    if field.kind == "text":
        return wire.bytes_field(field.number, value.encode())
    if field.kind == "bytes":
        return wire.bytes_field(field.number, value)
    if field.kind == "double":
        return wire.double_field(field.number, value)
    if field.kind == "attribute":
        return wire.bytes_field(field.number, encode_attribute(field.name, value))
    if field.kind == "type":
        return wire.varint_field(field.number, DATA_TYPE_NUMBERS[value])
    bits = 32 if field.kind == "int32" else 64
    number = checked(field.name, value, bits, signed=field.kind != "uint")
    return wire.varint_field(field.number, number)


def checked(name: str, value: Any, bits: int, *, signed: bool = True) -> int:
    """An integer of Python's own. Raises InvalidArgument for one that the field has no room for."""
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1 if signed else bits):
        raise InvalidArgument(f"{name} is {number}; it must fit into {bits} bits")
    return number
