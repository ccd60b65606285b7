"""The event log: what became of messages, of all queues in one file after another.

It is the journal of acknowledgements that recovery replays, and the table that analytics reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.commit.group import CommitGroup
from leveret.storage.disk.files import Files, TornWriteError, write_file
from leveret.storage.event_format import (
    EVENT_BYTES,
    Event,
    EventKind,
    pack_event,
    pack_event_header,
    unpack_event,
)

_PREFIX: Final = "ev-"
_SUFFIX: Final = ".log"
_U32_MAX: Final = (1 << 32) - 1
#: Runs are cut where waits differ by more than this and by more than a tenth.
_WAIT_STEP_MS: Final = 100


class EventPosition(NamedTuple):
    """A place in the log.

    Attributes:
        file: Time in the name of the file; files follow each other by it.
        offset: Bytes from the beginning of the file.
    """

    file: int
    offset: int


class EventLog:
    """Appends events; runs that continue each other become one record.

    Args:
        files: The file system interface.
        directory: Path of its directory, which is there.
        store_id: ID of the data directory, 16 bytes.
        clock: Microseconds since 1970, never going back.
        file_bytes: The next file is begun once one is so long.
    """

    __slots__ = (
        "_clock",
        "_directory",
        "_ended",
        "_file",
        "_file_bytes",
        "_files",
        "_handle",
        "_is_torn",
        "_new",
        "_open_runs",
        "_retired",
        "_salt",
        "_size",
        "_store_id",
        "_unsynced",
        "appended",
    )

    def __init__(
        self, files: Files, directory: str, store_id: bytes, clock: Callable[[], int], file_bytes: int = 16 << 20
    ) -> None:
        self._files = files
        self._directory = directory
        self._store_id = store_id
        self._salt = crc32(store_id)
        self._clock = clock
        self._file_bytes = file_bytes
        names = event_files(files, directory)
        self._file = names[-1] if names else 0
        self._handle = -1
        self._size = files.size(f"{directory}/{file_name(self._file)}") if names else 0
        self._new = False
        self._unsynced = False
        #: It ends with what could not be taken back.
        self._is_torn = False
        #: Handles of files that are full, not yet synced.
        self._retired: list[int] = []
        #: What is to be written, but for the open runs.
        self._ended: list[Event] = []
        #: The last run of each store, which the next event may continue.
        self._open_runs: dict[tuple[int, int], Event] = {}
        #: Bytes written since the start.
        self.appended = 0

    def add(
        self, qid: int, priority: int, seq: int, length: int, kind: EventKind, wait_ms: int, flags: int, body_bytes: int
    ) -> None:
        """Note what became of a run of messages.

        Args:
            qid: Number of the queue.
            priority: Priority of the store.
            seq: Number of the first message; 0 for messages that never had one.
            length: How many messages.
            kind: What became of them.
            wait_ms: How long they had waited, the longest of them.
            flags: DEAD_LETTERED and the like.
            body_bytes: Sum of their body lengths.
        """
        store = qid, priority
        last = self._open_runs.get(store)
        if last is not None:
            longest = max(last.wait_ms, wait_ms)
            if (
                (last.seq + last.length == seq or last.seq == seq == 0)
                and last.kind == kind
                and last.flags == flags
                and longest - min(last.wait_ms, wait_ms) <= max(_WAIT_STEP_MS, longest // 10)
                and last.body_bytes + body_bytes <= _U32_MAX
                and last.length + length <= _U32_MAX
            ):
                self._open_runs[store] = last._replace(
                    length=last.length + length, wait_ms=longest, body_bytes=last.body_bytes + body_bytes
                )
                return
            self._ended.append(last)
        time = self._clock()
        wait_ms = min(max(wait_ms, 0), _U32_MAX)
        while body_bytes > _U32_MAX and length > 1:
            # A purge of many gigabytes: what is known is the sum only.
            half, half_bytes = length // 2, body_bytes // 2
            self.add(qid, priority, seq, half, kind, wait_ms, flags, half_bytes)
            seq, length, body_bytes = seq + half, length - half, body_bytes - half_bytes
            self._ended.append(self._open_runs.pop(store))
        event = Event(seq, time, qid, min(length, _U32_MAX), wait_ms, kind, priority, flags, min(body_bytes, _U32_MAX))
        self._open_runs[store] = event

    def tick(self) -> None:
        """Note that all that happened before is in the files; to be written after everything else."""
        self.close_runs()
        self._ended.append(Event(0, self._clock(), 0, 0, 0, EventKind.TICK, 0, 0, 0))

    def close_runs(self) -> None:
        """End all runs: what is added from now on has a record of its own."""
        self._ended += self._open_runs.values()
        self._open_runs.clear()

    def flush(self) -> None:
        """Write what was added.

        Raises:
            OSError: Nothing was written; the events are kept for the next time.
        """
        self.close_runs()
        if not self._ended:
            return
        if self._is_torn:
            self._files.truncate(self._handle, self._size)
            self._is_torn = False
        if self._handle < 0 or self._size >= self._file_bytes:
            self._roll()
        octets = b"".join([pack_event(event, self._salt) for event in self._ended])
        try:
            write_file(self._files, self._handle, octets, self._size)
        except TornWriteError:
            self._is_torn = True
            raise
        self._size += len(octets)
        self.appended += len(octets)
        self._unsynced = True
        self._ended = []

    @property
    def waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self._open_runs or self._ended)

    @property
    def unsynced(self) -> bool:
        """Whether something was written that no commit group has."""
        return self._unsynced

    @property
    def position(self) -> EventPosition:
        """Where the next event will stand."""
        return EventPosition(self._file, self._size)

    def collect(self, group: CommitGroup) -> None:
        """Have what was written synced."""
        for retired in self._retired:
            group.journals[retired] = None
            group.callbacks.append(lambda handle=retired: self._files.close(handle))  # type: ignore[misc]
        self._retired.clear()
        if self._unsynced or self._new:
            # A new file may have nothing but its head, if there was no room for more.
            group.journals[self._handle] = None
        if self._new:
            group.directories[self._directory] = None
        self._unsynced = self._new = False

    def close(self) -> None:
        """Close the file; what was written has been synced or is given up."""
        for handle in (*self._retired, self._handle):
            if handle >= 0:
                self._files.close(handle)
        self._retired.clear()
        self._handle = -1

    def _roll(self) -> None:
        file = max(self._clock(), self._file + 1)
        handle = self._files.open(f"{self._directory}/{file_name(file)}", create=True)
        header = pack_event_header(self._store_id)
        try:
            write_file(self._files, handle, header, 0)
        except OSError:
            self._files.close(handle)
            self._files.unlink(f"{self._directory}/{file_name(file)}")
            raise
        if self._handle >= 0:
            self._retired.append(self._handle)
        self._handle, self._file, self._size = handle, file, len(header)
        self._new = True


def file_name(time: int) -> str:
    """Return the name of the file that begins at a time."""
    return f"{_PREFIX}{time:020d}{_SUFFIX}"


def event_files(files: Files, directory: str) -> list[int]:
    """Return the times in the names of the log's files, ascending."""
    times = (name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in files.list_directory(directory))
    return [int(time) for time in times if len(time) == 20 and time.isascii() and time.isdigit()]


def read_events(
    files: Files, directory: str, store_id: bytes, start: EventPosition, damaged: dict[str, int] | None = None
) -> Iterator[Event | None]:
    """Return the events from a position on, in order; None for one that is damaged.

    Args:
        files: The file system interface.
        directory: Path of the event log.
        store_id: ID of the data directory.
        start: Where to begin.
        damaged: Is told how many records of which file are damaged; 0 if it is but none of these is.
    """
    salt = crc32(store_id)
    damaged = {} if damaged is None else damaged
    head = pack_event_header(store_id)
    for file in event_files(files, directory):
        if file < start.file:
            continue
        path = f"{directory}/{file_name(file)}"
        try:
            octets = files.read_all(path) or b""
        except OSError:
            damaged[path] = 1
            yield None
            continue
        if octets[:EVENT_BYTES] != head:
            damaged[path] = 0
        first = max(EVENT_BYTES, start.offset if file == start.file else 0)
        for at in range(first, len(octets) - EVENT_BYTES + 1, EVENT_BYTES):
            event = unpack_event(octets, at, salt)
            if event is None:
                damaged[path] = damaged.get(path, 0) + 1
            yield event
        if len(octets) < first:
            damaged.setdefault(path, 0)
        elif len(octets) > first and len(octets) % EVENT_BYTES:
            # The last one was not written to its end.
            damaged[path] = damaged.get(path, 0) + 1
            yield None
