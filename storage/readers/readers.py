"""The named readers of a data directory, as the broker sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from leveret.storage.disk.files import Files, UnreadableFileError, must_read
from leveret.storage.readers.holds import NO_HOLDS, Hold, Holds
from leveret.storage.readers.reader_file import READERS, ReaderFile, ReaderFileError, list_readers, unpack_reader

_LOG: Final = logging.getLogger("leveret.storage")


class Readers:
    """Knows the named readers, and drops those that have not been seen for too long.

    Args:
        files: The file system interface.
        path: The data directory.
        max_age: Microseconds after which a reader that is not seen is dropped.
        max_bytes: Maximum size of the files that are kept for readers alone.

    Attributes:
        known: The readers by name. One whose file has been damaged since stays as it was.
        holds: What they need.
        dropped: How many readers have been dropped because of their age.
    """

    def __init__(self, files: Files, path: str, max_age: int, max_bytes: int) -> None:
        self._files = files
        self._path = path
        self._max_age = max_age
        self._max_bytes = max_bytes
        #: The file of each reader when it was last read.
        self._read: dict[str, bytes] = {}
        #: Numbers of the queues that each reader reads.
        self._queues: dict[str, set[int]] = {}
        self.known: dict[str, ReaderFile] = {}
        self.holds = NO_HOLDS
        self.dropped = 0
        #: Whether the log says that they cannot be read.
        self._is_unreadable = False

    def refresh(self, now: int, queues: Callable[[], Mapping[int, tuple[str, str]]] | None = None) -> bool:
        """Read what the readers have written since the last call.

        Args:
            now: Microseconds since 1970.
            queues: Returns virtual host and name of each queue by number; None if they are not known yet.
        Returns:
            Whether the readers have changed, or what they read.
        """
        before = self.known
        found: dict[str, ReaderFile] = {}
        names = self._names(is_start=queues is None)
        if names is None:
            return False
        for name in names:
            reader = self._reader(name)
            if reader is not None and reader.seen + self._max_age <= now:
                self._drop(reader)
            elif reader is not None:
                found[name] = reader
        self.known = found
        self._read = {name: octets for name, octets in self._read.items() if name in found}
        if queues is None:
            self.holds = Holds((), self._max_bytes, keeps_all=True) if found else NO_HOLDS
            return bool(found)
        patterns = _patterns(found)
        if found == before and self._queues.keys() == found.keys():
            return False
        is_new = patterns != _patterns(before) or self._queues.keys() != found.keys()
        if is_new:
            named = queues().items()
            self._queues = {
                name: {qid for qid, (vhost, queue) in named if reader.wants(vhost, queue)}
                for name, reader in found.items()
            }
        self._make_holds()
        return is_new

    def add_queue(self, qid: int, vhost: str, queue: str) -> None:
        """Note a queue that was just made."""
        for name, numbers in self._queues.items():
            if self.known[name].wants(vhost, queue):
                numbers.add(qid)
        if self.reads(qid):
            self._make_holds()

    def reads(self, qid: int) -> bool:
        """Return whether somebody reads a queue."""
        return any(qid in numbers for numbers in self._queues.values())

    def drop(self, name: str) -> bool:
        """Delete the file of a reader; return whether there was one.

        Raises:
            OSError: It could not be deleted.
        """
        if name not in list_readers(self._files, self._path):
            return False
        self._files.unlink(f"{self._path}/{READERS}/{name}")
        self.known = {each: reader for each, reader in self.known.items() if each != name}
        return True

    def _names(self, is_start: bool) -> list[str] | None:
        """Return the names of the readers; None if they cannot be read now, so that those that are known stay.

        Raises:
            UnreadableFileError: They cannot be read at the start.
        """
        where = f"{self._path}/{READERS}"
        try:
            names = must_read(where, partial(list_readers, self._files, self._path))
        except UnreadableFileError as error:
            if is_start:
                raise
            if not self._is_unreadable:
                _LOG.error("%s; until then what the named readers need stays", error)
            self._is_unreadable = True
            return None
        self._is_unreadable = False
        return names

    def _make_holds(self) -> None:
        holds = [Hold(name, frozenset(self._queues[name]), reader.next) for name, reader in self.known.items()]
        self.holds = Holds(tuple(holds), self._max_bytes) if holds else NO_HOLDS

    def _reader(self, name: str) -> ReaderFile | None:
        """Return a reader; as it was before if its file is damaged now, and None if it always was."""
        where = f"{self._path}/{READERS}/{name}"
        try:
            octets = self._files.read_all(where)
        except OSError as error:
            octets = f"{error.strerror or error}".encode()
        if octets is None:
            return None
        known = self.known.get(name)
        if self._read.get(name) == octets:
            return known
        self._read[name] = octets
        try:
            return unpack_reader(octets, where)
        except ReaderFileError as error:
            what = "what it had not read stays" if known is not None else "nothing is kept for it"
            _LOG.error("reader %s: %s; until then %s", name, error, what)
            return known

    def _drop(self, reader: ReaderFile) -> None:
        """Delete the file of a reader that has not been seen for too long."""
        try:
            self._files.unlink(f"{self._path}/{READERS}/{reader.name}")
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.error("reader %s cannot be dropped: %s", reader.name, error)
            return
        self.dropped += 1
        _LOG.error(
            "reader %s was dropped: it has not been seen for %d s (storage.reader_max_age); nothing is kept for it now",
            *(reader.name, self._max_age // 1_000_000),
        )


def _patterns(readers: Mapping[str, ReaderFile]) -> dict[str, tuple[str | None, str | None]]:
    return {name: (reader.vhost, reader.queue) for name, reader in readers.items()}
