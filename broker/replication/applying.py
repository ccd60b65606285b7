"""A standby's data directory: does what its leader has done, in the same order."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from leveret.broker.replication.frames import Frame
from leveret.storage.definitions_database import Changes, DefinitionsDatabase
from leveret.storage.disk.files import DiskFiles
from leveret.storage.disk.recording import OWN_NAMES, Kind, Operation

#: Files that are kept open.
_OPEN_FILES: Final = 256
#: Fewer than that, so that none is closed meanwhile.
_SYNCS_AT_ONCE: Final = 64
#: Threads that sync.
_SYNC_THREADS: Final = 4
#: Name of the database of definitions in the data directory.
DEFINITIONS: Final = "definitions.sqlite"


class OutOfStep(Exception):
    """An operation does not fit the directory: it is no copy of the leader's. The text says why."""


class Applier:
    """Applies operations to a data directory. Used by one thread at a time; it must be locked against others.

    Args:
        root: The data directory.
        files: The file system interface.
    Raises:
        OSError: It cannot be used.
    """

    def __init__(self, root: Path, files: DiskFiles | None = None) -> None:
        self._root = root
        self._files = files or DiskFiles()
        self._handles: OrderedDict[str, int] = OrderedDict()
        self._pool = ThreadPoolExecutor(_SYNC_THREADS, "standby-sync")
        self._definitions: DefinitionsDatabase | None = None
        self._actions: dict[Kind, Callable[[Operation], None]] = {
            Kind.CREATE: self._create,
            Kind.APPEND: self._append,
            Kind.OVERWRITE: self._overwrite,
            Kind.TRUNCATE: self._truncate,
            Kind.RENAME: self._rename,
            Kind.UNLINK: self._unlink,
            Kind.REMOVE_TREE: self._remove_tree,
            Kind.MAKE_DIRECTORY: lambda operation: self._files.make_directory(self._path(operation.path)),
            Kind.DEFINITIONS: self._define,
        }

    def apply(self, frame: Frame) -> None:
        """Do all operations of a frame; what they sync is on disk afterwards.

        Raises:
            OutOfStep: One does not fit.
            FrameError: One is malformed.
            OSError: The system refuses one.
            sqlite3.Error: Definitions cannot be written.
        """
        syncs: dict[Operation, None] = {}
        for operation in frame.operations():
            if operation.kind in (Kind.SYNC, Kind.SYNC_DIRECTORY):
                syncs[operation] = None
                continue
            if syncs:
                # What follows may rely on them.
                self._sync_all(syncs)
                syncs = {}
            self._actions[operation.kind](operation)
        if syncs:
            self._sync_all(syncs)

    def close(self) -> None:
        """Close all files."""
        self._close_below("")
        self._pool.shutdown()
        if self._definitions is not None:
            self._definitions.close()
            self._definitions = None

    def _path(self, relative: str) -> str:
        """Return a path below the data directory.

        Raises:
            OutOfStep: It is not below it, or it is something that belongs to this machine.
        """
        parts = relative.split("/")
        if relative and (parts[0] in OWN_NAMES or parts[0].startswith(DEFINITIONS) or {"", ".", ".."} & {*parts}):
            raise OutOfStep(f"{relative!r} is no path of a copy")
        return f"{self._root}/{relative}" if relative else str(self._root)

    def _handle(self, relative: str) -> int:
        handle = self._handles.get(relative)
        if handle is None:
            try:
                handle = self._files.open(self._path(relative))
            except FileNotFoundError:
                raise OutOfStep(f"{relative} is missing") from None
            self._handles[relative] = handle
            if len(self._handles) > _OPEN_FILES:
                self._files.close(self._handles.popitem(last=False)[1])
        else:
            self._handles.move_to_end(relative)
        return handle

    def _create(self, operation: Operation) -> None:
        self._close(operation.path)
        self._handles[operation.path] = self._files.open(self._path(operation.path), create=True)

    def _append(self, operation: Operation) -> None:
        handle, octets = self._handle(operation.path), operation.octets
        size = os.fstat(handle).st_size
        if size != operation.offset:
            raise OutOfStep(f"{operation.path} has {size} bytes, and the leader's had {operation.offset}")
        written = self._files.append(handle, octets)
        while written < len(octets):
            written += self._files.append(handle, octets[written:])

    def _overwrite(self, operation: Operation) -> None:
        self._files.overwrite(self._path(operation.path), operation.octets, operation.offset)

    def _truncate(self, operation: Operation) -> None:
        self._files.truncate(self._handle(operation.path), operation.offset)

    def _rename(self, operation: Operation) -> None:
        source, target = operation.path, os.fsdecode(operation.octets)
        self._close_below(source)
        self._close_below(target)
        try:
            self._files.rename(self._path(source), self._path(target))
        except FileNotFoundError:
            raise OutOfStep(f"{source} is missing") from None

    def _unlink(self, operation: Operation) -> None:
        self._close(operation.path)
        try:
            self._files.unlink(self._path(operation.path))
        except FileNotFoundError:
            # A copy has no trash.
            pass

    def _remove_tree(self, operation: Operation) -> None:
        self._close_below(operation.path)
        self._files.remove_tree(self._path(operation.path))

    def _define(self, operation: Operation) -> None:
        if self._definitions is None:
            self._definitions = DefinitionsDatabase(self._root / DEFINITIONS)
        self._definitions.write(unpack_changes(operation.octets))

    def _sync_all(self, syncs: dict[Operation, None]) -> None:
        paths = [each for each in syncs if each.kind is Kind.SYNC]
        for start in range(0, len(paths), _SYNCS_AT_ONCE):
            # The handles are found here: only the syncs themselves are for other threads.
            opened = [self._handle_to_sync(each) for each in paths[start : start + _SYNCS_AT_ONCE]]
            handles = [each for each in opened if each is not None]
            for _ in (
                map(self._files.fdatasync, handles)
                if len(handles) < 2
                else self._pool.map(self._files.fdatasync, handles)
            ):
                pass
        for operation in syncs:
            if operation.kind is Kind.SYNC_DIRECTORY:
                self._sync_directory(operation)

    def _handle_to_sync(self, operation: Operation) -> int | None:
        try:
            return self._handle(operation.path)
        except OutOfStep:
            # Dropped meanwhile.
            return None

    def _sync_directory(self, operation: Operation) -> None:
        try:
            self._files.sync_directory(self._path(operation.path))
        except FileNotFoundError:
            pass

    def _close(self, relative: str) -> None:
        handle = self._handles.pop(relative, None)
        if handle is not None:
            self._files.close(handle)

    def _close_below(self, relative: str) -> None:
        """Close a file, and all in a directory of that name; "" for all."""
        inside = f"{relative}/"
        for path in [path for path in self._handles if not relative or path == relative or path.startswith(inside)]:
            self._close(path)


def pack_changes(changes: Changes) -> bytes:
    """Encode changes of definitions for an operation."""
    return json.dumps([[kind, key, value] for (kind, key), value in changes.items()]).encode()


def unpack_changes(octets: bytes) -> Changes:
    """Decode changes of definitions.

    Raises:
        OutOfStep: They are malformed.
    """
    try:
        return {(str(kind), str(key)): value for kind, key, value in json.loads(octets)}
    except (ValueError, TypeError) as error:
        raise OutOfStep(f"definitions are malformed: {error}") from error
