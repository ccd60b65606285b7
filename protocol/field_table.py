"""Codec of AMQP field tables that keeps the types of values.

A value keeps its type letter, because RabbitMQ distinguishes types: in error texts, in the identity of bindings,
and when it compares a queue's arguments. A table is a tuple of (key, value) pairs in the order of the wire,
duplicates included. So it can be hashed and encoded again byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar


class FieldValue(NamedTuple):
    """One typed value.

    Args:
        kind: Type letter, one of ``t b B s u I i l L f d D S x T A F V``.
        value: bool for t; int for integers (L is read as signed, as RabbitMQ does) and T; float for f, d;
            (scale, unscaled) for D; bytes for S and x; a tuple of FieldValue for A; a FieldTable for F; None for V.
    """

    kind: str
    value: Any


FieldTable: TypeAlias = tuple[tuple[str, FieldValue], ...]


class MalformedTable(ValueError):
    """A table that cannot be decoded: a value exceeds the table, a type is unknown, or nesting is too deep."""


_Folded = TypeVar("_Folded")

#: Nesting depth of tables and arrays that is accepted from clients.
MAX_DEPTH: Final = 128
#: The same for stored tables: earlier versions accepted deeper ones.
MAX_STORED_DEPTH: Final = 512

#: Names of the types in RabbitMQ's error texts.
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
    """Return a long string value (letter S)."""
    return FieldValue("S", text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)


def as_text(value: FieldValue) -> str:
    """Return the text of a string value; bytes that are not UTF-8 become surrogates."""
    octets: bytes = value.value
    return octets.decode("utf-8", "surrogateescape")


def decode_table(octets: bytes, max_depth: int = MAX_DEPTH) -> FieldTable:
    """Decode the entries of a table, without the length in front.

    Args:
        octets: The entries.
        max_depth: Nesting depth of tables and arrays that is accepted.
    Raises:
        MalformedTable: Entries end too early, have an unknown type letter, or are nested too deep.
    Spec: AMQP 0-9-1 section 4.2.5.5; type letters as RabbitMQ reads them.
    """
    # No recursion: the accepted depth must not depend on how deep the caller's stack is.
    stack: list[_OpenContainer] = []
    current = _OpenContainer("F", "", [], len(octets))
    offset, key = 0, ""
    while True:
        if offset >= current.end:
            if not stack:
                return tuple(current.entries)
            done, current = current, stack.pop()
            current.add(done.key, FieldValue(done.kind, tuple(done.entries)))
            continue
        if current.kind == "F":
            key, offset = _decode_key(octets, offset, current.end)
        kind = chr(octets[offset])
        offset += 1
        if kind in "FA":
            start, end = _locate_sized(kind, octets, offset, current.end)
            stack.append(current)
            if len(stack) > max_depth:
                raise MalformedTable(f"tables are nested too deep, {max_depth} levels are allowed")
            current, offset = _OpenContainer(kind, key, [], end), start
        else:
            value, offset = _decode_value(kind, octets, offset, current.end)
            current.add(key, value)


class _OpenContainer(NamedTuple):
    """A table or array that is being decoded.

    Args:
        kind: F or A.
        key: Its key in the enclosing table; empty in an array.
        entries: Entries decoded so far.
        end: Offset of its end.
    """

    kind: str
    key: str
    entries: list[Any]
    end: int

    def add(self, key: str, value: FieldValue) -> None:
        """Add an entry to a table, or a value to an array."""
        self.entries.append((key, value) if self.kind == "F" else value)


def _decode_key(octets: bytes, offset: int, end: int) -> tuple[str, int]:
    key_end = offset + 1 + octets[offset]
    if key_end >= end:
        raise MalformedTable("a key reaches beyond the table")
    return octets[offset + 1 : key_end].decode("utf-8", "surrogateescape"), key_end


def encode_table(table: Iterable[tuple[str, FieldValue]]) -> bytes:
    """Encode the entries of a table, without the length in front.

    Raises:
        ValueError: A key is longer than 255 bytes, or a value does not fit its type.
    """
    return _join_entries([(key, encode_value(value)) for key, value in table])


def encode_value(field: FieldValue) -> bytes:
    """Encode a value, with its type letter in front."""
    return fold_value(field, _encode_single, _encode_inner_table, _encode_array)


def _encode_single(field: FieldValue) -> bytes:
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
    return letter + _U32.pack(len(octets)) + octets


def _join_entries(entries: Iterable[tuple[str, bytes]]) -> bytes:
    parts: list[bytes] = []
    for key, encoded in entries:
        name = key.encode("utf-8", "surrogateescape")
        parts += (bytes((len(name),)), name, encoded)
    return b"".join(parts)


def _encode_inner_table(entries: list[tuple[str, bytes]]) -> bytes:
    octets = _join_entries(entries)
    return b"F" + _U32.pack(len(octets)) + octets


def _encode_array(values: list[bytes]) -> bytes:
    octets = b"".join(values)
    return b"A" + _U32.pack(len(octets)) + octets


def fold_value(
    field: FieldValue,
    single: Callable[[FieldValue], _Folded],
    table: Callable[[list[tuple[str, _Folded]]], _Folded],
    array: Callable[[list[_Folded]], _Folded],
) -> _Folded:
    """Convert a value bottom-up, without recursion.

    Args:
        field: The value.
        single: Converts a value that is neither table nor array.
        table: Converts a table, given its keys and converted values.
        array: Converts an array, given its converted values.
    """
    if field[0] not in ("F", "A"):
        return single(field)
    stack: list[tuple[str, str, Iterator[Any], list[Any]]] = []
    folded: list[Any] = []
    kind, key, remaining = field[0], "", iter(field[1])
    while True:
        for each in remaining:
            name, value = each if kind == "F" else ("", each)
            if value[0] in ("F", "A"):
                stack.append((kind, key, remaining, folded))
                kind, key, remaining, folded = value[0], name, iter(value[1]), []
                break
            folded.append((name, single(value)) if kind == "F" else single(value))
        else:
            done, name = table(folded) if kind == "F" else array(folded), key
            if not stack:
                return done
            kind, key, remaining, folded = stack.pop()
            folded.append((name, done) if kind == "F" else done)


def plain_values(table: FieldTable) -> dict[str, Any]:
    """Return values by key without their types, strings as text. Of duplicate keys the first one counts."""
    plain: dict[str, Any] = {}
    for key, field in table:
        plain.setdefault(key, as_text(field) if field.kind in ("S", "x") else field.value)
    return plain


def find(table: FieldTable, key: str) -> FieldValue | None:
    """Return the value of a key. Of duplicate keys the first one counts, as in RabbitMQ."""
    for name, value in table:
        if name == key:
            return value
    return None


def normalize(table: FieldTable) -> FieldTable:
    """Return the table as RabbitMQ encodes a changed table: type ``L`` becomes ``l``.

    Some clients cannot decode ``L``, so a broker must not originate it.
    """
    return tuple((key, fold_value(value, _normalize_single, _as_table, _as_array)) for key, value in table)


def _normalize_single(field: FieldValue) -> FieldValue:
    kind, value = field
    return FieldValue("l" if kind == "L" else kind, value)


def _as_table(entries: list[tuple[str, FieldValue]]) -> FieldValue:
    return FieldValue("F", tuple(entries))


def _as_array(values: list[FieldValue]) -> FieldValue:
    return FieldValue("A", tuple(values))


def sort_table(table: FieldTable) -> FieldTable:
    """Return the entries sorted by key: the form in which tables are compared."""
    return tuple(sorted(table, key=lambda entry: entry[0].encode("utf-8", "surrogateescape")))


def _decode_value(kind: str, octets: bytes, offset: int, end: int) -> tuple[FieldValue, int]:
    """Decode a value that is neither table nor array; return it and the offset behind it."""
    value: Any
    fixed = _FIXED.get(kind)
    if fixed is not None:
        _check_end(kind, offset + fixed.size, end)
        value = fixed.unpack_from(octets, offset)[0]
        if kind in FLOAT_KINDS and not isfinite(value):
            # Erlang has no infinities and no NaN.
            raise MalformedTable(f"a {TYPE_NAMES[kind]} that is not a number")
        return FieldValue(kind, value), offset + fixed.size
    if kind == "t":
        _check_end(kind, offset + 1, end)
        return FieldValue(kind, octets[offset] != 0), offset + 1
    if kind == "D":
        _check_end(kind, offset + _DECIMAL.size, end)
        return FieldValue(kind, _DECIMAL.unpack_from(octets, offset)), offset + _DECIMAL.size
    if kind == "V":
        return FieldValue(kind, None), offset
    if kind not in "Sx":
        raise MalformedTable(f"unknown field type {kind!r}")
    start, stop = _locate_sized(kind, octets, offset, end)
    return FieldValue(kind, octets[start:stop]), stop


def _locate_sized(kind: str, octets: bytes, offset: int, end: int) -> tuple[int, int]:
    """Return the start and end offsets of a value that has its length in front."""
    start = offset + _U32.size
    _check_end(kind, start, end)
    stop = start + int(_U32.unpack_from(octets, offset)[0])
    _check_end(kind, stop, end)
    return start, stop


def _check_end(kind: str, stop: int, end: int) -> None:
    if stop > end:
        raise MalformedTable(f"a value of type {kind!r} reaches beyond the table")
