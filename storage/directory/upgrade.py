"""Brings a data directory from an older format to the current one, one format after the other.

A migration says which files change and how. Their old contents are copied to `backup/format-N/` first, the new ones are
written beside them, and a journal, put in place in one step, says that they count from then on. A crash before that
leaves the old directory, one after it a directory whose upgrade the next start completes: contents are copied into
place from where they were prepared, as often as it takes. FORMAT comes first among them, so that an older version
refuses what is half done.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leveret.storage.directory.checked_json import crc_of, pack_checked
from leveret.storage.directory.directory_format import FORMAT_FILE, DirectoryFormat, pack_format
from leveret.storage.disk.files import Files, replace_file

_LOG: Final = logging.getLogger("leveret.storage")

_JOURNAL: Final = "UPGRADE"
_PREPARED: Final = "upgrade"
_BACKUP: Final = "backup"

#: A file's path in the data directory, and its new contents; None to remove it.
Change: TypeAlias = "tuple[str, bytes | None]"


class UpgradeError(Exception):
    """The data directory cannot be upgraded; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What is different in the next format.

    Attributes:
        summary: In a few words, for the log.
        changes: Yields the changes, each file once; takes the files and the data directory's path. It only reads.
    """

    summary: str
    changes: Callable[[Files, str], Iterator[Change]]


#: By the format that they start from. A new format needs one here, and a directory of the old one in the tests.
MIGRATIONS: Final[Mapping[int, Migration]] = {}


def complete(files: Files, path: str) -> bool:
    """Complete an upgrade that a crash has interrupted, or forget one that had not begun to count.

    Args:
        files: The seam to the operating system.
        path: The data directory, locked.

    Returns:
        Whether there was something to complete.

    Raises:
        UpgradeError: The journal is damaged.
        OSError: It could not be done.
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
        files: The seam to the operating system.
        path: The data directory, locked; complete() has been called.
        found: Its format.
        target: The format to reach.
        migrations: By the format that they start from.

    Raises:
        UpgradeError: There is no way from its format to the target.
        OSError: It could not be done, for want of room for example; the directory has a format that it had before.
    """
    missing = [number for number in range(found.format, target) if number not in migrations]
    if missing:
        raise UpgradeError(
            f"{path} is of format {found.format}, which this version cannot bring to format {target}; start a"
            " version in between on it first"
        )
    for number in range(found.format, target):
        migration = migrations[number]
        _LOG.warning(
            "upgrading %s from format %d to %d (%s); what changes is kept in %s",
            *(path, number, number + 1, migration.summary, _backup(path, number)),
        )
        _prepare(files, path, number, migration, pack_format(found.store_id, found.created, number + 1))
        complete(files, path)


def _prepare(files: Files, path: str, number: int, migration: Migration, new_format: bytes) -> None:
    """Copy what changes, write what comes instead, and the journal."""
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
    """Keep the contents of a file that is going to change."""
    contents = files.read_all(f"{path}/{name}")
    if contents is None:
        return
    folder, _, base = f"{_backup(path, number)}/{name}".rpartition("/")
    files.make_directory(folder)
    replace_file(files, folder, base, contents)
    _sync_parents(files, path, [folder.removeprefix(f"{path}/")])


def _put_in_place(files: Files, path: str, changes: list[list[str | None]]) -> None:
    """Do what the journal says, also if a part of it has been done; then it has been done."""
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
    """Have the names of directories that may be new on the disk, from each of them up to the data directory."""
    for folder in folders:
        while folder:
            folder = folder.rpartition("/")[0]
            files.sync_directory(f"{path}/{folder}" if folder else path)


def _backup(path: str, number: int) -> str:
    return f"{path}/{_BACKUP}/format-{number}"


def _unpack(path: str, octets: bytes) -> list[list[str | None]]:
    try:
        fields: dict[str, Any] = json.loads(octets)
        if fields.pop("crc") == crc_of(fields):
            changes: list[list[str | None]] = fields["changes"]
            return changes
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UpgradeError(f"{path}/{_JOURNAL} is damaged; restore the directory from a backup")
