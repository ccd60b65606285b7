"""The file FORMAT of a data directory: its format version and the oldest version that can read it."""

from __future__ import annotations

import json
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.disk.files import Files
from leveret.storage.format import FORMAT_VERSION

FORMAT_FILE: Final = "FORMAT"


class DataDirectoryError(Exception):
    """The data directory cannot be used; the message says why and what to do."""


class DirectoryFormat(NamedTuple):
    """Contents of the file FORMAT."""

    format: int
    min_reader: int
    store_id: bytes
    created: int

    @property
    def is_too_new(self) -> bool:
        """Whether it was written by a newer version and cannot be read by this one."""
        return self.min_reader > FORMAT_VERSION


def read_format(files: Files, path: str) -> DirectoryFormat | None:
    """Read the file FORMAT of a data directory; return None if it is missing.

    Raises:
        DataDirectoryError: It is damaged.
        OSError: It cannot be read.
    """
    octets = files.read_all(f"{path}/{FORMAT_FILE}")
    if octets is None:
        return None
    found = unpack_format(octets)
    if found is None:
        raise DataDirectoryError(f"{path}/{FORMAT_FILE} is damaged; restore it from a backup")
    return found


def pack_format(store_id: bytes, created: int, version: int | None = None) -> bytes:
    """Return the contents of a file FORMAT.

    Args:
        store_id: 16 random bytes.
        created: Creation time of the directory in microseconds since 1970.
        version: Format version; the current one by default.
    """
    version = FORMAT_VERSION if version is None else version
    found = DirectoryFormat(version, version, store_id, created)
    fields = found._asdict() | {"store_id": store_id.hex(), "features": [], "crc": _format_crc(found)}
    return json.dumps(fields).encode() + b"\n"


def unpack_format(octets: bytes) -> DirectoryFormat | None:
    """Parse a file FORMAT; return None if it is damaged."""
    try:
        fields = json.loads(octets)
        found = DirectoryFormat(
            int(fields["format"]),
            int(fields["min_reader"]),
            bytes.fromhex(fields["store_id"]),
            int(fields["created"]),
        )
        return found if fields["crc"] == _format_crc(found) else None
    except (ValueError, KeyError, TypeError):
        return None


def _format_crc(found: DirectoryFormat) -> int:
    return crc32(f"{found.format} {found.min_reader} {found.store_id.hex()} {found.created}".encode())
