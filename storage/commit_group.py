"""What has to be on the disk before some promises may be kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from storage.files import Files

_LOG: Final = logging.getLogger(__name__)


class CommitGroup:
    """Files to sync, what to do with files after that, and whom to tell.

    Attributes:
        data: Handles of segments, synced first.
        directories: Paths of directories that got new files, synced next.
        journals: Handles of event log and manifests, synced after what they speak of.
        file_actions: Done after the syncs, in the same thread. If one fails that is logged.
        callbacks: Called at the end, in the thread that owns the stores.
    """

    __slots__ = ("callbacks", "data", "directories", "file_actions", "journals")

    def __init__(self) -> None:
        self.data: dict[int, None] = {}
        self.directories: dict[str, None] = {}
        self.journals: dict[int, None] = {}
        self.file_actions: list[Callable[[], None]] = []
        self.callbacks: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self.data or self.directories or self.journals or self.file_actions or self.callbacks)

    def merge(self, later: CommitGroup) -> None:
        """Take in a group that was made after this one."""
        self.data |= later.data
        self.directories |= later.directories
        self.journals |= later.journals
        self.file_actions += later.file_actions
        self.callbacks += later.callbacks

    def sync(self, files: Files) -> None:
        """Sync, then do what is to be done with files.

        Raises:
            OSError: A sync failed. What the files hold is no longer known: trying again would prove nothing, as the
                kernel may have dropped what it could not write.
        """
        for handle in self.data:
            files.fdatasync(handle)
        for directory in self.directories:
            files.sync_directory(directory)
        for handle in self.journals:
            files.fdatasync(handle)
        for action in self.file_actions:
            try:
                action()
            except FileNotFoundError:
                # It has been moved away with its directory.
                pass
            except OSError as error:
                # Nothing depends on it: a file stays that is no longer needed, or an older checkpoint holds.
                _LOG.warning("Could not tidy up the data directory: %s", error)

    def commit(self, files: Files) -> None:
        """Do all of it in this thread."""
        self.sync(files)
        for callback in self.callbacks:
            callback()
