"""Dropped segments, kept for a while for readers that are about to open them."""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.storage.disk.files import Files

#: Name of the directory for dropped segments in the directory of a store.
NAME: Final = "trash"


class Trash:
    """Moves files to a trash directory and unlinks them later. Used only by the committer's thread.

    Args:
        files: The file system interface.
        keep_us: Retention of a file in microseconds.
        keep_bytes: Maximum total size; the oldest files are unlinked earlier above it.
    """

    __slots__ = ("_bytes", "_files", "_keep_bytes", "_keep_us", "_kept")

    def __init__(self, files: Files, keep_us: int = 60_000_000, keep_bytes: int = 64 << 20) -> None:
        self._files = files
        self._keep_us = keep_us
        self._keep_bytes = keep_bytes
        #: Time, path, size.
        self._kept: deque[tuple[int, str, int]] = deque()
        self._bytes = 0

    def put(self, directory: str, name: str, now: int) -> None:
        """Move a file into its store's trash.

        Args:
            directory: Path of the store's directory.
            name: Name of the file.
            now: Microseconds since 1970.
        Raises:
            FileNotFoundError: The file does not exist.
        """
        source, target = f"{directory}/{name}", f"{directory}/{NAME}"
        size = self._files.size(source)
        if not self._keep_bytes:
            self._files.unlink(source)
            return
        self._files.make_directory(target)
        self._files.rename(source, f"{target}/{name}")
        self._kept.append((now, f"{target}/{name}", size))
        self._bytes += size
        self.expire(now)

    def expire(self, now: int) -> None:
        """Unlink files whose retention has ended."""
        kept = self._kept
        while kept and (kept[0][0] + self._keep_us <= now or self._bytes > self._keep_bytes):
            _, path, size = kept.popleft()
            self._bytes -= size
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                # The queue has been deleted.
                pass
