"""What a repository has: which backups there are, which are whole, and which are not to be kept any longer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from leveret.analytics.backup.layout import BackupError, BackupName, StoredFile
from leveret.analytics.backup.moments import shown_time
from leveret.analytics.backup.repository import Repository
from leveret.analytics.errors import OptionError
from leveret.protocol.units import parse_duration


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
    checked: set[str] = set()
    bad: set[str] = set()
    size = 0
    whole: list[BackupName] = []
    damage: list[str] = []
    #: The files of the backup before.
    files: dict[str, StoredFile] = {}
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
        manifest.apply(files)
        for path, file in manifest.stored():
            for part, length in file.parts:
                if part not in checked:
                    checked.add(part)
                    size += length
                    try:
                        repository.get(part, length)
                    except BackupError as error:
                        bad.add(part)
                        damage.append(f"{error}, which has a part of {path} of {shown_time(name.time)}")
        if not is_broken and not any(part in bad for file in files.values() for part, _ in file.parts):
            whole.append(name)
    return Verified(backups, whole, len(checked), size, damage)


class Keep(NamedTuple):
    """How long backups are kept.

    Attributes:
        all_us: Microseconds for which all are kept.
        daily_us: Microseconds for which the first one of each day is kept.
    """

    all_us: int
    daily_us: int


def parse_keep(text: str) -> Keep:
    """Parse how long backups are kept: ``24h,30d`` keeps all for 24 hours, and the first of each day for 30 days.

    Raises:
        OptionError: It is not of this form.
    """
    parts = [each.strip() for each in text.split(",")]
    if not 1 <= len(parts) <= 2:
        raise OptionError(f"'{text}' does not say how long backups are kept; write 24h,30d")
    spans = [int(read_duration(each) * 1_000_000) for each in parts]
    return Keep(spans[0], spans[-1])


def read_duration(text: str) -> float:
    """Read a duration such as ``90``, ``15m``, ``24h`` or ``30d``; return seconds.

    Raises:
        OptionError: It is no duration, or 0.
    """
    with suppress(ValueError):
        if seconds := float(parse_duration(text)):
            return seconds
    raise OptionError(f"'{text}' is not a duration; write seconds, or 15m, 24h or 30d")


def superfluous(backups: list[BackupName], keep: Keep, now: int) -> list[BackupName]:
    """Return the backups that need not be kept: older ones but the first full one of each day, and never the newest.

    Args:
        backups: All backups in order.
        keep: How long they are kept.
        now: Microseconds since 1970.
    """
    fulls = [each for each in backups if each.is_full]
    # What is kept whole begins with a full backup, on which the later ones build.
    since = max((each.number for each in fulls if each.time <= now - keep.all_us), default=0)
    last_full = max((each.number for each in fulls), default=0)
    days: dict[object, BackupName] = {}
    for each in fulls:
        if each.time > now - keep.daily_us:
            days.setdefault(datetime.fromtimestamp(each.time // 1_000_000, UTC).date(), each)
    kept = set(days.values())
    return [each for each in backups if each.number < min(since, last_full) and each not in kept]


def clean_up(repository: Repository, keep: Keep, now: int, check: Callable[[], object] = lambda: None) -> int:
    """Delete superfluous backups and the objects that none needs; return how many backups were deleted.

    Args:
        repository: The repository, to which nobody else writes.
        keep: How long backups are kept.
        now: Microseconds since 1970.
        check: Raises an exception if somebody else writes to it.
    Raises:
        AnalyticsError: Something could not be read or deleted; what is left is deleted the next time.
    """
    gone = superfluous(repository.backups(), keep, now)
    if not gone:
        return 0
    check()
    # A backup that builds on another one is deleted before it.
    repository.delete(reversed(gone))
    kept: set[str] = set()
    for name in repository.backups():
        for _, file in repository.read_manifest(name).stored():
            kept.update(part for part, _ in file.parts)
    repository.delete_objects(kept, check)
    return len(gone)
