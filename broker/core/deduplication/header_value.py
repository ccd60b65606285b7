"""The headers x-deduplication-header and x-cache-ttl, read without decoding the other headers.

Source: RabbitMQ's plugin rabbitmq_message_deduplication, observed.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from math import isfinite
from typing import Final

from leveret.protocol.header_scan import locate_header

#: Name of the header by which messages are compared.
DEDUPLICATION_HEADER: Final = "x-deduplication-header"
#: Name of the header with the time for which its value is remembered.
TTL_HEADER: Final = "x-cache-ttl"

#: Length of a value's key: 120 bits, which makes a Python object of 48 bytes, without any room left over.
KEY_BYTES: Final = 15

_VALUE_NAME: Final = bytes((len(DEDUPLICATION_HEADER),)) + DEDUPLICATION_HEADER.encode()
_TTL_NAME: Final = bytes((len(TTL_HEADER),)) + TTL_HEADER.encode()
_U32: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct(">d")
#: Integers, also timestamps, by type letter; L is read as signed, as in RabbitMQ.
_INTEGERS: Final = {
    ord(letter): struct.Struct(form)
    for letter, form in {
        "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "T": ">Q",
    }.items()
}  # fmt: skip
_FLOATS: Final = {ord("f"): struct.Struct(">f"), ord("d"): struct.Struct(">d")}
_STRINGS: Final = b"Sx"
_CONTAINERS: Final = b"AF"
_BOOLEAN: Final = ord("t")
_TIMESTAMP: Final = ord("T")
_DECIMAL: Final = ord("D")
_DECIMAL_BYTES: Final = 5


def read_key(header: bytes) -> bytes | None:
    """Return a short key of the header's value, so that equal keys mean equal values; None without the header.

    Equal are integers of all widths, S and x, f and d. Otherwise values of different types differ.

    Args:
        header: The content header of a message.
    """
    at = locate_header(header, _VALUE_NAME)
    if at < 0:
        return None
    kind, start = header[at], at + 1
    if kind in _STRINGS:
        plain = b"S" + header[start + 4 : start + 4 + _length(header, start)]
    elif kind in _INTEGERS:
        plain = b"I%d" % _INTEGERS[kind].unpack_from(header, start)[0]
    elif kind in _FLOATS:
        # Both zeros are equal.
        plain = b"d" + _DOUBLE.pack(_FLOATS[kind].unpack_from(header, start)[0] + 0.0)
    elif kind in _CONTAINERS:
        plain = header[at : start + 4 + _length(header, start)]
    elif kind == _BOOLEAN:
        plain = b"t" if header[start] else b"f"
    elif kind == _DECIMAL:
        plain = header[at : start + _DECIMAL_BYTES]
    else:
        # Void counts as a value.
        plain = b"V"
    return blake2b(plain, digest_size=KEY_BYTES).digest()


def read_ttl(header: bytes) -> int | None:
    """Return for how long a message's value is remembered.

    Args:
        header: The content header of a message.
    Returns:
        Milliseconds, a fraction without what is behind the point; None without the header or if it is not a number.
        Those of 0 and below are not remembered.
    """
    at = locate_header(header, _TTL_NAME)
    if at < 0:
        return None
    kind = header[at]
    if kind in _INTEGERS and kind != _TIMESTAMP:
        return int(_INTEGERS[kind].unpack_from(header, at + 1)[0])
    if kind in _FLOATS:
        milliseconds: float = _FLOATS[kind].unpack_from(header, at + 1)[0]
        return int(milliseconds) if isfinite(milliseconds) else None
    return None


def _length(header: bytes, at: int) -> int:
    length: int = _U32.unpack_from(header, at)[0]
    return length
