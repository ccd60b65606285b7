"""Reading segments: in order, from any sequence number, and on behind damaged bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final
from zlib import crc32

from leveret.storage.disk.files import Files
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
from leveret.storage.message import Envelope
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.stored_message import StoredMessage

#: Bytes read at once, at least and at most unless a record is longer.
_CHUNK_MIN: Final = 4 << 10
_CHUNK_MAX: Final = 256 << 10
_PAGE: Final = 4 << 10


class SegmentReader:
    """Reads the records of a store's segments, remembers where it stands, and keeps what it has read ahead.

    Args:
        place: Where the files are.
    """

    __slots__ = (
        "_chunk",
        "_chunk_at",
        "_envelope",
        "_handle",
        "_offset",
        "_place",
        "_prefix",
        "_prefix_crc",
        "_seq",
        "_segment",
    )

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._segment: Segment | None = None
        self._handle = -1
        #: The record at this offset, and all that follow, have at least this number.
        self._offset = 0
        self._seq = 0
        self._chunk = b""
        self._chunk_at = 0
        #: The last envelope that was made, for records that say the same.
        self._envelope = Envelope(b"", b"")
        #: What their records have in common; no record has what is here before the first one.
        self._prefix = bytes(4)
        self._prefix_crc = 0

    def release(self) -> bool:
        """Give back file and memory; reading goes on all the same. It can always be done."""
        if self._handle >= 0:
            self._place.files.close(self._handle)
        self._handle = -1
        self._segment = None
        self._chunk = b""
        return True

    def read_run(
        self, segment: Segment, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool
    ) -> list[Entry]:
        """Read messages whose numbers follow each other.

        Args:
            segment: Where to look; what it knows of itself must be right.
            seq: Number of the first message.
            count: At most this many, 1 or more.
            body_bytes: No further one once the bodies have reached this many bytes.
            expired_at: Only messages that expire by then; 0 for all messages.
            redelivered: What the entries say.
        Returns:
            As many as there are in a row; none if there is no such message, or no whole one.
        """
        entries: list[Entry] = []
        at = self._seek(segment, seq, count)
        salt, end = self._place.salt, segment.data_len
        while len(entries) < count and body_bytes > 0 and at < end:
            start = at - self._chunk_at
            found = read_same_envelope(self._chunk, start, self._prefix, self._prefix_crc, salt) if start >= 0 else None
            if found is None:
                # It says something else, or it is damaged, or it is not in the chunk, or not all of it.
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
    ) -> tuple[int, int, int]:
        """Find out how long messages are whose numbers follow each other, from the heads of their records alone.

        Args:
            segment: Where to look.
            seq: Number of the first message.
            count: At most this many, 1 or more.
            body_bytes: No further one once the bodies have reached this many bytes.
            expired_at: Only messages that expire by then; 0 for all messages.
        Returns:
            How many there are in a row, the bytes of their bodies, and when the first one came.
        """
        found = found_bytes = arrived = 0
        at = self._seek(segment, seq, min(count, INDEX_STEP))
        # Long bodies are skipped, short ones read along.
        alone = segment.data_len // max(1, segment.count) > _PAGE
        while found < count and found_bytes < body_bytes and at < segment.data_len:
            header = peek_record(self._pread(RECORD_BYTES, at), 0) if alone else self._record(at, RECORD_BYTES)
            if header is None or header.seq != seq or at + header.rec_len > segment.data_len:
                break
            if expired_at and not 0 < header.expires <= expired_at:
                break
            arrived = arrived or header.arrived
            found += 1
            found_bytes += header.body_len
            at += header.rec_len
            seq += 1
        self._offset, self._seq = at, seq
        return found, found_bytes, arrived

    def next_seq(self, segment: Segment, seq: int) -> int | None:
        """Return the lowest number from `seq` on whose record is whole; None if there is none in this segment.

        It is asked where something is damaged, so that nothing is believed but checksums and the index.
        """
        self._open(segment)
        at = self._indexed(segment, seq) if segment.gapless else SEGMENT_HEADER_BYTES
        while at < segment.data_len:
            header = self._checked(at)
            if header is None:
                at = self._resync(at + 8)
            elif header.seq < seq:
                at += header.rec_len
            else:
                self._offset, self._seq = at, header.seq
                return header.seq
        return None

    def live_bytes(self, segment: Segment, dead: DeadSet) -> int:
        """Sum of the body lengths of a segment's living messages.

        Where numbers follow each other, that they do is taken as proof; else all records are checked.
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
            # Something is damaged.
            return sum([header.body_len for header in self.headers(segment) if header.seq not in dead])
        return total

    def headers(self, segment: Segment) -> Iterator[RecordHeader]:
        """Return the heads of all records.

        Where numbers follow each other, that they do is taken as proof; else all records are checked.
        """
        self._open(segment)
        at, expected = SEGMENT_HEADER_BYTES, segment.first_seq
        before = 0
        while at < segment.data_len:
            header = self._record(at, RECORD_BYTES) if segment.gapless else self._checked(at)
            if header is None or header.seq < expected or (segment.gapless and header.seq != expected):
                # The length of the record before may have led astray.
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
            self._offset = self._seq = 0

    def _seek(self, segment: Segment, seq: int, count: int) -> int:
        """Open the segment and find the offset of a record; only near it if something is damaged."""
        self._open(segment)
        if not self._offset or seq < self._seq or seq - self._seq > INDEX_STEP:
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
        if segment.index is None:
            segment.index = self._load_index(segment)
        index = segment.index
        if not index:
            return SEGMENT_HEADER_BYTES
        if segment.gapless:
            return index[min(max(0, seq - segment.first_seq) // INDEX_STEP, len(index) - 1)]
        low, high = 0, len(index) - 1
        while low < high:
            middle = (low + high + 1) // 2
            header = peek_record(self._pread(RECORD_BYTES, index[middle]), 0)
            # A damaged head is passed by: from an earlier record the way is longer, but it is a way.
            if header is not None and header.seq <= seq:
                low = middle
            else:
                high = middle - 1
        return index[low]

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
        """Return the head of the record at a place, and at least `need` bytes or all of it in the chunk."""
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
        """Return the head of the record at a place, all of which is in the chunk; None if it is damaged."""
        if self._record(at) is None:
            return None
        return check_record(self._chunk, at - self._chunk_at, self._place.salt)

    def _fill(self, at: int, size: int) -> None:
        assert self._segment is not None
        self._chunk = self._pread(min(max(size, _CHUNK_MIN), self._segment.data_len - at), at)
        self._chunk_at = at

    def _pread(self, size: int, at: int) -> bytes:
        return pread_around(self._place.files, self._handle, size, at)

    def _resync(self, at: int, lowest: int = 0) -> int:
        """Return the offset of the next whole record whose number is at least `lowest`, or the end of the data."""
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
        """Read and check any record, as read_same_envelope() does, and keep its envelope; None if it is damaged."""
        header = self._checked(at)
        if header is None:
            return None
        chunk, start = self._chunk, at - self._chunk_at
        prefix_start, prefix_end = start + RECORD_BYTES, start + RECORD_BYTES + header.route_len + header.props_len
        body = chunk[prefix_end : prefix_end + header.body_len]
        # Flags, priority and length of the route are the last four bytes of the head.
        prefix = chunk[prefix_start - 4 : prefix_end]
        if prefix != self._prefix or header.flags & EXTENDED:
            self._envelope = unpack_envelope(chunk, start, header)
            self._prefix, self._prefix_crc = prefix, crc32(prefix[4:])
        return header.rec_len, header.seq, header.arrived, header.expires, body


def pread_around(files: Files, handle: int, size: int, at: int) -> bytes:
    """Read from a file; what the disk cannot give reads as zeros, which no record begins with.

    Args:
        files: The file system interface.
        handle: The file.
        size: Bytes to read, all of which lie inside the file as a rule.
        at: Where to begin.
    """
    try:
        return files.pread(handle, size, at)
    except OSError:
        pages: list[bytes] = []
        for page in range(at, at + size, _PAGE):
            length = min(_PAGE, at + size - page)
            try:
                pages.append(files.pread(handle, length, page))
            except OSError:
                pages.append(bytes(length))
        return b"".join(pages)
