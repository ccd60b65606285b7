"""A simulated disk: loses unsynced data at a crash, and fails where a test injects a fault."""

from __future__ import annotations

import errno
import os
import random
from typing import Final

from leveret.storage.disk.files import DirectoryInUseError


class _Inode:
    __slots__ = ("dropped", "octets", "synced")

    def __init__(self) -> None:
        self.octets = bytearray()
        #: Content that certainly survives a crash.
        self.synced = b""
        #: Parts whose sync has failed: they are read, and no later sync writes them. Start and end of each.
        self.dropped: list[tuple[int, int]] = []

    def sync(self) -> None:
        """Put on the disk what no failed sync has dropped."""
        synced = bytearray(self.octets)
        for start, end in self.dropped:
            synced[start:end] = bytes(min(end, len(synced)) - min(start, len(synced)))
        self.synced = bytes(synced)

    def drop_unsynced(self) -> None:
        """Fail to write what is not on the disk yet."""
        if len(self.octets) > len(self.synced):
            self.dropped.append((len(self.synced), len(self.octets)))

    def overwrite(self, octets: bytes, offset: int) -> None:
        """Write again what is there, or something else: the next sync writes it."""
        end = offset + len(octets)
        self.octets[offset:end] = octets
        rest = [part for start, stop in self.dropped for part in ((start, min(stop, offset)), (max(start, end), stop))]
        self.dropped = [(start, stop) for start, stop in rest if start < stop]


class SimulatedFiles:
    """Implements leveret.storage.disk.files.Files.

    What is called by the thread that syncs goes through copies of the names: the owner may change them meanwhile.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self.unreadable: set[str] = set()
        self.sync_fails = False
        self.appended = 0
        self.syncs = 0
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._directories: set[str] = set()
        #: Directories that certainly survive a crash.
        self._synced_directories: set[str] = set()
        self._handles: dict[int, tuple[str, _Inode]] = {}
        self._locks: dict[int, str] = {}
        self._next_handle = 3

    def crash(self, rng: random.Random) -> None:
        """Simulate a power failure: any part of unsynced data may be lost, and all handles are closed."""
        names: dict[str, _Inode] = {}
        for path in sorted(self._names.keys() | self._synced_names.keys()):
            synced, current = self._synced_names.get(path), self._names.get(path)
            kept = synced if synced is current else rng.choice((synced, current))
            if kept is not None:
                names[path] = kept
        for inode in {id(each): each for each in names.values()}.values():
            inode.octets = _after_crash(inode, rng)
            inode.synced = bytes(inode.octets)
            inode.dropped = []
        self._names, self._synced_names = names, dict(names)
        self._handles.clear()
        self._locks.clear()
        for path in sorted(self._directories - self._synced_directories):
            if rng.random() < 0.5:
                self.remove_tree(path)
        self._synced_directories = set(self._directories)

    def stop(self) -> None:
        """Simulate the end of the process: all handles are closed, no data is lost."""
        self._handles.clear()
        self._locks.clear()

    def snapshot(self) -> dict[str, bytes]:
        """Return the contents of all files by path."""
        return {path: bytes(inode.octets) for path, inode in sorted(self._names.items())}

    def restore(self, contents: dict[str, bytes]) -> None:
        """Replace all files by these, all synced."""
        self.stop()
        self._names = {}
        for path, octets in contents.items():
            inode = self._names[path] = _Inode()
            inode.octets[:] = octets
            inode.synced = octets
            self.make_directory(os.path.dirname(path))
        self._synced_names = dict(self._names)
        self._synced_directories = set(self._directories)

    def open(self, path: str, create: bool = False) -> int:
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if os.path.dirname(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            inode = self._names[path] = _Inode()
        self._next_handle += 1
        self._handles[self._next_handle] = path, inode
        return self._next_handle

    def close(self, handle: int) -> None:
        self._locks.pop(handle, None)
        del self._handles[handle]

    def append(self, handle: int, octets: bytes) -> int:
        size = len(octets)
        if self.room is not None:
            if octets and not self.room:
                raise OSError(errno.ENOSPC, "no space left on device")
            size = min(size, self.room)
            self.room -= size
        self._handles[handle][1].octets += octets[:size]
        self.appended += size
        return size

    def allocate(self, handle: int, size: int) -> None:
        octets = self._handles[handle][1].octets
        more = max(0, size - len(octets))
        if self.room is not None:
            if more > self.room:
                raise OSError(errno.ENOSPC, "no space left on device")
            self.room -= more
        octets += bytes(more)

    def free_space(self, path: str) -> int:
        return 1 << 40 if self.room is None else self.room

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        path, inode = self._handles[handle]
        if path in self.unreadable:
            raise OSError(errno.EIO, "input/output error", path)
        return bytes(inode.octets[offset : offset + size])

    def truncate(self, handle: int, size: int) -> None:
        inode = self._handles[handle][1]
        self._give_back(len(inode.octets) - size)
        del inode.octets[size:]
        inode.synced = inode.synced[:size]
        inode.dropped = [(start, min(end, size)) for start, end in inode.dropped if start < size]

    def overwrite(self, path: str, octets: bytes, offset: int) -> None:
        self._inode(path).overwrite(octets, offset)

    def fdatasync(self, handle: int) -> None:
        inode = self._handles[handle][1]
        if self.sync_fails:
            inode.drop_unsynced()
            raise OSError(errno.EIO, "input/output error")
        inode.sync()
        self.syncs += 1

    def size(self, path: str) -> int:
        return len(self._inode(path).octets)

    def read_all(self, path: str) -> bytes | None:
        if path in self.unreadable:
            raise OSError(errno.EIO, "input/output error", path)
        inode = self._names.get(path)
        return None if inode is None else bytes(inode.octets)

    def read_foreign(self, path: str, limit: int) -> bytes | None:
        octets = self.read_all(path)
        if octets is not None and len(octets) > limit:
            raise OSError(errno.EFBIG, f"it is longer than {limit} bytes", path)
        return octets

    def rename(self, source: str, target: str) -> None:
        if source in self._directories:
            _rename_directory(self, source, target)
        else:
            inode = self._inode(source)
            if target in self._names:
                self._give_back(len(self._names[target].octets))
            self._names[target] = inode
            del self._names[source]

    def unlink(self, path: str) -> None:
        self._give_back(len(self._inode(path).octets))
        del self._names[path]

    def remove_tree(self, path: str) -> None:
        self._give_back(sum(len(inode.octets) for name, inode in [*self._names.items()] if _within(name, path)))
        self._directories = {each for each in [*self._directories] if not _within(each, path)}
        self._synced_directories &= self._directories
        for names in (self._names, self._synced_names):
            for name in [each for each in [*names] if _within(each, path)]:
                del names[name]

    def list_directory(self, path: str) -> list[str]:
        inside = [name for name in (*self._names, *self._directories) if name.startswith(path + "/")]
        return sorted({name[len(path) + 1 :].split("/")[0] for name in inside})

    def make_directory(self, path: str) -> None:
        while path and path not in self._directories:
            self._directories.add(path)
            path = os.path.dirname(path)

    def sync_directory(self, path: str) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, "input/output error")
        for name in [each for each in [*self._synced_names] if os.path.dirname(each) == path]:
            del self._synced_names[name]
        self._synced_names |= {name: each for name, each in [*self._names.items()] if os.path.dirname(name) == path}
        self._synced_directories |= {each for each in [*self._directories] if os.path.dirname(each) == path}

    def lock(self, path: str) -> int:
        if path in self._locks.values():
            raise DirectoryInUseError(path)
        handle = self.open(path, create=True)
        self._locks[handle] = path
        return handle

    def _give_back(self, size: int) -> None:
        if self.room is not None:
            self.room += max(0, size)

    def _inode(self, path: str) -> _Inode:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._names[path]


def flip(files: SimulatedFiles, path: str, at: int, bits: int) -> None:
    """Damage one byte of a file."""
    inode = files._inode(path)
    inode.octets[at] ^= bits
    inode.synced = bytes(inode.octets)


def _rename_directory(files: SimulatedFiles, source: str, target: str) -> None:
    def moved(path: str) -> str:
        return target + path[len(source) :] if _within(path, source) else path

    files._directories = {moved(path) for path in files._directories}
    files._synced_directories = {moved(path) for path in files._synced_directories}
    files._names = {moved(path): inode for path, inode in files._names.items()}
    files._synced_names = {moved(path): inode for path, inode in files._synced_names.items()}


def _after_crash(inode: _Inode, rng: random.Random) -> bytearray:
    """Return the synced content and a prefix of what was appended since, of which the end may be zeros."""
    synced, current = inode.synced, inode.octets
    if not current.startswith(synced):
        return bytearray(synced)
    kept = current[: rng.randint(len(synced), len(current))]
    zeros = rng.choice((0, 0, rng.randint(0, len(kept) - len(synced))))
    return kept[: len(kept) - zeros] + bytes(zeros)


def _within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


ROOT: Final = "/data"
