"""The file `readers/NAME` in a data directory: who reads which queues, and up to where.

The reader writes it, and the broker reads it once a second. It is a JSON object with a checksum (`pack_checked()`): the
format of the file, the reader's name, the patterns of virtual host and queue or null for all, when it was made and when
its reader was last seen in microseconds since 1970, and the next number that it has not read by store: `2/0` is
priority 0 of the queue with the number 2. A store that is not named has not been read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from leveret.storage.disk.files import Files, replace_file
from leveret.storage.format import crc_of, pack_checked

#: Name of the directory in the data directory.
READERS: Final = "readers"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DRAFT: Final = ".tmp"
_FORMAT: Final = 1


class ReaderFileError(Exception):
    """A reader's file is damaged or cannot be read; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class ReaderFile:
    """Contents of the file.

    Attributes:
        name: Name of the reader.
        vhost: Virtual host whose queues it reads, or a pattern with `*`, `?` and `[…]`; None for all.
        queue: Name of the queue that it reads, or such a pattern; None for all.
        created: When it was made, in microseconds since 1970.
        seen: When its reader was last seen, in microseconds since 1970.
        next: Number of the first message that it has not read, by store.
    """

    name: str
    vhost: str | None
    queue: str | None
    created: int
    seen: int
    next: Mapping[str, int] = field(default_factory=dict)

    def wants(self, vhost: str, queue: str) -> bool:
        """Return whether it reads a queue."""
        return matches(vhost, self.vhost) and matches(queue, self.queue)


def matches(name: str, wanted: str | None) -> bool:
    """Return whether a name equals or matches a pattern; names themselves may contain wildcards."""
    return wanted is None or name == wanted or fnmatchcase(name, wanted)


def is_reader_name(name: str) -> bool:
    """Return whether a reader can have a name: 1 to 64 letters, digits and `_.-`, beginning with a letter or digit."""
    return _NAME.fullmatch(name) is not None and not name.endswith(_DRAFT)


def write_reader(files: Files, path: str, reader: ReaderFile) -> None:
    """Write a reader's file.

    Args:
        files: The file system interface.
        path: The data directory.
        reader: The contents.
    Raises:
        OSError: It could not be written; an older file is unchanged.
    """
    files.make_directory(f"{path}/{READERS}")
    replace_file(files, f"{path}/{READERS}", reader.name, pack_reader(reader))


def pack_reader(reader: ReaderFile) -> bytes:
    """Return the contents of a reader's file."""
    # Not asdict(), which copies the numbers one by one.
    return pack_checked(
        {
            "format": _FORMAT,
            "name": reader.name,
            "vhost": reader.vhost,
            "queue": reader.queue,
            "created": reader.created,
            "seen": reader.seen,
            "next": dict(reader.next),
        }
    )


def read_reader(files: Files, path: str, name: str) -> ReaderFile | None:
    """Return a reader's file; None if there is none.

    Args:
        files: The file system interface.
        path: The data directory.
        name: Name of the reader.
    Raises:
        ReaderFileError: It is damaged, a newer version has written it, or it cannot be read.
    """
    where = f"{path}/{READERS}/{name}"
    try:
        octets = files.read_all(where)
    except OSError as error:
        raise ReaderFileError(f"{where} cannot be read: {error.strerror or error}") from error
    return None if octets is None else unpack_reader(octets, where)


def unpack_reader(octets: bytes, where: str) -> ReaderFile:
    """Return the contents of a reader's file.

    Args:
        octets: The file.
        where: Its path, for the error.
    Raises:
        ReaderFileError: It is damaged, or a newer version has written it.
    """
    try:
        fields = json.loads(octets)
        if fields.pop("crc") == crc_of(fields):
            if fields["format"] > _FORMAT:
                raise ReaderFileError(f"{where} was written by a newer version of Leveret")
            following = {str(key): int(number) for key, number in fields["next"].items()}
            name, vhost, queue = fields["name"], fields["vhost"], fields["queue"]
            return ReaderFile(name, vhost, queue, int(fields["created"]), int(fields["seen"]), following)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ReaderFileError(f"{where} is damaged: delete it, and the reader is made again where its query is")


def list_readers(files: Files, path: str) -> list[str]:
    """Return the names of the readers of a data directory."""
    return [name for name in files.list_directory(f"{path}/{READERS}") if is_reader_name(name)]
