"""The named readers of a storage engine: which queues they read, and what is kept for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from leveret.storage.clock import Clock
from leveret.storage.disk.files import Files
from leveret.storage.disk.trash import Trash
from leveret.storage.engine_options import EngineOptions
from leveret.storage.readers.holds import NO_HOLDS
from leveret.storage.readers.reader_file import ReaderFile
from leveret.storage.readers.readers import Readers

_LOG: Final = logging.getLogger("leveret.storage")
#: Pause between two log lines about files that were removed unread, in microseconds.
_LOG_PAUSE: Final = 60_000_000


class Named(Protocol):
    """A queue of the engine."""

    @property
    def attributes(self) -> Mapping[str, object]:
        """Metadata of the broker."""


class ReaderCounts(NamedTuple):
    """What is kept for named readers.

    Attributes:
        readers: Number of readers.
        held_bytes: Size of the files that are kept for them alone.
        held_files: How many there are.
        unread_files: How many files were removed that a reader had not read, since the start.
        dropped: How many readers were dropped because they were not seen, since the start.
    """

    readers: int
    held_bytes: int
    held_files: int
    unread_files: int
    dropped: int


class ReaderState(NamedTuple):
    """A named reader.

    Attributes:
        file: What its file says.
        held_bytes: Size of the files that are kept for named readers alone and that it has not read.
    """

    file: ReaderFile
    held_bytes: int


class NamedReaders:
    """Tells the trash and the stores of an engine what named readers need.

    Args:
        files: The file system interface.
        path: The data directory.
        trash: The engine's trash.
        options: Options of the engine.
        clock: The clock of the broker.
    """

    def __init__(self, files: Files, path: str, trash: Trash, options: EngineOptions, clock: Clock) -> None:
        self._readers = Readers(files, path, options.reader_max_age, options.reader_max_bytes)
        self._trash = trash
        self._options = options
        self._clock = clock
        #: What the trash was told last.
        self._told = NO_HOLDS
        self._unread = 0
        self._logged = 0

    def begin(self) -> None:
        """Keep all that is in the trash, if there are readers: recovery does not know yet who needs it."""
        self._readers.begin(self._clock.now())
        self._told = self._readers.holds
        self._trash.hold(self._told)

    def refresh(self, queues: Mapping[int, Named]) -> Iterator[int]:
        """Read what the readers have written.

        Args:
            queues: All queues by number.
        Yields:
            The work of each step, in bytes.
        """
        self._tell_unread()
        return self._readers.refresh(self._clock.now(), partial(_names, queues))

    def take_changes(self) -> bool:
        """Return whether they read other queues than at the last call."""
        changed, self._readers.reads_others = self._readers.reads_others, False
        return changed

    def remove(self, qid: int) -> None:
        """Note a queue that was just deleted."""
        self._readers.remove_queue(qid)

    def add(self, qid: int, attributes: Mapping[str, object]) -> None:
        """Note a queue that was just made."""
        name = _name(attributes)
        if self._readers.known and name is not None:
            self._readers.add_queue(qid, *name)

    def reads(self, qid: int) -> bool:
        """Return whether somebody reads a queue."""
        return self._readers.reads(qid)

    @property
    def states(self) -> list[ReaderState]:
        """All readers."""
        held = self._readers.holds.unread_bytes(self._trash.held)
        return [ReaderState(reader, held.get(name, 0)) for name, reader in self._readers.known.items()]

    def drop(self, name: str) -> bool:
        """Delete the file of a reader; nothing is kept for it after the next refresh().

        Args:
            name: Its name. Its file may be damaged.
        Returns:
            Whether there was one.
        Raises:
            OSError: It could not be deleted.
        """
        return self._readers.drop(name)

    @property
    def retention(self) -> int:
        """Microseconds for which events are kept for the readers."""
        return self._options.reader_max_age if self._readers.known else 0

    def next_action(self) -> Callable[[], None] | None:
        """Return what the thread that owns the trash has to call; None if there are no readers, and it knows that."""
        holds, told = self._readers.holds, self._told
        self._told = holds
        return partial(self._trash.hold, holds) if holds is not NO_HOLDS or told is not NO_HOLDS else None

    @property
    def counts(self) -> ReaderCounts:
        """What is kept for the readers."""
        trash = self._trash
        readers = self._readers
        return ReaderCounts(len(readers.known), trash.held_bytes, trash.held_files, trash.unread_files, readers.dropped)

    def _tell_unread(self) -> None:
        """Log that files were removed that a reader had not read, not more often than once a minute."""
        unread, now = self._trash.unread_files, self._clock.now()
        if unread > self._unread and not 0 <= now - self._logged < _LOG_PAUSE:
            _LOG.error(
                "named readers (%s): %d segment files were removed that they had not read, to keep at most %d bytes"
                " (storage.reader_max_bytes), or for lack of space; their queries are told",
                *(", ".join(self._readers.known) or "none", unread - self._unread, self._options.reader_max_bytes),
            )
            self._unread, self._logged = unread, now


def _names(queues: Mapping[int, Named]) -> dict[int, tuple[str, str]]:
    """Return virtual host and name of the queues that readers can read, by number."""
    named = ((qid, _name(queue.attributes)) for qid, queue in queues.items())
    return {qid: name for qid, name in named if name is not None}


def _name(attributes: Mapping[str, object]) -> tuple[str, str] | None:
    """Return virtual host and name of a queue; None for streams, which keep their messages, and for no queue."""
    if "name" not in attributes or "stream_segment_bytes" in attributes:
        return None
    return str(attributes.get("vhost", "/")), str(attributes["name"])
