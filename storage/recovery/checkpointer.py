"""Writes checkpoints when they are due, and removes old event log files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Final

from leveret.storage.commit import CommitGroup
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.directory.queue_names import forget_deleted
from leveret.storage.disk.files import Files
from leveret.storage.event_format import details_name
from leveret.storage.event_log import EventLog, EventPosition, details_files, event_files, file_name
from leveret.storage.recovery.checkpoint import Checkpoint, StoreCheckpoint, pack_checkpoint, write_checkpoint
from leveret.storage.stores.segment_store import SegmentStore

#: A checkpoint is due after this many bytes of events, this many microseconds with changes, or a new file of events.
_BYTES: Final = 16 << 20
_PAUSE_US: Final = 60_000_000


class Checkpointer:
    """Writes the checkpoints of a data directory.

    Args:
        retention: Minimum retention of events in microseconds.
        clock: Microseconds since 1970.
    """

    def __init__(
        self, files: Files, directory: DataDirectory, events: EventLog, retention: int, clock: Callable[[], int]
    ) -> None:
        self._files = files
        self._directory = directory
        self._events = events
        self._retention = retention
        #: Events are kept at least as long for named readers, in microseconds.
        self.reader_retention = 0
        self._clock = clock
        self._appended = 0
        self._when = clock()
        #: Bytes of checkpoints written since the start.
        self.written = 0
        #: The newest file of the event log that a checkpoint names, or that was there at the start.
        self._file = events.position.file
        #: Events in files before this one are covered by both existing checkpoints.
        self._covered = 0

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due."""
        if self._events.position.file != self._file:
            # Recovery can say that a file is missing if a checkpoint names it.
            return True
        more = self._events.appended - self._appended
        return more >= _BYTES or (more > 0 and self._clock() - self._when >= _PAUSE_US)

    def add(self, group: CommitGroup, stores: Iterable[tuple[int, int, SegmentStore]], clean: bool) -> None:
        """Add a checkpoint to a commit group.

        Args:
            group: The group.
            stores: All stores as (queue number, priority, store).
            clean: Whether this is the last write before a clean shutdown.
        """
        directory, events, now = self._directory, self._events, self._clock()
        found = {
            (qid, priority): StoreCheckpoint(
                qid,
                priority,
                store.log.dead,
                store.next_seq,
                store.cursor.redelivered_below,
                _known_count(store),
                store.ready_bytes + store.taken_bytes + store.leaving.body_bytes,
            )
            for qid, priority, store in stores
        }
        position = events.position
        octets = pack_checkpoint(Checkpoint(clean, directory.store_id, position, now, directory.next_qid, found))
        events.collect(group)
        group.file_actions.append(partial(self._write, octets, position, now))
        self._appended, self._when, self._file = events.appended, now, position.file

    def _write(self, octets: bytes, position: EventPosition, now: int) -> None:
        """Write a checkpoint and remove event log files that are no longer needed."""
        write_checkpoint(self._files, self._directory.checkpoints, octets)
        self.written += len(octets)
        covered, self._covered = self._covered, position.file
        oldest = 0
        for file, following in pairwise(event_files(self._files, self._directory.events)):
            # Its events are older than the start of the following file.
            if file < covered and following < now - max(self._retention, self.reader_retention):
                self._files.unlink(f"{self._directory.events}/{file_name(file)}")
                oldest = following
        if oldest:
            for file in details_files(self._files, self._directory.events):
                if file < oldest:
                    self._files.unlink(f"{self._directory.events}/{details_name(file)}")
            forget_deleted(self._files, self._directory.events, oldest)


def _known_count(store: SegmentStore) -> int:
    """Return the number of messages; 0 if some could not be read: the next start measures their lengths."""
    if store.lost_count or store.aside_count:
        return 0
    return store.ready_count + store.taken_count + store.leaving.count
