"""A compaction job: copies the live messages of sparse segments into a new segment.

See compactor.py for when jobs run. A job copies adjacent sealed segments to a temporary file, syncs it, and renames it
to a segment of a higher generation. Then one group of edits updates the manifest, and the old files are removed after
the manifest has been synced. If the process ends before, the old files still contain everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from zlib import crc32

from leveret.storage.disk.files import write_file
from leveret.storage.format import (
    FOOTER_BYTES,
    NEVER,
    RECORD_BYTES,
    RECORD_MAGIC,
    RECORD_WALK,
    SEGMENT_HEADER_BYTES,
    Stream,
    pack_footer,
    peek_record,
    unpack_footer,
)
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import RECORDS_MAX, Segment, StorePlace
from leveret.storage.segments.segment_chain import SegmentChain
from leveret.storage.segments.segment_writer import header_bytes, index_bytes

#: Bytes per read: small enough that other threads do not wait long for the interpreter lock.
_READ_BYTES: Final = 512 << 10
_WRITE_BYTES: Final = 256 << 10
#: Maximum bytes that one job reads, in segment sizes.
_SOURCES_MAX: Final = 3
_NO_SEQ: Final = 1 << 64
_BODY_BYTES_MAX: Final = (1 << 32) - 1
#: Approximate size of header and footer of a segment file.
_FRAME_BYTES: Final = SEGMENT_HEADER_BYTES + FOOTER_BYTES + 8
#: Microseconds without changes after which a segment is not expected to become empty by itself soon.
_QUIET_US: Final = 15_000_000


class DamagedSegmentError(Exception):
    """A segment is damaged and must not be compacted.

    Args:
        segment: The damaged segment.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.name} is damaged")
        self.segment = segment


class CompactionJob:
    """Copies the live messages of some segments into one. run() may be called in another thread.

    It reads sealed files and uses a copy of the dead set: messages that die meanwhile are copied too.

    Args:
        log: The message log of the segments.
        chain: The chain of the segments.
        sources: Adjacent segments of the chain.

    Attributes:
        copy: The new segment, written by run(); None if there is none.
    """

    def __init__(self, log: MessageLog, chain: SegmentChain, sources: Sequence[Segment]) -> None:
        self.log = log
        self.chain = chain
        self.sources = sources
        self.copy: Segment | None = None
        self._place: StorePlace = log.place
        self._created = log.place.clock()
        self._dead: DeadSet = log.dead.part(sources[0].first_seq, sources[-1].last_seq + 1)
        self._live = sum(source.live for source in sources)
        self._live_bytes = sum(source.live_bytes for source in sources)
        self._handle = -1
        self._written = 0
        self._crc = 0
        self._parts: list[bytes] = []
        self._pending = 0
        for source in sources:
            source.busy = True

    def run(self, throttle: Callable[[int], None]) -> None:
        """Copy the live records.

        Args:
            throttle: Called with the number of bytes read; it may sleep, or raise to cancel.
        Raises:
            DamagedSegmentError: A source is damaged.
            OSError: The disk is full, or a source cannot be read. The copy has been removed.
        """
        try:
            for source in self.sources:
                self._copy_segment(source, throttle)
            self._finish()
        except BaseException:
            self._abandon()
            raise

    def swap(self) -> bool:
        """Replace the sources by the copy. Called in the thread that owns the store.

        Returns:
            False if that was not possible; the copy has been removed.
        """
        copy = self.copy
        if copy is not None:
            copy.live = copy.count - self._live + sum(source.live for source in self.sources)
            copy.live_bytes = copy.body_bytes - self._live_bytes + sum(source.live_bytes for source in self.sources)
            if copy.live <= 0:
                # All messages have died meanwhile: the sources are dropped as dead segments.
                self._unlink(copy.name)
                self.copy = copy = None
        swapped = self.chain.replace(self.sources, copy)
        if not swapped and copy is not None:
            self._unlink(copy.name)
        return swapped

    def discard(self) -> None:
        """Remove the copy: the queue has been deleted."""
        self.chain.replace(self.sources, None)
        self._abandon()

    def _copy_segment(self, source: Segment, throttle: Callable[[int], None]) -> None:
        """Copy the live records of one source."""
        files, place = self._place.files, self._place
        handle = files.open(f"{place.directory}/{source.name}")
        try:
            self._check(source, handle, throttle)
            # The whole file has been verified, so single records need no check.
            live = self._dead.live_runs(source.first_seq, source.last_seq + 1)
            run = 0, 0
            at, size = SEGMENT_HEADER_BYTES, _READ_BYTES
            while at < source.data_len:
                chunk = files.pread(handle, min(size, source.data_len - at), at)
                throttle(len(chunk))
                used, run = self._copy_chunk(chunk, live, run)
                if not used and size > len(chunk):
                    raise DamagedSegmentError(source)
                # A record longer than a chunk is read with one call.
                header = peek_record(chunk, used)
                size = max(_READ_BYTES, header.rec_len if header is not None else 0)
                at += used
        finally:
            files.close(handle)

    def _check(self, source: Segment, handle: int, throttle: Callable[[int], None]) -> None:
        """Verify the checksum of a source.

        Raises:
            DamagedSegmentError: The source is damaged.
        """
        files = self._place.files
        footer = unpack_footer(files.pread(handle, source.size - source.data_len, source.data_len))
        crc = 0
        for at in range(0, source.data_len, _READ_BYTES):
            chunk = files.pread(handle, min(_READ_BYTES, source.data_len - at), at)
            crc = crc32(chunk, crc)
            throttle(len(chunk))
        if footer is None or (footer[0].data_crc, footer[0].data_len) != (crc, source.data_len):
            raise DamagedSegmentError(source)

    def _copy_chunk(
        self, chunk: bytes, live: Iterator[tuple[int, int]], run: tuple[int, int]
    ) -> tuple[int, tuple[int, int]]:
        """Copy the live records of a chunk.

        Returns:
            The offset of the first incomplete record, and the run at that point.
        """
        unpack = RECORD_WALK.unpack_from
        run_start, run_end = run
        # `start`: offset of the live records that have not been copied yet.
        at = start = 0
        lengths: list[int] = []
        body_bytes = latest = first_arrived = arrived = last_seq = 0
        end = len(chunk)
        while at + RECORD_BYTES <= end:
            magic, rec_len, body_len, seq, came, expires = unpack(chunk, at)
            if magic != RECORD_MAGIC or at + rec_len > end:
                break
            while seq >= run_end:
                run_start, run_end = next(live, (_NO_SEQ, _NO_SEQ + 1))
            if seq < run_start:
                self._add_part(chunk[start:at])
                start = at + rec_len
            else:
                if self.copy is None:
                    self._begin(seq)
                if not lengths:
                    first_arrived = came
                lengths.append(rec_len)
                body_bytes += body_len
                last_seq, arrived = seq, came
                latest = max(latest, expires or NEVER)
            at += rec_len
        self._add_part(chunk[start:at])
        if lengths and self.copy is not None:
            self.copy.note_copies(lengths, body_bytes, (first_arrived, arrived), last_seq, latest)
        return at, (run_start, run_end)

    def _add_part(self, octets: bytes) -> None:
        if octets:
            self._parts.append(octets)
            self._pending += len(octets)
            if self._pending >= _WRITE_BYTES:
                self._write()

    def _begin(self, first_seq: int) -> None:
        source = self.sources[0]
        copy = self.copy = Segment(source.stream, first_seq, max(each.generation for each in self.sources) + 1)
        path = f"{self._place.directory}/{copy.name}.tmp"
        self._handle = self._place.files.open(path, create=True)
        self._place.files.truncate(self._handle, 0)
        self._parts.append(header_bytes(self._place, copy, self._created))

    def _write(self) -> None:
        octets = b"".join(self._parts)
        self._parts.clear()
        self._pending = 0
        write_file(self._place.files, self._handle, octets, self._written)
        self._written += len(octets)
        self._crc = crc32(octets, self._crc)

    def _finish(self) -> None:
        """Complete, sync and rename the file of the copy."""
        copy, files, directory = self.copy, self._place.files, self._place.directory
        if copy is None:
            return
        self._write()
        assert copy.index is not None
        write_file(files, self._handle, pack_footer(copy.footer(self._crc), index_bytes(copy.index)), self._written)
        durable = copy.stream is Stream.DURABLE
        if durable:
            files.fdatasync(self._handle)
        self._close()
        files.rename(f"{directory}/{copy.name}.tmp", f"{directory}/{copy.name}")
        if durable:
            files.sync_directory(directory)
        copy.index = None
        copy.sealed = copy.synced = True
        # If every live number has a record, numbers without records are dead.
        copy.settled = self._dead.count_live(copy.first_seq, copy.last_seq + 1) == copy.count

    def _abandon(self) -> None:
        self._close()
        copy, self.copy = self.copy, None
        if copy is not None:
            self._unlink(f"{copy.name}.tmp")
            self._unlink(copy.name)

    def _close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._place.files.close(handle)

    def _unlink(self, name: str) -> None:
        try:
            self._place.files.unlink(f"{self._place.directory}/{name}")
        except OSError:
            # The queue has been deleted; otherwise the next start removes the file.
            pass


def plan(log: MessageLog, quiet_at: int = 0) -> CompactionJob | None:
    """Return the most useful job, with adjacent segments; None if there is none.

    Args:
        log: Message log of the store.
        quiet_at: Current time in microseconds, to exclude segments in which messages died within the last 15 s; 0 to
            include all.
    """
    best: tuple[float, SegmentChain, int] | None = None
    for chain in log.chains:
        for at, segment in enumerate(chain.segments):
            if quiet_at and segment.live != segment.seen_live:
                segment.seen_live, segment.quiet_since = segment.live, quiet_at
            if is_sparse(segment) and _can_be_copied(segment) and (not quiet_at or _is_quiet(segment, quiet_at)):
                part = segment.live_size / segment.size
                if best is None or part < best[0]:
                    best = part, chain, at
    if best is None:
        return None
    _, chain, at = best
    return CompactionJob(log, chain, _adjacent_segments(chain.segments, at, log.place.segment_bytes, quiet_at))


def is_sparse(segment: Segment) -> bool:
    """Return whether less than half of a segment is live, including the overhead of a copy."""
    return 2 * segment.live_size + _FRAME_BYTES < segment.size


def _is_quiet(segment: Segment, now: int) -> bool:
    return segment.live == segment.seen_live and now - segment.quiet_since >= _QUIET_US


def _can_be_copied(segment: Segment) -> bool:
    return segment.synced and segment.live > 0 and not segment.busy and not segment.frozen


def _adjacent_segments(segments: Sequence[Segment], seed: int, room: int, quiet_at: int) -> list[Segment]:
    """Return the adjacent segments to copy together with a sparse one.

    Besides sparse segments, these are segments with no more live bytes than collected so far: small files are merged
    into larger ones, and each message is copied only a few times.
    """
    first, end = seed, seed + 1
    live_size, live = segments[seed].live_size, segments[seed].live
    body_bytes, read = segments[seed].body_bytes, segments[seed].size
    while True:
        grown = False
        for at in (end, first - 1):
            if not 0 <= at < len(segments):
                continue
            each = segments[at]
            fits = (
                live_size + each.live_size <= room
                and live + each.live <= RECORDS_MAX
                and body_bytes + each.body_bytes <= _BODY_BYTES_MAX
                and read + each.size <= _SOURCES_MAX * room
            )
            sparse = is_sparse(each) and (not quiet_at or _is_quiet(each, quiet_at))
            if fits and _can_be_copied(each) and (sparse or each.live_size <= live_size):
                first, end = min(first, at), max(end, at + 1)
                live_size, live = live_size + each.live_size, live + each.live
                body_bytes, read = body_bytes + each.body_bytes, read + each.size
                grown = True
        if not grown:
            return list(segments[first:end])
