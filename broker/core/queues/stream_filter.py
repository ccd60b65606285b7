"""Filters of streams: a consumer gets only messages whose header x-stream-filter-value has one of its values.

RabbitMQ compares a Bloom filter for each batch, so its clients have to compare again. Here each message is compared.

Source: https://www.rabbitmq.com/docs/streams#filtering
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from leveret.protocol.header_scan import locate_header
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope

#: The header as it is encoded.
_NAME: Final = bytes((len("x-stream-filter-value"),)) + b"x-stream-filter-value"
_STRING: Final = ord("S")
_U32: Final = struct.Struct(">I")


class StreamFilter:
    """Which messages of a stream a consumer wants.

    Args:
        values: Wanted values.
        takes_unfiltered: Whether messages without a value are wanted too.
    """

    __slots__ = ("_envelope", "_takes_unfiltered", "_values", "_wants")

    def __init__(self, values: frozenset[bytes], takes_unfiltered: bool) -> None:
        self._values = values
        self._takes_unfiltered = takes_unfiltered
        #: The last envelope, and whether its messages are wanted.
        self._envelope: Envelope | None = None
        self._wants = False

    def select(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the wanted ones of some messages."""
        selected: list[Entry] = []
        for entry in entries:
            envelope = entry[1].envelope
            if envelope is not self._envelope:
                self._envelope = envelope
                self._wants = self._wants_header(envelope.header)
            if self._wants:
                selected.append(entry)
        return selected

    def _wants_header(self, header: bytes) -> bool:
        value = filter_value(header)
        return self._takes_unfiltered if value is None else value in self._values


def filter_value(header: bytes) -> bytes | None:
    """Return the value of the header x-stream-filter-value; None if there is none, or it is empty or no string.

    Args:
        header: The content header of a message.
    """
    at = locate_header(header, _NAME)
    if at < 0 or header[at] != _STRING:
        return None
    start = at + 1 + _U32.size
    return header[start : start + int(_U32.unpack_from(header, at + 1)[0])] or None
