"""Codec of content headers (basic properties), which decodes properties on demand.

A content-header payload is class-id u16, weight u16, body-size u64, property flags u16, then the values of the
flagged properties. The broker relays it unchanged and decodes only the properties that it uses.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from leveret.protocol.constants import CLASS_BASIC
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, MalformedTable, decode_table, encode_table
from leveret.protocol.short_strings import encode_shortstr

_HEAD: Final = struct.Struct(">HHQH")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")

#: Property names by flag bit, in the order of the wire (spec section 1.8.1).
FLAGS: Final = (
    (0x8000, "content_type"), (0x4000, "content_encoding"), (0x2000, "headers"), (0x1000, "delivery_mode"),
    (0x0800, "priority"), (0x0400, "correlation_id"), (0x0200, "reply_to"), (0x0100, "expiration"),
    (0x0080, "message_id"), (0x0040, "timestamp"), (0x0020, "type"), (0x0010, "user_id"), (0x0008, "app_id"),
    (0x0004, "cluster_id"),
)  # fmt: skip
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
USER_ID: Final = 0x0010

_HEADER_SIZE: Final = 14


class Properties:
    """Properties of a message, decoded on demand from its content-header payload.

    Args:
        payload: A whole content-header payload.
    Raises:
        ConnectionFault: INTERNAL_ERROR (541) for values that cannot be decoded, as in RabbitMQ.
    """

    __slots__ = ("_spans", "flags", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.flags = read_flags(payload)
        self._spans = _locate_properties(payload, self.flags)

    def raw(self, flag: int) -> bytes | None:
        """Return the encoded value of a property; None if absent."""
        span = self._spans.get(flag)
        return None if span is None else self.payload[span[0] : span[1]]

    def octet(self, flag: int, default: int) -> int:
        """Return a one-byte property (delivery-mode, priority)."""
        span = self._spans.get(flag)
        return default if span is None else self.payload[span[0]]

    def text(self, flag: int) -> str | None:
        """Return a short-string property; bytes that are not UTF-8 become surrogates. None if absent."""
        octets = self.raw(flag)
        return None if octets is None else octets[1:].decode("utf-8", "surrogateescape")

    def timestamp(self) -> int | None:
        """Return the timestamp property in seconds since 1970; None if absent."""
        octets = self.raw(0x0040)
        return None if octets is None else int(_U64.unpack(octets)[0])

    def headers(self, max_depth: int = MAX_STORED_DEPTH) -> FieldTable:
        """Return the headers table; empty if absent.

        Args:
            max_depth: Nesting depth that is accepted; messages stored by earlier versions may be deeper.
        Raises:
            ConnectionFault: INTERNAL_ERROR (541) for a table that cannot be decoded.
        """
        octets = self.raw(HEADERS)
        return () if octets is None else _decode_headers(octets[4:], max_depth)

    def as_dict(self, with_headers: bool = True) -> dict[str, Any]:
        """Return the properties that are present, by name.

        Args:
            with_headers: Whether the headers are among them.
        """
        read: dict[str, Any] = {}
        for flag, name in FLAGS:
            if self.flags & flag and (with_headers or flag != HEADERS):
                if flag == HEADERS:
                    read[name] = self.headers()
                elif flag in (DELIVERY_MODE, PRIORITY):
                    read[name] = self.octet(flag, 0)
                else:
                    read[name] = self.timestamp() if name == "timestamp" else self.text(flag)
        return read

    def replaced(self, changes: Mapping[int, bytes | None]) -> bytes:
        """Return the content-header payload with some properties replaced; the other properties are unchanged.

        Args:
            changes: Encoded value by flag; None removes the property.
        """
        flags, values = self.flags, []
        for flag, _ in FLAGS:
            value = changes[flag] if flag in changes else self.raw(flag)
            if value is None:
                flags &= ~flag
            else:
                flags |= flag
                values.append(value)
        return self.payload[:12] + flags.to_bytes(2, "big") + b"".join(values)


def encode_content_header(body_size: int, values: dict[int, bytes] | None = None) -> bytes:
    """Encode a content-header payload.

    Args:
        body_size: Size of the body in bytes.
        values: Encoded property by flag.
    """
    flags, encoded, given = 0, [], values or {}
    for flag, _ in FLAGS:
        if flag in given:
            flags |= flag
            encoded.append(given[flag])
    return _HEAD.pack(CLASS_BASIC, 0, body_size, flags) + b"".join(encoded)


def encode_headers(table: FieldTable) -> bytes:
    """Encode a value of the headers property."""
    entries = encode_table(table)
    return _U32.pack(len(entries)) + entries


def encode_text(text: str) -> bytes:
    """Encode a value of a short-string property."""
    return encode_shortstr(text)


def read_flags(payload: bytes) -> int:
    """Return the property flags of a content-header payload.

    Raises:
        ConnectionFault: INTERNAL_ERROR (541) if the payload ends before them.
    """
    if len(payload) < _HEADER_SIZE:
        raise _decode_fault()
    return payload[12] << 8 | payload[13]


def _decode_headers(octets: bytes, max_depth: int) -> FieldTable:
    try:
        return decode_table(octets, max_depth)
    except MalformedTable:
        raise _decode_fault() from None


def _decode_fault() -> ConnectionFault:
    return ConnectionFault(ReplyCode.INTERNAL_ERROR, method=0)


@lru_cache(maxsize=1024)
def property_widths(flags: int) -> tuple[tuple[int, int], ...]:
    """List the properties whose flags are set, in the order of the wire.

    Returns:
        Flag and width in bytes of each property; width 0 for a value with its length in front.
    """
    return tuple((flag, width) for flag, width in _WIDTHS if flags & flag)


def _locate_properties(payload: bytes, flags: int) -> dict[int, tuple[int, int]]:
    """Return start and end offset of each property, and check that they fill the payload exactly."""
    spans: dict[int, tuple[int, int]] = {}
    offset, end = _HEADER_SIZE, len(payload)
    try:
        for flag, width in property_widths(flags):
            start = offset
            if width:
                offset += width
            elif flag == HEADERS:
                offset += 4 + _U32.unpack_from(payload, offset)[0]
            else:
                offset += 1 + payload[offset]
            spans[flag] = (start, offset)
    except (IndexError, struct.error):
        raise _decode_fault() from None
    if offset != end:
        raise _decode_fault()
    return spans


#: Width of a property's value in bytes; 0 for a value with its length in front.
_WIDTHS: Final = tuple((flag, {"delivery_mode": 1, "priority": 1, "timestamp": 8}.get(name, 0)) for flag, name in FLAGS)
