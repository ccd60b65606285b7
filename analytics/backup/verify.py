"""Reads all of a backup, and says what is damaged and what can be restored."""

from __future__ import annotations

from typing import NamedTuple

from leveret.analytics.backup.layout import BackupError, BackupName, object_path
from leveret.analytics.backup.moments import shown_time
from leveret.analytics.backup.repository import Repository


class Verified(NamedTuple):
    """The result of a verification.

    Attributes:
        backups: The backups, in order.
        whole: Those of which nothing is damaged.
        objects: Number of objects that were read.
        bytes: Their size.
        damage: A line for each manifest and object that is damaged, with the first backup and file that need it.
    """

    backups: list[BackupName]
    whole: list[BackupName]
    objects: int
    bytes: int
    damage: list[str]


def verify(repository: Repository) -> Verified:
    """Read all manifests and objects of a repository.

    Raises:
        BackupRefusedError: There is no backup.
        AnalyticsError: It cannot be read.
    """
    backups = repository.require_backups()
    checked: dict[str, str | None] = {}
    size = 0
    whole: list[BackupName] = []
    damage: list[str] = []
    #: Names of the objects of each file, as of the backup before.
    files: dict[str, tuple[tuple[str, int], ...]] = {}
    is_broken = True
    for name in backups:
        try:
            manifest = repository.read_manifest(name)
        except BackupError as error:
            damage.append(str(error))
            is_broken = True
            continue
        if name.is_full:
            files, is_broken = {}, False
        for path, file in manifest.files.items():
            if file is None:
                files.pop(path, None)
            else:
                files[path] = file.parts
        for path, file in manifest.stored():
            for part, length in file.parts:
                if part not in checked:
                    checked[part] = _damage_of(repository, part, length)
                    size += length
                    if checked[part]:
                        damage.append(f"{checked[part]}, which has a part of {path} of {shown_time(name.time)}")
        if not is_broken and not any(checked[part] for parts in files.values() for part, _ in parts):
            whole.append(name)
    return Verified(backups, whole, len(checked), size, damage)


def _damage_of(repository: Repository, part: str, length: int) -> str | None:
    try:
        repository.get(part, length)
    except BackupError:
        return f"{repository.shown}/{object_path(part)} is damaged or missing"
    return None
