"""Content headers: the basic properties, read only as far as the broker needs them.

A content-header payload is class-id u16, weight u16, body-size u64, property flags u16, then the values of
the flagged properties. The broker relays it as it came; it looks inside only for what it acts on.
"""

from __future__ import annotations

import struct
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
USER_ID: Final = 0x0010

_HEADER_SIZE: Final = 14


class Properties:
    """The properties of one message, and where each stands in its content-header payload.

    Args:
        payload: A whole content-header payload.
    Raises:
        ConnectionFault: INTERNAL_ERROR (541) for values that cannot be decoded, as RabbitMQ does.
    """

    __slots__ = ("_spans", "flags", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.flags = read_flags(payload)
        self._spans = _measure(payload, self.flags)

    def raw(self, flag: int) -> bytes | None:
        """The encoded value of a property; None where it is absent."""
        span = self._spans.get(flag)
        return None if span is None else self.payload[span[0] : span[1]]

    def octet(self, flag: int, default: int) -> int:
        """A one-byte property (delivery-mode, priority)."""
        span = self._spans.get(flag)
        return default if span is None else self.payload[span[0]]

    def text(self, flag: int) -> str | None:
        """A short-string property; bytes that are not UTF-8 are kept as surrogates."""
        octets = self.raw(flag)
        return None if octets is None else octets[1:].decode("utf-8", "surrogateescape")

    def timestamp(self) -> int | None:
        """The timestamp property in seconds since 1970."""
        octets = self.raw(0x0040)
        return None if octets is None else int(_U64.unpack(octets)[0])

    def headers(self, max_depth: int = MAX_STORED_DEPTH) -> FieldTable:
        """The headers table, empty where there is none.

        Args:
            max_depth: How deep it may be; messages that were stored long ago may be deeper than new ones.
        Raises:
            ConnectionFault: INTERNAL_ERROR (541) for a table that cannot be decoded.
        """
        octets = self.raw(HEADERS)
        return () if octets is None else _decode_headers(octets[4:], max_depth)

    def as_dict(self) -> dict[str, Any]:
        """All properties that are present, by name."""
        read: dict[str, Any] = {}
        for flag, name in FLAGS:
            if self.flags & flag:
                if flag == HEADERS:
                    read[name] = self.headers()
                elif flag in (DELIVERY_MODE, PRIORITY):
                    read[name] = self.octet(flag, 0)
                else:
                    read[name] = self.timestamp() if name == "timestamp" else self.text(flag)
        return read

    def replaced(self, changes: dict[int, bytes | None]) -> bytes:
        """The content-header payload with some properties replaced, all others byte for byte.

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
    """A content-header payload.

    Args:
        body_size: Bytes of the body.
        values: Encoded property by flag.
    """
    empty = _HEAD.pack(CLASS_BASIC, 0, body_size, 0)
    return Properties(empty).replaced(dict(values)) if values else empty


def encode_headers(table: FieldTable) -> bytes:
    """The encoded value of the headers property."""
    entries = encode_table(table)
    return _U32.pack(len(entries)) + entries


def encode_text(text: str) -> bytes:
    """The encoded value of a short-string property."""
    return encode_shortstr(text)


def read_flags(payload: bytes) -> int:
    """The property flags of a content-header payload.

    Raises:
        ConnectionFault: INTERNAL_ERROR (541) if the payload ends before them.
    """
    if len(payload) < _HEADER_SIZE:
        raise _undecodable()
    return payload[12] << 8 | payload[13]


def _decode_headers(octets: bytes, max_depth: int) -> FieldTable:
    try:
        return decode_table(octets, max_depth)
    except MalformedTable:
        raise _undecodable() from None


def _undecodable() -> ConnectionFault:
    return ConnectionFault(ReplyCode.INTERNAL_ERROR, method=0)


@lru_cache(maxsize=1024)
def property_widths(flags: int) -> tuple[tuple[int, int], ...]:
    """List the properties that these flags announce, in the order of the wire.

    Returns:
        Flag and width in bytes of each; 0 for a value that carries its length.
    """
    return tuple((flag, width) for flag, width in _WIDTHS if flags & flag)


def _measure(payload: bytes, flags: int) -> dict[int, tuple[int, int]]:
    """Find where each property begins and ends, and that they fill the payload exactly."""
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
        raise _undecodable() from None
    if offset != end:
        raise _undecodable()
    return spans


#: Fixed width of a property's value in bytes; 0 for those that carry their length.
_WIDTHS: Final = tuple((flag, {"delivery_mode": 1, "priority": 1, "timestamp": 8}.get(name, 0)) for flag, name in FLAGS)
