"""What has to be on the disk before some promises may be kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from leveret.storage.commit.redo_log import RedoLog, Tail
from leveret.storage.disk.files import Files

_LOG: Final = logging.getLogger("leveret.storage")
#: Threads that sync in parallel, enough to keep a disk busy.
SYNC_THREADS: Final = 8
_FEW: Final = 2
T = TypeVar("T")


class CommitGroup:
    """Files to sync, what to do with files after that, and whom to tell.

    Attributes:
        data: Handles of segments, synced first; with their ends, where the redo log may take these instead.
        paths: Segments that were closed before they were synced.
        directories: Paths of directories that got new files, synced next.
        journals: Handles of event log and manifests, synced after what they speak of.
        journal_paths: Manifests, which are not open.
        file_actions: Done after the syncs, in the same thread. If one fails that is logged.
        callbacks: Called at the end, in the thread that owns the stores.
    """

    __slots__ = ("callbacks", "data", "directories", "file_actions", "journal_paths", "journals", "paths")

    def __init__(self) -> None:
        self.data: dict[int, Tail | None] = {}
        self.paths: dict[str, None] = {}
        self.directories: dict[str, None] = {}
        self.journals: dict[int, None] = {}
        self.journal_paths: dict[str, None] = {}
        self.file_actions: list[Callable[[], object]] = []
        self.callbacks: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        syncs = self.data or self.paths or self.directories or self.journals or self.journal_paths
        return bool(syncs or self.file_actions or self.callbacks)

    def add_tail(self, handle: int, tail: Tail) -> None:
        """Have the end of a segment synced."""
        data = self.data
        if handle not in data:
            data[handle] = tail
        elif (before := data[handle]) is not None:
            data[handle] = tail._replace(start=before.start)

    def merge(self, later: CommitGroup) -> None:
        """Take in a group that was made after this one."""
        for handle, tail in later.data.items():
            if tail is None:
                self.data[handle] = None
            else:
                self.add_tail(handle, tail)
        self.paths |= later.paths
        self.directories |= later.directories
        self.journals |= later.journals
        self.journal_paths |= later.journal_paths
        self.file_actions += later.file_actions
        self.callbacks += later.callbacks

    def forget_syncs(self) -> None:
        """Leave it to the operating system when things get to the disk."""
        self.data.clear()
        self.paths.clear()
        self.directories.clear()
        self.journals.clear()
        self.journal_paths.clear()

    def sync(self, files: Files, pool: Executor | None = None, redo: RedoLog | None = None) -> None:
        """Sync, then do what is to be done with files.

        Args:
            files: The seam to the operating system.
            pool: Has SYNC_THREADS threads for the syncs of many segments; None to do them here.
            redo: Takes in a little of many segments; None to sync these.
        Raises:
            OSError: A sync failed. What the files hold is no longer known: trying again would prove nothing, as the
                kernel may have dropped what it could not write.
        """
        handles = [*self.data]
        if redo is not None:
            redo.settle_if_due(pool)
            if redo.write({handle: tail for handle, tail in self.data.items() if tail is not None}):
                handles = [handle for handle, tail in self.data.items() if tail is None]
        _share_out(pool, files.fdatasync, handles)
        _share_out(pool, partial(_sync_path, files), [*self.paths])
        _share_out(pool, files.sync_directory, [*self.directories])
        _share_out(None, files.fdatasync, [*self.journals])
        _share_out(pool, partial(_sync_path, files), [*self.journal_paths])
        for action in self.file_actions:
            try:
                action()
            except FileNotFoundError:
                # It has been moved away with its directory.
                pass
            except OSError as error:
                # Nothing depends on it: a file stays that is no longer needed, or an older checkpoint holds.
                _LOG.warning("Could not tidy up the data directory: %s", error)

    def commit(self, files: Files, redo: RedoLog | None = None, pool: Executor | None = None) -> None:
        """Do all of it in this thread, and in those of a pool if there is one."""
        self.sync(files, pool, redo)
        for callback in self.callbacks:
            callback()


def _share_out(pool: Executor | None, action: Callable[[T], None], items: Sequence[T]) -> None:
    """Do the same with all items, in several threads if there are many."""
    if pool is None or len(items) <= _FEW:
        _do_all(action, items)
    else:
        parts = [items[start::SYNC_THREADS] for start in range(min(SYNC_THREADS, len(items)))]
        for doing in [pool.submit(_do_all, action, part) for part in parts]:
            doing.result()


def _do_all(action: Callable[[T], None], items: Sequence[T]) -> None:
    for item in items:
        action(item)


def _sync_path(files: Files, path: str) -> None:
    try:
        handle = files.open(path)
    except FileNotFoundError:
        # Nothing in it lives any more.
        return
    try:
        files.fdatasync(handle)
    finally:
        files.close(handle)
