"""What can be set of a storage engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leveret.storage.commit.committer import SyncMode

_SECOND: Final = 1_000_000
#: Segments for which the stores need room.
_SEGMENTS_NEEDED: Final = 3


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What can be set.

    Attributes:
        segment_bytes: A segment takes no further record once it is so long.
        event_retention: Microseconds that events are kept, at least until a checkpoint covers them.
        trash_us: Microseconds that segments are kept after they have been dropped, for readers.
        trash_bytes: The oldest of them go earlier while all are longer than this.
        sync: When what was written is synced.
        sync_interval: Microseconds between syncs at least, for SyncMode.INTERVAL.
        redo_segments: Segments in a commit group from which on the redo log is used; 0 for never.
        redo_bytes: The redo log is begun again once it is so long.
        disk_free_limit: Bytes of the disk that ought to be free; see DiskSpace.
        append_files: Segments that are open for appending at most; a few more while they are synced.
        read_files: Segments that are open for reading at most.
        ballast_bytes: Room kept in reserve for what must be written even when the disk is full; 0 for none.
        holds_moved: Tells whether the events of messages that live on elsewhere are to be kept for now: the queue they
            were moved to may not be there after a crash.
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
    holds_moved: Callable[[], bool] = _never

    @property
    def bytes_needed(self) -> int:
        """Bytes that the stores may need before anyone can hold up those who publish."""
        return _SEGMENTS_NEEDED * self.segment_bytes + (self.redo_bytes if self.redo_segments else 0)
