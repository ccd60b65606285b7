"""The messages of a stream: appended, read any number of times from any number on, removed in whole segments.

The numbers are those of its segment store: the first message, with the offset 0, has 1. None is ever taken or settled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.segments.message_log import SegmentChain
from leveret.storage.segments.reader import SegmentReader
from leveret.storage.segments.segment import Segment
from leveret.storage.stores.segment_store import SegmentStore

#: Higher than all sequence numbers.
_NO_SEQ: Final = 1 << 64


class _Unit:
    """Consecutive complete files that are kept or removed together.

    Attributes:
        first_seq: Number of the first message.
        files: Number of the files.
        size: Their size in bytes.
        latest: Arrival of the last message in microseconds since 1970.
    """

    __slots__ = ("files", "first_seq", "latest", "size")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.files = self.size = self.latest = 0


class RetentionUnits:
    """Groups the files of a stream, from the oldest on, into units of at least the size of its segments.

    The files may be smaller than that. Which files belong together follows from their sizes alone, so it is the same
    after a restart.

    Args:
        unit_bytes: The size in bytes.
    """

    __slots__ = ("_next", "_size", "_unit_bytes", "_units")

    def __init__(self, unit_bytes: int) -> None:
        self._unit_bytes = unit_bytes
        self._units: deque[_Unit] = deque()
        #: Size of all units.
        self._size = 0
        #: All files before this number are in a unit.
        self._next = 0

    def __len__(self) -> int:
        return len(self._units)

    def end_of_excess(
        self, chain: SegmentChain, most_bytes: int | None, oldest: int | None, most_files: int = _NO_SEQ
    ) -> int:
        """Return the number before which messages are to be removed; 0 if none are.

        The newest unit stays, and so does what is being written.

        Args:
            chain: The files.
            most_bytes: Size in bytes that may be kept; None for no limit.
            oldest: Units whose last message arrived before this time, in microseconds since 1970, are removed; None
                for no limit.
            most_files: Stop after about this many files.
        """
        self._update(chain)
        units, active = self._units, chain.active
        size = self._size + (0 if active is None else active.size)
        # The file that is being written continues the last unit, unless that is full.
        is_new = active is not None and (not units or units[-1].size >= self._unit_bytes)
        at = files = 0
        end = len(units) if is_new else len(units) - 1
        for unit in units:
            is_old = oldest is not None and unit.latest < oldest
            if at >= end or files >= most_files or not (is_old or (most_bytes is not None and size > most_bytes)):
                break
            size -= unit.size
            files += unit.files
            at += 1
        if not at:
            return 0
        return units[at].first_seq if at < len(units) else self._next

    def drop_below(self, seq: int) -> None:
        """Forget the units whose messages have been removed."""
        while self._units and self._units[0].first_seq < seq:
            self._size -= self._units.popleft().size

    def _update(self, chain: SegmentChain) -> None:
        """Add the files that are complete."""
        units = self._units
        for segment in chain.overlapping(self._next, _NO_SEQ):
            if segment.first_seq < self._next:
                continue
            if segment is chain.active:
                break
            if not units or units[-1].size >= self._unit_bytes:
                units.append(_Unit(segment.first_seq))
            units[-1].files += 1
            units[-1].size += segment.size
            units[-1].latest = segment.max_arrived
            self._size += segment.size
            self._next = segment.last_seq + 1


def file_bytes(unit_bytes: int, most: int) -> int:
    """Return the size of the files of a stream, so that units consist of files of about the same size.

    Args:
        unit_bytes: Size of a unit.
        most: Maximum size of a file.
    """
    files = -(-unit_bytes // most)
    return -(-unit_bytes // files) if files else 0


#: Messages, and bytes of bodies, that are read from disk at once.
_PAGE_MESSAGES: Final = 256
_PAGE_BYTES: Final = 128 << 10
#: Pages that are kept for other readers in about the same place.
_PAGES_SHARED: Final = 8
#: Bytes of bodies, and messages, of the newest messages that are kept in memory for readers at the end.
_TAIL_BYTES: Final = 1 << 20
_TAIL_MESSAGES: Final = 8192
_ANY_EXPIRY: Final = 0
#: Files that retention removes at once, about: some milliseconds of work.
_FILES_REMOVED: Final = 1024
#: The number of the message with offset 0.
FIRST_NUMBER: Final = 1


class Removed(NamedTuple):
    """What the retention removes.

    Attributes:
        messages: Number of messages.
        body_bytes: Sum of their body lengths, about.
    """

    messages: int
    body_bytes: int


class Page:
    """Messages with consecutive numbers, in memory.

    Attributes:
        first: Number of the first message.
        body_bytes: Sum of their body lengths.
    """

    __slots__ = ("body_bytes", "entries", "first")

    def __init__(self, entries: list[Entry], body_bytes: int) -> None:
        self.first = entries[0][0]
        self.entries = entries
        self.body_bytes = body_bytes

    def has(self, number: int) -> bool:
        """Return whether it has the message with a number."""
        return self.first <= number < self.first + len(self.entries)


class _Tail:
    """The newest messages, for readers that have read all others.

    Attributes:
        body_bytes: Sum of the body lengths.
    """

    __slots__ = ("_count", "_firsts", "_pages", "body_bytes")

    def __init__(self) -> None:
        self._pages: list[Page] = []
        self._firsts: list[int] = []
        self._count = self.body_bytes = 0

    def add(self, first: int, messages: Sequence[Message], body_bytes: int) -> None:
        """Add messages that follow the others, and remove old ones if there are too many.

        Args:
            first: Number of the first message.
            body_bytes: Sum of their body lengths.
        """
        entries: list[Entry] = [(number, message, False) for number, message in enumerate(messages, first)]
        self._count += len(entries)
        self.body_bytes += body_bytes
        if self._pages and len(self._pages[-1].entries) < _PAGE_MESSAGES:
            last = self._pages[-1]
            last.entries += entries
            last.body_bytes += body_bytes
        else:
            self._pages.append(Page(entries, body_bytes))
            self._firsts.append(first)
        drop = 0
        while drop < len(self._pages) and (self.body_bytes > _TAIL_BYTES or self._count > _TAIL_MESSAGES):
            self._count -= len(self._pages[drop].entries)
            self.body_bytes -= self._pages[drop].body_bytes
            drop += 1
        del self._pages[:drop], self._firsts[:drop]

    def find(self, number: int) -> Page | None:
        """Return the page with a message; None if it is not in memory."""
        at = bisect_right(self._firsts, number) - 1
        return self._pages[at] if at >= 0 and self._pages[at].has(number) else None

    def clear(self) -> None:
        """Remove all messages."""
        self._pages.clear()
        self._firsts.clear()
        self._count = self.body_bytes = 0


class StreamStore:
    """The messages of a stream.

    Args:
        store: The segment store; it must be lazy, and nothing else may take messages from it.
        unit_bytes: Size of the segments that retention removes, in bytes.

    Attributes:
        keeps_tail: Whether the newest messages are kept in memory, because there are readers.
        has_stalled: Whether a reader has to be asked again later, because the system could not read something.
    """

    __slots__ = (
        "_active_seq", "_last_arrival", "_last_batch", "_pages", "_seeker", "_store", "_tail", "_units",
        "_was_appended", "has_stalled", "keeps_tail",
    )  # fmt: skip

    def __init__(self, store: SegmentStore, unit_bytes: int) -> None:
        self._store = store
        self._units = RetentionUnits(unit_bytes)
        self._tail = _Tail()
        #: Pages that were read last, the newest at the end.
        self._pages: list[Page] = []
        #: Finds places by time.
        self._seeker = SegmentReader(store.place)
        #: Number of the first message of those that were appended last at one time, and that time; 0 before the first.
        self._last_batch = self._last_arrival = 0
        #: Whether something was appended since the last idle().
        self._was_appended = False
        #: Number of the first message of the file that was being written when has_rolled() was last asked.
        self._active_seq = 0
        self.keeps_tail = False
        self.has_stalled = False

    # -- figures ------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._store.ready_count

    @property
    def first_number(self) -> int:
        """Number of the first message; that of the next one if there is none."""
        return self.resolve(0)

    @property
    def floor(self) -> int:
        """A number below which all messages were removed."""
        return self._store.log.dead.floor

    @property
    def next_number(self) -> int:
        """Number of the next message."""
        return self._store.next_seq

    @property
    def offsets(self) -> tuple[int, int]:
        """The offset of the first message, and the one after that of the last."""
        return self.first_number - FIRST_NUMBER, self.next_number - FIRST_NUMBER

    @property
    def written_end(self) -> int:
        """The number before which all messages are written."""
        return self._store.paging.first_unwritten(self._store.next_seq)

    # -- appending ----------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages, which can be read after the next flush; for the arguments see MessageStore."""
        store = self._store
        first = store.next_seq
        store.append(messages, body_bytes, longest)
        arrival = store.ram.arrival(first)[0]
        if arrival != self._last_arrival:
            self._last_batch, self._last_arrival = first, arrival
        self._was_appended = True
        if self.keeps_tail:
            self._tail.add(first, messages, body_bytes)

    # -- finding places -----------------------------------------------------------------------------------

    def resolve(self, number: int) -> int:
        """Return the number of the first message from a number on; that of the next message if there is none."""
        end = self._store.next_seq
        if number >= end:
            return number
        return next(self._store.log.dead.live_runs(number, end), (end, end))[0]

    def count_between(self, number: int, end: int) -> int:
        """Return how many messages there are from a number up to another one, whether they can be read or not."""
        return sum([high - low for low, high in self._store.log.dead.live_runs(number, end)])

    def last_batch(self) -> int:
        """Return the number of the first message of those that arrived last, together; of the next one if none did."""
        store = self._store
        if self._last_batch:
            return self.resolve(self._last_batch)
        segments = store.log.segments
        return self.number_at(segments[-1].max_arrived) if segments else store.next_seq

    def number_at(self, time: int) -> int:
        """Return the number of the first message on disk that arrived at a time or later.

        It is that of the first message that is not on disk yet if there is none.

        Args:
            time: Microseconds since 1970.
        """
        segments = self._store.log.segments
        at = bisect_left(segments, time, key=_latest)
        if at == len(segments):
            return self.written_end
        try:
            number = self._seeker.number_at(segments[at], time)
        except OSError:
            # Too early is better than too late.
            number = segments[at].first_seq
        finally:
            self._seeker.release()
        return self.resolve(number)

    # -- reading ------------------------------------------------------------------------------------------

    def find_page(self, number: int) -> Page | None:
        """Return a page in memory with a message; None if there is none."""
        found = self._tail.find(number)
        if found is None:
            for page in self._pages:
                if page.has(number):
                    return page
        return found

    def read_page(self, reader: SegmentReader, number: int, end: int) -> Page | None:
        """Read messages from disk.

        Args:
            reader: Of the one who reads.
            number: Number of the first message; it is not removed.
            end: Number after the last one that may be read.
        Returns:
            The messages; None if the first one is damaged: it is lost now, and maybe others after it.
        Raises:
            OSError: The system cannot read the first one for now.
        """
        store = self._store
        limit = next(store.log.dead.live_runs(number, end), (number, number))[1]
        entries = self._read(reader, number, min(_PAGE_MESSAGES, limit - number))
        if not entries:
            readable = self._next_readable(reader, number, limit)
            # Only an index may be damaged; the reader is positioned at the record now.
            entries = self._read(reader, number, 1) if readable == number else []
            if not entries:
                store.lose(number, max(readable, number + 1))
                store.cursor.clear(store.log.dead.floor)
                return None
        store.log.disk_reads += len(entries)
        page = Page(entries, sum([len(message.body) for _, message, _ in entries]))
        self._pages.append(page)
        del self._pages[:-_PAGES_SHARED]
        return page

    def _read(self, reader: SegmentReader, number: int, count: int) -> list[Entry]:
        segment = self._store.log.chains[0].find(number)
        if segment is None or count <= 0:
            return []
        try:
            entries = reader.read_run(segment, number, count, _PAGE_BYTES, _ANY_EXPIRY, False)
        except FileNotFoundError:
            return []
        if not entries and reader.failure is not None:
            raise reader.failure
        return entries

    def _next_readable(self, reader: SegmentReader, number: int, end: int) -> int:
        """Return the lowest number from a number on that can be read; the end if there is none before it.

        Raises:
            OSError: The system cannot read some for now.
        """
        for segment in self._store.log.chains[0].overlapping(number, end):
            try:
                found = reader.next_seq(segment, number)
            except FileNotFoundError:
                continue
            if reader.failure is not None and found != number:
                raise reader.failure
            if found is not None:
                return min(end, found)
        return end

    def note_unreadable(self, number: int, error: OSError) -> None:
        """Note that messages from a number on cannot be read for now."""
        if not self.has_stalled:
            self.has_stalled = True
            self._store.log_unreadable(number, error)

    def reader_at(self, number: int) -> StreamReader:
        """Return a reader that begins with the first message from a number on, which may be one of the future."""
        return StreamReader(self, SegmentReader(self._store.place), number)

    # -- retention ----------------------------------------------------------------------------------------

    def has_rolled(self) -> bool:
        """Return whether a new file has been begun since the last call."""
        active = self._store.log.chains[0].active
        before, self._active_seq = self._active_seq, 0 if active is None else active.first_seq
        return self._active_seq != before

    def retain(self, most_bytes: int | None, oldest: int | None) -> Removed:
        """Remove the oldest segments as far as they exceed limits; see RetentionUnits.

        If very many do, others are left for the next call. The files are deleted after the next flush.

        Args:
            most_bytes: Size in bytes that may be kept; None for no limit.
            oldest: Messages that arrived before this time, in microseconds since 1970, may be removed; None for no
                limit.
        """
        store = self._store
        end = self._units.end_of_excess(store.log.chains[0], most_bytes, oldest, _FILES_REMOVED)
        if not end:
            return Removed(0, 0)
        removed = self._below(end)
        wait = store.place.clock() - store.log.oldest
        # Usually one range, as none is taken or settled.
        for low, high in [*store.log.dead.live_runs(0, end)]:
            part = removed.body_bytes * (high - low) // max(1, removed.messages)
            store.discard(low, high, EventKind.RETENTION, part, wait)
        self._units.drop_below(end)
        store.cursor.clear(store.log.dead.floor)
        return removed

    def excess(self, most_bytes: int | None, oldest: int | None) -> Removed:
        """Return what retain() would remove."""
        return self._below(self._units.end_of_excess(self._store.log.chains[0], most_bytes, oldest))

    def _below(self, end: int) -> Removed:
        """Return the messages in the segments that begin before a number."""
        segments = [segment for segment in self._store.log.segments if segment.first_seq < end]
        return Removed(sum([each.live for each in segments]), sum([each.live_bytes for each in segments]))

    def idle(self) -> None:
        """Free the memory of the newest messages if none was appended since the last call; called now and then."""
        if not self._was_appended:
            self._tail.clear()
            self._pages.clear()
        self._was_appended = False

    def end_reading(self) -> None:
        """Free the memory for readers: there are none."""
        self.keeps_tail = False
        self._tail.clear()
        self._pages.clear()


class StreamReader:
    """A place in a stream, from which messages are read one after another; see StreamStore.reader_at().

    Args:
        reader: Reads its files.
        number: Number of the first message.

    Attributes:
        number: Number of the next message.
    """

    __slots__ = ("_page", "_reader", "_stream", "number")

    def __init__(self, stream: StreamStore, reader: SegmentReader, number: int) -> None:
        self._stream = stream
        self._reader = reader
        self._page: Page | None = None
        self.number = number

    def read(self, count: int, body_bytes: int, end: int) -> list[Entry]:
        """Read the next messages, all in one place: there may be more.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies have reached this many bytes.
            end: Number after the last message that may be read.
        Returns:
            The messages; none if there are none before the end, or the system cannot read them for now.
        """
        stream = self._stream
        # What was removed meanwhile may still be in memory.
        self.number = max(self.number, min(stream.floor, end))
        while self.number < end:
            page = self._page
            if page is None or not page.has(self.number):
                number = min(end, stream.resolve(self.number))
                self.number = number
                page = self._page = stream.find_page(number) if number < end else None
                if page is None and number < end:
                    try:
                        page = self._page = stream.read_page(self._reader, number, end)
                    except OSError as error:
                        stream.note_unreadable(number, error)
                        break
            if page is not None:
                return self._take(page, count, body_bytes, end)
        self.release()
        return []

    def _take(self, page: Page, count: int, body_bytes: int, end: int) -> list[Entry]:
        start = self.number - page.first
        entries = page.entries[start : min(start + count, end - page.first)]
        left, taken = body_bytes, 0
        for _, message, _ in entries:
            if left <= 0:
                break
            left -= len(message.body)
            taken += 1
        self.number += taken
        return entries if taken == len(entries) else entries[:taken]

    def release(self) -> None:
        """Free file and buffer until the next read()."""
        self._page = None
        self._reader.release()


def _latest(segment: Segment) -> int:
    return segment.max_arrived
