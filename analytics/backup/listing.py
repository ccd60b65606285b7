"""Which backups there are, for people and for the broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leveret.analytics.backup.layout import BackupError, BackupName
from leveret.analytics.backup.repository import Repository


class Row(NamedTuple):
    """A whole backup.

    Attributes:
        time: Its moment, in microseconds since 1970.
        until: The last moment that can be restored from it and what was sent before the next one; its own if none.
        files: Number of its files; None if its manifest is damaged.
        bytes: Their size.
        sent: Bytes that were sent for it; None if an earlier version has taken it.
        seconds: How long it took.
    """

    time: int
    until: int
    files: int | None
    bytes: int | None
    sent: int | None
    seconds: float | None


class Listing:
    """The whole backups of a repository. Reads the manifest of each one once.

    Args:
        repository: The repository.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._known: dict[BackupName, Row] = {}

    def rows(self, backups: Iterable[BackupName]) -> list[Row]:
        """Return a row for each whole backup.

        Args:
            backups: All backups, in order.
        Raises:
            ArchiveError: A manifest cannot be read.
        """
        found: list[Row] = []
        last = 0
        there = list(backups)
        self._known = {name: row for name, row in self._known.items() if name in there}
        for name in there:
            if name.is_full:
                if name not in self._known:
                    self._known[name] = self._read(name)
                found.append(self._known[name])
            elif found and name.number == last + 1:
                found[-1] = found[-1]._replace(until=name.time)
            last = name.number
        return found

    def _read(self, name: BackupName) -> Row:
        try:
            manifest = self._repository.read_manifest(name)
        except BackupError:
            return Row(name.time, name.time, None, None, None, None)
        files = [file.size for file in manifest.files.values() if file is not None]
        about = manifest.about
        return Row(name.time, name.time, len(files), sum(files), about.get("sent"), about.get("seconds"))
