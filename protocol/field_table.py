"""AMQP field tables with their types kept.

A value keeps the type letter it had on the wire, because RabbitMQ tells types apart: in error texts, in
the identity of bindings, and when it compares a queue's arguments. A table is a tuple of (key, value)
pairs in the order of the wire, duplicates included, so that it can be hashed and written back byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias


class FieldValue(NamedTuple):
    """One typed value.

    Args:
        kind: The type letter of the wire, one of ``t b B s u I i l L f d D S x T A F V``.
        value: bool for t; int for integers (L is read as signed, as RabbitMQ does) and T; float for f, d;
            (scale, unscaled) for D; bytes for S and x; a tuple of FieldValue for A; a FieldTable for F; None for V.
    """

    kind: str
    value: Any


FieldTable: TypeAlias = tuple[tuple[str, FieldValue], ...]


class MalformedTable(ValueError):
    """A table that cannot be decoded: a length beyond its end, or a type letter RabbitMQ does not know."""


#: What RabbitMQ calls each type in its error texts.
TYPE_NAMES: Final[dict[str, str]] = {
    "t": "bool", "b": "byte", "B": "unsignedbyte", "s": "short", "u": "unsignedshort", "I": "signedint",
    "i": "unsignedint", "l": "long", "L": "long", "f": "float", "d": "double", "D": "decimal",
    "S": "longstr", "x": "binary", "T": "timestamp", "A": "array", "F": "table", "V": "void",
}  # fmt: skip
INTEGER_KINDS: Final = frozenset("bBsuIilL")
FLOAT_KINDS: Final = frozenset("fd")

_FIXED: Final[dict[str, struct.Struct]] = {
    "b": struct.Struct(">b"), "B": struct.Struct(">B"), "s": struct.Struct(">h"), "u": struct.Struct(">H"),
    "I": struct.Struct(">i"), "i": struct.Struct(">I"), "l": struct.Struct(">q"), "L": struct.Struct(">q"),
    "f": struct.Struct(">f"), "d": struct.Struct(">d"), "T": struct.Struct(">Q"),
}  # fmt: skip
_U32: Final = struct.Struct(">I")
_DECIMAL: Final = struct.Struct(">BI")


def longstr(text: str | bytes) -> FieldValue:
    """A long string value (letter S)."""
    return FieldValue("S", text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)


def as_text(value: FieldValue) -> str:
    """The text of a string value; bytes that are no UTF-8 are kept as surrogates."""
    octets: bytes = value.value
    return octets.decode("utf-8", "surrogateescape")


def decode_table(octets: bytes) -> FieldTable:
    """Decode the inside of a table: its entries without the length in front.

    Raises:
        MalformedTable: Entries end too early, have an unknown type letter, or are nested some hundreds deep.
    Spec: AMQP 0-9-1 section 4.2.5.5; type letters as RabbitMQ reads them.
    """
    try:
        return _decode_entries(octets)
    except RecursionError:
        raise MalformedTable("tables are nested too deep") from None


def _decode_entries(octets: bytes) -> FieldTable:
    entries = []
    offset, end = 0, len(octets)
    while offset < end:
        key_end = offset + 1 + octets[offset]
        if key_end >= end:
            raise MalformedTable("a key reaches beyond the table")
        key = octets[offset + 1 : key_end].decode("utf-8", "surrogateescape")
        value, offset = _decode_value(octets, key_end)
        entries.append((key, value))
    return tuple(entries)


def encode_table(table: Iterable[tuple[str, FieldValue]]) -> bytes:
    """Encode a table's entries without the length in front.

    Raises:
        ValueError: A key is longer than 255 bytes, or a value does not fit its type.
    """
    parts: list[bytes] = []
    for key, value in table:
        encoded = key.encode("utf-8", "surrogateescape")
        parts += (bytes((len(encoded),)), encoded, encode_value(value))
    return b"".join(parts)


def encode_value(field: FieldValue) -> bytes:
    """Encode one value, its type letter in front."""
    kind, value = field
    letter = kind.encode("ascii")
    if kind == "t":
        return b"t\x01" if value else b"t\x00"
    if kind in _FIXED:
        return letter + _FIXED[kind].pack(value)
    if kind == "D":
        return letter + _DECIMAL.pack(*value)
    if kind == "V":
        return letter
    octets: bytes = value
    if kind == "F":
        octets = encode_table(value)
    elif kind == "A":
        octets = b"".join(map(encode_value, value))
    return letter + _U32.pack(len(octets)) + octets


def plain_values(table: FieldTable) -> dict[str, Any]:
    """Values by key without their types, strings as text; where a key stands twice, the first one counts."""
    plain: dict[str, Any] = {}
    for key, field in table:
        plain.setdefault(key, as_text(field) if field.kind in ("S", "x") else field.value)
    return plain


def find(table: FieldTable, key: str) -> FieldValue | None:
    """The value of a key; where it stands twice, the first one counts, as in RabbitMQ."""
    for name, value in table:
        if name == key:
            return value
    return None


def normalize(table: FieldTable) -> FieldTable:
    """The same table as RabbitMQ writes it when it has changed something: ``L`` becomes ``l``.

    Some clients cannot read ``L``, so a broker must not originate it.
    """
    return tuple((key, _normalize_value(value)) for key, value in table)


def _normalize_value(field: tuple[str, Any]) -> FieldValue:
    kind, value = field
    if kind == "L":
        return FieldValue("l", value)
    if kind == "F":
        return FieldValue(kind, normalize(value))
    if kind == "A":
        return FieldValue(kind, tuple(map(_normalize_value, value)))
    return FieldValue(kind, value)


def sort_table(table: FieldTable) -> FieldTable:
    """The same entries by key: the form in which tables are compared."""
    return tuple(sorted(table, key=lambda entry: entry[0].encode("utf-8", "surrogateescape")))


def _decode_value(octets: bytes, offset: int) -> tuple[FieldValue, int]:
    """Decode the value whose type letter stands at offset; return it and the offset behind it."""
    kind = chr(octets[offset])
    offset += 1
    fixed = _FIXED.get(kind)
    try:
        if fixed is not None:
            value = fixed.unpack_from(octets, offset)[0]
            if kind in FLOAT_KINDS and not isfinite(value):
                # Erlang has no such floats.
                raise MalformedTable(f"a {TYPE_NAMES[kind]} that is no number")
            return FieldValue(kind, value), offset + fixed.size
        if kind == "t":
            return FieldValue(kind, octets[offset] != 0), offset + 1
        if kind == "D":
            return FieldValue(kind, _DECIMAL.unpack_from(octets, offset)), offset + 5
        if kind == "V":
            return FieldValue(kind, None), offset
        return _decode_sized(kind, octets, offset)
    except (struct.error, IndexError):
        raise MalformedTable(f"a value of type {kind!r} reaches beyond the table") from None


def _decode_sized(kind: str, octets: bytes, offset: int) -> tuple[FieldValue, int]:
    decode = _SIZED.get(kind)
    if decode is None:
        raise MalformedTable(f"unknown field type {kind!r}")
    start = offset + 4
    end = start + _U32.unpack_from(octets, offset)[0]
    if end > len(octets):
        raise MalformedTable(f"a value of type {kind!r} reaches beyond the table")
    return FieldValue(kind, decode(octets[start:end])), end


def _decode_array(octets: bytes) -> tuple[FieldValue, ...]:
    values = []
    offset, end = 0, len(octets)
    while offset < end:
        value, offset = _decode_value(octets, offset)
        values.append(value)
    return tuple(values)


_SIZED: Final[dict[str, Callable[[bytes], Any]]] = {
    "S": bytes,
    "x": bytes,
    "F": _decode_entries,
    "A": _decode_array,
}
