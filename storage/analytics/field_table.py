"""Header tables: AMQP field tables as text and as JSON that keeps the types."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple


class TypedValue(NamedTuple):
    """A value of a field table.

    Attributes:
        kind: Its type by the name that AMQP 0-9-1 clients know it by, such as `int64` or `longstr`.
        value: Tables as dict of TypedValue, arrays as list of TypedValue.
    """

    kind: str
    value: Any


_NUMBERS: Final = {
    0x62: ("int8", struct.Struct(">b")),
    0x42: ("uint8", struct.Struct(">B")),
    0x73: ("int16", struct.Struct(">h")),
    0x75: ("uint16", struct.Struct(">H")),
    0x49: ("int32", struct.Struct(">i")),
    0x69: ("uint32", struct.Struct(">I")),
    0x6C: ("int64", struct.Struct(">q")),
    0x4C: ("int64", struct.Struct(">q")),
    0x66: ("float", struct.Struct(">f")),
    0x64: ("double", struct.Struct(">d")),
    0x54: ("timestamp", struct.Struct(">Q")),
}
_DECIMAL: Final = struct.Struct(">Bi")
_U32: Final = struct.Struct(">I")


def decode_table(octets: bytes) -> dict[str, TypedValue] | None:
    """Read a field table.

    Args:
        octets: What follows its length.
    Returns:
        None if it is malformed. Of names that occur twice the first counts.
    """
    try:
        return _table(octets, 0, len(octets))
    except (IndexError, struct.error, ValueError, RecursionError):
        return None


def plain(value: TypedValue) -> Any:
    """A value without its type, as JSON has it: bytes that are no text in base64."""
    if value.kind == "table":
        return {name: plain(each) for name, each in value.value.items()}
    if value.kind == "array":
        return [plain(each) for each in value.value]
    return value.value


def as_text(value: TypedValue) -> str | None:
    """A value as one text; None for void."""
    found = plain(value)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)


def as_json(table: dict[str, TypedValue]) -> str:
    """A table as JSON: each value is an object of `type` and `value`."""
    return json.dumps({name: _typed(value) for name, value in table.items()}, ensure_ascii=False)


def _typed(value: TypedValue) -> dict[str, Any]:
    inner = value.value
    if value.kind == "table":
        inner = {name: _typed(each) for name, each in inner.items()}
    elif value.kind == "array":
        inner = [_typed(each) for each in inner]
    return {"type": value.kind, "value": inner}


def _table(octets: bytes, at: int, end: int) -> dict[str, TypedValue]:
    found: dict[str, TypedValue] = {}
    while at < end:
        stop = at + 1 + octets[at]
        name = octets[at + 1 : stop].decode("utf-8", "replace")
        value, at = _value(octets, stop, end)
        found.setdefault(name, value)
    return found


def _value(octets: bytes, at: int, end: int) -> tuple[TypedValue, int]:
    kind = octets[at]
    at += 1
    number = _NUMBERS.get(kind)
    if number is not None:
        name, form = number
        value, stop = form.unpack_from(octets, at)[0], at + form.size
        found = TypedValue(name, value)
    else:
        found, stop = _OTHERS[kind](octets, at) if kind in _OTHERS else _unknown(kind)
    if stop > end:
        raise ValueError("a value is longer than its table")
    return found, stop


def _unknown(kind: int) -> tuple[TypedValue, int]:
    raise ValueError(f"unknown type {kind:#x}")


def _long(octets: bytes, at: int) -> tuple[int, int]:
    """Where something begins that its length stands before, and where it ends."""
    start = at + 4
    end = start + int(_U32.unpack_from(octets, at)[0])
    if end > len(octets):
        raise ValueError("a value is longer than its table")
    return start, end


def _longstr(octets: bytes, at: int) -> tuple[TypedValue, int]:
    start, end = _long(octets, at)
    try:
        return TypedValue("longstr", octets[start:end].decode("utf-8")), end
    except UnicodeDecodeError:
        return TypedValue("binary", base64.b64encode(octets[start:end]).decode()), end


def _binary(octets: bytes, at: int) -> tuple[TypedValue, int]:
    start, end = _long(octets, at)
    return TypedValue("binary", base64.b64encode(octets[start:end]).decode()), end


def _nested(octets: bytes, at: int) -> tuple[TypedValue, int]:
    start, end = _long(octets, at)
    return TypedValue("table", _table(octets, start, end)), end


def _array(octets: bytes, at: int) -> tuple[TypedValue, int]:
    start, end = _long(octets, at)
    found: list[TypedValue] = []
    while start < end:
        value, start = _value(octets, start, end)
        found.append(value)
    return TypedValue("array", found), end


def _decimal(octets: bytes, at: int) -> tuple[TypedValue, int]:
    scale, value = _DECIMAL.unpack_from(octets, at)
    return TypedValue("decimal", value / 10**scale), at + _DECIMAL.size


def _bool(octets: bytes, at: int) -> tuple[TypedValue, int]:
    return TypedValue("bool", octets[at] != 0), at + 1


def _void(octets: bytes, at: int) -> tuple[TypedValue, int]:
    return TypedValue("void", None), at


_OTHERS: Final[dict[int, Callable[[bytes, int], tuple[TypedValue, int]]]] = {
    0x53: _longstr,
    0x78: _binary,
    0x46: _nested,
    0x41: _array,
    0x44: _decimal,
    0x74: _bool,
    0x56: _void,
}
