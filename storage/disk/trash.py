"""Dropped segments, kept for readers: for a while for those about to open them, for named ones until they are read."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from leveret.storage.disk.files import Files

#: More than the size of any file.
_NO_SIZE: Final = 1 << 64


class Content(NamedTuple):
    """What a file has.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        last_seq: Number of its last message.
    """

    qid: int
    priority: int
    last_seq: int


class Hold(NamedTuple):
    """What one reader needs.

    Attributes:
        reader: Name of the reader.
        queues: Numbers of the queues that it reads.
        next: Number of the first message that it has not read, by store: `2/0`; 0 for others.
    """

    reader: str
    queues: frozenset[int]
    next: Mapping[str, int]


class Holds:
    """What all readers need. What it says never changes. `needs()` is called by one thread only.

    Args:
        holds: Of each reader.
        max_bytes: Maximum size of the files that are kept for readers alone.
        keeps_all: Whether everything may be needed, because it is not known yet which queues the readers read.
        since: What was dropped from this time on is needed, in microseconds since 1970; None if nothing is because of
            its time.
    """

    __slots__ = ("_holds", "_keeps_all", "_least", "max_bytes", "since")

    def __init__(
        self, holds: Sequence[Hold] = (), max_bytes: int = 0, keeps_all: bool = False, since: int | None = None
    ) -> None:
        self._holds = holds
        self.since = 0 if keeps_all else since
        self._keeps_all = keeps_all
        #: The first number that some reader has not read, by store; None if nobody reads it. Found when it is needed.
        self._least: dict[tuple[int, int], int | None] = {}
        self.max_bytes = max_bytes

    def needs(self, content: Content | None, dropped: int = 0) -> bool:
        """Return whether a reader has not read a file.

        Args:
            content: What it has; None if it has no messages that readers are promised.
            dropped: When it was dropped, in microseconds since 1970.
        """
        if content is None or self._keeps_all or (self.since is not None and dropped >= self.since):
            return content is not None
        store = content[:2]
        if store not in self._least:
            key = f"{content.qid}/{content.priority}"
            numbers = [each.next.get(key, 0) for each in self._holds if content.qid in each.queues]
            self._least[store] = min(numbers, default=None)
        least = self._least[store]
        return least is not None and content.last_seq >= least

    def unread_bytes(self, files: Iterable[tuple[Content, int]]) -> dict[str, int]:
        """Return how many bytes each reader has not read, by its name.

        Args:
            files: What files have, and their sizes.
        """
        unread: dict[str, int] = {}
        by_store: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for content, size in files:
            by_store.setdefault(content[:2], []).append((-content.last_seq, size))
        for (qid, priority), found in by_store.items():
            found.sort()
            sizes = [0, *accumulate(size for _, size in found)]
            key = f"{qid}/{priority}"
            for hold in self._holds:
                if qid in hold.queues:
                    count = bisect_right(found, (-hold.next.get(key, 0), _NO_SIZE))
                    unread[hold.reader] = unread.get(hold.reader, 0) + sizes[count]
        return unread


NO_HOLDS: Final = Holds()


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
