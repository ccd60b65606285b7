"""Limits open files: closes idle and least recently used files until their next use."""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Final, Protocol

from leveret.storage.disk.files import Files

#: Calls of close_idle() without a use after which a file open for reading, and its read-ahead buffer, is released.
_READ_IDLE_CHECKS: Final = 2
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})


class Closable(Protocol):
    """Owner of an open file, which opens it again when needed."""

    def release(self) -> bool:
        """Close the file; return False if that is not possible now."""


class Descriptors:
    """The open files of all stores of a data directory.

    Args:
        append_max: Maximum number of files open for appending.
        read_max: Maximum number of files open for reading.
        append_idle_checks: Calls of close_idle() without a use after which a file open for appending is closed.
    """

    def __init__(self, append_max: int = 256, read_max: int = 128, append_idle_checks: int = 30) -> None:
        self._append_max = append_max
        self._read_max = read_max
        self._append_checks = append_idle_checks
        self._checks = 0
        #: Owner to the check number of its last use, least recently used first.
        self._appending: OrderedDict[Closable, int] = OrderedDict()
        self._reading: OrderedDict[Closable, int] = OrderedDict()

    def note_append(self, owner: Closable) -> None:
        """Register a file that is about to be appended to."""
        _note(self._appending, owner, self._checks, self._append_max)

    def note_read(self, owner: Closable) -> None:
        """Register a file that is about to be read."""
        _note(self._reading, owner, self._checks, self._read_max)

    def open(self, files: Files, path: str, create: bool = False) -> int:
        """Open a file; if that fails, try again once, because messages cannot be read without it.

        If the process has no descriptors left, all files that can be closed are closed before.

        Raises:
            OSError: The file could not be opened.
        """
        try:
            return files.open(path, create)
        except FileNotFoundError:
            raise
        except OSError as error:
            if is_shortage(error):
                self.close_all()
        return files.open(path, create)

    def close_all(self) -> None:
        """Close all files that can be closed now."""
        _close_before(self._appending, self._checks)
        _close_before(self._reading, self._checks)

    def close_idle(self) -> None:
        """Close idle files. Called about once a second."""
        self._checks += 1
        _close_before(self._appending, self._checks - self._append_checks)
        _close_before(self._reading, self._checks - _READ_IDLE_CHECKS)


def is_shortage(error: OSError) -> bool:
    """Return whether an error means that no file descriptors are left, a temporary condition."""
    return error.errno in _SHORTAGES


def _note(files: OrderedDict[Closable, int], owner: Closable, check: int, most: int) -> None:
    used = files.get(owner)
    if used == check:
        # Those used since the last check are in the order of their first use: that is near enough.
        return
    if used is not None:
        files.move_to_end(owner)
    elif len(files) >= most:
        _close_one(files)
    files[owner] = check


def _close_one(files: OrderedDict[Closable, int]) -> None:
    """Close the least recently used file that can be closed now."""
    for owner in files:
        if owner.release():
            del files[owner]
            return


def _close_before(files: OrderedDict[Closable, int], check: int) -> None:
    for owner, used in [*files.items()]:
        if used > check:
            break
        if owner.release():
            del files[owner]
