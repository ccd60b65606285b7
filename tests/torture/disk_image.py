"""What a loss of power may leave of a directory, by the record of what a process did to its files (see disk.c)."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

#: A record's kind, lengths of the two parts of its payload, nothing, inode, and offset, size or number of a sync.
_HEADER: Final = struct.Struct("<IIIIQQ")


class Kind(IntEnum):
    """Kinds of records, as in disk.c."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC_BEGIN = 4
    SYNC_END = 5
    SYNC_FAILED = 6
    RENAME = 7
    LINK = 8
    UNLINK = 9
    MKDIR = 10
    RMDIR = 11
    DIRECTORY_SYNC = 12
    SYNC_ALL = 13


class Record(NamedTuple):
    """One call."""

    kind: Kind
    inode: int
    at: int
    first: bytes
    second: bytes


def read_records(path: Path) -> Iterator[Record]:
    """Return the records of a file; a kill may have cut the last one, which is left out."""
    octets, at = path.read_bytes() if path.exists() else b"", 0
    while at + _HEADER.size <= len(octets):
        kind, first, second, _, inode, place = _HEADER.unpack_from(octets, at)
        begin = at + _HEADER.size
        at = begin + first + second
        if at > len(octets):
            return
        yield Record(Kind(kind), inode, place, octets[begin : begin + first], octets[begin + first : at])


@dataclass(slots=True)
class _Change:
    """A write, or a new size if there are no bytes."""

    at: int
    octets: bytes | None
    is_dropped: bool = False

    def apply(self, content: bytearray) -> None:
        if self.octets is not None:
            if len(content) < self.at:
                content += bytes(self.at - len(content))
            content[self.at : self.at + len(self.octets)] = self.octets
        elif self.at < len(content):
            del content[self.at :]
        else:
            content += bytes(self.at - len(content))


class _File:
    """A file: what is certainly on the disk, and what was changed since, in order."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.changes: list[_Change] = []
        self._syncs: dict[int, int] = {}

    def sync_begins(self, number: int) -> None:
        self._syncs[number] = len(self.changes)

    def sync_ends(self, number: int) -> None:
        # A sync that began later may have ended before.
        count = self._syncs.pop(number, 0)
        kept = [change for change in self.changes[:count] if change.is_dropped]
        for change in self.changes[:count]:
            if not change.is_dropped:
                change.apply(self.content)
        self.changes[:count] = kept
        done = count - len(kept)
        self._syncs = {other: max(0, before - done) for other, before in self._syncs.items()}

    def sync_fails(self) -> None:
        for change in self.changes:
            change.is_dropped = True

    def now(self) -> bytes:
        """Return what the process sees."""
        content = bytearray(self.content)
        for change in self.changes:
            change.apply(content)
        return bytes(content)

    def after_power_loss(self, rng: random.Random) -> bytes:
        """Return what is left: the first changes, of which the last may be torn, and the end may be zeros."""
        content, changes = bytearray(self.content), [each for each in self.changes if not each.is_dropped]
        if any(each.is_dropped for each in self.changes) and rng.random() < 0.3:
            changes = self.changes
        kept = rng.choice((0, len(changes), rng.randint(0, len(changes))))
        for change in changes[:kept]:
            change.apply(content)
        if kept < len(changes) and (torn := changes[kept]).octets and rng.random() < 0.5:
            part = torn.octets[: rng.randrange(len(torn.octets))]
            zeros = rng.choice((0, 0, rng.randint(0, len(part))))
            _Change(torn.at, part[: len(part) - zeros] + bytes(zeros)).apply(content)
        return bytes(content)


class _Directory:
    """A directory: its names on the disk, and its names now."""

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.synced: dict[str, _Node] = {}

    def sync(self) -> None:
        self.synced = dict(self.names)

    def sync_all(self) -> None:
        """Put everything below it on the disk."""
        self.sync()
        for node in self.names.values():
            if isinstance(node, _Directory):
                node.sync_all()
            else:
                node.sync_begins(0)
                node.sync_ends(0)

    def after_power_loss(self, rng: random.Random) -> dict[str, _Node]:
        """Return the names that are left: of each that was changed, the old or the new file, or none."""
        left: dict[str, _Node] = {}
        for name in sorted(self.names.keys() | self.synced.keys()):
            old, new = self.synced.get(name), self.names.get(name)
            kept = old if old is new else rng.choice((old, new))
            if kept is not None:
                left[name] = kept
        return left


_Node: TypeAlias = _File | _Directory


@dataclass
class DiskImage:
    """A directory as it was when a process began to use it, and what the process has done since."""

    root: Path
    _top: _Directory = field(default_factory=_Directory)
    _inodes: dict[int, _File] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read(self.root, self._top)

    def replay(self, record: Path) -> None:
        """Take up what has been done."""
        for each in read_records(record):
            self._apply(each)

    def now(self) -> dict[str, bytes]:
        """Return the contents of all files by path, as the process saw them."""
        return dict(_contents(self._top))

    def after_power_loss(self, rng: random.Random) -> dict[str, bytes | None]:
        """Return what may be left: contents by path, None for a directory. Files that SQLite only maps are not."""
        left: dict[str, bytes | None] = {}

        def keep(directory: _Directory, path: str) -> None:
            for name, node in directory.after_power_loss(rng).items():
                if isinstance(node, _Directory):
                    left[path + name] = None
                    keep(node, f"{path}{name}/")
                elif not name.endswith("-shm"):
                    left[path + name] = node.after_power_loss(rng)

        keep(self._top, "")
        return left

    def write(self, contents: dict[str, bytes | None]) -> None:
        """Make these the contents of the directory."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(mode=0o750)
        for path, octets in contents.items():
            if octets is None:
                (self.root / path).mkdir(mode=0o750)
            else:
                _write(self.root / path, octets)

    def _read(self, path: Path, directory: _Directory) -> None:
        for entry in os.scandir(path) if path.exists() else ():
            node: _Node
            if entry.is_dir(follow_symlinks=False):
                node = _Directory()
                self._read(Path(entry.path), node)
            else:
                node = self._inodes.setdefault(entry.inode(), _File())
                node.content = bytearray(Path(entry.path).read_bytes())
            directory.names[entry.name] = node
        directory.sync()

    def _apply(self, record: Record) -> None:
        kind = record.kind
        if kind <= Kind.SYNC_FAILED and kind is not Kind.CREATE:
            if (file := self._inodes.get(record.inode)) is not None:
                _change(file, record)
        elif kind is Kind.SYNC_ALL:
            self._top.sync_all()
        elif kind is Kind.DIRECTORY_SYNC:
            if (found := self._directory(os.fsdecode(record.first))) is not None:
                found.sync()
        else:
            self._apply_name(kind, record)

    def _apply_name(self, kind: Kind, record: Record) -> None:
        place = self._place(os.fsdecode(record.first))
        if place is None:
            return
        parent, name = place
        if kind is Kind.CREATE:
            self._inodes[record.inode] = parent.names[name] = _File()
        elif kind is Kind.MKDIR:
            parent.names[name] = _Directory()
        elif kind in (Kind.UNLINK, Kind.RMDIR):
            parent.names.pop(name, None)
        elif name in parent.names and (other := self._place(os.fsdecode(record.second))) is not None:
            target, new = other
            target.names[new] = parent.names[name]
            if kind is Kind.RENAME:
                del parent.names[name]

    def _place(self, path: str) -> tuple[_Directory, str] | None:
        """Return the directory of a path and the name in it.

        None if nothing is known of the directory: a process that was killed had made or renamed it, and had not
        written the record of that; the next process went on with what it found.
        """
        head, name = os.path.split(os.path.normpath(path))
        found = self._directory(head)
        return None if found is None else (found, name)

    def _directory(self, path: str) -> _Directory | None:
        inside = os.path.relpath(path, self.root)
        directory: _Node | None = self._top
        for part in () if inside == "." else inside.split("/"):
            directory = directory.names.get(part) if isinstance(directory, _Directory) else None
        return directory if isinstance(directory, _Directory) else None


def _change(file: _File, record: Record) -> None:
    match record.kind:
        case Kind.WRITE:
            file.changes.append(_Change(record.at, record.first))
        case Kind.TRUNCATE:
            file.changes.append(_Change(record.at, None))
        case Kind.SYNC_BEGIN:
            file.sync_begins(record.at)
        case Kind.SYNC_END:
            file.sync_ends(record.at)
        case Kind.SYNC_FAILED:
            file.sync_fails()


def _contents(directory: _Directory, path: str = "") -> Iterator[tuple[str, bytes]]:
    for name, node in directory.names.items():
        if isinstance(node, _Directory):
            yield from _contents(node, f"{path}{name}/")
        else:
            yield path + name, node.now()


def _write(path: Path, octets: bytes) -> None:
    # The ballast is nothing but zeros, which take no room.
    if len(octets) > 1 << 20 and not octets.strip(b"\0"):
        path.touch(0o640)
        os.truncate(path, len(octets))
    else:
        path.write_bytes(octets)
        path.chmod(0o640)
