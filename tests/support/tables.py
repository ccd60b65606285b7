"""Encodes and decodes AMQP field tables as triples, so that a test sets every type letter and integer width."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

Triple = tuple[str | bytes, str, Any]
Pair = tuple[str, Any]

_FIXED = {
    "t": ">B",
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">Q",
    "f": ">f",
    "d": ">d",
    "T": ">Q",
}


def to_bytes(value: str | bytes) -> bytes:
    """Encode text as UTF-8 (surrogate escapes give the original bytes back); bytes stay as they are."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def to_text(value: bytes) -> str:
    """Decode UTF-8, keeping undecodable bytes as surrogate escapes."""
    return value.decode("utf-8", "surrogateescape")


def shortstr(value: str | bytes) -> bytes:
    """Encode a short string."""
    data = to_bytes(value)
    if len(data) > 255:
        raise ValueError(f"short string of {len(data)} bytes")
    return bytes([len(data)]) + data


def longstr(value: str | bytes) -> bytes:
    """Encode a long string: u32 length, then the bytes."""
    data = to_bytes(value)
    return struct.pack(">I", len(data)) + data


def encode_value(letter: str, value: Any) -> bytes:
    """Encode one field value with its type letter."""
    tag = letter.encode("latin-1")
    if letter in _FIXED:
        return tag + struct.pack(_FIXED[letter], value)
    if letter in "Sx":
        return tag + longstr(value)
    if letter == "D":
        scale, number = value
        return tag + struct.pack(">BI", scale, number)
    if letter == "A":
        return tag + longstr(b"".join(encode_value(kind, item) for kind, item in value))
    if letter == "F":
        return tag + table(value)
    if letter == "V":
        return tag
    return tag + bytes(value)


def table_body(entries: Iterable[Triple]) -> bytes:
    """Encode a field table without its 4-byte length (the AMQPLAIN response is one)."""
    return b"".join(shortstr(key) + encode_value(letter, value) for key, letter, value in entries)


def table(entries: Iterable[Triple]) -> bytes:
    """Encode a field table with its length."""
    return longstr(table_body(entries))


def _decode_value(data: bytes, at: int) -> tuple[str, Any, int]:
    letter = chr(data[at])
    at += 1
    if letter in _FIXED:
        (number,) = struct.unpack_from(_FIXED[letter], data, at)
        return letter, number, at + struct.calcsize(_FIXED[letter])
    if letter == "V":
        return letter, None, at
    if letter == "D":
        return letter, struct.unpack_from(">BI", data, at), at + 5
    if letter not in "SxAF":
        raise ValueError(f"unknown field type {letter!r}")
    (size,) = struct.unpack_from(">I", data, at)
    content = data[at + 4 : at + 4 + size]
    if len(content) != size:
        raise ValueError("field value is cut short")
    at += 4 + size
    if letter == "F":
        return letter, decode_body(content), at
    if letter == "A":
        return letter, _decode_array(content), at
    return letter, to_text(content) if letter == "S" else content, at


def _decode_array(content: bytes) -> list[Pair]:
    items: list[Pair] = []
    at = 0
    while at < len(content):
        letter, value, at = _decode_value(content, at)
        items.append((letter, value))
    return items


def decode_body(data: bytes) -> list[Triple]:
    """Decode a field table without its length."""
    entries: list[Triple] = []
    at = 0
    while at < len(data):
        size = data[at]
        key = to_text(data[at + 1 : at + 1 + size])
        letter, value, at = _decode_value(data, at + 1 + size)
        entries.append((key, letter, value))
    return entries


def decode(data: bytes) -> list[Triple]:
    """Decode a field table with its length."""
    (size,) = struct.unpack_from(">I", data)
    if size != len(data) - 4:
        raise ValueError(f"table of {size} bytes in {len(data) - 4}")
    return decode_body(data[4:])


def plain(entries: Sequence[Triple]) -> dict[str, Any]:
    """Return triples as a dictionary without type letters, nested tables and arrays too."""

    def value_of(letter: str, value: Any) -> Any:
        if letter == "F":
            return plain(value)
        if letter == "A":
            return [value_of(kind, item) for kind, item in value]
        return bool(value) if letter == "t" else value

    return {to_text(to_bytes(key)): value_of(letter, value) for key, letter, value in entries}
