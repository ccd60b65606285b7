"""A segment: a file of records in order of sequence number, and its writer."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, TypeAlias
from zlib import crc32

from leveret.storage.disk.files import Descriptors, Files, TornWriteError, write_file
from leveret.storage.disk.trash import Trash
from leveret.storage.format import (
    FOOTER_BYTES,
    INDEX_STEP,
    NEVER,
    SEGMENT_HEADER_BYTES,
    Edit,
    EditOp,
    EnvelopeImage,
    Footer,
    SegmentHeader,
    Stream,
    add_record,
    pack_footer,
    pack_segment_header,
)
from leveret.storage.message import Message

#: A message to append: sequence number, message, arrival in microseconds since 1970.
Arrival: TypeAlias = tuple[int, Message, int]

SUFFIXES: Final = {Stream.DURABLE: ".seg", Stream.SPILL: ".spl"}
#: Maximum number of records in a segment.
RECORDS_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Paths, identity and shared services of a store.

    Attributes:
        directory: Path of the store's directory.
        qid: Number of the queue.
        priority: Priority of the store within its queue.
        salt: Checksum salt of the queue.
        store_id: ID of the data directory, 16 bytes.
        clock: Microseconds since 1970, never going back.
        trash: Receives dropped segments.
        segment_bytes: Size in bytes at which a segment is full.
        descriptors: Limits open files.
        write_bytes: Bytes that one write may add to a segment that is not full, even if it is longer then. So very
            small segments of a stream do not need a file for each message of a turn.
    """

    files: Files
    directory: str
    qid: int
    priority: int
    salt: int
    store_id: bytes
    clock: Callable[[], int]
    trash: Trash
    segment_bytes: int = 16 << 20
    descriptors: Descriptors = field(default_factory=Descriptors)
    write_bytes: int = 0


class Segment:
    """Metadata of a segment, kept in memory.

    Attributes:
        stream: Stream of its messages.
        first_seq, last_seq: Sequence numbers of its first and last record.
        generation: Number of compactions of its messages.
        count: Number of records.
        body_bytes: Sum of their body lengths.
        min_arrived, max_arrived, max_expires: Times in microseconds.
        data_len: Length of header and records.
        live: Number of records of live messages.
        live_bytes: Sum of their body lengths, partly estimated.
        sealed: Whether it is complete, so that nothing more is appended.
        synced: Whether it is sealed and synced.
        settled: Whether every number without a record was settled by an event.
        busy: Whether a compaction job is copying it.
        frozen: Whether it is damaged and must not be compacted.
        seen_live, quiet_since: A value of `live`, and the time in microseconds since which it has not changed.
        index: File offset of every 64th record; None if it must be read from the file.
    """

    __slots__ = (
        "body_bytes", "busy", "count", "data_len", "first_seq", "frozen", "generation", "index", "last_seq", "live",
        "live_bytes", "max_arrived", "max_expires", "min_arrived", "quiet_since", "sealed", "seen_live", "settled",
        "stream", "synced",
    )  # fmt: skip

    def __init__(self, stream: Stream, first_seq: int, generation: int = 0) -> None:
        self.stream = stream
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.generation = generation
        self.count = self.body_bytes = self.live = self.live_bytes = 0
        self.min_arrived = self.max_arrived = self.max_expires = 0
        self.data_len = SEGMENT_HEADER_BYTES
        self.sealed = self.synced = self.settled = self.busy = self.frozen = False
        self.seen_live = self.quiet_since = 0
        self.index: array[int] | None = array("I")

    @property
    def name(self) -> str:
        """File name, which sorts by sequence number."""
        return f"{self.first_seq:020d}-{self.generation:04x}{SUFFIXES[self.stream]}"

    @property
    def op(self) -> EditOp:
        """The kind of manifest edit that describes it."""
        if not self.synced:
            return EditOp.NEW
        return EditOp.COMPACTED if self.settled else EditOp.SEAL

    @property
    def gapless(self) -> bool:
        """Whether it has a record for every number from the first to the last."""
        return self.last_seq - self.first_seq + 1 == self.count

    @property
    def size(self) -> int:
        """Size of its file in bytes."""
        return self.data_len + (self._footer_bytes if self.sealed else 0)

    @property
    def live_size(self) -> int:
        """Approximate size of the records of its live messages in bytes."""
        if self.live == self.count:
            return self.data_len - SEGMENT_HEADER_BYTES
        return self.live * self._head_bytes + min(max(0, self.live_bytes), self.body_bytes)

    def bury(self, count: int, body_bytes: int) -> int:
        """Count messages as dead; return the approximate number of bytes that this frees."""
        self.live -= count
        self.live_bytes -= body_bytes
        # Inlined _head_bytes, because this runs for every single acknowledgement.
        return count * (self.data_len - SEGMENT_HEADER_BYTES - self.body_bytes) // max(1, self.count) + body_bytes

    def set_live(self, count: int) -> None:
        """Set the number of live messages if their lengths are unknown."""
        self.live = count
        self.live_bytes = self.body_bytes * count // max(1, self.count)

    @property
    def _head_bytes(self) -> int:
        """Mean size of a record without its body in bytes."""
        return (self.data_len - SEGMENT_HEADER_BYTES - self.body_bytes) // max(1, self.count)

    @property
    def _footer_bytes(self) -> int:
        return FOOTER_BYTES + 4 * ((self.count + INDEX_STEP - 1) // INDEX_STEP)

    def note(self, seq: int, arrived: int, expires: int, body_len: int, rec_len: int) -> None:
        """Count an appended record."""
        if self.index is not None and not self.count % INDEX_STEP:
            self.index.append(self.data_len)
        if not self.count:
            self.min_arrived = arrived
        self.count += 1
        self.last_seq = seq
        self.max_arrived = arrived
        self.max_expires = max(self.max_expires, expires or NEVER)
        self.body_bytes += body_len
        self.data_len += rec_len

    def note_copies(
        self, lengths: Sequence[int], body_bytes: int, arrived: tuple[int, int], last_seq: int, expires: int
    ) -> None:
        """Count appended records, like note().

        Args:
            lengths: Their lengths in bytes; not empty.
            body_bytes: Sum of their body lengths.
            arrived: Arrival of the first and the last one.
            last_seq: Sequence number of the last one.
            expires: Latest expiry, NEVER if one never expires.
        """
        self._note_lengths(lengths)
        if not self.count:
            self.min_arrived = arrived[0]
        self.count += len(lengths)
        self.last_seq, self.max_arrived = last_seq, arrived[1]
        self.max_expires = max(self.max_expires, expires)
        self.body_bytes += body_bytes

    def note_all(self, batch: Sequence[Arrival], lengths: Sequence[int]) -> None:
        """Count appended records, like note().

        Args:
            batch: Their messages; not empty.
            lengths: Their lengths in bytes.
        """
        if len(batch) == 1:
            seq, message, arrived = batch[0]
            self.note(seq, arrived, message.expires_at, len(message.body), lengths[0])
            return
        self._note_lengths(lengths)
        if not self.count:
            self.min_arrived = batch[0][2]
        self.count += len(batch)
        self.last_seq, _, self.max_arrived = batch[-1]
        self.max_expires = max(self.max_expires, max([message.expires_at or NEVER for _, message, _ in batch]))
        self.body_bytes += sum([len(message.body) for _, message, _ in batch])

    def _note_lengths(self, lengths: Sequence[int]) -> None:
        offsets = [*accumulate(lengths, initial=self.data_len)]
        if self.index is not None:
            self.index.extend(offsets[-self.count % INDEX_STEP : -1 : INDEX_STEP])
        self.data_len = offsets[-1]

    def edit(self, op: EditOp, left: int = 0) -> Edit:
        """Return a manifest edit with its metadata."""
        return Edit(
            op,
            self.stream,
            left,
            self.first_seq,
            self.last_seq,
            self.min_arrived,
            self.max_arrived,
            self.count,
            self.data_len,
            self.body_bytes,
            self.generation,
            self.max_expires,
        )

    def footer(self, data_crc: int) -> Footer:
        """Return the footer of its file."""
        return Footer(
            self.count,
            self.first_seq,
            self.last_seq,
            self.min_arrived,
            self.max_arrived,
            self.max_expires,
            self.data_len,
            self.body_bytes,
            data_crc,
        )


def segment_of_name(name: str) -> Segment | None:
    """Return an empty Segment for a file name; None if it is not the name of a segment."""
    stem, dot, suffix = name.partition(".")
    first, dash, generation = stem.partition("-")
    for stream, expected in SUFFIXES.items():
        if dot + suffix == expected and dash and len(first) == 20 and first.isascii() and first.isdigit():
            try:
                return Segment(stream, int(first), int(generation, 16))
            except ValueError:
                return None
    return None


def segment_of_edit(edit: Edit) -> Segment:
    """Return the sealed segment of a manifest edit."""
    segment = Segment(Stream(edit.stream), edit.first_seq, edit.generation)
    segment.last_seq = edit.last_seq
    segment.count = segment.live = edit.records
    segment.body_bytes = segment.live_bytes = edit.body_bytes
    segment.min_arrived, segment.max_arrived = edit.min_arrived, edit.max_arrived
    segment.max_expires = edit.max_expires
    segment.data_len = edit.file_len
    segment.sealed = segment.synced = True
    segment.settled = edit.op == EditOp.COMPACTED
    segment.index = None
    return segment


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
