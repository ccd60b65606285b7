"""Dropped segments, kept for readers: for a while for those about to open them, for named ones until they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from leveret.storage.disk.files import Files
from leveret.storage.disk.holds import NO_HOLDS, Content, Holds

#: Name of the directory for dropped segments in the directory of a store.
NAME: Final = "trash"


class _Kept(NamedTuple):
    """A file in the trash."""

    time: int
    path: str
    size: int
    content: Content | None


class Trash:
    """Moves files to a trash directory and unlinks them later. Used only by the committer's thread.

    Args:
        keep_us: Retention of a file in microseconds.
        keep_bytes: Maximum total size; the oldest files are unlinked earlier above it.

    Attributes:
        held_bytes: Size of the files that are kept for named readers alone.
        held_files: How many there are.
        held: What they have, and their sizes, when hold() was last called.
        unread_files: How many files were unlinked that a named reader had not read, since the start.
    """

    __slots__ = (
        "_bytes", "_files", "_held", "_holds", "_keep_bytes", "_keep_us", "_kept", "held", "held_bytes", "held_files",
        "unread_files",
    )  # fmt: skip

    def __init__(self, files: Files, keep_us: int = 60_000_000, keep_bytes: int = 64 << 20) -> None:
        self._files = files
        self._keep_us = keep_us
        self._keep_bytes = keep_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        #: Those kept for named readers alone, oldest first.
        self._held: deque[_Kept] = deque()
        self._holds = NO_HOLDS
        self.held_bytes = self.held_files = self.unread_files = 0
        self.held: Sequence[tuple[Content, int]] = ()

    def put(self, directory: str, name: str, now: int, content: Content | None = None) -> None:
        """Move a file into its store's trash.

        Args:
            directory: Path of the store's directory.
            name: Name of the file.
            now: Microseconds since 1970.
            content: What it has that named readers are promised; None for nothing.
        Raises:
            FileNotFoundError: The file does not exist.
        """
        source, target = f"{directory}/{name}", f"{directory}/{NAME}"
        size = self._files.size(source)
        if not self._keep_bytes and not self._holds.needs(content, now):
            self._files.unlink(source)
            return
        self._files.make_directory(target)
        self._files.rename(source, f"{target}/{name}")
        self._kept.append(_Kept(now, f"{target}/{name}", size, content))
        self._bytes += size
        self.expire(now)

    def adopt(self, directory: str, name: str, now: int, content: Content | None) -> bool:
        """Keep a file that an earlier process has put into the trash, if a named reader may need it.

        Args:
            directory: Path of the store's directory.
            name: Name of the file.
            now: Microseconds since 1970.
            content: See put().
        Returns:
            Whether it is kept; otherwise it is unchanged.
        """
        if not self._holds.needs(content, now):
            return False
        path = f"{directory}/{NAME}/{name}"
        self._hold(_Kept(now, path, self._files.size(path), content))
        return True

    def expire(self, now: int) -> None:
        """Unlink files whose retention has ended and that no named reader needs."""
        kept = self._kept
        while kept and (kept[0].time + self._keep_us <= now or self._bytes > self._keep_bytes):
            oldest = kept.popleft()
            self._bytes -= oldest.size
            if self._holds.needs(oldest.content, oldest.time):
                self._hold(oldest)
            else:
                self._unlink(oldest.path)
        self._limit(self._holds.max_bytes)

    def hold(self, holds: Holds) -> None:
        """Set what named readers need, and unlink what they do not need any more.

        Args:
            holds: What they need. What exceeds their bytes goes, the oldest first.
        """
        self._holds = holds
        held, self._held = self._held, deque()
        self.held_bytes = self.held_files = 0
        for each in held:
            if holds.needs(each.content, each.time):
                self._hold(each)
            else:
                self._unlink(each.path)
        self._limit(holds.max_bytes)
        self.held = [(each.content, each.size) for each in self._held if each.content is not None]

    def give_up(self) -> None:
        """Unlink all that is kept for named readers alone now."""
        self._limit(0)

    def _hold(self, file: _Kept) -> None:
        self._held.append(file)
        self.held_bytes += file.size
        self.held_files += 1

    def _limit(self, max_bytes: int) -> None:
        """Unlink the oldest files of named readers above a size."""
        while self._held and self.held_bytes > max_bytes:
            oldest = self._held.popleft()
            self.held_bytes -= oldest.size
            self.held_files -= 1
            self.unread_files += 1
            self._unlink(oldest.path)

    def _unlink(self, path: str) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            # The queue has been deleted.
            pass
