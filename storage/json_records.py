"""Records of JSON objects in append-only files: details of events, and the audit log.

A record is

     0 u32 length of the JSON | 4 u32 crc of the JSON XOR crc(store id) | 8 a JSON object in UTF-8
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

#: Length and checksum of a record.
HEAD: Final = struct.Struct("<II")


def pack_record(octets: bytes, salt: int) -> bytes:
    """Return a record.

    Args:
        octets: The JSON object.
        salt: The checksum of the store id.
    """
    return HEAD.pack(len(octets), crc32(octets) ^ salt) + octets


def unpack_record(octets: bytes, at: int, salt: int) -> bytes | None:
    """Return the JSON of the record at an offset; None if it is damaged or not there."""
    if not 0 <= at <= len(octets) - HEAD.size:
        return None
    length, crc = HEAD.unpack_from(octets, at)
    found = octets[at + HEAD.size : at + HEAD.size + length]
    return found if len(found) == length and crc32(found) ^ salt == crc else None


def read_object(octets: bytes | None) -> dict[str, Any]:
    """Return the object of a record; empty for anything else."""
    try:
        found = json.loads(octets or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def unpack_records(octets: bytes, salt: int) -> Iterator[bytes]:
    """Yield the JSON of all records up to the first that is damaged or torn."""
    at = 0
    while (found := unpack_record(octets, at, salt)) is not None:
        yield found
        at += HEAD.size + len(found)
