"""Reads segments in order, from any sequence number, skipping damaged bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from leveret.storage.format import (
    EXTENDED,
    FOOTER_BYTES,
    INDEX_STEP,
    RECORD_BYTES,
    RECORD_MAGIC,
    RECORD_WALK,
    SEGMENT_HEADER_BYTES,
    RecordHeader,
    check_record,
    peek_record,
    read_same_envelope,
    unpack_envelope,
    unpack_footer,
)
from leveret.storage.interface import Entry
from leveret.storage.message import NO_ENVELOPE, StoredMessage
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Segment, StorePlace

#: Minimum and maximum bytes per read; a longer record is read with one call.
_CHUNK_MIN: Final = 4 << 10
_CHUNK_MAX: Final = 256 << 10
_PAGE: Final = 4 << 10
#: If none of so many pages in a row can be read, the disk fails as a whole, and trying the following ones is useless.
_PAGES_TRIED: Final = 16


#: Not the beginning of any envelope.
_NO_PREFIX: Final = bytes(4)


class SegmentReader:
    """Reads the records of a store's segments, with a position and a read-ahead buffer.

    What the system cannot read looks like damage, but may be readable later.

    Attributes:
        failure: Why the last read_run(), measure_run() or next_seq() could not read something; None if it could.
    """

    __slots__ = (
        "_chunk", "_chunk_at", "_envelope", "_handle", "_offset", "_place", "_prefix", "_prefix_crc", "_run_at",
        "_run_seq", "_seq", "_segment", "failure",
    )  # fmt: skip

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self.failure: OSError | None = None
        self._segment: Segment | None = None
        self._handle = -1
        #: The record at `_offset` and all later ones have at least the number `_seq`.
        self._offset = 0
        self._seq = 0
        #: Where the last run began, so that what was only looked at is found again. The number is 0 if there is none.
        self._run_at = self._run_seq = 0
        self._chunk = b""
        self._chunk_at = 0
        #: The last decoded envelope, reused for records with equal ones.
        self._envelope = NO_ENVELOPE
        #: The common bytes of these records; initially a value that no record has.
        self._prefix = _NO_PREFIX
        self._prefix_crc = 0

    def release(self) -> bool:
        """Close the file and free the buffer; later reads open it again. Always returns True."""
        if self._handle >= 0:
            self._place.files.close(self._handle)
        self._handle = -1
        self._segment = None
        self._chunk = b""
        return True

    def read_run(
        self, segment: Segment, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool
    ) -> list[Entry]:
        """Read messages with consecutive numbers.

        Args:
            segment: Segment to read, with correct metadata.
            seq: Sequence number of the first message.
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies have reached this many bytes.
            expired_at: Only messages that expire by this time; 0 for all.
            redelivered: Redelivered flag of the entries.
        Returns:
            Messages with consecutive numbers; none if the first one is missing or damaged.
        Raises:
            OSError: The file cannot be opened, or nothing in it can be read.
        """
        self._forget_failure()
        at = self._seek(segment, seq, count)
        entries = self._read_on(segment, at, seq, count, body_bytes, expired_at, redelivered)
        if not entries and self._is_elsewhere(segment, seq, at):
            return self._read_on(segment, self._offset, seq, count, body_bytes, expired_at, redelivered)
        return entries

    def _is_elsewhere(self, segment: Segment, seq: int, at: int) -> bool:
        """Return whether the record of a number is not where it was looked for; the reader is at the record then.

        Without gaps there is one, maybe behind a damaged record of which the length or the number is wrong.
        """
        return segment.gapless and self._find_valid(segment, seq) == seq and self._offset != at

    def _read_on(
        self, segment: Segment, at: int, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool
    ) -> list[Entry]:
        """Read messages with consecutive numbers from an offset on; see read_run()."""
        self._run_at, self._run_seq = at, seq
        entries: list[Entry] = []
        salt, end = self._place.salt, segment.data_len
        while len(entries) < count and body_bytes > 0 and at < end:
            start = at - self._chunk_at
            found = read_same_envelope(self._chunk, start, self._prefix, self._prefix_crc, salt) if start >= 0 else None
            if found is None:
                # Another envelope, a damaged record, or not completely in the chunk.
                found = self._read(at)
                if found is None:
                    break
            rec_len, number, arrived, expires, body = found
            if number != seq or (expired_at and not 0 < expires <= expired_at):
                break
            entries.append((seq, StoredMessage(self._envelope, body, expires, arrived), redelivered))
            body_bytes -= len(body)
            at += rec_len
            seq += 1
        self._offset, self._seq = at, seq
        return entries

    def measure_run(
        self, segment: Segment, seq: int, count: int, body_bytes: int, expired_at: int
    ) -> tuple[int, int, int, int]:
        """Measure messages with consecutive numbers from the headers of their records.

        Args:
            segment: Segment to read.
            seq: Sequence number of the first message.
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies have reached this many bytes.
            expired_at: Only messages that expire by this time; 0 for all.
        Returns:
            Their number, the sum of their body lengths, and the arrival of the first and of the last one.
        Raises:
            OSError: The file cannot be opened, or nothing in it can be read.
        """
        self._forget_failure()
        at = self._seek(segment, seq, min(count, INDEX_STEP))
        found = self._measure_on(segment, at, seq, count, body_bytes, expired_at)
        if not found[0] and self._is_elsewhere(segment, seq, at):
            return self._measure_on(segment, self._offset, seq, count, body_bytes, expired_at)
        return found

    def _measure_on(
        self, segment: Segment, at: int, seq: int, count: int, body_bytes: int, expired_at: int
    ) -> tuple[int, int, int, int]:
        """Measure messages with consecutive numbers from an offset on; see measure_run()."""
        self._run_at, self._run_seq = at, seq
        found = found_bytes = arrived = last_arrived = 0
        # Long bodies are skipped, short ones are read with their headers.
        alone = segment.data_len // max(1, segment.count) > _PAGE
        while found < count and found_bytes < body_bytes and at < segment.data_len:
            header = peek_record(self._pread(RECORD_BYTES, at), 0) if alone else self._record(at, RECORD_BYTES)
            if header is None or header.seq != seq or at + header.rec_len > segment.data_len:
                break
            if expired_at and not 0 < header.expires <= expired_at:
                break
            arrived, last_arrived = arrived or header.arrived, header.arrived
            found += 1
            found_bytes += header.body_len
            at += header.rec_len
            seq += 1
        self._offset, self._seq = at, seq
        return found, found_bytes, arrived, last_arrived

    def next_seq(self, segment: Segment, seq: int) -> int | None:
        """Return the lowest number from `seq` on with a valid record; None if there is none in this segment.

        It is used after damage, so it trusts only checksums and the index.

        Raises:
            OSError: The file cannot be opened, or nothing in it can be read.
        """
        self._forget_failure()
        return self._find_valid(segment, seq)

    def _find_valid(self, segment: Segment, seq: int) -> int | None:
        """Return the lowest number from `seq` on with a valid record; see next_seq()."""
        self._open(segment)
        at = self._indexed(segment, seq) if segment.gapless else SEGMENT_HEADER_BYTES
        while at < segment.data_len:
            header = self._checked(at)
            if header is None:
                at = self._resync(at + 8)
            elif header.seq < seq:
                at += header.rec_len
            else:
                self._offset, self._seq = self._run_at, self._run_seq = at, header.seq
                return header.seq
        return None

    def number_at(self, segment: Segment, time: int) -> int:
        """Return the number of the first message that arrived at a time or later; the one after the last if none did.

        Args:
            segment: Segment to read; its messages have ascending arrivals.
            time: Microseconds since 1970.
        """
        self._open(segment)
        index = self._index_of(segment)
        low, high = 0, len(index) - 1
        while low < high:
            middle = (low + high + 1) // 2
            header = peek_record(self._pread(RECORD_BYTES, index[middle]), 0)
            # After a damaged header, search from an earlier record, which is slower but works.
            if header is not None and header.arrived < time:
                low = middle
            else:
                high = middle - 1
        at = index[low] if index else SEGMENT_HEADER_BYTES
        while at < segment.data_len:
            header = self._record(at, RECORD_BYTES)
            if header is None:
                at = self._resync(at + 8)
            elif header.arrived < time:
                at += header.rec_len
            else:
                return header.seq
        return segment.last_seq + 1

    def count_live(self, segment: Segment, dead: DeadSet) -> int:
        """Count the live messages of a segment; records are read only if numbers are missing in it.

        What cannot be read for now counts as live: a segment without live messages is dropped.

        Raises:
            FileNotFoundError: There is no file.
        """
        live = dead.count_live(segment.first_seq, segment.last_seq + 1)
        if segment.gapless or segment.settled or not live:
            return live
        self._forget_failure()
        try:
            found = sum(header.seq not in dead for header in self.headers(segment))
        except FileNotFoundError:
            raise
        except OSError:
            return min(live, segment.live)
        return found if self.failure is None else min(live, segment.live)

    def live_bytes(self, segment: Segment, dead: DeadSet) -> int:
        """Return the sum of the body lengths of a segment's live messages.

        In a gapless segment, consecutive numbers prove that records are valid; otherwise checksums are verified.
        """
        if not segment.gapless:
            return sum([header.body_len for header in self.headers(segment) if header.seq not in dead])
        self._open(segment)
        runs = dead.live_runs(segment.first_seq, segment.last_seq + 1)
        run_start = run_end = total = 0
        at, end, expected = SEGMENT_HEADER_BYTES, segment.data_len, segment.first_seq
        unpack = RECORD_WALK.unpack_from
        chunk, chunk_at = b"", 0
        while at < end:
            start = at - chunk_at
            if not 0 <= start <= len(chunk) - RECORD_BYTES:
                self._fill(at, _CHUNK_MAX)
                chunk, chunk_at, start = self._chunk, at, 0
            if len(chunk) - start < RECORD_BYTES:
                break
            magic, rec_len, body_len, seq, _, _ = unpack(chunk, start)
            if magic != RECORD_MAGIC or seq != expected or rec_len < RECORD_BYTES + body_len:
                break
            if seq >= run_end:
                run_start, run_end = next(runs, (segment.last_seq + 1, segment.last_seq + 1))
            if seq >= run_start:
                total += body_len
            at += rec_len
            expected += 1
        if at != end:
            # A record is damaged.
            return sum([header.body_len for header in self.headers(segment) if header.seq not in dead])
        return total

    def headers(self, segment: Segment) -> Iterator[RecordHeader]:
        """Iterate over the headers of all records.

        In a gapless segment, consecutive numbers prove that records are valid; otherwise checksums are verified.
        """
        self._open(segment)
        at, expected = SEGMENT_HEADER_BYTES, segment.first_seq
        before = 0
        while at < segment.data_len:
            header = self._record(at, RECORD_BYTES) if segment.gapless else self._checked(at)
            if header is None or header.seq < expected or (segment.gapless and header.seq != expected):
                # The length in the previous record may be wrong.
                at = before = self._resync((before if segment.gapless else at) + 8, expected)
                header = self._record(at) if at < segment.data_len else None
            if header is None:
                break
            yield header
            before, expected = at, header.seq + 1
            at += header.rec_len

    def _open(self, segment: Segment) -> None:
        self._place.descriptors.note_read(self)
        if segment is not self._segment:
            self.release()
            place = self._place
            self._handle = place.descriptors.open(place.files, f"{place.directory}/{segment.name}")
            self._segment = segment
            self._offset = self._seq = self._run_seq = 0

    def _seek(self, segment: Segment, seq: int, count: int) -> int:
        """Open the segment and find the offset of a record; approximate if records are damaged."""
        self._open(segment)
        if seq == self._run_seq:
            self._offset = self._run_at
        elif not self._offset or seq < self._seq or seq - self._seq > INDEX_STEP:
            self._offset = self._indexed(segment, seq)
        at = self._offset
        if not at - self._chunk_at < len(self._chunk) or at < self._chunk_at:
            self._fill(at, min(_CHUNK_MAX, count * (segment.data_len // max(1, segment.count))))
        while at < segment.data_len:
            header = self._record(at, RECORD_BYTES)
            if header is None:
                at = self._resync(at + 8)
            elif header.seq < seq:
                at += header.rec_len
            else:
                break
        return at

    def _indexed(self, segment: Segment, seq: int) -> int:
        """Return the offset of an indexed record whose number is at most `seq`."""
        index = self._index_of(segment)
        if not index:
            return SEGMENT_HEADER_BYTES
        if segment.gapless:
            return index[min(max(0, seq - segment.first_seq) // INDEX_STEP, len(index) - 1)]
        low, high = 0, len(index) - 1
        while low < high:
            middle = (low + high + 1) // 2
            header = peek_record(self._pread(RECORD_BYTES, index[middle]), 0)
            # After a damaged header, search from an earlier record, which is slower but works.
            if header is not None and header.seq <= seq:
                low = middle
            else:
                high = middle - 1
        return index[low]

    def _index_of(self, segment: Segment) -> array[int]:
        index = segment.index
        if index is None:
            index = segment.index = self._load_index(segment)
        return index

    def _load_index(self, segment: Segment) -> array[int]:
        entries = (segment.count + INDEX_STEP - 1) // INDEX_STEP
        octets = self._pread(4 * entries + FOOTER_BYTES, segment.data_len)
        found = unpack_footer(octets)
        index = array("I")
        if found is not None:
            octets = found[1]
            index.extend(int.from_bytes(octets[at : at + 4], "little") for at in range(0, len(octets), 4))
        return index

    def _record(self, at: int, need: int = 0) -> RecordHeader | None:
        """Return the header of the record at an offset, with `need` bytes or the complete record in the chunk."""
        end = self._segment.data_len if self._segment is not None else 0
        start = at - self._chunk_at
        if start < 0 or start + RECORD_BYTES > len(self._chunk):
            self._fill(at, _CHUNK_MAX)
            start = 0
        header = peek_record(self._chunk, start)
        if header is None or at + header.rec_len > end:
            return None
        if start + (need or header.rec_len) > len(self._chunk):
            self._fill(at, max(_CHUNK_MAX, header.rec_len))
        return header

    def _checked(self, at: int) -> RecordHeader | None:
        """Return the header of the record at an offset, completely in the chunk; None if it is damaged."""
        if self._record(at) is None:
            return None
        return check_record(self._chunk, at - self._chunk_at, self._place.salt)

    def _fill(self, at: int, size: int) -> None:
        assert self._segment is not None
        self._chunk = self._pread(min(max(size, _CHUNK_MIN), self._segment.data_len - at), at)
        self._chunk_at = at

    def _forget_failure(self) -> None:
        """Begin a call: what could not be read is read again."""
        if self.failure is not None:
            self.failure = None
            self._chunk = b""

    def _pread(self, size: int, at: int) -> bytes:
        """Read from the file; unreadable pages become zeros, with which no record begins.

        Raises:
            OSError: None of many pages can be read.
        """
        files, handle = self._place.files, self._handle
        try:
            return files.pread(handle, size, at)
        except OSError:
            pass
        pages: list[bytes] = []
        failed = 0
        for page in range(at, at + size, _PAGE):
            length = min(_PAGE, at + size - page)
            try:
                pages.append(files.pread(handle, length, page))
            except OSError as error:
                self.failure = error
                failed += 1
                if failed == len(pages) + 1 == _PAGES_TRIED:
                    raise
                pages.append(bytes(length))
        return b"".join(pages)

    def _resync(self, at: int, lowest: int = 0) -> int:
        """Return the offset of the next valid record with a number of at least `lowest`, or the end of the data."""
        assert self._segment is not None
        end = self._segment.data_len
        at = (at + 7) & ~7
        while at + RECORD_BYTES <= end:
            start = at - self._chunk_at
            if start < 0 or start + RECORD_BYTES > len(self._chunk):
                self._fill(at, _CHUNK_MAX)
                start = 0
            found = self._chunk.find(RECORD_MAGIC, start)
            if found < 0:
                at = max(at + 8, (self._chunk_at + len(self._chunk) - 3) & ~7)
                continue
            at = self._chunk_at + found
            header = self._checked(at) if at % 8 == 0 else None
            if header is not None and header.seq >= lowest:
                return at
            at = at + 8 & ~7
        return end

    def _read(self, at: int) -> tuple[int, int, int, int, bytes] | None:
        """Verify and read any record, like read_same_envelope(), and cache its envelope; None if it is damaged."""
        header = self._checked(at)
        if header is None:
            return None
        chunk, start = self._chunk, at - self._chunk_at
        prefix_start, prefix_end = start + RECORD_BYTES, start + RECORD_BYTES + header.route_len + header.props_len
        body = chunk[prefix_end : prefix_end + header.body_len]
        # Flags, priority and length of the route are the last four bytes of the header.
        prefix = chunk[prefix_start - 4 : prefix_end]
        if prefix != self._prefix or header.flags & EXTENDED:
            self._envelope = unpack_envelope(chunk, start, header)
            self._prefix, self._prefix_crc = prefix, crc32(prefix[4:])
        return header.rec_len, header.seq, header.arrived, header.expires, body
