"""The files of one moment in a backup, as a data directory of which snapshots can be taken."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from leveret.analytics.backup.layout import (
    DEFINITIONS,
    DELETED,
    LATER_DEFINITIONS,
    BackupError,
    BackupName,
    BackupRefusedError,
    StoredFile,
)
from leveret.analytics.backup.repository import Repository
from leveret.analytics.data_files import LocalFiles

#: Microseconds to which moments are rounded up when they are shown.
_SHOWN_US: Final = 1000
#: Path of the data directory in a BackupFiles.
ROOT: Final = "backup"


class BackupFiles(LocalFiles):
    """Read-only access to the files of a backup, below ROOT.

    Args:
        repository: The repository.
        files: The files by path.
    """

    def __init__(self, repository: Repository, files: Mapping[str, StoredFile]) -> None:
        super().__init__()
        self._repository = repository
        self._files = files
        self._directories: dict[str, set[str]] = {}
        for path in files:
            name = path
            while name:
                name, _, last = name.rpartition("/")
                self._directories.setdefault(name, set()).add(last)

    def read_all(self, path: str) -> bytes | None:
        """Return the contents of a file; None if it does not exist.

        Raises:
            OSError: It cannot be read, or is damaged.
        """
        file = self._files.get(_inside(path))
        if file is None:
            return None
        try:
            return self._repository.read(file)
        except BackupError as error:
            raise OSError(errno.EIO, f"{_inside(path)}: {error}") from error

    def read_foreign(self, path: str, limit: int) -> bytes | None:
        """Return the contents of a file; None if it does not exist."""
        return self.read_all(path)

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Return a range of a file; shorter if the file ends earlier."""
        self.size(path)
        return (self.read_all(path) or b"")[start : start + size]

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        file = self._files.get(_inside(path))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file.size

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it does not exist."""
        return sorted(self._directories.get(_inside(path), ()))


class Moment:
    """What a backup has of one moment.

    Args:
        repository: The repository.
        at: Microseconds since 1970; None for the newest backup.
    Attributes:
        time: The moment, in microseconds since 1970.
        files: The files of the backups before and after it.
        is_backup: Whether a backup was taken at that moment, so that nothing has to be derived.
        newest_files: The files of the newest backup, which has the highest numbers that were given.
    Raises:
        BackupRefusedError: There is no backup, or none of that time.
        AnalyticsError: It is damaged or cannot be read.
    """

    def __init__(self, repository: Repository, at: int | None) -> None:
        backups = repository.require_backups()
        before = [each for each in backups if at is None or each.time <= at]
        following = [each for each in backups if at is not None and each.time >= at]
        if before and at is not None and at - before[-1].time < _SHOWN_US:
            # Times are shown in milliseconds.
            at = before[-1].time
        is_between = before and following and following[0].number <= before[-1].number + 1
        if not before or not (at is None or before[-1].time == at or is_between):
            raise BackupRefusedError(
                f"{repository.shown} has no backup of {shown_time(at or 0)}; it has {spans_text(backups)}"
            )
        self.time = before[-1].time if at is None else at
        self.is_backup = before[-1].time == self.time
        base = repository.files_at(before[-1])
        later = base if self.is_backup else repository.files_at(following[0])
        self.newest_files = BackupFiles(
            repository, base if self.is_backup and at is None else repository.files_at(backups[-1])
        )
        names = before[-1:] if self.is_backup else [before[-1], following[0]]
        #: Definitions that were read since the backup before the last one, by time.
        self._noted = [each for name in names for each in repository.read_manifest(name).definitions]
        self._later_definitions = later.get(LATER_DEFINITIONS, later.get(DEFINITIONS))
        # Those of a backup are read before its queues, but may be from after its tick.
        is_first = len(before) == 1 or before[-2].number != before[-1].number - 1
        self._earlier_definitions = (base if is_first else repository.files_at(before[-2])).get(DEFINITIONS)
        if base.get(DEFINITIONS) is None:
            raise BackupError(f"{repository.shown}/{before[-1].path} has no definitions")
        deleted = {} if self.is_backup else _below(later, f"{DELETED}/")
        # Checkpoints after the moment help nothing if there are those before it, and cost much to undo.
        after = {path: file for path, file in later.items() if not path.startswith("ckpt/")}
        self.files = BackupFiles(
            repository,
            {path: file for path, file in (base | after).items() if not path.startswith(f"{DELETED}/")} | deleted,
        )

    def definitions_at(self, cut_time: int) -> list[StoredFile]:
        """Return the last definitions before the cut of a snapshot, and what was read after it, in order.

        Args:
            cut_time: Microseconds since 1970, up to a tick earlier than the moment.
        """
        before, found = self._earlier_definitions, []
        for time_us, file in self._noted:
            if time_us <= cut_time:
                before = file
            else:
                found.append(file)
        return [each for each in (before, *found, self._later_definitions) if each is not None]


def _below(files: Mapping[str, StoredFile], directory: str) -> dict[str, StoredFile]:
    """Return the files below a directory, by their path there."""
    return {path.removeprefix(directory): file for path, file in files.items() if path.startswith(directory)}


def spans(backups: Iterable[BackupName]) -> list[tuple[int, int]]:
    """Return which times can be restored, as first and last moments: from backup to backup, as long as none is gone."""
    found: list[tuple[int, int]] = []
    number = -1
    for each in backups:
        if each.number == number + 1:
            found[-1] = found[-1][0], each.time
        else:
            found.append((each.time, each.time))
        number = each.number
    return found


def spans_text(backups: Iterable[BackupName]) -> str:
    """Return which times can be restored, for people."""
    found = spans(backups)
    texts = [
        f"any time from {shown_time(first)} to {shown_time(last - _SHOWN_US)}" for first, last in found if first < last
    ]
    single = [shown_time(first) for first, last in found if first == last]
    return ", ".join(texts + single)


def shown_time(time_us: int) -> str:
    """Return a time for people, which parse_time() reads, rounded up to a millisecond: a backup has that moment."""
    ms = -(-time_us // 1000)
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def age_text(time_us: int) -> str:
    """Return how long ago a time is."""
    seconds = max(0, int(time.time() - time_us / 1e6))
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s"


def _inside(path: str) -> str:
    return path.removeprefix(ROOT).lstrip("/")
