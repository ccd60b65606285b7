"""Files that record what they change, as numbered operations that another machine can repeat.

An operation is recorded when it has been done, but a sync when it begins: both disks sync at the same time. Operations
that follow one another have ascending numbers, whichever threads do them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from leveret.storage.disk.files import BALLAST, DiskFiles

#: What belongs to one machine: lock, reserve, snapshots, files of readers, and what replication needs here.
OWN_NAMES: Final = frozenset({"LOCK", BALLAST, "snap", "readers", "replication"})
#: How files with paged out messages end that a start removes; see segments/segment.py.
SPILL_SUFFIX: Final = ".spl"
#: Directory whose contents nothing but readers on this machine need.
TRASH: Final = "trash"


class Kind(IntEnum):
    """Kinds of operations; the numbers are those in frames."""

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3
    TRUNCATE = 4
    RENAME = 5
    UNLINK = 6
    REMOVE_TREE = 7
    MAKE_DIRECTORY = 8
    SYNC = 9
    SYNC_DIRECTORY = 10
    DEFINITIONS = 11


_CREATE: Final = Kind.CREATE
_APPEND: Final = Kind.APPEND
_SYNC: Final = Kind.SYNC


class Operation(NamedTuple):
    """A change of the data directory.

    Attributes:
        kind: What is done.
        path: The file or directory, relative to the data directory.
        offset: Offset of what is appended or overwritten, or the new size in bytes.
        octets: What is written; the target of a rename; definitions as JSON.
    """

    kind: Kind
    path: str
    offset: int = 0
    octets: bytes = b""


class Operations:
    """The operations that are recorded and not taken yet, in the order of their numbers. Used by any thread.

    Args:
        number: Number of the last operation before the first one.
        on_sync: Called, in the thread that syncs, when a sync has been recorded and nothing has been taken since the
            last call.
    """

    def __init__(self, number: int = 0, on_sync: Callable[[], object] = lambda: None) -> None:
        self._lock = threading.RLock()
        self._on_sync = on_sync
        self._number = number
        self._awaited = number
        #: What is not taken yet; None is a cut.
        self._pending: deque[Operation | None] = deque()
        self._taken = number
        self._has_called = False

    @property
    def number(self) -> int:
        """Number of the last operation."""
        return self._number

    @property
    def awaited(self) -> int:
        """Number of the last sync, or other operation that somebody waits for."""
        return self._awaited

    @property
    def lock(self) -> threading.RLock:
        """Is held while an operation is done and recorded; who holds it sees a moment between two operations."""
        return self._lock

    def add(self, operation: Operation) -> None:
        """Record an operation."""
        with self._lock:
            self.add_locked(operation)

    def add_locked(self, operation: Operation) -> None:
        """Record an operation; the caller holds the lock."""
        self._pending.append(operation)
        self._number += 1

    def add_sync(self, operation: Operation) -> None:
        """Record a sync that is about to begin, or another operation that somebody waits for."""
        with self._lock:
            self.add_locked(operation)
            self._awaited = self._number
            calls, self._has_called = not self._has_called, True
        if calls:
            self._on_sync()

    def cut(self) -> int:
        """Return the number of the last operation; what take() returns next ends there."""
        with self._lock:
            self._pending.append(None)
            return self._number

    def take(self) -> tuple[int, list[Operation]]:
        """Return the number of the first operation that was not taken yet, and what was recorded since.

        After a cut that is less than all; who gets an empty list has all. Only one thread may call this. It does not
        wait for the lock, which is held while files are written.
        """
        # First of all: a sync that is recorded from here on calls again.
        self._has_called = False
        taken: list[Operation] = []
        pending, first = self._pending, self._taken + 1
        while pending:
            operation = pending.popleft()
            if operation is not None:
                taken.append(operation)
            elif taken:
                break
        self._taken += len(taken)
        return first, taken


class _OpenFile:
    """A file that is open and recorded.

    Attributes:
        path: Its path relative to the data directory.
        size: Its length in bytes.
        handles: Its handles.
    """

    __slots__ = ("handles", "path", "size")

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.handles: set[int] = set()


class RecordingFiles(DiskFiles):
    """Files of the operating system whose changes are recorded.

    Args:
        root: The data directory; changes elsewhere are not recorded.
        operations: Where they are recorded.
    """

    __slots__ = ("_by_path", "_lock", "_open", "_operations", "_prefix")

    def __init__(self, root: str, operations: Operations) -> None:
        super().__init__()
        self._operations = operations
        self._lock = operations.lock
        self._prefix = f"{root.rstrip('/')}/"
        #: The open files that are recorded, by handle and by path relative to the data directory.
        self._open: dict[int, _OpenFile] = {}
        self._by_path: dict[str, _OpenFile] = {}

    def _relative(self, path: str) -> str | None:
        """Return the path relative to the data directory; None for what is not recorded."""
        if not path.startswith(self._prefix):
            return None
        relative = path[len(self._prefix) :]
        is_own = relative.partition("/")[0] in OWN_NAMES or relative.endswith(SPILL_SUFFIX)
        return None if is_own else relative

    def open(self, path: str, create: bool = False) -> int:
        """Open a file; its creation is recorded."""
        relative = self._relative(path)
        if relative is None:
            return super().open(path, create)
        with self._lock:
            handle = super().open(path, create)
            file = self._by_path.get(relative)
            if file is None:
                file = self._by_path[relative] = _OpenFile(relative, os.fstat(handle).st_size)
            file.handles.add(handle)
            self._open[handle] = file
            if create:
                self._operations.add(Operation(_CREATE, relative))
        return handle

    def close(self, handle: int) -> None:
        """Close a handle."""
        if handle in self._open:
            with self._lock:
                file = self._open.pop(handle, None)
                if file is not None:
                    file.handles.discard(handle)
                    if not file.handles:
                        del self._by_path[file.path]
        super().close(handle)

    def append(self, handle: int, octets: bytes) -> int:
        """Append to a file, and record what was written."""
        with self._lock:
            written = super().append(handle, octets)
            file = self._open.get(handle)
            if file is not None and written:
                taken = octets if written == len(octets) else octets[:written]
                self._operations.add_locked(Operation(_APPEND, file.path, file.size, taken))
                file.size += written
        return written

    def overwrite(self, path: str, octets: bytes, offset: int) -> None:
        """Write bytes at an offset of a file that exists, and record them."""
        with self._lock:
            super().overwrite(path, octets, offset)
            relative = self._relative(path)
            if relative is not None:
                self._operations.add(Operation(Kind.OVERWRITE, relative, offset, octets))
                file = self._by_path.get(relative)
                if file is not None:
                    file.size = max(file.size, offset + len(octets))

    def truncate(self, handle: int, size: int) -> None:
        """Truncate a file, and record its size."""
        with self._lock:
            super().truncate(handle, size)
            file = self._open.get(handle)
            if file is not None:
                self._operations.add(Operation(Kind.TRUNCATE, file.path, size))
                file.size = size

    def fdatasync(self, handle: int) -> None:
        """Record the sync of a file, and sync it."""
        file = self._open.get(handle)
        if file is not None:
            self._operations.add_sync(Operation(_SYNC, file.path))
        super().fdatasync(handle)

    def sync_directory(self, path: str) -> None:
        """Record the sync of a directory, and sync it."""
        relative = self._relative(f"{path}/")
        if relative is not None:
            self._operations.add_sync(Operation(Kind.SYNC_DIRECTORY, relative.rstrip("/")))
        super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, and record it; open files keep their place under the new name."""
        with self._lock:
            super().rename(source, target)
            before, after = self._relative(source), self._relative(target)
            if before is not None and after is not None:
                self._operations.add(Operation(Kind.RENAME, before, 0, os.fsencode(after)))
                self._forget(after)
                self._move(before, after)

    def unlink(self, path: str) -> None:
        """Remove a file, and record it. What is in the trash is in no copy, so nothing waits for its removal."""
        relative = self._relative(path)
        if relative is not None and relative.startswith(f"{TRASH}/"):
            super().unlink(path)
            self._operations.add(Operation(Kind.UNLINK, relative))
            return
        with self._lock:
            super().unlink(path)
            if relative is not None:
                self._operations.add(Operation(Kind.UNLINK, relative))
                self._forget(relative)

    def remove_tree(self, path: str) -> None:
        """Remove a directory tree, and record it."""
        relative = self._relative(path)
        if relative is not None:
            self._operations.add(Operation(Kind.REMOVE_TREE, relative))
        super().remove_tree(path)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, and record it."""
        with self._lock:
            super().make_directory(path)
            relative = self._relative(path)
            if relative is not None:
                self._operations.add(Operation(Kind.MAKE_DIRECTORY, relative))

    def _move(self, before: str, after: str) -> None:
        """Note the new names of open files."""
        moved = [before]
        if before not in self._by_path and os.path.isdir(f"{self._prefix}{after}"):
            inside = f"{before}/"
            moved = [path for path in self._by_path if path.startswith(inside)]
        for path in moved:
            file = self._by_path.pop(path, None)
            if file is not None:
                file.path = after + path[len(before) :]
                self._by_path[file.path] = file

    def _forget(self, relative: str) -> None:
        """Record nothing more of open files that have no name any more."""
        file = self._by_path.pop(relative, None)
        if file is not None:
            for handle in file.handles:
                del self._open[handle]
