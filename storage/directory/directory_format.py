"""The file FORMAT of a data directory, and upgrades to the current format, one format version at a time.

FORMAT has the format version and the oldest version that can read it. A migration yields the changed files. Their old
contents are first copied to `backup/format-N/`. The new contents are prepared in a directory of their own. Then a
journal is written atomically, which commits the upgrade. After a crash before the journal, the directory is unchanged.
After a crash later on, the next start completes the upgrade by copying the prepared files again. FORMAT is replaced
first, so that an older version refuses a partly upgraded directory.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from leveret.storage.disk.files import Files, replace_file
from leveret.storage.format import FORMAT_VERSION, pack_checked, unpack_checked

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


_LOG: Final = logging.getLogger("leveret.storage")

_JOURNAL: Final = "UPGRADE"
_PREPARED: Final = "upgrade"
_BACKUP: Final = "backup"

#: Path of a file in the data directory and its new contents; None to remove it.
Change: TypeAlias = "tuple[str, bytes | None]"


class UpgradeError(Exception):
    """The data directory cannot be upgraded; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Changes from one format to the next.

    Attributes:
        summary: Short description for the log.
        changes: Yields the changes, each file once. Called with the file system interface and the data directory's
            path; it must only read.
    """

    summary: str
    changes: Callable[[Files, str], Iterator[Change]]


#: Migrations by the format that they start from. A new format needs an entry here and a golden directory in the tests.
MIGRATIONS: Final[Mapping[int, Migration]] = {}


def complete_upgrade(files: Files, path: str) -> bool:
    """Complete an interrupted upgrade, or discard one that was not committed.

    Args:
        path: The data directory, locked.

    Returns:
        Whether an upgrade was completed.

    Raises:
        UpgradeError: The journal is damaged.
        OSError: It could not be completed.
    """
    octets = files.read_all(f"{path}/{_JOURNAL}")
    if octets is not None:
        _put_in_place(files, path, _unpack(path, octets))
    if files.list_directory(f"{path}/{_PREPARED}"):
        files.remove_tree(f"{path}/{_PREPARED}")
    return octets is not None


def upgrade(
    files: Files, path: str, found: DirectoryFormat, target: int, migrations: Mapping[int, Migration] = MIGRATIONS
) -> None:
    """Upgrade a data directory.

    Args:
        path: The data directory, locked; complete_upgrade() has been called.
        found: Current format.
        target: Format version to upgrade to.
        migrations: Migrations by the format that they start from.

    Raises:
        UpgradeError: A migration is missing.
        OSError: It failed, for example for lack of space; the directory has the old or an intermediate format.
    """
    missing = [number for number in range(found.format, target) if number not in migrations]
    if missing:
        raise UpgradeError(
            f"{path} has format {found.format}, which this version cannot upgrade to format {target}; start an"
            " intermediate version on it first"
        )
    for number in range(found.format, target):
        migration = migrations[number]
        _LOG.warning(
            "upgrading %s from format %d to %d (%s); a backup of changed files is in %s",
            *(path, number, number + 1, migration.summary, _backup(path, number)),
        )
        _prepare(files, path, number, migration, pack_format(found.store_id, found.created, number + 1))
        complete_upgrade(files, path)


def _prepare(files: Files, path: str, number: int, migration: Migration, new_format: bytes) -> None:
    """Back up the changed files, write their new contents and the journal."""
    prepared = f"{path}/{_PREPARED}"
    files.make_directory(prepared)
    placed: list[list[str | None]] = []
    for name, contents in _all_changes(files, path, migration, new_format):
        _copy(files, path, number, name)
        draft = None
        if contents is not None:
            draft = f"{len(placed):08d}"
            replace_file(files, prepared, draft, contents)
        placed.append([name, draft])
    _sync_parents(files, path, [_PREPARED, _BACKUP])
    replace_file(files, path, _JOURNAL, pack_checked({"from": number, "changes": placed}))


def _all_changes(files: Files, path: str, migration: Migration, new_format: bytes) -> Iterator[Change]:
    yield FORMAT_FILE, new_format
    yield from migration.changes(files, path)


def _copy(files: Files, path: str, number: int, name: str) -> None:
    """Back up a file."""
    contents = files.read_all(f"{path}/{name}")
    if contents is None:
        return
    folder, _, base = f"{_backup(path, number)}/{name}".rpartition("/")
    files.make_directory(folder)
    replace_file(files, folder, base, contents)
    _sync_parents(files, path, [folder.removeprefix(f"{path}/")])


def _put_in_place(files: Files, path: str, changes: list[list[str | None]]) -> None:
    """Apply the journal. It may have been applied partly before."""
    for name, draft in changes:
        assert name is not None
        folder, _, base = f"{path}/{name}".rpartition("/")
        if draft is not None:
            contents = files.read_all(f"{path}/{_PREPARED}/{draft}")
            if contents is None:
                raise UpgradeError(f"{path}/{_PREPARED}/{draft} is missing; restore the directory from a backup")
            files.make_directory(folder)
            replace_file(files, folder, base, contents)
            _sync_parents(files, path, [folder.removeprefix(path).strip("/")])
        elif base in files.list_directory(folder):
            files.unlink(f"{folder}/{base}")
            files.sync_directory(folder)
    files.unlink(f"{path}/{_JOURNAL}")
    files.sync_directory(path)


def _sync_parents(files: Files, path: str, folders: list[str]) -> None:
    """Sync the parents of directories that may be new, up to the data directory."""
    for folder in folders:
        while folder:
            folder = folder.rpartition("/")[0]
            files.sync_directory(f"{path}/{folder}" if folder else path)


def _backup(path: str, number: int) -> str:
    return f"{path}/{_BACKUP}/format-{number}"


def _unpack(path: str, octets: bytes) -> list[list[str | None]]:
    try:
        changes: list[list[str | None]] = unpack_checked(octets)["changes"]
    except (ValueError, KeyError) as error:
        raise UpgradeError(f"{path}/{_JOURNAL} is damaged; restore the directory from a backup") from error
    return changes
