"""Deletes backups that are not to be kept any longer, and what only they needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from leveret.analytics.backup.layout import BackupName
from leveret.analytics.backup.repository import Repository
from leveret.analytics.errors import OptionError
from leveret.protocol.units import parse_duration


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
