"""The file `readers/NAME` in a data directory: who reads which queues, and up to where.

The reader writes it, and the broker reads it once a second. It is a JSON object with a checksum (`pack_checked()`): the
format of the file, the reader's name, the patterns of virtual host and queue or null for all, when it was made and when
its reader was last seen in microseconds since 1970, and the next number that it has not read by store: `2/0` is
priority 0 of the queue with the number 2. A store that is not named has not been read. The file of a backup has format
2: instead of numbers, `since` says that it has all that was dropped before this time.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final

from leveret.storage.disk.files import Files, replace_file
from leveret.storage.format import is_count, is_text, pack_checked, unpack_checked

#: Name of the directory in the data directory.
READERS: Final = "readers"
#: Name of the reader by which the broker keeps what it drops between two backups.
BACKUP_READER: Final = "leveret-backup"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DRAFT: Final = ".tmp"
_FORMAT: Final = 1
#: With `since`: an older version must not take it for a reader that has read nothing.
_FORMAT_SINCE: Final = 2
#: Longest file that is read, in bytes: it has the numbers of some 40,000 queues.
LIMIT: Final = 1 << 20
#: Longest pattern, and longest list of patterns, in characters.
_PATTERN_MAX: Final = 1024
LIST_MAX: Final = 65_536
#: Stores with a space between them.
_STORES: Final = re.compile(r"(?:[0-9]{1,10}/[0-9]{1,3}(?: |$))*")
_NUMBER_END: Final = 1 << 64
#: The end of the year 9999, in microseconds since 1970.
_TIME_END: Final = 253_402_300_800_000_000


class ReaderFileError(Exception):
    """A reader's file is damaged or cannot be read; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class ReaderFile:
    """Contents of the file.

    Attributes:
        name: Name of the reader.
        vhost: Virtual host whose queues it reads, a pattern with `*`, `?` and `[…]`, or a list of these as JSON; None
            for all.
        queue: Name of the queue that it reads, or such a pattern or list; None for all.
        created: When it was made, in microseconds since 1970.
        seen: When its reader was last seen, in microseconds since 1970.
        next: Number of the first message that it has not read, by store.
        since: Of a backup, when its last part was taken: it needs what is dropped from then on, of all queues, in
            microseconds since 1970. None of others.
    """

    name: str
    vhost: str | None
    queue: str | None
    created: int
    seen: int
    next: Mapping[str, int] = field(default_factory=dict)
    since: int | None = None

    def wants(self, vhost: str, queue: str) -> bool:
        """Return whether it reads a queue: all of its messages, even those that are settled at once."""
        return self.since is None and matches(vhost, self.vhost) and matches(queue, self.queue)


def matches(name: str, wanted: str | None) -> bool:
    """Return whether a name equals or matches a pattern, or one of a list; names themselves may contain wildcards.

    Args:
        name: The name.
        wanted: A name, a pattern with `*`, `?` and `[…]`, or a list of these as JSON; None for all.
    """
    if wanted is None or name == wanted:
        return True
    return any(name == each or fnmatchcase(name, each) for each in names_in(wanted))


@lru_cache(256)
def names_in(wanted: str) -> tuple[str, ...]:
    """Return the names and patterns of a list as JSON; a text that is none is one of them itself."""
    if wanted.startswith("[") and wanted.endswith("]"):
        try:
            found = json.loads(wanted)
        except (ValueError, RecursionError):
            # A pattern that begins with a set of characters.
            return (wanted,)
        if found and all(isinstance(each, str) for each in found):
            return tuple(found)
    return (wanted,)


def is_reader_name(name: str) -> bool:
    """Return whether a reader can have a name: 1 to 64 letters, digits and `_.-`, beginning with a letter or digit."""
    return _NAME.fullmatch(name) is not None and not name.endswith(_DRAFT)


def lock_path(path: str, name: str) -> str:
    """Return the file that the query of a reader locks. No reader is called so, and drafts are no readers' files."""
    return f"{path}/{READERS}/.{name}{_DRAFT}"


def write_reader(files: Files, path: str, reader: ReaderFile) -> None:
    """Write a reader's file.

    Args:
        reader: The contents.
    Raises:
        OSError: It could not be written; an older file is unchanged.
    """
    octets = pack_reader(reader)
    if len(octets) > LIMIT:
        raise OSError(errno.EFBIG, f"it would be longer than {LIMIT} bytes; let several readers read fewer queues each")
    files.make_directory(f"{path}/{READERS}")
    try:
        # It may be a link to another file.
        files.unlink(f"{path}/{READERS}/{reader.name}{_DRAFT}")
    except FileNotFoundError:
        pass
    replace_file(files, f"{path}/{READERS}", reader.name, octets)


def hold_for_backup(files: Files, path: str, since: int, now: int) -> None:
    """Let the broker keep what it drops from a time on, until a backup has it.

    Args:
        since, now: Microseconds since 1970.
    Raises:
        OSError: The file that says so could not be written.
    """
    write_reader(files, path, ReaderFile(BACKUP_READER, None, None, since, now, since=since))


def remove_reader(files: Files, path: str, name: str) -> None:
    """Delete a reader's file, and what its query has locked.

    Raises:
        OSError: The file could not be deleted.
    """
    files.unlink(f"{path}/{READERS}/{name}")
    try:
        files.unlink(lock_path(path, name))
    except FileNotFoundError:
        pass


def pack_reader(reader: ReaderFile) -> bytes:
    """Return the contents of a reader's file."""
    # Not asdict(), which copies the numbers one by one.
    return pack_checked(
        {
            "format": _FORMAT if reader.since is None else _FORMAT_SINCE,
            "name": reader.name,
            "vhost": reader.vhost,
            "queue": reader.queue,
            "created": reader.created,
            "seen": reader.seen,
            "next": dict(reader.next),
            **({} if reader.since is None else {"since": reader.since}),
        }
    )


def read_reader(files: Files, path: str, name: str) -> ReaderFile | None:
    """Return a reader's file; None if there is none.

    Args:
        name: Name of the reader.
    Raises:
        ReaderFileError: It is damaged, a newer version has written it, or it cannot be read.
    """
    octets = read_octets(files, path, name)
    return None if octets is None else unpack_reader(octets, f"{path}/{READERS}/{name}")


def read_octets(files: Files, path: str, name: str) -> bytes | None:
    """Return the contents of a reader's file; None if there is none. See read_reader()."""
    where = f"{path}/{READERS}/{name}"
    try:
        return files.read_foreign(where, LIMIT)
    except OSError as error:
        raise ReaderFileError(f"{where} cannot be read: {error.strerror or error}") from error


def unpack_reader(octets: bytes, where: str) -> ReaderFile:
    """Return the contents of a reader's file.

    Args:
        octets: The file.
        where: Its path: the reader's name is the last part, whatever the contents say.
    Raises:
        ReaderFileError: It is damaged, or a newer version has written it.
    """
    try:
        fields = unpack_checked(octets)
        if fields["format"] > _FORMAT_SINCE:
            raise ReaderFileError(f"{where} was written by a newer version of Leveret")
        name, vhost, queue, following = fields["name"], fields["vhost"], fields["queue"], fields["next"]
        created, seen, since = fields["created"], fields["seen"], fields.get("since")
        if (
            name == where.rpartition("/")[2]
            and all(each is None or _is_wanted(each) for each in (vhost, queue))
            and is_count(created, _TIME_END)
            and is_count(seen, _TIME_END)
            and (since is None or is_count(since, _TIME_END))
            and _is_next(following)
        ):
            return ReaderFile(name, vhost, queue, created, seen, following, since)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise ReaderFileError(f"{where} is damaged: delete it, and the reader is made again where its query is")


def _is_wanted(wanted: Any) -> bool:
    return is_text(wanted) and len(wanted) <= LIST_MAX and all(len(each) <= _PATTERN_MAX for each in names_in(wanted))


def _is_next(following: Any) -> bool:
    """Return whether a value from JSON has the next numbers of stores. There may be very many."""
    numbers = following.values()
    is_count_each = {*map(type, numbers)} <= {int} and min(numbers, default=0) >= 0
    return (
        is_count_each and max(numbers, default=0) < _NUMBER_END and _STORES.fullmatch(" ".join(following)) is not None
    )


def list_files(files: Files, path: str) -> list[str]:
    """Return the names of the files of readers in a data directory; some may be names that no reader can have."""
    return [name for name in files.list_directory(f"{path}/{READERS}") if not name.endswith(_DRAFT)]
