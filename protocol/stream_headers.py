"""The header x-stream-offset, which is added to each message that is delivered from a stream.

As in RabbitMQ, the headers of such a message are sorted by the bytes of their names, and what the publisher had sent
under this name is replaced. Messages that are replayed get a header in the same way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from leveret.protocol.header_scan import skip_valid_value
from leveret.protocol.properties import HEADERS, Properties

STREAM_OFFSET: Final = b"x-stream-offset"
_VALUE: Final = bytes(8)
_U32: Final = struct.Struct(">I")
_PROPERTIES_AT: Final = 14
_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000


def split_for_offset(header: bytes, key: bytes = STREAM_OFFSET) -> tuple[bytes, bytes]:
    """Return a content-header payload with a header for an offset, as the bytes before its value and after it.

    Args:
        header: The payload as it was published, which has been checked then.
        key: Name of the header; its value has 8 bytes.
    """
    entry_head = bytes((len(key),)) + key + b"l"
    read = Properties(header)
    table = read.raw(HEADERS)
    entries = [] if table is None else [each for each in _entries(table) if each[0] != key]
    entries.append((key, entry_head + _VALUE))
    entries.sort(key=_name)
    parts = [octets for _, octets in entries]
    octets = b"".join(parts)
    at = [name for name, _ in entries].index(key)
    start = _PROPERTIES_AT + len(read.raw(_CONTENT_TYPE) or b"") + len(read.raw(_CONTENT_ENCODING) or b"")
    start += _U32.size + sum([len(part) for part in parts[:at]]) + len(entry_head)
    whole = read.replaced({HEADERS: _U32.pack(len(octets)) + octets})
    return whole[:start], whole[start + len(_VALUE) :]


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over the entries of an encoded table as (name, whole entry)."""
    at, end = _U32.size, len(table)
    while at < end:
        start, key_end = at, at + 1 + table[at]
        at = skip_valid_value(table, key_end)
        yield table[start + 1 : key_end], table[start:at]


def _name(entry: tuple[bytes, bytes]) -> bytes:
    return entry[0]
