"""AMQP field tables with their types kept.

A value keeps the type letter it had on the wire, because RabbitMQ tells types apart: in error texts, in
the identity of bindings, and when it compares a queue's arguments. A table is a tuple of (key, value)
pairs in the order of the wire, duplicates included, so that it can be hashed and written back byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar


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
    """A table that cannot be decoded.

    A length beyond its end, a type letter that RabbitMQ does not know, or too many tables inside of each other.
    """


_Made = TypeVar("_Made")

#: How many tables and arrays may stand inside of each other in a table that comes from outside.
MAX_DEPTH: Final = 128
#: Likewise in one that was stored: earlier versions took some that were deeper.
MAX_STORED_DEPTH: Final = 512

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
    """The text of a string value; bytes that are not UTF-8 are kept as surrogates."""
    octets: bytes = value.value
    return octets.decode("utf-8", "surrogateescape")


def decode_table(octets: bytes, max_depth: int = MAX_DEPTH) -> FieldTable:
    """Decode the inside of a table: its entries without the length in front.

    Args:
        octets: The entries.
        max_depth: How many tables and arrays may stand inside of each other in it.
    Raises:
        MalformedTable: Entries end too early, have an unknown type letter, or are nested too deep.
    Spec: AMQP 0-9-1 section 4.2.5.5; type letters as RabbitMQ reads them.
    """
    # No recursion: how deep a table may be must not depend on who decodes it.
    outer: list[_Open] = []
    here = _Open("F", "", [], len(octets))
    offset, key = 0, ""
    while True:
        if offset >= here.end:
            if not outer:
                return tuple(here.found)
            done, here = here, outer.pop()
            here.add(done.key, FieldValue(done.kind, tuple(done.found)))
            continue
        if here.kind == "F":
            key, offset = _decode_key(octets, offset, here.end)
        kind = chr(octets[offset])
        offset += 1
        if kind in "FA":
            start, end = _span(kind, octets, offset, here.end)
            outer.append(here)
            if len(outer) > max_depth:
                raise MalformedTable(f"tables are nested too deep, {max_depth} levels are allowed")
            here, offset = _Open(kind, key, [], end), start
        else:
            value, offset = _decode_value(kind, octets, offset, here.end)
            here.add(key, value)


class _Open(NamedTuple):
    """A table or array that is being read.

    Args:
        kind: F or A.
        key: Its own in the table around it.
        found: Its entries so far.
        end: Where it ends.
    """

    kind: str
    key: str
    found: list[Any]
    end: int

    def add(self, key: str, value: FieldValue) -> None:
        """Add an entry to a table, or a value to an array."""
        self.found.append((key, value) if self.kind == "F" else value)


def _decode_key(octets: bytes, offset: int, end: int) -> tuple[str, int]:
    key_end = offset + 1 + octets[offset]
    if key_end >= end:
        raise MalformedTable("a key reaches beyond the table")
    return octets[offset + 1 : key_end].decode("utf-8", "surrogateescape"), key_end


def encode_table(table: Iterable[tuple[str, FieldValue]]) -> bytes:
    """Encode a table's entries without the length in front.

    Raises:
        ValueError: A key is longer than 255 bytes, or a value does not fit its type.
    """
    return _join_entries([(key, encode_value(value)) for key, value in table])


def encode_value(field: FieldValue) -> bytes:
    """Encode one value, its type letter in front."""
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
    single: Callable[[FieldValue], _Made],
    table: Callable[[list[tuple[str, _Made]]], _Made],
    array: Callable[[list[_Made]], _Made],
) -> _Made:
    """Make something out of a value from the inside out, however deep it is.

    Args:
        field: The value.
        single: What becomes of a value that is neither table nor array.
        table: What becomes of a table, of which these are the entries.
        array: What becomes of an array, of which these are the values.
    """
    if field[0] not in ("F", "A"):
        return single(field)
    outer: list[tuple[str, str, Iterator[Any], list[Any]]] = []
    made: list[Any] = []
    kind, key, left = field[0], "", iter(field[1])
    while True:
        for each in left:
            name, value = each if kind == "F" else ("", each)
            if value[0] in ("F", "A"):
                outer.append((kind, key, left, made))
                kind, key, left, made = value[0], name, iter(value[1]), []
                break
            made.append((name, single(value)) if kind == "F" else single(value))
        else:
            done, name = table(made) if kind == "F" else array(made), key
            if not outer:
                return done
            kind, key, left, made = outer.pop()
            made.append((name, done) if kind == "F" else done)


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
    return tuple((key, fold_value(value, _normalize_single, _as_table, _as_array)) for key, value in table)


def _normalize_single(field: FieldValue) -> FieldValue:
    kind, value = field
    return FieldValue("l" if kind == "L" else kind, value)


def _as_table(entries: list[tuple[str, FieldValue]]) -> FieldValue:
    return FieldValue("F", tuple(entries))


def _as_array(values: list[FieldValue]) -> FieldValue:
    return FieldValue("A", tuple(values))


def sort_table(table: FieldTable) -> FieldTable:
    """The same entries by key: the form in which tables are compared."""
    return tuple(sorted(table, key=lambda entry: entry[0].encode("utf-8", "surrogateescape")))


def _decode_value(kind: str, octets: bytes, offset: int, end: int) -> tuple[FieldValue, int]:
    """Decode a value that is neither table nor array.

    Args:
        kind: Its type letter.
        octets: What it stands in.
        offset: Behind the letter.
        end: Where the table or array around it ends.
    Returns:
        It, and the offset behind it.
    """
    value: Any
    fixed = _FIXED.get(kind)
    if fixed is not None:
        _check_end(kind, offset + fixed.size, end)
        value = fixed.unpack_from(octets, offset)[0]
        if kind in FLOAT_KINDS and not isfinite(value):
            # Erlang has no such floats.
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
    start, stop = _span(kind, octets, offset, end)
    return FieldValue(kind, octets[start:stop]), stop


def _span(kind: str, octets: bytes, offset: int, end: int) -> tuple[int, int]:
    """Where a value begins and ends that its length stands before."""
    start = offset + _U32.size
    _check_end(kind, start, end)
    stop = start + int(_U32.unpack_from(octets, offset)[0])
    _check_end(kind, stop, end)
    return start, stop


def _check_end(kind: str, stop: int, end: int) -> None:
    if stop > end:
        raise MalformedTable(f"a value of type {kind!r} reaches beyond the table")
