"""The data directories of an embedded broker: one for each time that it begins anew."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

from leveret.broker.app import DEFINITIONS
from leveret.storage.clock import Clock
from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.disk.files import UnsyncedFiles

#: What of it a copy has.
_COPIED: Final = ("FORMAT", "ckpt", "definitions*.sqlite*", "events", "losses.json", "q", "redo")
#: What a broker writes into its data directory. A reset removes it and leaves everything else alone.
_OWN: Final = (
    "FORMAT", "LOCK", "UPGRADE", "archived-to.json", "backup", "ballast", "ckpt", "definitions*.sqlite*", "events",
    "losses.json", "q", "readers", "redo", "snap", "trash", "upgrade",
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
