"""Options of the storage engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.storage.commit.committer import Copies, SyncMode

_SECOND: Final = 1_000_000
#: Segments that must fit into the free space.
_SEGMENTS_NEEDED: Final = 3


def _at_once(callback: Callable[[], None]) -> None:
    callback()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of a StorageEngine.

    Attributes:
        segment_bytes: Size in bytes at which a segment is sealed.
        event_retention: Retention of events in microseconds; events that no checkpoint covers are always kept.
        trash_us: Retention of dropped segments in microseconds, for readers.
        trash_bytes: Maximum total size of dropped segments; the oldest are removed earlier above it.
        sync: When written data is synced.
        sync_interval: Minimum microseconds between syncs, for SyncMode.INTERVAL.
        redo_segments: Minimum number of segments in a commit group for which the redo log is used; 0 for never.
        redo_bytes: Size in bytes at which a new redo log is started.
        disk_free_limit: Free disk space in bytes below which the alarm is set; see DiskSpace.
        append_files: Maximum number of segments open for appending; a few more during syncs.
        read_files: Maximum number of segments open for reading.
        ballast_bytes: Disk space reserved for writes that must succeed on a full disk; 0 for none.
        reader_max_age: Microseconds after which a named reader that is not seen is dropped.
        reader_max_bytes: Maximum size of the files that are kept for named readers alone.
        when_defined: Calls back once all queues made so far are certain to exist after a crash. The removal events of
            moved messages wait for that, as their copies are in one of these queues.
        copies: Other machines that must have what is synced before anybody is told; None without.
    """

    segment_bytes: int = 16 << 20
    event_retention: int = 7 * 86_400 * _SECOND
    trash_us: int = 60 * _SECOND
    trash_bytes: int = 64 << 20
    sync: SyncMode = SyncMode.ALWAYS
    sync_interval: int = 200_000
    redo_segments: int = 3
    redo_bytes: int = 32 << 20
    disk_free_limit: int = 50_000_000
    append_files: int = 256
    read_files: int = 128
    ballast_bytes: int = 32 << 20
    reader_max_age: int = 86_400 * _SECOND
    reader_max_bytes: int = 1 << 30
    when_defined: Callable[[Callable[[], None]], None] = _at_once
    copies: Copies | None = None

    @property
    def bytes_needed(self) -> int:
        """Bytes that the stores may write before publishers are blocked."""
        return _SEGMENTS_NEEDED * self.segment_bytes + (self.redo_bytes if self.redo_segments else 0)
