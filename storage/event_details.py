"""Details of events about messages that no queue has taken: where they were published to, and by whom.

They are in files beside those of the event log, `de-….log` with the same time in the name. An event REFUSED or
UNROUTABLE has as its seq the place of its details plus 1; 0 if there are none. A record (json_records.py) has texts,
see NAMES.

Details only help to find a publisher: they are written before their events, but no sync waits for them, and what cannot
be written or read is left out. Older versions ignore these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os.path import dirname, join
from typing import Final, Protocol

from leveret.storage.json_records import read_object, unpack_record

#: What details may have.
NAMES: Final = ("vhost", "exchange", "routing_key", "message_id", "user_name", "connection_name")
#: An upper bound of the length of a record: each text has 255 bytes at most, and six characters for each in JSON.
RECORD_MAX: Final = 16 << 10

PREFIX: Final = "de-"
SUFFIX: Final = ".log"


class EventDetails(Protocol):
    """Details of an event, which are made when they are needed."""

    def texts(self, with_id: bool) -> dict[str, str]:
        """Return texts by their NAMES; without the message's id if it is not asked for."""


def pack_details(texts: Mapping[str, str]) -> bytes:
    """Return the JSON of details."""
    return json.dumps(texts, separators=(",", ":")).encode()


def read_details(octets: bytes, at: int, salt: int) -> dict[str, str]:
    """Return the details at an offset; empty if they are damaged or missing.

    Args:
        octets: A part of a file.
        at: Offset in it.
        salt: The checksum of the store id.
    """
    texts = read_object(unpack_record(octets, at, salt))
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def details_name(time: int) -> str:
    """Return the name of the file that belongs to the file of the event log with a start time."""
    return f"{PREFIX}{time:020d}{SUFFIX}"


def details_beside(path: str, time: int) -> str:
    """Return the path of the details that belong to a file of the event log with a start time."""
    return join(dirname(path), details_name(time))
