"""Compaction: decides when to free the disk space of dead messages, and does it in a thread.

A segment is deleted when nothing in it is alive. Compaction copies live messages out of segments that are mostly dead,
so a queue uses at most twice its live data plus a constant.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from time import sleep
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
from leveret.storage.segments.message_log import MessageLog, SegmentChain
from leveret.storage.segments.segment import RECORDS_MAX, Segment, StorePlace, header_bytes, index_bytes
from leveret.storage.stores.segment_store import SegmentStore

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


_LOG: Final = logging.getLogger("leveret.storage")
#: Seconds that an urgent job sleeps after each read, so that other threads can run.
_URGENT_PAUSE: Final = 0.00005
#: Read rate of background jobs.
_BYTES_PER_SECOND: Final = 50 << 20
#: Stores checked by one call of run_background().
_STORES_PER_CALL: Final = 100
#: Microseconds without writes after which a sparse active segment is sealed.
_IDLE_US: Final = 5_000_000


class CancelledError(Exception):
    """The job was cancelled."""


class Compactor:
    """Watches the disk space of stores and runs one compaction job at a time.

    With D the size of all segment files of a store, L the size of the records of its live messages, and S the maximum
    size of a segment, D <= 2 L + 2 S is always true:
    - above 2 L + S, sparse segments (less than half live) are copied at full speed until D <= 1.5 L + S. There always
      is one: if needed, the active segment is sealed early. The remaining S is for the copy, written before its
      sources are removed.
    - above 1.6 L + S / 16, sparse segments without changes for 15 s are copied at a limited rate.

    Everything except the copying runs in the thread that owns the stores.

    Args:
        deliver: Schedules a function in that thread; None to run jobs synchronously.
        on_change: Called with a store after a job; must commit it and call consider() again.
        sync: Called with a store; must sync its sealed segments and call consider() again.

    Attributes:
        candidates: Stores with dead messages, candidates for background jobs.
    """

    def __init__(
        self,
        deliver: Callable[[Callable[[], None]], object] | None,
        on_change: Callable[[SegmentStore], None],
        sync: Callable[[SegmentStore], None],
    ) -> None:
        self._deliver = deliver
        self._on_change = on_change
        self._sync = sync
        #: Stores to compact until D <= 1.5 L + S.
        self._draining: set[SegmentStore] = set()
        self.candidates: dict[SegmentStore, None] = {}
        #: Stores to check when no job is running.
        self._waiting: dict[SegmentStore, None] = {}
        self._checking = False
        self._job: CompactionJob | None = None
        self._store: SegmentStore | None = None
        self._thread: threading.Thread | None = None
        self._cancelled = threading.Event()
        #: Set while the running job is urgent.
        self._urgent = threading.Event()
        self._closed = False
        #: Completed jobs, and bytes that they wrote.
        self.jobs = self.copied = 0

    def consider(self, store: SegmentStore) -> None:
        """Check whether a store uses too much space.

        Called if enough has died (`log.dead_bytes` has reached `log.next_check`), after the events of the dead messages
        have been written.
        """
        if self._closed:
            return
        self.candidates[store] = self._waiting[store] = None
        if self._store is store:
            self._urgent.set()
        if self._checking:
            return
        self._checking = True
        try:
            while self._waiting and self._job is None:
                self._check(self._waiting.popitem()[0])
        finally:
            self._checking = False

    def run_background(self, now: int) -> None:
        """Start a background job if one is worthwhile. Called about once a second.

        Args:
            now: Microseconds since 1970.
        """
        for store in [*islice(self.candidates, _STORES_PER_CALL)]:
            if self._job is not None or self._closed:
                return
            log = store.log
            size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
            # Moves it to the end, so that the next call begins with other stores.
            del self.candidates[store]
            if size > live_size * 8 // 5 + (segment >> 4):
                self.candidates[store] = None
                job = plan(log, now)
                if job is not None:
                    self._start(store, job, urgent=False)
                elif any(_is_idle(chain.active, segment >> 4, now) for chain in log.chains):
                    self._seal_early(store)

    def forget(self, store: SegmentStore) -> None:
        """Remove a deleted store and cancel its job."""
        self._draining.discard(store)
        self._waiting.pop(store, None)
        self.candidates.pop(store, None)
        if self._store is store:
            self._cancelled.set()

    def close(self) -> None:
        """End the thread; a completed copy is put in place."""
        self._closed = True
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
            assert self._job is not None
            self._finish(self._job)

    def abandon(self) -> None:
        """End the thread, and leave its files as they are."""
        self._closed = True
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()

    def _check(self, store: SegmentStore) -> None:
        log = store.log
        size, live_size, segment = log.size, log.live_size, log.place.segment_bytes
        limit = 2 * live_size + segment
        if size > limit:
            self._draining.add(store)
        elif size <= live_size * 3 // 2 + segment:
            self._draining.discard(store)
        log.dead_bytes = 0
        # Dead bytes count twice in D - 2 L, so the limit cannot be reached before this.
        log.next_check = max(segment >> 6, (limit - size) // 2)
        if store not in self._draining:
            return
        job = plan(log)
        if job is not None:
            self._start(store, job, urgent=True)
        elif size > limit:
            self._seal_early(store)
        else:
            self._draining.discard(store)

    def _seal_early(self, store: SegmentStore) -> None:
        """Seal sparse active segments and sync sealed ones, so that a job can copy them."""
        log = store.log
        waits = False
        for chain in log.chains:
            active = chain.active
            if active is not None and is_sparse(active):
                chain.seal_active()
            waits = waits or any(is_sparse(each) and each.sealed and not each.synced for each in chain.segments)
        if waits:
            log.next_check = 0
            self._sync(store)

    def _start(self, store: SegmentStore, job: CompactionJob, urgent: bool) -> None:
        self._job, self._store = job, store
        self._cancelled.clear()
        if urgent:
            self._urgent.set()
        else:
            self._urgent.clear()
        if self._deliver is None:
            self._run(job, lambda size: None)
            self._finish(job)
        else:
            self._thread = threading.Thread(
                target=self._run_and_deliver, args=(job, self._deliver), name="compactor", daemon=True
            )
            self._thread.start()

    def _run_and_deliver(self, job: CompactionJob, deliver: Callable[[Callable[[], None]], object]) -> None:
        self._run(job, self._throttle)
        if not self._closed:
            deliver(partial(self._finish, job))

    def _run(self, job: CompactionJob, throttle: Callable[[int], None]) -> None:
        """Run a job. If it fails nothing is lost, as the sources remain."""
        try:
            job.run(throttle)
        except CancelledError:
            pass
        except DamagedSegmentError as error:
            error.segment.frozen = True
            _LOG.warning("%s/%s is damaged and is not compacted", job.log.place.directory, error.segment.name)
        except OSError as error:
            if not self._cancelled.is_set():
                _LOG.warning("Could not compact %s: %s", job.log.place.directory, error)
        except Exception as error:  # noqa: BLE001 - the sources remain in any case
            # A bug: a retry would fail again.
            _LOG.error("Could not compact %s", job.log.place.directory, exc_info=error)
            for source in job.sources:
                source.frozen = True

    def _throttle(self, size: int) -> None:
        """Sleep to limit the read rate; raise CancelledError if the job was cancelled."""
        if self._urgent.is_set():
            sleep(_URGENT_PAUSE)
        else:
            self._urgent.wait(size / _BYTES_PER_SECOND)
        if self._cancelled.is_set():
            raise CancelledError

    def _finish(self, job: CompactionJob) -> None:
        """Put the copy of a job in place."""
        if self._job is not job:
            return
        store = self._store
        assert store is not None
        if self._thread is not None:
            self._thread.join()
        self._job = self._store = self._thread = None
        if self._cancelled.is_set() and not self._closed:
            job.discard()
            return
        swapped = job.swap()
        copy = job.copy
        self.jobs += 1
        if copy is not None and swapped:
            self.copied += copy.size
        # Without a copy there is no reason to check again: the next job would be the same.
        if swapped and copy is not None:
            store.log.next_check = 0
            self._waiting[store] = None
        self._on_change(store)


def _is_idle(active: Segment | None, size: int, now: int) -> bool:
    """Return whether an active segment is sparse and no longer written to, so that it should be sealed."""
    return active is not None and active.size > size and active.max_arrived + _IDLE_US < now and is_sparse(active)
