"""Files that are no longer needed, kept for a while for readers that are about to open them."""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.storage.disk.files import Files

#: Name of the directory, inside that of a store, that dropped segments are moved to.
NAME: Final = "trash"


class Trash:
    """Moves files away and unlinks them later. It is used by one thread, the committer's.

    Args:
        files: The seam to the operating system.
        keep_us: How long a file is kept, in microseconds.
        keep_bytes: The oldest files go earlier while all are longer than this.
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
            directory: The store's.
            name: Of the file.
            now: Microseconds since 1970.
        Raises:
            FileNotFoundError: It is gone.
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
        """Unlink what has been kept long enough."""
        kept = self._kept
        while kept and (kept[0][0] + self._keep_us <= now or self._bytes > self._keep_bytes):
            _, path, size = kept.popleft()
            self._bytes -= size
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                # Its queue has been deleted.
                pass
