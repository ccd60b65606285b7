"""What surrounds an embedded broker: its listening sockets, data directories, disk and clock."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from leveret.broker.app import DEFINITIONS, App
from leveret.storage.clock import Clock
from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.disk.files import DiskFiles, UnsyncedFiles


class NotRunningError(RuntimeError):
    """The broker is not running: it has not been started, or has been stopped or killed."""

    def __init__(self, what: str = "") -> None:
        super().__init__(what or "the broker is not running: start() it, or use it inside its `with` block")


#: Seconds between looks at what is not told.
_PAUSE: Final = 0.001


#: What of it a copy has.
_COPIED: Final = ("FORMAT", "audit", "ckpt", "definitions*.sqlite*", "events", "losses.json", "q", "redo")
#: What a broker writes into its data directory. A reset removes it and leaves everything else alone.
_OWN: Final = (
    "FORMAT", "LOCK", "UPGRADE", "archived-to.json", "audit", "backup", "ballast", "bodies.json", "ckpt",
    "definitions*.sqlite*", "events", "losses.json", "q", "readers", "redo", "snap", "trash", "upgrade",
)  # fmt: skip


class DataFolder:
    """Where an embedded broker keeps its data.

    Args:
        given: A directory that outlives the broker; None for temporary ones.
    """

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self._parent = Path(tempfile.gettempdir(), f"leveret-{uuid4().hex}")
        self._copies = Path(f"{self._parent}-snapshots")
        self._count = 0
        self._preparing: asyncio.Future[None] | None = None

    @property
    def is_temporary(self) -> bool:
        """Whether it is removed with the broker."""
        return self._given is None

    @property
    def path(self) -> Path:
        """The data directory in use."""
        return self._given or self._parent / str(self._count)

    def create(self) -> None:
        """Create it, if it is temporary; whoever starts with a given one creates that."""
        if self._given is None:
            self._parent.mkdir(mode=0o700, exist_ok=True)
            self.path.mkdir(mode=0o700)

    async def clear(self) -> None:
        """Begin anew: use another directory, or empty the given one."""
        if self._given is not None:
            for pattern in _OWN:
                for each in self._given.glob(pattern):
                    _remove(each)
            return
        prepared, self._preparing = self._preparing, None
        self._count += 1
        if prepared is None:
            self.create()
        else:
            await prepared

    def prepare(self) -> None:
        """Prepare the next temporary directory and remove the last one, in a thread: files take most of a start."""
        if self._given is None and self._preparing is None:
            last, following = (self._parent / str(self._count + step) for step in (-1, 1))
            self._preparing = asyncio.get_running_loop().run_in_executor(None, _prepare, following, last)

    def copy(self) -> Path:
        """Return a copy of the data directory, whose broker has nothing left to write; remove() removes it."""
        path = self._copies / uuid4().hex
        path.mkdir(parents=True, mode=0o700)
        _copy(self.path, path)
        return path

    async def replace(self, copied: Path) -> None:
        """Begin again with a copy that copy() has returned."""
        await self.clear()
        if self._given is None:
            _remove(self.path)
            self.path.mkdir(mode=0o700)
        _copy(copied, self.path)

    async def remove(self) -> None:
        """Remove a temporary directory, and all copies."""
        if self._preparing is not None:
            await self._preparing
            self._preparing = None
        _remove(self._parent)
        _remove(self._copies)


def _prepare(path: Path, last: Path) -> None:
    path.mkdir(mode=0o700)
    DataDirectory(UnsyncedFiles(), str(path), Clock().now).close()
    DefinitionsDatabase(path / DEFINITIONS, is_temporary=True).close()
    _remove(last)


def _copy(source: Path, target: Path) -> None:
    for pattern in _COPIED:
        for each in source.glob(pattern):
            if each.is_dir():
                shutil.copytree(each, target / each.name)
            else:
                shutil.copy2(each, target / each.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class FillableFiles(DiskFiles):
    """Files on a disk that a test can fill."""

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


class FillableUnsyncedFiles(FillableFiles, UnsyncedFiles):
    """Files of a directory that is removed before a loss of power could matter."""


#: Seconds for what fell due to happen.
_SETTLE_SECONDS: Final = 30.0
#: Iterations of the event loop before a pause between two looks at it: threads work on it.
_SPINS: Final = 200
#: Iterations without work after which everything has reached the sockets.
_QUIET: Final = 3


class BrokerClock:
    """The clock of a broker in the running event loop.

    Expiry of messages and queues, delays, delayed retries, consumer timeouts, the retention of streams and the times of
    messages, events and statistics follow it. Heartbeats, handshakes and deadlines of sockets follow real time.

    Args:
        running: Returns the running broker.
    """

    def __init__(self, running: Callable[[], App]) -> None:
        self._running = running
        self._advancing = asyncio.Lock()

    def now(self) -> datetime:
        """Return the broker's time, in the time zone of the system.

        Raises:
            NotRunningError: The broker is not running.
        """
        return datetime.fromtimestamp(self._running().broker.timers.now() / 1_000_000).astimezone()

    async def advance(self, seconds: float | timedelta) -> None:
        """Let time pass. What falls due happens in order, each at its time, and has reached the sockets afterwards.

        What clients do about it happens in real time, so after the whole time has passed.

        Args:
            seconds: Seconds, at least 0.
        Raises:
            NotRunningError: The broker is not running.
            TimeoutError: What fell due has not happened within 30 s of real time.
            ValueError: The seconds are negative.
        """
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not length >= 0:
            raise ValueError(f"a clock goes forwards: {length} s")
        async with self._advancing:
            app = self._running()
            await app.broker.timers.advance(length, lambda: settle(app))
            await settle(app)


async def settle(app: App) -> None:
    """Wait until everything that has begun is done, and its output has been given to the sockets.

    A disk that refuses writes is not waited for.

    Raises:
        TimeoutError: That takes longer than 30 s.
    """
    loop = asyncio.get_running_loop()
    deadline, spins, quiet = loop.time() + _SETTLE_SECONDS, 0, 0
    while quiet < _QUIET:
        await asyncio.sleep(0 if spins < _SPINS else _PAUSE)
        spins += 1
        quiet = quiet + 1 if app.is_settled else 0
        if loop.time() > deadline:
            raise TimeoutError(f"the broker is still busy after {_SETTLE_SECONDS:.0f} s")
