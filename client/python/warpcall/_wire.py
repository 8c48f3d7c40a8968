"""Protocol buffers' wire format, as much as the service needs: varints, fixed64, length-delimited.

Written by hand because generated messages copy every tensor several times: an array should be
joined to its header once on the way out, and be looked at where the reply lies on the way in.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

_MASK64 = (1 << 64) - 1
_DOUBLE = struct.Struct("<d")
# Groups are obsolete and nothing of ours sends them; what nests deeper is not worth following.
_GROUP_DEPTH_MAX = 100


class WireError(ValueError):
    """Bytes that are no valid encoding of a message."""


# ---- the fields of a message that is a dataclass -------------------------------------------------


class Enum(dict[int, str]):
    """The names of an enumeration's values by their numbers; the first is the default."""


class Field(NamedTuple):
    """How a field travels. `kind`: "text", "bytes", "bool", "int", "int32", "uint", "double",
    "attribute", "attributes" (a map of them), "texts" (a map), an Enum, or the class of a
    message."""

    number: int
    kind: Any
    repeated: bool = False


_DEFAULTS = {"text": "", "bytes": b"", "bool": False, "double": 0.0, "attribute": None}


def field(number: int, kind: Any, *, repeated: bool = False) -> Any:
    """Declares a field of a message's dataclass."""
    metadata = {"wire": Field(number, kind, repeated)}
    if repeated:
        return dataclasses.field(default=(), metadata=metadata)
    if kind in ("attributes", "texts"):
        return dataclasses.field(default_factory=dict[str, object], metadata=metadata)
    if isinstance(kind, type):
        return dataclasses.field(default_factory=kind, metadata=metadata)
    if isinstance(kind, Enum):
        return dataclasses.field(default=next(iter(kind.values())), metadata=metadata)
    return dataclasses.field(default=_DEFAULTS.get(kind, 0), metadata=metadata)


# ---- writing ------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A 64-bit integer; negative ones take ten bytes, as in protobuf."""
    value &= _MASK64
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + _DOUBLE.pack(value)


def bytes_prefix(number: int, length: int) -> bytes:
    """Encodes the tag and length in front of a string, message or tensor of `length` bytes."""
    return varint(number << 3 | BYTES) + varint(length)


def bytes_field(number: int, value: bytes) -> bytes:
    return bytes_prefix(number, len(value)) + value


# ---- reading ------------------------------------------------------------------------------------


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(value as an unsigned 64-bit integer, position after it)."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at
        shift += 7
        if shift >= 70:
            raise WireError("a varint of more than ten bytes")
    raise WireError("the message ends within a varint")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message in data[at:end], as (number, wire type, value, stop).

    VARINT: `value` is the integer, unsigned. BYTES, FIXED32 and FIXED64: what the field holds is
    data[value:stop]. Groups are checked and left out.
    """
    while at < end:
        tag = data[at]  # nearly all tags and lengths are one byte
        if tag < 0x80:
            at += 1
        else:
            tag, at = read_varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"a field with number {number}")
        if wire_type == BYTES:
            if at < end and data[at] < 0x80:
                length = data[at]
                at += 1
            else:
                length, at = read_varint(data, at, end)
            stop = at + length
            if stop > end:
                raise WireError(f"field {number} of {length} bytes, of which {end - at} are there")
            yield number, BYTES, at, stop
            at = stop
        elif wire_type == VARINT:
            if at < end and data[at] < 0x80:
                value = data[at]
                at += 1
            else:
                value, at = read_varint(data, at, end)
            yield number, VARINT, value, at
        elif wire_type == START_GROUP:
            at = _skip_group(data, at, end, number, 0)
        else:
            stop = _after_fixed(data, at, end, wire_type)
            yield number, wire_type, at, stop
            at = stop


def _after_fixed(data: bytes, at: int, end: int, wire_type: int) -> int:
    if wire_type not in (FIXED32, FIXED64):
        raise WireError(f"wire type {wire_type}")
    stop = at + (4 if wire_type == FIXED32 else 8)
    if stop > end:
        raise WireError("the message ends within a fixed-width field")
    return stop


def _skip_group(data: bytes, at: int, end: int, group: int, depth: int) -> int:
    """The position after the end of a group."""
    if depth >= _GROUP_DEPTH_MAX:
        raise WireError(f"groups nest deeper than {_GROUP_DEPTH_MAX}")
    while at < end:
        tag, at = read_varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == END_GROUP:
            if number != group:
                break
            return at
        if wire_type == START_GROUP:
            at = _skip_group(data, at, end, number, depth + 1)
        elif wire_type == VARINT:
            _, at = read_varint(data, at, end)
        elif wire_type == BYTES:
            length, at = read_varint(data, at, end)
            at += length
        else:
            at = _after_fixed(data, at, end, wire_type)
    raise WireError(f"group {group} does not end")


def signed(value: int) -> int:
    """An int64 from what `fields` gave."""
    return value - (1 << 64) if value >= 1 << 63 else value


def signed32(value: int) -> int:
    """An int32 or enum, which keeps the low 32 bits as protobuf does."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def read_double(data: bytes, at: int) -> float:
    value: float = _DOUBLE.unpack_from(data, at)[0]
    return value


def read_text(data: bytes, at: int, stop: int) -> str:
    try:
        return data[at:stop].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a string that is not UTF-8: {error}") from None


def read_integers(data: bytes, wire_type: int, value: int, stop: int) -> list[int]:
    """Returns the values that one occurrence of a repeated int64 adds, packed or not."""
    if wire_type == VARINT:
        return [signed(value)]
    if wire_type != BYTES:
        return []
    out: list[int] = []
    while value < stop:
        item, value = read_varint(data, value, stop)
        out.append(signed(item))
    return out
