"""The named readers of a data directory, as the broker sees them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from leveret.storage.clock import Clock
from leveret.storage.disk.files import Files, UnreadableFileError, must_read
from leveret.storage.disk.trash import NO_HOLDS, Hold, Holds, Trash
from leveret.storage.readers.reader_file import (
    READERS,
    ReaderFile,
    ReaderFileError,
    is_reader_name,
    list_files,
    read_octets,
    remove_reader,
    unpack_reader,
)

_LOG: Final = logging.getLogger("leveret.storage")
#: What opening a file, and comparing a queue's name, takes: as long as to read this many bytes.
_FILE_WORK: Final = 2048
_QUEUE_WORK: Final = 50
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
    """Knows the named readers, tells the trash what they need, and drops those that have not been seen for too long.

    Args:
        trash: The engine's trash.
        max_age: Microseconds after which a reader that is not seen is dropped.
        max_bytes: Maximum size of the files that are kept for readers alone.

    Attributes:
        known: The readers by name, which is that of the file. One whose file has been damaged since stays as it was.
        dropped: How many readers have been dropped because of their age.
        reads_others: Whether they read other queues than when this was last set to False.
    """

    def __init__(self, files: Files, path: str, trash: Trash, max_age: int, max_bytes: int, clock: Clock) -> None:
        self._files = files
        self._trash = trash
        self._clock = clock
        self._path = path
        self._max_age = max_age
        self._max_bytes = max_bytes
        #: The file of each reader when it was last read.
        self._read: dict[str, bytes] = {}
        #: Why files were refused that have been logged, by name.
        self._refused: dict[str, str] = {}
        #: Numbers of the queues that each reader reads.
        self._queues: dict[str, set[int]] = {}
        #: How many readers read a queue.
        self._read_by: dict[int, int] = {}
        #: What each reader needs, as far as it has not changed.
        self._needs: dict[str, Hold] = {}
        self._holds = NO_HOLDS
        self._has_changed = False
        self.known: dict[str, ReaderFile] = {}
        self.dropped = 0
        self.reads_others = False
        #: Whether the log says that they cannot be read.
        self._is_unreadable = False
        #: What the trash was told last.
        self._told = NO_HOLDS
        self._unread = self._logged = 0

    @property
    def holds(self) -> Holds:
        """What the readers need."""
        if self._has_changed and self._queues.keys() == self.known.keys():
            self._has_changed = False
            for name in [each for each in self.known if each not in self._needs]:
                self._needs[name] = Hold(name, frozenset(self._queues[name]), self.known[name].next)
            since = min((each.since for each in self.known.values() if each.since is not None), default=None)
            self._holds = Holds(tuple(self._needs.values()), self._max_bytes, since=since) if self._needs else NO_HOLDS
        return self._holds

    def begin(self, now: int) -> None:
        """Read the readers before it is known which queues there are: until refresh() everything may be needed.

        Args:
            now: Microseconds since 1970.
        Raises:
            UnreadableFileError: They cannot be read.
        """
        for name in self._names(is_start=True) or ():
            self._note(name, now)
        self._holds = Holds((), self._max_bytes, keeps_all=True) if self.known else NO_HOLDS
        self._has_changed = False

    def refresh(self, now: int, queues: Callable[[], Mapping[int, tuple[str, str]]]) -> Iterator[int]:
        """Read what the readers have written since the last call.

        Args:
            now: Microseconds since 1970.
            queues: Returns virtual host and name of each queue by number.
        Yields:
            The work of a step, in bytes of a reader's file or what takes as long. `holds` is valid at the end.
        """
        names = self._names(is_start=False)
        if names is None:
            return
        for name in names:
            self._note(name, now)
            work = _FILE_WORK + len(self._read.get(name, b""))
            if name in self.known and name not in self._queues:
                named = queues()
                self._assign(name, named)
                work += _QUEUE_WORK * len(named)
            yield work
        there = set(names)
        for name in [each for each in self.known if each not in there]:
            self._forget(name)
        self._refused = {name: why for name, why in self._refused.items() if name in there}

    def add_queue(self, qid: int, vhost: str, queue: str) -> None:
        """Note a queue that was just made."""
        for name, numbers in self._queues.items():
            if qid not in numbers and self.known[name].wants(vhost, queue):
                numbers.add(qid)
                self._read_by[qid] = self._read_by.get(qid, 0) + 1
                self._needs.pop(name, None)
                self._has_changed = True

    def remove_queue(self, qid: int) -> None:
        """Note that a queue was deleted."""
        if self._read_by.pop(qid, 0):
            for name, numbers in self._queues.items():
                if qid in numbers:
                    numbers.remove(qid)
                    self._needs.pop(name, None)
            self._has_changed = True

    def reads(self, qid: int) -> bool:
        """Return whether somebody reads a queue."""
        return qid in self._read_by

    def drop(self, name: str) -> bool:
        """Delete the file of a reader, which may be damaged; return whether there was one.

        Raises:
            OSError: It could not be deleted.
        """
        if not is_reader_name(name) or name not in list_files(self._files, self._path):
            return False
        remove_reader(self._files, self._path, name)
        self._forget(name)
        return True

    def _names(self, is_start: bool) -> list[str] | None:
        """Return the names of the readers; None if they cannot be read now, so that those that are known stay.

        Raises:
            UnreadableFileError: They cannot be read at the start.
        """
        where = f"{self._path}/{READERS}"
        try:
            names = must_read(where, partial(list_files, self._files, self._path))
        except UnreadableFileError as error:
            if is_start:
                raise
            if not self._is_unreadable:
                _LOG.error("%s; until then what the named readers need stays", error)
            self._is_unreadable = True
            return None
        self._is_unreadable = False
        return names

    def _note(self, name: str, now: int) -> None:
        """Note what a file says now, or drop its reader."""
        known, reader = self.known.get(name), self._reader(name)
        if reader is None:
            self._forget(name)
        elif reader.seen + self._max_age <= now:
            self._drop(reader)
        elif reader != known:
            self.known[name] = reader
            if name in self._needs:
                self._needs[name] = self._needs[name]._replace(next=reader.next)
            self._has_changed = True
            if known is not None and (known.vhost, known.queue) != (reader.vhost, reader.queue):
                self._unassign(name)

    def _assign(self, name: str, named: Mapping[int, tuple[str, str]]) -> None:
        """Find the queues that a reader reads."""
        wants = self.known[name].wants
        found = self._queues[name] = {qid for qid, (vhost, queue) in named.items() if wants(vhost, queue)}
        for qid in found:
            self._read_by[qid] = self._read_by.get(qid, 0) + 1
        self._has_changed = self.reads_others = True

    def _unassign(self, name: str) -> None:
        """Forget the queues that a reader reads."""
        for qid in self._queues.pop(name, ()):
            self._read_by[qid] -= 1
            if not self._read_by[qid]:
                del self._read_by[qid]
        self._needs.pop(name, None)
        self._has_changed = self.reads_others = True

    def _reader(self, name: str) -> ReaderFile | None:
        """Return a reader; as it was before if its file is refused now, and None if it always was."""
        known = self.known.get(name)
        if not is_reader_name(name):
            where = f"{self._path}/{READERS}"
            self._refuse(name, f"{where} has a file of this name, which no reader can have; nothing is kept for it")
            return None
        try:
            octets = read_octets(self._files, self._path, name)
            if octets is None:
                return None
            if self._read.get(name) == octets:
                return known
            self._read[name] = octets
            reader = unpack_reader(octets, f"{self._path}/{READERS}/{name}")
        except ReaderFileError as error:
            what = "what it had not read stays" if known is not None else "nothing is kept for it"
            self._refuse(name, f"{error}; until then {what}")
            return known
        self._refused.pop(name, None)
        return reader

    def _forget(self, name: str) -> None:
        """Forget a reader whose file is gone."""
        self._read.pop(name, None)
        if self.known.pop(name, None) is not None:
            self._unassign(name)

    def _drop(self, reader: ReaderFile) -> None:
        """Delete the file of a reader that has not been seen for too long."""
        self._forget(reader.name)
        try:
            remove_reader(self._files, self._path, reader.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refuse(reader.name, f"it cannot be dropped: {error.strerror or error}")
            return
        self.dropped += 1
        _LOG.error(
            "reader %s was dropped: it has not been seen for %d s (storage.reader_max_age); nothing is kept for it now",
            *(reader.name, self._max_age // 1_000_000),
        )

    def _refuse(self, name: str, why: str) -> None:
        """Log why a file is refused, if the log does not say it."""
        if self._refused.get(name) != why:
            self._refused[name] = why
            _LOG.error("reader %s: %s", name if is_reader_name(name) else ascii(name), why)

    def begin_with_trash(self) -> None:
        """Keep all that is in the trash, if there are readers: recovery does not know yet who needs it."""
        self.begin(self._clock.now())
        self._told = self.holds
        self._trash.hold(self._told)

    def refresh_for(self, queues: Mapping[int, Named]) -> Iterator[int]:
        """Read what the readers of some queues have written; see refresh()."""
        self._tell_unread()
        return self.refresh(self._clock.now(), partial(_names, queues))

    def take_changes(self) -> bool:
        """Return whether they read other queues than at the last call."""
        changed, self.reads_others = self.reads_others, False
        return changed

    def add(self, qid: int, attributes: Mapping[str, object]) -> None:
        """Note a queue that was just made."""
        name = _name(attributes)
        if self.known and name is not None:
            self.add_queue(qid, *name)

    @property
    def states(self) -> list[ReaderState]:
        """All readers."""
        held, all_held = self.holds.unread_bytes(self._trash.held), self._trash.held_bytes
        return [
            ReaderState(reader, held.get(name, 0) if reader.since is None else all_held)
            for name, reader in self.known.items()
        ]

    @property
    def retention(self) -> int:
        """Microseconds for which events are kept for the readers."""
        return self._max_age if any(each.since is None for each in self.known.values()) else 0

    def next_action(self) -> Callable[[], None] | None:
        """Return what the thread that owns the trash has to call; None if there are no readers, and it knows that."""
        holds, told = self.holds, self._told
        self._told = holds
        return partial(self._trash.hold, holds) if holds is not NO_HOLDS or told is not NO_HOLDS else None

    @property
    def counts(self) -> ReaderCounts:
        """What is kept for the readers."""
        trash = self._trash
        return ReaderCounts(len(self.known), trash.held_bytes, trash.held_files, trash.unread_files, self.dropped)

    def _tell_unread(self) -> None:
        """Log that files were removed that a reader had not read, not more often than once a minute."""
        unread, now = self._trash.unread_files, self._clock.now()
        if unread > self._unread and not 0 <= now - self._logged < _LOG_PAUSE:
            _LOG.error(
                "named readers (%s): %d segment files were removed that they had not read, to keep at most %d bytes"
                " (storage.reader_max_bytes), or for lack of space; their queries are told",
                *(", ".join(self.known) or "none", unread - self._unread, self._max_bytes),
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
