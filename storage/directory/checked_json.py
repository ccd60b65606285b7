"""JSON files with a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32


def pack_checked(fields: Mapping[str, Any]) -> bytes:
    """Return the contents of a file: a JSON object with a checksum of its other fields in the field `crc`."""
    return json.dumps({**fields, "crc": crc_of(fields)}).encode() + b"\n"


def crc_of(fields: Mapping[str, Any]) -> int:
    """Return the checksum of fields, without `crc`."""
    return crc32(json.dumps(fields, sort_keys=True).encode())
