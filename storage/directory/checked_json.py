"""JSON objects with a checksum, one a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32


def pack_checked(fields: Mapping[str, Any]) -> bytes:
    """A file's contents: an object that has a checksum of the others as its field `crc`."""
    return json.dumps({**fields, "crc": crc_of(fields)}).encode() + b"\n"


def crc_of(fields: Mapping[str, Any]) -> int:
    """The checksum of all fields but `crc`."""
    return crc32(json.dumps(fields, sort_keys=True).encode())
