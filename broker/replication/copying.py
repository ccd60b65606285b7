"""Copies of a moment: how a node gets a directory that operations can be applied to.

The leader makes hard links to all its files at one moment, between two operations. Files grow only at their ends, or
are replaced, so the first bytes of what the links name stay what they were. Sealed segments that the other node has
already are not sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

from leveret.broker.replication.applying import DEFINITIONS
from leveret.broker.replication.link import Link, LinkError, Message
from leveret.broker.replication.node_record import DIVERGED, OWN, incoming
from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.disk.files import DiskFiles
from leveret.storage.disk.recording import OWN_NAMES, SPILL_SUFFIX, TRASH, Operations
from leveret.storage.format import FOOTER_BYTES, FOOTER_MAGIC
from leveret.storage.readers.reader_file import BACKUP_READER, READERS

#: Bytes that are read, sent and written at once.
_PIECE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of a copy.

    Attributes:
        path: Path relative to the data directory.
        size: Its length at the moment, in bytes.
        footer: The footer of a sealed segment in hexadecimal, by which two of them are the same; else "".
    """

    path: str
    size: int
    footer: str


class Moment:
    """The files of a data directory at one moment; remove() must be called.

    Args:
        root: The data directory.
        operations: What is recorded in it.
        name: Name of the copy, which no other has.
    Raises:
        OSError: There is no space, or a file cannot be linked to.

    Attributes:
        number: Number of the last operation that it contains.
        files: Its files.
        directories: Its directories, parents first.
    """

    def __init__(self, root: Path, operations: Operations, name: str) -> None:
        self._links = root / OWN / f"copy-{name}"
        self.files: list[CopiedFile] = []
        self.directories: list[str] = []
        #: Of each file the number that its link is called by.
        self._numbers: list[int] = []
        shutil.rmtree(self._links, ignore_errors=True)
        self._links.mkdir(parents=True)
        #: Inode of each link. None can belong to another file meanwhile: the link keeps it.
        inodes: list[int] = []
        found: list[tuple[str, int]] = []
        try:
            # Everything waits during the moment. So links are made before: that of a path which still has the same file
            # in the moment is the one to have.
            early: dict[str, int] = {}
            for path, _, _ in _walk(root, [], is_early=True):
                with suppress(FileNotFoundError):
                    early[path] = self._link(root / path, inodes)
            with operations.lock:
                self.number = operations.cut()
                for path, size, inode in _walk(root, self.directories):
                    number = early.get(path)
                    with _may_be_gone(path):
                        if number is None or inodes[number] != inode:
                            number = self._link(root / path, inodes)
                        self._numbers.append(number)
                        found.append((path, size))
            for at, (path, size) in enumerate(found):
                self.files.append(CopiedFile(path, size, _footer(self.path_of(at), size)))
            # What is committed after the moment comes again as an operation.
            self.definitions = _read_definitions(root / DEFINITIONS)
        except BaseException:
            self.remove()
            raise

    def _link(self, path: Path, inodes: list[int]) -> int:
        """Make a link to a file, and note its inode; return its number."""
        number = len(inodes)
        link = self._links / str(number)
        os.link(path, link)
        inodes.append(link.stat().st_ino)
        return number

    def path_of(self, at: int) -> Path:
        """Return where the contents of a file are."""
        return self._links / str(self._numbers[at])

    def remove(self) -> None:
        """Remove the links."""
        shutil.rmtree(self._links, ignore_errors=True)


def _walk(root: Path, directories: list[str], is_early: bool = False) -> list[tuple[str, int, int]]:
    """Return the files of a data directory that a copy has, with their lengths and inodes; note the directories.

    It has deleted queues if the next backup needs them.

    Args:
        is_early: Whether it changes meanwhile: then anything may be gone.
    """
    has_trash = (root / READERS / BACKUP_READER).exists()
    found: list[tuple[str, int, int]] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with _may_be_gone(inside, is_early), os.scandir(f"{root}/{inside}") as entries:
            for entry in entries:
                path = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if inside or entry.name not in OWN_NAMES | {DIVERGED}:
                        directories.append(path)
                        if path != TRASH or has_trash:
                            waiting.append(path)
                elif entry.is_file(follow_symlinks=False) and not _is_left_out(path):
                    found.append((path, entry.stat().st_size, entry.inode()))
    directories.sort()
    return found


@contextmanager
def _may_be_gone(path: str, whatever: bool = False) -> Iterator[None]:
    """Pass over what is gone: in the trash, for whose removal nothing waits, or anything if `whatever`."""
    try:
        yield
    except FileNotFoundError:
        if not whatever and path.partition("/")[0] != TRASH:
            raise


def _is_left_out(path: str) -> bool:
    return path in OWN_NAMES or path.startswith(DEFINITIONS.partition(".")[0]) or path.endswith(SPILL_SUFFIX)


def _footer(path: Path, size: int) -> str:
    if size < FOOTER_BYTES:
        return ""
    with open(path, "rb") as file:
        file.seek(size - FOOTER_BYTES)
        octets = file.read(FOOTER_BYTES)
    return octets.hex() if octets.startswith(FOOTER_MAGIC) else ""


def _read_definitions(path: Path) -> list[tuple[str, str, str]]:
    if not path.exists():
        return []
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return list(database.execute("select kind, key, value from definitions"))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
    finally:
        database.close()


async def send_copy(
    link: Link,
    moment: Moment,
    pace: Callable[[int], Awaitable[None]],
    progress: Callable[[int, int], None],
    is_packed: bool = False,
) -> None:
    """Send a copy.

    Args:
        link: Where to.
        moment: The copy.
        pace: Is awaited with the number of bytes before they are sent.
        progress: Is called with the bytes that are sent, and those to send.
        is_packed: Whether it is compressed.
    Raises:
        LinkError, OSError, EOFError: The link is broken.
    """
    link.send_json(
        Message.FILES,
        {
            "number": moment.number,
            "files": [[each.path, each.size, each.footer] for each in moment.files],
            "directories": moment.directories,
            "definitions": moment.definitions,
        },
    )
    await link.drain()
    wanted: list[int] = json.loads(await link.expect(Message.FILES))
    total, sent = sum(moment.files[at].size for at in wanted), 0
    loop = asyncio.get_running_loop()
    for at in wanted:
        left = moment.files[at].size
        with await loop.run_in_executor(None, _open, moment.path_of(at), "rb") as file:
            while left:
                octets = await loop.run_in_executor(None, file.read, min(left, _PIECE))
                if not octets:
                    raise LinkError(f"{moment.files[at].path} has become shorter")
                await pace(len(octets))
                if is_packed:
                    await link.send_packed(Message.DATA, octets)
                else:
                    link.send(Message.DATA, octets)
                await link.drain()
                left -= len(octets)
                sent += len(octets)
                progress(sent, total)
    link.send(Message.END)
    await link.drain()


class Received:
    """A copy that is received beside what is in a data directory. NodeRecord says when it takes its place.

    Args:
        root: The data directory.
        contents: What the leader says that the copy has.
        reuses: Whether sealed segments that are here already are taken.
    Raises:
        LinkError: What the leader says is malformed.
        OSError: There is no space.

    Attributes:
        number: Number of the last operation that the copy contains.
        wanted: Places, in the leader's list, of the files that are not here.
        bytes: What they have together.
    """

    def __init__(self, root: Path, contents: bytes, reuses: bool = True) -> None:
        self._root = root
        self._into = incoming(root)
        try:
            told = json.loads(contents)
            self.number = int(told["number"])
            self._files = [CopiedFile(str(path), int(size), str(footer)) for path, size, footer in told["files"]]
            self._directories = [str(path) for path in told["directories"]]
            self._definitions = {(str(kind), str(key)): str(value) for kind, key, value in told["definitions"]}
        except (ValueError, TypeError, KeyError) as error:
            raise LinkError(f"the list of a copy is malformed: {error}") from error
        for path in [*self._directories, *(each.path for each in self._files)]:
            parts = path.split("/")
            if {"", ".", ".."} & {*parts} or parts[0] in OWN_NAMES:
                raise LinkError(f"{path!r} is no path of a copy")
        shutil.rmtree(self._into, ignore_errors=True)
        for path in ["", *self._directories]:
            (self._into / path).mkdir(parents=True, exist_ok=True, mode=0o750)
        self.wanted = [at for at, each in enumerate(self._files) if not (reuses and self._is_here(each))]
        self.bytes = sum(self._files[at].size for at in self.wanted)

    def _is_here(self, each: CopiedFile) -> bool:
        """Take a sealed segment that the directory has already; return whether it has it."""
        here = self._root / each.path
        if not each.footer or not here.is_file() or here.stat().st_size != each.size:
            return False
        if _footer(here, each.size) != each.footer:
            return False
        os.link(here, self._into / each.path)
        return True

    async def receive(self, link: Link, progress: Callable[[int, int], None]) -> None:
        """Receive the files, and sync them.

        Raises:
            LinkError, OSError, EOFError: The link is broken.
            sqlite3.Error: The definitions cannot be written.
        """
        link.send_json(Message.FILES, self.wanted)
        await link.drain()
        loop, received = asyncio.get_running_loop(), 0
        for at in self.wanted:
            each = self._files[at]
            with await loop.run_in_executor(None, _open, self._into / each.path, "wb") as file:
                os.fchmod(file.fileno(), 0o640)
                left = each.size
                while left:
                    octets = await link.expect(Message.DATA)
                    if not octets or len(octets) > left:
                        raise LinkError(f"{each.path} comes with another length")
                    await loop.run_in_executor(None, _write_all, file.fileno(), octets)
                    left -= len(octets)
                    received += len(octets)
                    progress(received, self.bytes)
                await loop.run_in_executor(None, os.fsync, file.fileno())
        await link.expect(Message.END)
        await loop.run_in_executor(None, self._finish)

    def _finish(self) -> None:
        database = DefinitionsDatabase(self._into / DEFINITIONS)
        try:
            database.write({**self._definitions})
        finally:
            database.close()
        files = DiskFiles()
        for path in ["", *self._directories]:
            files.sync_directory(f"{self._into}/{path}" if path else str(self._into))


def keep_aside(root: Path, epoch: int) -> int:
    """Keep what a copy has replaced in `diverged`, but for the files that the copy has, too.

    Args:
        root: The data directory.
        epoch: The epoch that this node led.
    Returns:
        Number of files that are kept.
    Raises:
        OSError: A file cannot be moved.
    """
    old, aside, kept = root / OWN / "old", root / DIVERGED / str(epoch), 0
    for path in [path for path in old.rglob("*") if path.is_file() and path.stat().st_nlink == 1]:
        target = aside / path.relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        kept += 1
    return kept


def _open(path: Path, mode: str) -> FileIO:
    return FileIO(path, mode)


def _write_all(handle: int, octets: bytes) -> None:
    left = memoryview(octets)
    while left:
        left = left[os.write(handle, left) :]
