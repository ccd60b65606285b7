"""Writes segment files."""

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

#: Maximum bytes per write, so that a long batch is not copied in memory as a whole.
_WRITE_BYTES: Final = 1 << 20
#: Maximum bytes of records kept for the next commit group. Larger tails are synced in their segment.
_RECENT_BYTES: Final = 64 << 10


class SegmentWriter:
    """Appends to the active segment of a stream.

    Args:
        segment: A new segment; its file is created.

    Attributes:
        segment: The segment.
        path: Path of its file.
        handle: Handle of its file; -1 while closed.
    """

    __slots__ = (
        "_crc", "_image", "_has_partial_write", "_place", "_recent", "_recent_bytes", "handle", "path", "segment",
    )  # fmt: skip

    def __init__(self, place: StorePlace, segment: Segment) -> None:
        self._place = place
        self.segment = segment
        self.path = f"{place.directory}/{segment.name}"
        files = place.files
        header = header_bytes(place, segment, place.clock())
        self.handle = place.descriptors.open(files, self.path, create=True)
        try:
            # A failed attempt may have left a file.
            files.truncate(self.handle, 0)
            write_file(files, self.handle, header, 0)
        except OSError:
            files.close(self.handle)
            files.unlink(self.path)
            raise
        self._crc = crc32(header)
        self._has_partial_write = False
        #: Of the last message; the next one often has the same envelope.
        self._image: EnvelopeImage | None = None
        #: Records written since the last commit group; incomplete if they are more than _RECENT_BYTES.
        self._recent: list[bytes] = []
        self._recent_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the segment must be sealed before the next record."""
        segment = self.segment
        return segment.data_len >= self._place.segment_bytes or segment.count >= RECORDS_MAX

    def write(self, batch: Sequence[Arrival], start: int) -> int:
        """Write messages with one write call.

        Args:
            batch: Messages in order of sequence number.
            start: Index of the first message to write.
        Returns:
            Index after the last message written. More remain if the segment is full or the write would be too long.
        Raises:
            OSError: Nothing was written.
        """
        parts: list[bytes] = []
        lengths: list[int] = []
        segment, salt = self.segment, self._place.salt
        place = self._place
        room = min(_WRITE_BYTES, max(place.segment_bytes - segment.data_len, place.write_bytes))
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
        self._recent_bytes += len(octets)
        if self._recent_bytes <= _RECENT_BYTES:
            self._recent.append(octets)
        before = segment.body_bytes
        segment.note_all(batch if len(batch) == at - start else batch[start:at], lengths)
        segment.live += at - start
        segment.live_bytes += segment.body_bytes - before
        return at

    def take_recent(self) -> list[bytes] | None:
        """Return the records written since the last call; None if they are not in memory any more."""
        recent = self._recent if self._recent_bytes <= _RECENT_BYTES else None
        self._recent = []
        self._recent_bytes = 0
        return recent

    def seal(self) -> None:
        """Write index and footer. The file stays open until it has been synced.

        Raises:
            OSError: They were not written; the next start reads the whole segment.
        """
        segment = self.segment
        assert segment.index is not None
        footer = pack_footer(segment.footer(self._crc), index_bytes(segment.index))
        self._append(footer)
        segment.sealed = True

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        self.take_recent()
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
    """Return the header of a segment file; `created` is in microseconds since 1970."""
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
    """Encode an index."""
    return b"".join(offset.to_bytes(4, "little") for offset in index)
