"""Encodes and decodes methods by pamqp's argument lists, without its name checks and table type inference."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from pamqp import base, commands

from tests.support import tables

MethodType = type[base.Frame]

_NUMBERS = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q", "timestamp": ">Q"}
_DEFAULTS: dict[str, Any] = {"bit": False, "shortstr": "", "longstr": "", "table": ()}


class Method:
    """A decoded method: `kind` is pamqp's class, the arguments are attributes under pamqp's names.

    Short strings are text, long strings bytes, tables lists of triples.
    """

    def __init__(self, kind: MethodType, arguments: dict[str, Any]) -> None:
        self.kind = kind
        self.arguments = arguments

    def __getattr__(self, name: str) -> Any:
        try:
            return self.arguments[name]
        except KeyError:
            raise AttributeError(f"{self.kind.name} has no argument {name}") from None

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.kind.name}({listed})"


def ids(kind: MethodType) -> tuple[int, int]:
    """Return (class id, method id) of a pamqp method class."""
    return kind.index >> 16, kind.index & 0xFFFF


def _encode_one(kind: str, value: Any) -> bytes:
    if kind == "shortstr":
        return tables.shortstr(value)
    if kind == "longstr":
        return tables.longstr(value)
    if kind == "table":
        return value if isinstance(value, bytes) else tables.table(value or ())
    return struct.pack(_NUMBERS[kind], value)


def arguments(kind: MethodType, **given: Any) -> bytes:
    """Encode the arguments of a method."""
    unknown = set(given) - set(kind.__slots__)
    if unknown:
        raise TypeError(f"{kind.name} has no {sorted(unknown)}")
    out = bytearray()
    bit = 8
    for name in kind.__slots__:
        wire_type = kind.amqp_type(name)
        value = given.get(name, _DEFAULTS.get(wire_type, 0))
        if wire_type != "bit":
            out += _encode_one(wire_type, value)
            bit = 8
            continue
        if bit == 8:
            out.append(0)
            bit = 0
        out[-1] |= bool(value) << bit
        bit += 1
    return bytes(out)


def payload(kind: MethodType, **given: Any) -> bytes:
    """Encode a method payload: ids and arguments."""
    return raw_payload(*ids(kind), arguments(kind, **given))


def raw_payload(class_id: int, method_id: int, raw_arguments: bytes = b"") -> bytes:
    """Encode a method payload from any ids and argument bytes."""
    return struct.pack(">HH", class_id, method_id) + raw_arguments


def _decode_arguments(kind: MethodType, data: bytes) -> Iterator[tuple[str, Any]]:
    at, bit = 0, 8
    for name in kind.__slots__:
        wire_type = kind.amqp_type(name)
        if wire_type == "bit":
            if bit == 8:
                bit, at = 0, at + 1
            yield name, bool(data[at - 1] >> bit & 1)
            bit += 1
            continue
        bit = 8
        if wire_type in _NUMBERS:
            (value,) = struct.unpack_from(_NUMBERS[wire_type], data, at)
            at += struct.calcsize(_NUMBERS[wire_type])
        elif wire_type == "shortstr":
            value = tables.to_text(data[at + 1 : at + 1 + data[at]])
            at += 1 + data[at]
        else:
            (size,) = struct.unpack_from(">I", data, at)
            value = data[at + 4 : at + 4 + size]
            at += 4 + size
            if wire_type == "table":
                value = tables.decode_body(value)
        yield name, value
    if at != len(data):
        raise ValueError(f"{kind.name}: arguments take {at} of {len(data)} bytes")


def parse(data: bytes) -> Method:
    """Decode a method payload."""
    (index,) = struct.unpack_from(">I", data)
    kind: MethodType = commands.INDEX_MAPPING[index]
    return Method(kind, dict(_decode_arguments(kind, data[4:])))
