"""The file FORMAT of a data directory: its format version and the oldest version that can read it."""

from __future__ import annotations

import fcntl
import json
import os
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


def lock_for_backup(path: str) -> int | None:
    """Lock a data directory for whoever takes its backups; return a handle to close, or None if another process has it.

    Raises:
        OSError: It has no format, or cannot be locked.
    """
    handle = os.open(f"{path}/{FORMAT_FILE}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


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
