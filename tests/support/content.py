"""Encodes content headers with property flags and values set by the test."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from tests.support import tables

# Name, wire type; the first one has flag bit 15 (spec 4.2.6.1).
FIELDS = (
    ("content_type", "shortstr"),
    ("content_encoding", "shortstr"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "shortstr"),
    ("reply_to", "shortstr"),
    ("expiration", "shortstr"),
    ("message_id", "shortstr"),
    ("timestamp", "timestamp"),
    ("type", "shortstr"),
    ("user_id", "shortstr"),
    ("app_id", "shortstr"),
    ("cluster_id", "shortstr"),
)


def properties(**given: Any) -> bytes:
    """Encode basic properties: the flag word, then the values in flag order."""
    flags, out = 0, b""
    for position, (name, kind) in enumerate(FIELDS):
        if name not in given:
            continue
        value = given.pop(name)
        flags |= 1 << (15 - position)
        if kind == "shortstr":
            out += tables.shortstr(value)
        elif kind == "table":
            out += value if isinstance(value, bytes) else tables.table(value)
        else:
            out += struct.pack(">B" if kind == "octet" else ">Q", value)
    if given:
        raise TypeError(f"no such properties: {sorted(given)}")
    return struct.pack(">H", flags) + out


def header(body_size: int, encoded_properties: bytes = b"\0\0", *, class_id: int = 60, weight: int = 0) -> bytes:
    """Build the payload of a content header frame."""
    return struct.pack(">HHQ", class_id, weight, body_size) + encoded_properties


@dataclass(frozen=True)
class Content:
    """A received message's content: raw header payload and body."""

    header: bytes
    body: bytes

    @property
    def raw_properties(self) -> bytes:
        """The flag word and the property values, undecoded."""
        return self.header[12:]

    @property
    def properties(self) -> dict[str, Any]:
        """The present properties by the names of `FIELDS`; headers are triples."""
        (flags,) = struct.unpack_from(">H", self.header, 12)
        found: dict[str, Any] = {}
        at = 14
        for position, (name, kind) in enumerate(FIELDS):
            if not flags & 1 << (15 - position):
                continue
            size = {"octet": 1, "timestamp": 8}.get(kind)
            if kind == "shortstr":
                size = 1 + self.header[at]
                found[name] = tables.to_text(self.header[at + 1 : at + size])
            elif kind == "table":
                size = 4 + int.from_bytes(self.header[at : at + 4], "big")
                found[name] = tables.decode(self.header[at : at + size])
            else:
                assert size is not None
                found[name] = int.from_bytes(self.header[at : at + size], "big")
            at += size
        if at != len(self.header):
            raise ValueError(f"properties take {at} of {len(self.header)} bytes")
        return found

    @property
    def headers(self) -> list[tables.Triple]:
        """The headers table as triples; empty if absent."""
        found: list[tables.Triple] = self.properties.get("headers", [])
        return found
