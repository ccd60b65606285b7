"""The event log: how the messages of all queues were settled, in a sequence of files.

Recovery replays it; analytics read it as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.commit import CommitGroup
from leveret.storage.disk.files import Files, TornWriteError, must_read, numbers_in, write_file
from leveret.storage.event_format import (
    DETAILS_PREFIX,
    EVENT_BYTES,
    Event,
    EventDetails,
    EventKind,
    EventRun,
    details_name,
    pack_details,
    pack_event_header,
    unpack_event,
)
from leveret.storage.json_records import HEAD, pack_record


def details_files(files: Files, directory: str) -> list[int]:
    """Return the times in the names of all files of details, ascending."""
    return numbers_in(files, directory, DETAILS_PREFIX, ".log", 20)


class DetailsWriter:
    """Writes the details that belong to one file of the event log after another.

    Args:
        directory: Path of the event log.
        salt: The checksum of the store id.
    """

    __slots__ = ("_directory", "_files", "_handle", "_places", "_salt", "_size")

    def __init__(self, files: Files, directory: str, salt: int) -> None:
        self._files = files
        self._directory = directory
        self._salt = salt
        self._handle = -1
        self._size = 0
        #: Offsets plus 1 of what the file has.
        self._places: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self._size

    def write(self, details: Iterable[bytes], time: int) -> None:
        """Write what the file does not have yet; what cannot be written has no place.

        Args:
            details: Results of pack_details().
            time: Start time of the file of the event log.
        """
        new = [each for each in dict.fromkeys(details) if each not in self._places]
        octets = b"".join([pack_record(each, self._salt) for each in new])
        try:
            if self._handle < 0:
                self._handle = self._files.open(f"{self._directory}/{details_name(time)}", create=True)
                self._size = self._files.size(f"{self._directory}/{details_name(time)}")
            write_file(self._files, self._handle, octets, self._size)
        except OSError:
            # What is there after a torn write is not known: the next file begins anew.
            self._places.update(dict.fromkeys(new, 0))
            return
        for each in new:
            self._places[each] = self._size + 1
            self._size += HEAD.size + len(each)

    def place(self, details: bytes) -> int:
        """Return the offset plus 1 of details that were written; 0 if they could not be written."""
        return self._places.get(details, 0)

    def close(self) -> None:
        """Close the file; the next one belongs to another file of the event log."""
        if self._handle >= 0:
            self._files.close(self._handle)
        self._handle, self._size = -1, 0
        self._places.clear()


_PREFIX: Final = "ev-"
_U32_MAX: Final = (1 << 32) - 1
#: Events are not merged if their longest waits differ by more than this and by more than a tenth.
_WAIT_STEP_MS: Final = 100
#: Message ids that are noted in a second: a program that publishes to a full queue all the time does not fill the disk.
_IDS_PER_SECOND: Final = 1000


class EventPosition(NamedTuple):
    """A position in the log.

    Attributes:
        file: Time in the file's name, by which files are ordered.
        offset: Offset in the file in bytes.
    """

    file: int
    offset: int


class EventLog:
    """Appends events; consecutive runs of messages with the same fate become one record.

    Args:
        directory: Path of its directory, which must exist.
        store_id: ID of the data directory, 16 bytes.
        clock: Microseconds since 1970, never going back.
        file_bytes: Size in bytes at which the next file is started.
    """

    __slots__ = (
        "_clock", "_described", "_details", "_details_of", "_directory", "_ended", "_file", "_file_bytes", "_files",
        "_handle", "_has_partial_write", "_ids_left", "_ids_second", "_new", "_open_runs", "_retired", "_salt", "_size",
        "_store_id", "_unsynced", "appended",
    )  # fmt: skip

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
        #: The file ends with a partial write that could not be undone.
        self._has_partial_write = False
        #: Handles of full files that are not yet synced.
        self._retired: list[int] = []
        #: Events to write, without the open runs.
        self._ended: list[EventRun] = []
        #: The last run of each store, which the next event may extend; by the number of the queue and the priority.
        self._open_runs: dict[int, EventRun] = {}
        self._details = DetailsWriter(files, directory, self._salt)
        #: Events to write that have details, with these; and by what they say, those that the next one may extend.
        self._details_of: list[tuple[EventRun, bytes]] = []
        self._described: dict[tuple[int, int, int, bytes], EventRun] = {}
        #: How many more details may have a message id in a second.
        self._ids_left = self._ids_second = 0
        #: Bytes written since the start.
        self.appended = 0

    def add(
        self,
        qid: int,
        priority: int,
        seq: int,
        length: int,
        kind: EventKind,
        wait_ms: int,
        flags: int,
        body_bytes: int,
        time: int = 0,
        least_ms: int = -1,
        waits: int = -1,
    ) -> None:
        """Add an event for a run of messages.

        Args:
            qid: Number of the queue.
            priority: Priority of the store.
            seq: Number of the first message; 0 for messages without numbers.
            length: Number of messages.
            kind: Kind of event.
            wait_ms: Longest time that one of them waited in the queue, in milliseconds.
            flags: Event flags such as DEAD_LETTERED.
            body_bytes: Sum of their body lengths.
            time: What the clock has just said; 0 to ask it.
            least_ms: Shortest time that one of them waited, in milliseconds; -1 if all waited as long as the first.
            waits: Sum of their waits in microseconds; -1 if all waited as long as the first.
        """
        if least_ms < 0:
            least_ms = wait_ms
        if waits < 0:
            waits = length * wait_ms * 1000
        store = qid << 8 | priority
        last = self._open_runs.get(store)
        if last is not None:
            longest = max(last.wait_ms, wait_ms)
            if (
                (last.seq + last.length == seq or last.seq == seq == 0)
                and last.kind == kind
                and last.flags == flags
                and longest - min(last.least_ms, wait_ms) <= max(_WAIT_STEP_MS, longest // 10)
                and last.body_bytes + body_bytes <= _U32_MAX
                and last.length + length <= _U32_MAX
            ):
                last.length += length
                last.wait_ms = longest
                last.least_ms = min(last.least_ms, least_ms)
                last.waits += waits
                last.body_bytes += body_bytes
                return
            self._ended.append(last)
        time = time or self._clock()
        wait_ms = min(max(wait_ms, 0), _U32_MAX)
        least_ms, waits = min(max(least_ms, 0), wait_ms), max(waits, 0)
        while body_bytes > _U32_MAX and length > 1:
            # A purge of many gigabytes, of which only the sum is known.
            half, half_bytes, half_waits = length // 2, body_bytes // 2, waits // 2
            self.add(qid, priority, seq, half, kind, wait_ms, flags, half_bytes, time, least_ms, half_waits)
            seq, length, body_bytes, waits = seq + half, length - half, body_bytes - half_bytes, waits - half_waits
            self._ended.append(self._open_runs.pop(store))
        length, body_bytes = min(length, _U32_MAX), min(body_bytes, _U32_MAX)
        self._open_runs[store] = EventRun(
            seq, time, qid, length, wait_ms, kind, priority, flags, body_bytes, least_ms, waits
        )

    def add_described(
        self, qid: int, priority: int, length: int, kind: EventKind, flags: int, body_bytes: int, details: EventDetails
    ) -> None:
        """Add an event for messages that are in no queue, with what is known of their publisher.

        Args:
            qid: Number of the queue; 0 for none.
            priority: Priority of the store.
            length: Number of messages.
            kind: REFUSED or UNROUTABLE.
            flags: Event flags such as TOLD.
            body_bytes: Sum of their body lengths.
            details: Said once for all events that are alike. Of very many, the message ids are left out.
        """
        now = self._clock()
        if now // 1_000_000 != self._ids_second:
            self._ids_second, self._ids_left = now // 1_000_000, _IDS_PER_SECOND
        self._ids_left -= 1
        octets = pack_details(details.texts(self._ids_left >= 0))
        key = qid << 8 | priority, kind, flags, octets
        run = self._described.get(key)
        if run is not None and run.length + length <= _U32_MAX and run.body_bytes + body_bytes <= _U32_MAX:
            run.length += length
            run.body_bytes += body_bytes
            return
        body_bytes = min(body_bytes, _U32_MAX)
        run = EventRun(0, now, qid, length, 0, kind, priority, flags, body_bytes, 0, 0)
        self._described[key] = run
        self._ended.append(run)
        self._details_of.append((run, octets))

    def tick(self, leaving: Iterable[tuple[int, int, int, int]] = ()) -> None:
        """Add a tick: everything that happened before it is in the files. It must be written last.

        Args:
            leaving: Messages that have copies and are not removed yet, as ranges: number of the queue, priority, the
                first number, and the one after the last.
        """
        self.close_runs()
        now = self._clock()
        for qid, priority, first, end in leaving:
            count = min(end - first, _U32_MAX)
            self._ended.append(EventRun(first, now, qid, 0, count, EventKind.LEAVING, priority, 0, 0, count, 0))
        self._ended.append(EventRun(0, now, 0, 0, 0, EventKind.TICK, 0, 0, 0, 0, 0))

    def close_runs(self) -> None:
        """Close all runs, so that later events get new records."""
        self._ended += self._open_runs.values()
        self._open_runs.clear()

    def flush(self) -> None:
        """Write the added events.

        Raises:
            OSError: Nothing was written; the events are kept for the next call.
        """
        self.close_runs()
        if not self._ended:
            return
        if self._has_partial_write:
            self._files.truncate(self._handle, self._size)
            self._has_partial_write = False
        if self._handle < 0 or max(self._size, self._details.size) >= self._file_bytes:
            self._roll()
        self._write_details()
        octets = b"".join([event.pack(self._salt) for event in self._ended])
        try:
            write_file(self._files, self._handle, octets, self._size)
        except TornWriteError:
            self._has_partial_write = True
            raise
        self._size += len(octets)
        self.appended += len(octets)
        self._unsynced = True
        self._ended = []
        self._details_of.clear()

    def _write_details(self) -> None:
        """Write the details of events, before these say where they are."""
        self._described.clear()
        if self._details_of:
            self._details.write([octets for _, octets in self._details_of], self._file)
            for run, octets in self._details_of:
                run.seq = self._details.place(octets)

    @property
    def waiting(self) -> bool:
        """Whether there are events to write."""
        return bool(self._open_runs or self._ended)

    @property
    def position(self) -> EventPosition:
        """Position of the next event."""
        return EventPosition(self._file, self._size)

    def collect(self, group: CommitGroup) -> None:
        """Add the written files to a commit group."""
        for retired in self._retired:
            group.journals[retired] = None
            group.callbacks.append(partial(self._files.close, retired))
        self._retired.clear()
        if self._unsynced or self._new:
            # A new file may contain only its header, if there was no space for more.
            group.journals[self._handle] = None
        if self._new:
            group.directories[self._directory] = None
        self._unsynced = self._new = False

    def close(self) -> None:
        """Close the files, after their last sync."""
        for handle in (*self._retired, self._handle):
            if handle >= 0:
                self._files.close(handle)
        self._retired.clear()
        self._handle = -1
        self._details.close()

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
        self._details.close()
        self._new = True


def file_name(time: int) -> str:
    """Return the name of the file with a start time."""
    return f"{_PREFIX}{time:020d}.log"


def event_files(files: Files, directory: str) -> list[int]:
    """Return the start times of the log's files, ascending."""
    return numbers_in(files, directory, _PREFIX, ".log", 20)


def read_events(
    files: Files, directory: str, store_id: bytes, start: EventPosition, damaged: dict[str, int] | None = None
) -> Iterator[Event | None]:
    """Iterate over the events from a position on; None for a damaged one.

    Args:
        directory: Path of the event log.
        store_id: ID of the data directory.
        start: Position of the first event.
        damaged: Receives the number of damaged records by path; 0 if only other parts of the file are damaged.
    """
    salt = crc32(store_id)
    damaged = {} if damaged is None else damaged
    head = pack_event_header(store_id)
    for file in event_files(files, directory):
        if file < start.file:
            continue
        path = f"{directory}/{file_name(file)}"
        octets = must_read(path, partial(files.read_all, path)) or b""
        begin = start.offset if file == start.file else 0
        if begin <= len(octets) < EVENT_BYTES and head.startswith(octets):
            # It was just made when the process was killed.
            continue
        if octets[:EVENT_BYTES] != head:
            damaged[path] = 0
        first = max(EVENT_BYTES, begin)
        for at in range(first, len(octets) - EVENT_BYTES + 1, EVENT_BYTES):
            event = unpack_event(octets, at, salt)
            if event is None:
                damaged[path] = damaged.get(path, 0) + 1
            yield event
        if len(octets) < first:
            damaged.setdefault(path, 0)
        elif len(octets) > first and len(octets) % EVENT_BYTES:
            # The last record is incomplete.
            damaged[path] = damaged.get(path, 0) + 1
            yield None
