"""What a reader remembers that takes one snapshot of a data directory after another: only what is new is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from leveret.storage.directory.queue_names import DELETED_FILE, QueueName, read_deleted_names, read_queue_names
from leveret.storage.disk.files import Files
from leveret.storage.event_log import EventPosition
from leveret.storage.recovery.checkpoint import Checkpoint
from leveret.storage.snapshots.cut import Cut
from leveret.storage.snapshots.dead import DeadAtCut, base_of, dead_at, read_on


class FileState(NamedTuple):
    """What changes when a file or a directory is changed.

    Attributes:
        inode: Its number.
        size: Its size in bytes.
        changed: When it was last changed, in nanoseconds since 1970 as the file system counts them.
    """

    inode: int
    size: int
    changed: int


def file_state(path: str) -> FileState | None:
    """Return the state of a file or directory; None if it does not exist or cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns)


class SnapshotMemory:
    """Remembers what snapshots of one data directory have read that seldom changes. The directory is a local one."""

    def __init__(self) -> None:
        self._names: dict[int, QueueName] = {}
        self._deleted: tuple[FileState | None, dict[int, QueueName]] | None = None
        self._checkpoints: tuple[object, list[Checkpoint]] | None = None
        #: What was dead at a position, found from a checkpoint.
        self._dead: DeadAtCut | None = None
        self._base: EventPosition | None = None
        self._position = EventPosition(0, 0)

    def names(self, files: Files, path: str) -> dict[int, QueueName]:
        """Return read_queue_names() of a data directory."""
        self._names = read_queue_names(files, path, self._names)
        return self._names

    def deleted_names(self, files: Files, path: str) -> dict[int, QueueName]:
        """Return read_deleted_names() of a data directory."""
        state = file_state(f"{path}/events/{DELETED_FILE}")
        if self._deleted is None or self._deleted[0] != state:
            self._deleted = state, read_deleted_names(files, path)
        return self._deleted[1]

    def checkpoints(self, files: Files, path: str, read: Callable[[], list[Checkpoint]]) -> list[Checkpoint]:
        """Return the checkpoints of a data directory without their stores.

        Args:
            read: Reads them.
        """
        directory = f"{path}/ckpt"
        # Each is written under a name of its own.
        state = [(name, file_state(f"{directory}/{name}")) for name in files.list_directory(directory)]
        if self._checkpoints is None or self._checkpoints[0] != state:
            self._checkpoints = state, [each._replace(stores={}) for each in read()]
        return self._checkpoints[1]

    def dead_at(
        self, files: Files, directory: str, store_id: bytes, cut: Cut, read: Callable[[], list[Checkpoint]]
    ) -> DeadAtCut:
        """Return what was dead at a cut; the next call may change it.

        Args:
            directory: Path of the event log.
            store_id: ID of the data directory.
            cut: The cut.
            read: Reads the checkpoints.
        """
        base = base_of(self._checkpoints[1], cut) if self._checkpoints is not None else None
        position = base.position if base is not None else None
        if self._dead is None or position != self._base or not self._position <= cut.position:
            self._dead = None
            checkpoints = read()
            whole = base_of(checkpoints, cut)
            dead = dead_at(files, directory, store_id, cut, checkpoints)
            if whole is None or whole.position > cut.position:
                return dead
            self._dead, self._base, self._position = dead, whole.position, cut.position
        else:
            dead, self._dead = self._dead, None
            read_on(dead, files, directory, store_id, self._position, cut)
            self._dead, self._position = dead, cut.position
        return self._dead
