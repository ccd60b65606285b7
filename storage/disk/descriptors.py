"""Keeping few files open: what has not been used for a while, or for the longest time, is closed until the next use."""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Final, Protocol

from leveret.storage.disk.files import Files

#: A file that is read goes, with what has been read ahead of it, after so many looks at which it was idle.
_READ_LOOKS: Final = 2
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE})


class Closable(Protocol):
    """Something that has a file open and opens it again by itself when it needs it."""

    def release(self) -> bool:
        """Close the file; tell whether it could be done now."""


class Descriptors:
    """The files that the stores of a data directory have open.

    Args:
        append_max: Files that may be open for appending.
        read_max: Files that may be open for reading.
        append_looks: One that is appended to is closed after so many looks at which it was idle.
    """

    def __init__(self, append_max: int = 256, read_max: int = 128, append_looks: int = 30) -> None:
        self._append_max = append_max
        self._read_max = read_max
        self._append_looks = append_looks
        self._looks = 0
        #: With the look of their last use, least recently used first.
        self._appending: OrderedDict[Closable, int] = OrderedDict()
        self._reading: OrderedDict[Closable, int] = OrderedDict()

    def note_append(self, owner: Closable) -> None:
        """A file is about to be appended to."""
        _note(self._appending, owner, self._looks, self._append_max)

    def note_read(self, owner: Closable) -> None:
        """A file is about to be read."""
        _note(self._reading, owner, self._looks, self._read_max)

    def open(self, files: Files, path: str, create: bool = False) -> int:
        """Open a file; where the process has no descriptor left, those of idle files are given back for it.

        Raises:
            OSError: It could not be opened all the same.
        """
        try:
            return files.open(path, create)
        except OSError as error:
            if not is_shortage(error):
                raise
        self.give_back()
        return files.open(path, create)

    def give_back(self) -> None:
        """Close all files that can be closed now."""
        _close_before(self._appending, self._looks)
        _close_before(self._reading, self._looks)

    def look(self) -> None:
        """Close what has been idle; to be called about once a second."""
        self._looks += 1
        _close_before(self._appending, self._looks - self._append_looks)
        _close_before(self._reading, self._looks - _READ_LOOKS)


def is_shortage(error: OSError) -> bool:
    """Whether there are no descriptors left, which passes."""
    return error.errno in _SHORTAGES


def _note(files: OrderedDict[Closable, int], owner: Closable, look: int, most: int) -> None:
    if owner in files:
        files.move_to_end(owner)
    elif len(files) >= most:
        _close_one(files)
    files[owner] = look


def _close_one(files: OrderedDict[Closable, int]) -> None:
    """Close the one that was used least recently, of those that can be closed now."""
    for owner in files:
        if owner.release():
            del files[owner]
            return


def _close_before(files: OrderedDict[Closable, int], look: int) -> None:
    for owner, used in [*files.items()]:
        if used > look:
            break
        if owner.release():
            del files[owner]
