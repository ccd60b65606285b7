"""Catalogue and codec of the methods of AMQP 0-9-1.

The catalogue (numbers, argument names and types) is pamqp's. The codec is not: pamqp drops the types of table
values and refuses names that RabbitMQ allows. The tests compare both codecs byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pamqp import commands

from leveret.protocol.constants import BASIC_ACK, FRAME_END, FRAME_METHOD
from leveret.protocol.erlang_terms import format_octets
from leveret.protocol.faults import ConnectionFault, WireFault, frame_error
from leveret.protocol.field_table import FieldTable, MalformedTable, decode_table, encode_table
from leveret.protocol.short_strings import decode_utf8, encode_shortstr

_FRAME_HEAD: Final = struct.Struct(">BHII")
_NUMBERS: Final = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}
_U32: Final = struct.Struct(">I")
_END: Final = bytes((FRAME_END,))
#: A frame of basic.ack, in two parts; its payload has this many bytes.
_ACK_HEAD: Final = struct.Struct(">BHII")
_ACK_REST: Final = struct.Struct(">QBB")
_ACK_PAYLOAD_BYTES: Final = 13


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the catalogue.

    Args:
        index: class-id << 16 | method-id.
        name: Name as in error texts, for example ``queue.declare``.
        arguments: (name, domain) in the order of the wire.
    """

    index: int
    name: str
    arguments: tuple[tuple[str, str], ...]


def _catalogue() -> dict[int, Method]:
    methods = {}
    command: Any
    for index, command in commands.INDEX_MAPPING.items():
        group, _, verb = command.name.partition(".")
        spelled = "".join("-" + c.lower() if c.isupper() else c for c in verb).lstrip("-")
        arguments = tuple((name, command.amqp_type(name)) for name in command.attributes())
        methods[index] = Method(index, f"{group.lower()}.{spelled}", arguments)
    # RabbitMQ still answers access.request of AMQP 0-8, which pamqp leaves out.
    flags = tuple((name, "bit") for name in ("exclusive", "passive", "active", "write", "read"))
    methods[0x001E000A] = Method(0x001E000A, "access.request", (("realm", "shortstr"), *flags))
    methods[0x001E000B] = Method(0x001E000B, "access.request-ok", (("ticket", "short"),))
    return methods


METHODS: Final[dict[int, Method]] = _catalogue()
INDEX: Final[dict[str, int]] = {method.name: index for index, method in METHODS.items()}


class _Truncated(ValueError):
    """The payload ends before the last argument."""


def decode_arguments(method: Method, octets: bytes) -> tuple[Any, ...]:
    """Decode a method's arguments.

    Args:
        method: Entry of METHODS.
        octets: Method payload behind class and method id.
    Returns:
        One value per argument: int, bool, str (short string), bytes (long string) or FieldTable.
    Raises:
        ConnectionFault: FRAME_ERROR (501) if the arguments are too short or too long, or a short string is not
            UTF-8.
        WireFault: A table is malformed; it crashes RabbitMQ's parser.
    """
    values: list[Any] = []
    offset = bit = flags = 0
    try:
        for _, domain in method.arguments:
            if domain == "bit":
                if bit % 8 == 0:
                    flags = octets[offset]
                    offset += 1
                values.append(bool(flags >> bit % 8 & 1))
                bit += 1
                continue
            bit = 0
            value, offset = _READERS[domain](octets, offset)
            values.append(value)
    except (_Truncated, IndexError, struct.error):
        offset = -1
    except (MalformedTable, UnicodeDecodeError) as malformed:
        # RabbitMQ checks the contents of strings and tables only if all lengths are right.
        if has_valid_lengths(method, octets):
            raise _content_fault(method, malformed) from None
        offset = -1
    if offset != len(octets):
        raise frame_error(f"cannot decode {format_octets(octets)}", method.index)
    return tuple(values)


def _content_fault(method: Method, malformed: MalformedTable | UnicodeDecodeError) -> WireFault | ConnectionFault:
    if isinstance(malformed, MalformedTable):
        return WireFault(f"{method.name}: {malformed}")
    return frame_error("Malformed UTF-8 in shortstr")


def has_valid_lengths(method: Method, octets: bytes) -> bool:
    """Return whether a method's arguments fill the payload exactly, without checking strings and tables."""
    offset = bit = 0
    try:
        for _, domain in method.arguments:
            if domain == "bit":
                offset += bit % 8 == 0
                bit += 1
                continue
            bit = 0
            if domain == "shortstr":
                offset += 1 + octets[offset]
            elif domain in _NUMBERS:
                offset += _NUMBERS[domain].size
            else:
                offset += 4 + _U32.unpack_from(octets, offset)[0]
    except (IndexError, struct.error):
        return False
    return offset == len(octets)


def encode_method(channel: int, index: int, *values: Any) -> bytes:
    """Encode a method frame.

    Args:
        channel: 0..65535.
        index: class-id << 16 | method-id.
        values: One value per argument, typed as decode_arguments returns them; a short string may be bytes.
    """
    parts: list[bytes] = []
    bits = bit = 0
    for (_, domain), value in zip(METHODS[index].arguments, values, strict=True):
        if domain == "bit":
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((bits,)))
            bits = bit = 0
        parts.append(_WRITERS[domain](value))
    if bit:
        parts.append(bytes((bits,)))
    arguments = b"".join(parts)
    return _FRAME_HEAD.pack(FRAME_METHOD, channel, len(arguments) + 4, index) + arguments + _END


def ack_head(channel: int) -> bytes:
    """Encode what all basic.ack frames of a channel begin with, for encode_ack(); the channel is 0..65535."""
    return _ACK_HEAD.pack(FRAME_METHOD, channel, _ACK_PAYLOAD_BYTES, BASIC_ACK)


def encode_ack(head: bytes, tag: int, multiple: bool) -> bytes:
    """Encode a basic.ack frame: encode_method() for a method that is sent for single messages.

    Args:
        head: What ack_head() has returned for the channel.
        multiple: Whether all up to this tag are meant.
    """
    return head + _ACK_REST.pack(tag, multiple, FRAME_END)


def _read_number(layout: struct.Struct) -> Callable[[bytes, int], tuple[int, int]]:
    def read(octets: bytes, offset: int) -> tuple[int, int]:
        return layout.unpack_from(octets, offset)[0], offset + layout.size

    return read


def _read_shortstr(octets: bytes, offset: int) -> tuple[str, int]:
    end = offset + 1 + octets[offset]
    if end > len(octets):
        raise _Truncated
    return decode_utf8(octets[offset + 1 : end]), end


def _read_longstr(octets: bytes, offset: int) -> tuple[bytes, int]:
    start = offset + 4
    end = start + _U32.unpack_from(octets, offset)[0]
    if end > len(octets):
        raise _Truncated
    return octets[start:end], end


def _read_table(octets: bytes, offset: int) -> tuple[FieldTable, int]:
    entries, end = _read_longstr(octets, offset)
    return decode_table(entries), end


_READERS: Final[dict[str, Callable[[bytes, int], tuple[Any, int]]]] = {
    **{domain: _read_number(layout) for domain, layout in _NUMBERS.items()},
    "shortstr": _read_shortstr,
    "longstr": _read_longstr,
    "table": _read_table,
}


def _write_longstr(octets: bytes) -> bytes:
    return _U32.pack(len(octets)) + octets


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    **{domain: layout.pack for domain, layout in _NUMBERS.items()},
    "shortstr": encode_shortstr,
    "longstr": _write_longstr,
    "table": lambda table: _write_longstr(encode_table(table)),
}
