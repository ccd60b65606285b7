"""A simulated disk whose process dies in the middle of an operation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tests.support.simulated_files import SimulatedFiles

T = TypeVar("T")


class ProcessDied(BaseException):
    """Simulated death of the process; a BaseException, so that error handlers do not catch it."""


class CrashingFiles(SimulatedFiles):
    """A disk that ends the process just before a change, or half way through a write."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.left: int | None = None
        self.is_dead = False

    @contextmanager
    def dying(self, changes: int) -> Iterator[None]:
        """Make the process die after this many changes, if there are that many."""
        self.left = changes
        try:
            yield
        except ProcessDied:
            pass
        finally:
            self.left = None

    def crash(self, rng: random.Random) -> None:
        self.is_dead = False
        super().crash(rng)

    def stop(self) -> None:
        self.is_dead = False
        super().stop()

    def open(self, path: str, create: bool = False) -> int:
        return self._change(lambda: SimulatedFiles.open(self, path, create), not create)

    def close(self, handle: int) -> None:
        if not self.is_dead:
            super().close(handle)

    def append(self, handle: int, octets: bytes) -> int:
        if self.left == 0 and not self.is_dead and len(octets) > 1:
            super().append(handle, octets[: len(octets) // 2])
        return self._change(lambda: SimulatedFiles.append(self, handle, octets))

    def truncate(self, handle: int, size: int) -> None:
        self._change(lambda: SimulatedFiles.truncate(self, handle, size))

    def overwrite(self, path: str, octets: bytes, offset: int) -> None:
        self._change(lambda: SimulatedFiles.overwrite(self, path, octets, offset))

    def fdatasync(self, handle: int) -> None:
        self._change(lambda: SimulatedFiles.fdatasync(self, handle))

    def rename(self, source: str, target: str) -> None:
        self._change(lambda: SimulatedFiles.rename(self, source, target))

    def unlink(self, path: str) -> None:
        self._change(lambda: SimulatedFiles.unlink(self, path))

    def remove_tree(self, path: str) -> None:
        self._change(lambda: SimulatedFiles.remove_tree(self, path))

    def make_directory(self, path: str) -> None:
        self._change(lambda: SimulatedFiles.make_directory(self, path))

    def sync_directory(self, path: str) -> None:
        self._change(lambda: SimulatedFiles.sync_directory(self, path))

    def _change(self, action: Callable[[], T], harmless: bool = False) -> T:
        if self.is_dead or (self.left == 0 and not harmless):
            self.is_dead = True
            raise ProcessDied
        if not harmless:
            self.changes += 1
            if self.left is not None:
                self.left -= 1
        return action()
