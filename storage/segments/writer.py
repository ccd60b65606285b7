"""Writing segments."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from leveret.storage.disk.files import TornWriteError, write_file
from leveret.storage.format import (
    EnvelopeImage,
    SegmentHeader,
    add_record,
    pack_footer,
    pack_segment_header,
)
from leveret.storage.segments.segment import RECORDS_MAX, Arrival, Segment, StorePlace

#: Bytes that are written at once, so that a long batch is not held in memory twice.
_WRITE_BYTES: Final = 1 << 20


class SegmentWriter:
    """Appends to the one segment of a stream that is not sealed.

    Args:
        place: Where the file is to be.
        segment: A new segment; its file is made here.

    Attributes:
        segment: What is known of it.
        path: Of its file.
        handle: Its file; -1 while it is closed.
    """

    __slots__ = ("_crc", "_image", "_has_partial_write", "_place", "handle", "path", "segment")

    def __init__(self, place: StorePlace, segment: Segment) -> None:
        self._place = place
        self.segment = segment
        self.path = f"{place.directory}/{segment.name}"
        files = place.files
        header = header_bytes(place, segment, place.clock())
        self.handle = place.descriptors.open(files, self.path, create=True)
        try:
            # An earlier attempt may have left one that could not be removed.
            files.truncate(self.handle, 0)
            write_file(files, self.handle, header, 0)
        except OSError:
            files.close(self.handle)
            files.unlink(self.path)
            raise
        self._crc = crc32(header)
        self._has_partial_write = False
        #: Of the last message: the next one often says the same.
        self._image: EnvelopeImage | None = None

    @property
    def full(self) -> bool:
        """Whether the segment is to be sealed before the next record."""
        segment = self.segment
        return segment.data_len >= self._place.segment_bytes or segment.count >= RECORDS_MAX

    def write(self, batch: Sequence[Arrival], start: int) -> int:
        """Write messages, in one write.

        Args:
            batch: In the order of their sequence numbers.
            start: The first one to write.
        Returns:
            Index of the first one that was not written, as the segment is full or the write long enough.
        Raises:
            OSError: None was written.
        """
        parts: list[bytes] = []
        lengths: list[int] = []
        segment, salt = self.segment, self._place.salt
        room = min(_WRITE_BYTES, self._place.segment_bytes - segment.data_len)
        stop = min(len(batch), start + RECORDS_MAX - segment.count)
        image = self._image
        at = start
        while at < stop and room > 0:
            seq, message, arrived = batch[at]
            if image is None or message.envelope is not image.envelope:
                image = EnvelopeImage(message.envelope)
            length = add_record(parts, image, seq, arrived, message.expires_at, message.body, salt)
            lengths.append(length)
            room -= length
            at += 1
        self._image = image
        octets = b"".join(parts)
        self._append(octets)
        self._crc = crc32(octets, self._crc)
        before = segment.body_bytes
        segment.note_all(batch[start:at], lengths)
        segment.live += at - start
        segment.live_bytes += segment.body_bytes - before
        return at

    def seal(self) -> None:
        """Write index and footer; the file stays open, as it has to be synced.

        Raises:
            OSError: The segment stays without them, which is only slower to read at the next start.
        """
        segment = self.segment
        assert segment.index is not None
        footer = pack_footer(segment.footer(self._crc), index_bytes(segment.index))
        self._append(footer)
        segment.sealed = True

    def close(self) -> None:
        """Close the file; it is opened again when there is something to write."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            self._place.files.close(handle)

    def _append(self, octets: bytes) -> None:
        files, size = self._place.files, self.segment.data_len
        if self.handle < 0:
            self.handle = self._place.descriptors.open(files, self.path)
        if self._has_partial_write:
            files.truncate(self.handle, size)
            self._has_partial_write = False
        try:
            write_file(files, self.handle, octets, size)
        except TornWriteError:
            self._has_partial_write = True
            raise


def header_bytes(place: StorePlace, segment: Segment, created: int) -> bytes:
    """What a segment's file begins with, which was made at a time in microseconds."""
    return pack_segment_header(
        SegmentHeader(
            place.priority,
            segment.stream,
            place.qid,
            segment.generation,
            segment.first_seq,
            created,
            place.store_id,
            place.salt,
        )
    )


def index_bytes(index: array[int]) -> bytes:
    """Return an index as it stands in a file."""
    return b"".join(offset.to_bytes(4, "little") for offset in index)
