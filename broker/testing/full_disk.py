"""A disk that a test can fill."""

from __future__ import annotations

import errno
import os
from typing import Protocol

from leveret.storage.disk.files import DiskFiles, UnsyncedFiles


class FillableDisk(Protocol):
    """The file system of a broker inside a test."""

    def fill(self) -> None:
        """Leave no space: nothing can be written from now on."""

    def make_room(self) -> None:
        """Let everything be written again."""


class _Fillable(DiskFiles):
    """Files on a disk that can be full; see FillableDisk."""

    def __init__(self) -> None:
        super().__init__()
        self._is_full = False

    def fill(self) -> None:
        """Leave no space: nothing can be written from now on."""
        self._is_full = True

    def make_room(self) -> None:
        """Let everything be written again."""
        self._is_full = False

    def append(self, handle: int, octets: bytes) -> int:
        """Append to a file, unless the disk is full."""
        self._check_room()
        return super().append(handle, octets)

    def allocate(self, handle: int, size: int) -> None:
        """Allocate disk space, unless there is none."""
        self._check_room()
        super().allocate(handle, size)

    def free_space(self, path: str) -> int:
        """Return the free space in bytes, 0 if the disk is full."""
        return 0 if self._is_full else super().free_space(path)

    def _check_room(self) -> None:
        if self._is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FillableFiles(_Fillable, DiskFiles):
    """Files that are synced."""


class FillableUnsyncedFiles(_Fillable, UnsyncedFiles):
    """Files of a directory that is removed before a loss of power could matter."""
