"""The service's small messages, encoded and decoded by what _proto.py says of their fields.

Tensors are not among them: see _execute.py.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from . import _proto
from . import _wire as wire
from ._proto import DATA_TYPES, AttributeValue, ListKernelsRequest
from ._wire import Enum, Field
from .errors import InvalidArgument

Message = TypeVar("Message")

DATA_TYPE_NUMBERS = {name: number for number, name in DATA_TYPES.items()}


class ServerInfoResponse(_proto.ServerInfoResponse):
    """Which server this is, since when, and what it was told."""

    @property
    def started(self) -> datetime.datetime:
        """In UTC."""
        return datetime.datetime.fromtimestamp(self.started_unix_ns / 1e9, datetime.timezone.utc)


_FIELDS: dict[type[Any], dict[str, Field]] = {}


def fields_of(cls: type[Any]) -> dict[str, Field]:
    """The fields of a message by their names, in the order of its declaration."""
    if cls not in _FIELDS:
        _FIELDS[cls] = {f.name: f.metadata["wire"] for f in dataclasses.fields(cls)}
    return _FIELDS[cls]


def list_kernels_request(tuned: bool) -> bytes:
    return encode(ListKernelsRequest(tuned))


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
    said = f"attribute {name} is a {type(value).__name__}; it must be a bool, int, float or str"
    if hasattr(value, "shape"):
        said += f". If {name} is an input, pass it by position"
    raise InvalidArgument(said)


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


# ---- by the fields of a message ------------------------------------------------------------------


def decode(cls: type[Message], data: bytes) -> Message:
    """A message of _proto.py. Raises WireError for bytes that are none."""
    values: dict[str, Any] = {}
    fields = fields_of(cls)
    known = {field.number: name for name, field in fields.items()}
    for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
        name = known.get(number)
        if name is not None:
            _take(name, fields[name], data, (wire_type, value, stop), values)
    for name in values:
        field = fields[name]
        if field.repeated:
            values[name] = tuple(values[name])
        elif isinstance(field.kind, type):
            values[name] = decode(field.kind, values[name])
        elif field.kind == "attribute":
            values[name] = decode_attribute(values[name])
    return cls(**values)


_NUMBERS: dict[str, Callable[[int], Any]] = {
    "bool": bool,
    "int": wire.signed,
    "int32": wire.signed32,
    "uint": lambda value: value & 0xFFFFFFFFFFFFFFFF,
}


def _converter(kind: Any) -> Callable[[int], Any] | None:
    """None of what travels as no integer."""
    if isinstance(kind, Enum):
        return lambda value: kind.get(wire.signed32(value), str(wire.signed32(value)))
    return _NUMBERS.get(kind)


def _take(
    name: str, field: Field, data: bytes, found: tuple[int, int, int], values: dict[str, Any]
) -> None:
    """Adds one occurrence of a field to a message's values. A wire type that is not the field's
    makes it an unknown field, which is left out."""
    wire_type, value, stop = found
    items: list[Any]
    convert = _converter(field.kind)
    if convert is not None:
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
        items = [{**values.get(name, {}), **_read_entry(data, value, stop)}]
    elif field.kind == "attributes":
        items = [{**values.get(name, {}), **_read_attribute(data, value, stop)}]
    elif field.repeated:
        items = [decode(field.kind, data[value:stop])]
    else:  # encodings one after the other are the encoding of the messages merged
        items = [values.get(name, b"") + data[value:stop]]
    if field.repeated:
        values.setdefault(name, []).extend(items)
    elif items:
        values[name] = items[-1]


def _read_entry(data: bytes, at: int, end: int) -> dict[str, str]:
    """An entry of a map of texts."""
    texts = {1: "", 2: ""}
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if wire_type == wire.BYTES:
            texts[number] = wire.read_text(data, value, stop)
    return {texts[1]: texts[2]}


def _read_attribute(data: bytes, at: int, end: int) -> dict[str, AttributeValue | None]:
    """An entry of a map of attributes."""
    name, attribute = "", b""
    for number, wire_type, value, stop in wire.fields(data, at, end):
        if (number, wire_type) == (1, wire.BYTES):
            name = wire.read_text(data, value, stop)
        elif (number, wire_type) == (2, wire.BYTES):
            attribute += data[value:stop]
    return {name: decode_attribute(attribute)}


def encode(message: object) -> bytes:
    """A message of _proto.py; what has its default value is left out. Raises InvalidArgument for
    integers over 64 bits and data types that there are not."""
    out = b""
    for name, field in fields_of(type(message)).items():
        value = getattr(message, name)
        if field.kind == "attributes":
            out += encode_attributes(field.number, value)
        elif field.repeated:
            for item in value:
                out += _encode_field(name, field, item)
        elif isinstance(field.kind, type) or value not in (0, "", b"", None):
            out += _encode_field(name, field, value)
    return out


def _encode_field(name: str, field: Field, value: Any) -> bytes:
    if isinstance(field.kind, type):
        return wire.bytes_field(field.number, encode(value))
    if field.kind == "text":
        return wire.bytes_field(field.number, value.encode())
    if field.kind == "bytes":
        return wire.bytes_field(field.number, value)
    if field.kind == "double":
        return wire.double_field(field.number, value)
    if field.kind == "attribute":
        return wire.bytes_field(field.number, encode_attribute(name, value))
    if isinstance(field.kind, Enum):
        numbers = {name: number for number, name in field.kind.items()}
        return wire.varint_field(field.number, numbers[value])
    bits = 32 if field.kind == "int32" else 64
    number = checked(name, value, bits, signed=field.kind != "uint")
    return wire.varint_field(field.number, number)


def checked(name: str, value: Any, bits: int, *, signed: bool = True) -> int:
    """An integer of Python's own. Raises InvalidArgument for one that the field has no room for."""
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1 if signed else bits):
        raise InvalidArgument(f"{name} is {number}; it must fit into {bits} bits")
    return number
