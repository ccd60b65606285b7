"""The messages of one store on disk: written once, read by sequence number, marked dead when settled."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.commit import CommitGroup, Tail
from leveret.storage.disk.trash import Content
from leveret.storage.format import DURABLE, SPILL, Edit, EditOp, Stream
from leveret.storage.interface import Entry
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.reader import SegmentReader
from leveret.storage.segments.segment import Arrival, Segment, SegmentWriter, StorePlace
from leveret.storage.seq_ranges import SeqRanges, runs_of


class SegmentChain:
    """Appends to the active segment, starts a new one when it is full, and finds the segment of a message.

    Args:
        segments: Recovered segments in order; those sealed by recovery are synced by the first commit group.
        is_further: Whether the stream has other chains before; see MessageLog.

    Attributes:
        segments: All segments in order.
        has_dead: Whether there may be segments for drop_dead().
        members: The numbers written to a further chain; None for the first chain of a stream.
        readers: A reader for messages that are read in order, and one for messages that have been taken before.
    """

    __slots__ = (
        "_collected", "_dropped", "_firsts", "_just_sealed", "_last_tail", "_manifest", "_new_names", "_place",
        "_retired", "_sealed", "_to_sync", "_unsynced", "_writer", "has_dead", "members", "readers", "segments",
        "stream",
    )  # fmt: skip

    def __init__(
        self,
        place: StorePlace,
        stream: Stream,
        manifest: Manifest,
        segments: Sequence[Segment] = (),
        is_further: bool = False,
    ) -> None:
        self._place = place
        self.stream = stream
        self._manifest = manifest
        self.segments = list(segments)
        self.has_dead = any(segment.live <= 0 for segment in segments)
        self.members = SeqRanges() if is_further else None
        self.readers: Final = SegmentReader(place), SegmentReader(place)
        self._firsts = [segment.first_seq for segment in segments]
        self._writer: SegmentWriter | None = None
        #: Bytes of the active segment that are already in commit groups.
        self._collected = 0
        self._unsynced = False
        self._new_names = False
        #: What was last added to a commit group.
        self._last_tail: Tail | None = None
        #: Paths of files closed before they were synced.
        self._to_sync: list[str] = []
        #: Sealed segments, to be synced before the manifest records them as sealed.
        self._sealed: list[SegmentWriter] = []
        self._just_sealed = [segment for segment in segments if segment.sealed and not segment.synced]
        #: Files to close, of dropped or unsealable segments.
        self._retired: list[SegmentWriter] = []
        #: Segments whose files must be moved to the trash.
        self._dropped: list[Segment] = []

    def append(self, batch: Sequence[Arrival]) -> None:
        """Write messages.

        Args:
            batch: Messages in order of sequence number, higher than all before.
        Raises:
            OSError: Only messages up to last_seq were written.
        """
        try:
            self._write(batch)
        finally:
            if self.members is not None:
                last = self.last_seq
                for first, end in runs_of([seq for seq, _, _ in batch if seq <= last]):
                    self.members.add(first, end)

    def _write(self, batch: Sequence[Arrival]) -> None:
        at = 0
        self._place.descriptors.note_append(self)
        while at < len(batch):
            writer = self._writer
            if writer is None or writer.full:
                writer = self._begin(batch[at][0])
            try:
                at = writer.write(batch, at)
            except FileNotFoundError:
                # The file was removed by another process. Its messages are reported as lost when they are read.
                self._writer = None
            else:
                self._unsynced = True

    @property
    def last_seq(self) -> int:
        """The highest sequence number; 0 if there is none."""
        return self.segments[-1].last_seq if self.segments else 0

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum([segment.size for segment in self.segments])

    @property
    def active(self) -> Segment | None:
        """The segment that messages are appended to; None if there is none."""
        return self._writer.segment if self._writer is not None else None

    def find(self, seq: int) -> Segment | None:
        """Return the segment whose range contains a sequence number; None if there is none."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0 or self.segments[at].last_seq < seq:
            return None
        return self.segments[at]

    def overlapping(self, first: int, end: int) -> list[Segment]:
        """Return the segments that may contain numbers from `first` to `end`, excluded."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        stop = bisect_right(self._firsts, end - 1)
        return self.segments[at:stop]

    def bury(self, first: int, end: int, body_bytes: int, entries: Sequence[Entry]) -> int:
        """Count messages as dead in their segments, see MessageLog.bury(); return about how many bytes this frees."""
        writer = self._writer
        if writer is not None and writer.segment.first_seq <= first:
            # All are in the active segment: they were settled soon after their arrival.
            freed = writer.segment.bury(end - first, body_bytes)
            if writer.segment.live <= 0 and (writer.full or self.members is not None):
                self.has_dead = True
            return freed
        freed = 0
        for segment in self.overlapping(first, end):
            low, high = max(first, segment.first_seq), min(end, segment.last_seq + 1)
            if high > low:
                freed += segment.bury(high - low, bytes_of_part(low, high, first, end, body_bytes, entries))
                self.has_dead = self.has_dead or segment.live <= 0
        return freed

    def recount(self, first: int, end: int, dead: DeadSet) -> int:
        """Count the live messages of the segments of a range again; return the bytes that the dead ones free."""
        freed = 0
        for segment in self.overlapping(first, end):
            before = segment.live_size
            try:
                segment.set_live(self.readers[1].count_live(segment, dead))
            except FileNotFoundError:
                segment.set_live(0)
            freed += max(0, before - segment.live_size)
            self.has_dead = self.has_dead or segment.live <= 0
        return freed

    def drop_dead(self, keep_active: bool) -> bool:
        """Drop segments without live messages.

        Args:
            keep_active: Keep the active segment.
        Returns:
            False if the disk was too full to update the manifest.
        """
        self.has_dead = False
        active = self.active
        keep_active = keep_active and self._writer is not None and not self._writer.full
        dead = [
            each for each in self.segments if each.live <= 0 and not (keep_active and each is active) and not each.busy
        ]
        if not dead:
            return True
        try:
            self._manifest.append(self._deletions(dead))
        except OSError:
            # Durable segments stay until the manifest can be updated, as a missing file would count as lost. Spill
            # segments are dropped nevertheless: only a snapshot taken now would miss them.
            if self.stream is DURABLE:
                self.has_dead = True
                return False
        if self._writer is not None and active in dead:
            self._retired.append(self._writer)
            self._writer = None
        gone = set(dead)
        self._retired += [writer for writer in self._sealed if writer.segment in gone]
        self._sealed = [writer for writer in self._sealed if writer.segment not in gone]
        self._dropped += dead
        self.segments = [each for each in self.segments if each not in gone]
        self._firsts = [each.first_seq for each in self.segments]
        return True

    def replace(self, sources: Sequence[Segment], copy: Segment | None) -> bool:
        """Replace segments by a copy that contains all their live messages.

        Args:
            sources: Adjacent segments, marked busy; the mark is removed.
            copy: The copy; None if no messages are live.
        Returns:
            False if nothing was replaced: the disk is full, or some of the sources are gone.
        """
        for source in sources:
            source.busy = False
        self.has_dead = self.has_dead or any(source.live <= 0 for source in sources)
        at = bisect_right(self._firsts, sources[0].first_seq) - 1
        if at < 0 or self.segments[at : at + len(sources)] != list(sources):
            return False
        if copy is None:
            return True
        edits = self._deletions(sources)
        if self.stream is DURABLE:
            edits.insert(0, copy.edit(EditOp.COMPACTED if copy.settled else EditOp.SEAL))
        try:
            self._manifest.append(edits)
        except OSError:
            return False
        self._dropped += sources
        self.segments[at : at + len(sources)] = [copy]
        self._firsts[at : at + len(sources)] = [copy.first_seq]
        return True

    def _deletions(self, segments: Sequence[Segment]) -> list[Edit]:
        """Return the manifest edits of dropped segments, with the time for readers."""
        now = self._place.clock()
        return [each.edit(EditOp.DEL)._replace(max_arrived=now) for each in segments]

    def seal_active(self) -> None:
        """Seal the active segment; the next message starts a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._seal(writer)
            # It may have been kept only because it was active.
            self.has_dead = self.has_dead or writer.segment.live <= 0

    @property
    def has_dropped(self) -> bool:
        """Whether dropped files use disk space until the next commit."""
        return bool(self._dropped)

    def collect(self, group: CommitGroup) -> None:
        """Add written files to a commit group, and moves of dropped files to the trash after it."""
        if self.stream is DURABLE and self._unsynced and self._writer is not None and self._writer.handle >= 0:
            self._add_tail(group, self._writer)
        self._unsynced = False
        if self._new_names or self._just_sealed or self._to_sync or self._sealed or self._retired or self._dropped:
            self._collect_files(group)

    def _collect_files(self, group: CommitGroup) -> None:
        """Add what is rare to a commit group: files that are new, complete, closed or dropped."""
        if self.stream is DURABLE:
            for writer in self._sealed:
                group.data[writer.handle] = None
            for writer in self._retired:
                if self.find(writer.segment.first_seq) is writer.segment:
                    # It has no footer, for lack of space, but is still in use.
                    group.paths[writer.path] = None
            group.paths |= dict.fromkeys(self._to_sync)
            for segment in self._just_sealed:
                group.paths[f"{self._place.directory}/{segment.name}"] = None
                group.callbacks.append(partial(self._note_sealed, segment))
            if self._new_names or self._just_sealed:
                group.directories[self._place.directory] = None
                if self._place.priority:
                    group.directories[os.path.dirname(self._place.directory)] = None
            self._just_sealed = []
        group.callbacks += [partial(self._seal_synced, writer) for writer in self._sealed]
        group.callbacks += [writer.close for writer in self._retired]
        for segment in self._dropped:
            # Readers find it there for a while.
            place = self._place
            content = None
            if self.stream is DURABLE:
                content = Content(place.qid, place.priority, segment.last_seq)
            group.file_actions.append(partial(place.trash.put, place.directory, segment.name, place.clock(), content))
        self._new_names = False
        self._sealed, self._retired, self._dropped, self._to_sync = [], [], [], []

    def release(self) -> bool:
        """Close the active segment's file until the next write; return False if that is not possible now."""
        writer = self._writer
        if writer is None or writer.handle < 0:
            return True
        if self._last_tail is not None and not self._last_tail.is_released:
            # The committer may be syncing it.
            return False
        self._last_tail = None
        if self._unsynced and self.stream is DURABLE:
            self._to_sync.append(writer.path)
        self._collected = writer.segment.data_len
        writer.close()
        return True

    def _add_tail(self, group: CommitGroup, writer: SegmentWriter) -> None:
        place, end = self._place, writer.segment.data_len
        tail = Tail(place.qid, place.priority, writer.path, self._collected, end, writer.take_recent())
        group.add_tail(writer.handle, tail)
        self._collected = end
        self._last_tail = tail

    def _seal_synced(self, writer: SegmentWriter) -> None:
        writer.close()
        self._note_sealed(writer.segment)

    def _note_sealed(self, segment: Segment) -> None:
        """Record in the manifest that a segment is sealed and synced."""
        segment.synced = True
        if self.stream is DURABLE and self.find(segment.first_seq) is segment:
            try:
                self._manifest.append([segment.edit(EditOp.SEAL)])
            except OSError:
                # No space: the next start reads the whole segment instead.
                pass

    def close(self) -> None:
        """Close the files."""
        for writer in (*self._sealed, *self._retired, self._writer):
            if writer is not None:
                writer.close()
        self._sealed, self._retired, self._writer = [], [], None
        for reader in self.readers:
            reader.release()

    def _begin(self, seq: int) -> SegmentWriter:
        """Start a segment and seal the previous one."""
        place = self._place
        if place.priority and not self.segments:
            # Created late, as most priorities of a queue are never used.
            place.files.make_directory(place.directory)
        segment = Segment(self.stream, seq)
        writer = SegmentWriter(place, segment)
        try:
            if self.stream is DURABLE:
                self._manifest.append([segment.edit(EditOp.NEW)])
        except OSError:
            writer.close()
            place.files.unlink(writer.path)
            raise
        self.seal_active()
        self._writer = writer
        self._collected = 0
        self._new_names = True
        self.segments.append(segment)
        self._firsts.append(seq)
        return writer

    def _seal(self, writer: SegmentWriter) -> None:
        try:
            writer.seal()
        except OSError:
            # No space for the footer: the index stays in memory, and the manifest does not record it as sealed.
            self._retired.append(writer)
        else:
            writer.segment.index = None
            self._sealed.append(writer)


def bytes_of_part(low: int, high: int, first: int, end: int, body_bytes: int, entries: Sequence[Entry]) -> int:
    """Return the body bytes of a part of some messages: exact if there are entries, otherwise in proportion.

    Args:
        low: Sequence number of the first message of the part.
        high: Sequence number after its last message.
        first: Sequence number of the first message.
        end: Sequence number after the last message.
        body_bytes: Sum of the body lengths of all messages.
        entries: Entries that include the messages; empty if their single lengths are unknown.
    """
    if entries and high - low < end - first:
        return sum([len(entry[1].body) for entry in entries if low <= entry[0] < high])
    return body_bytes * (high - low) // (end - first)


#: That of the durable stream and the first one of the spill stream.
_USUAL_CHAINS: Final = 2


class Measured(NamedTuple):
    """Measured length of a run of messages.

    Attributes:
        length: Number of messages.
        body_bytes: Sum of their body lengths.
        arrived: Arrival of the first one in microseconds since 1970.
        last_arrived: Arrival of the last one.
        whole: Whether they are a complete segment.
    """

    stream: Stream
    length: int
    body_bytes: int
    arrived: int
    last_arrived: int
    whole: bool


class MessageLog:
    """A durable stream, a spill stream if needed, and the set of their dead messages.

    A chain takes ascending numbers only. Messages that have returned before they were written may have lower numbers
    than messages that were, so the spill stream has further chains as long as such messages live. Ranges alone do not
    say then which chain has which messages of a range: further chains remember their numbers.

    Args:
        durable: Whether persistent messages must survive a restart.
        segments: Recovered segments of the durable stream in order.
        dead: Their dead messages.
        persists_transient: Write transient messages to the durable stream too.

    Attributes:
        disk_reads: Number of messages read.
        disk_writes: Number of messages written.
        dead: Set of all numbers below the next one without a live message.
        place: Where the files are.
        chains: That of the durable stream, that of the spill stream if there is one, and further ones.
        dead_bytes: Bytes of files that became useless since the compactor last checked, about.
        next_check: Value of `dead_bytes` at which the compactor checks again.
        drops_active: Whether the active segments have no live messages and may be dropped too.
        failure: Why the last read_run() or next_seq() could not read something, which may be readable later; None if
            it could.
    """

    __slots__ = (
        "_appended_to", "_durable", "_manifest", "chains", "dead", "disk_reads", "disk_writes", "drops_active",
        "failure", "dead_bytes", "next_check", "persists_transient", "place",
    )  # fmt: skip

    def __init__(
        self,
        place: StorePlace,
        durable: bool,
        manifest: Manifest,
        segments: Sequence[Segment],
        dead: DeadSet,
        persists_transient: bool = False,
    ) -> None:
        self.dead = dead
        self.disk_reads = self.disk_writes = 0
        self.dead_bytes = self.next_check = 0
        self.drops_active = False
        self.failure: OSError | None = None
        self.persists_transient = persists_transient
        self.place = place
        self._durable = durable
        self._manifest = manifest
        self.chains: Final = [SegmentChain(place, DURABLE, manifest, segments)]
        #: That of the last append().
        self._appended_to = self.chains[0]

    def stream_of(self, persistent: bool) -> Stream:
        """Return the stream of a message."""
        return DURABLE if self._durable and (persistent or self.persists_transient) else SPILL

    def append(self, stream: Stream, batch: Sequence[Arrival]) -> OSError | None:
        """Write messages.

        Args:
            stream: Where all of them go.
            batch: In the order of their numbers. Those of the durable stream are higher than all before.
        Returns:
            The error if not all were written, see was_written(); None otherwise.
        """
        chain = self._appended_to = self._chain_for(stream, batch[0][0])
        try:
            chain.append(batch)
        except OSError as error:
            return error
        self.disk_writes += len(batch)
        return None

    def _chain_for(self, stream: Stream, seq: int) -> SegmentChain:
        """Return a chain of a stream that a message, and those after it, can be written to; create it if necessary."""
        if stream is DURABLE:
            return self.chains[0]
        for chain in self.chains[SPILL:]:
            if chain.last_seq < seq:
                return chain
        is_further = len(self.chains) > SPILL
        chain = SegmentChain(self.place, SPILL, self._manifest, is_further=is_further)
        self.chains.append(chain)
        return chain

    def was_written(self, arrival: Arrival) -> bool:
        """Return whether a message of the last append() was written."""
        return arrival[0] <= self._appended_to.last_seq

    def read_run(
        self,
        seq: int,
        count: int,
        body_bytes: int,
        expired_at: int,
        redelivered: bool,
        again: bool,
        is_counted: bool = True,
    ) -> list[Entry]:
        """Read messages with consecutive numbers; for the other arguments see SegmentReader.read_run().

        Args:
            again: The messages have been taken before. They use a separate reader, so that both readers read in order.
            is_counted: Whether they count as read from disk.
        """
        self.failure = None
        for chain in self.chains:
            segment = chain.find(seq)
            if segment is not None:
                reader = chain.readers[again]
                try:
                    entries = reader.read_run(segment, seq, count, body_bytes, expired_at, redelivered)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self.failure = error
                    continue
                if entries:
                    self.disk_reads += len(entries) if is_counted else 0
                    return entries
                self.failure = reader.failure or self.failure
        return []

    def measure_run(
        self, seq: int, count: int, looks: int, body_bytes: int, expired_at: int, again: bool
    ) -> Measured | None:
        """Measure messages without reading their bodies; None if the first one is missing or damaged.

        Args:
            looks: Maximum number of records to read; for the others see read_run().
        """
        for chain in self.chains:
            segment = chain.find(seq)
            if segment is None:
                continue
            if (
                seq == segment.first_seq
                and segment.gapless
                and segment.live == segment.count <= count
                # If they were equal, empty bodies at the end would exceed the limit.
                and segment.body_bytes < body_bytes
                and (not expired_at or segment.max_expires <= expired_at)
            ):
                return Measured(
                    chain.stream, segment.count, segment.body_bytes, segment.min_arrived, segment.max_arrived, True
                )
            try:
                found = chain.readers[again].measure_run(segment, seq, min(count, looks), body_bytes, expired_at)
            except OSError:
                continue
            if found[0]:
                return Measured(chain.stream, *found, False)
        return None

    def next_seq(self, seq: int, end: int, again: bool) -> int:
        """Return the lowest readable number from `seq` on; `end` if there is none below it."""
        self.failure = None
        for chain in self.chains:
            reader = chain.readers[again]
            for segment in chain.overlapping(seq, end):
                try:
                    found = reader.next_seq(segment, seq)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    # Nothing is known about its messages.
                    self.failure, found = error, segment.last_seq + 1
                self.failure = reader.failure or self.failure
                if found is not None:
                    end = min(end, found)
                    break
        return end

    def bury(self, first: int, end: int, stream: Stream, body_bytes: int, entries: Sequence[Entry]) -> None:
        """Mark a run of messages of one stream dead.

        Args:
            first: Sequence number of the first message.
            end: Sequence number after the last message.
            body_bytes: Sum of their body lengths.
            entries: Entries that include the messages; empty if their single lengths are unknown.
        """
        self.dead.add(first, end - first)
        if len(self.chains) <= _USUAL_CHAINS:
            self.dead_bytes += self.chains[stream].bury(first, end, body_bytes, entries)
            return
        for chain, low, high in _divide(self.chains, stream, first, end):
            self.dead_bytes += chain.bury(low, high, bytes_of_part(low, high, first, end, body_bytes, entries), entries)

    def bury_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Mark all messages in ranges dead, written or not.

        Args:
            ranges: Ascending ranges as (first, end), ends excluded.
        """
        for first, end in ranges:
            if end > first:
                self.dead.add(first, end - first)
        if ranges:
            for chain in self.chains:
                self.dead_bytes += chain.recount(ranges[0][0], ranges[-1][1], self.dead)

    def mean_body(self, seq: int) -> int:
        """Return the estimated body length of an unreadable message in bytes."""
        for chain in self.chains:
            segment = chain.find(seq)
            if segment is not None:
                return segment.body_bytes // max(1, segment.count)
        return 0

    def drop_dead(self) -> bool:
        """Drop segments without live messages.

        Called after the events of settled messages, and the copies of moved ones, have been written.

        Returns:
            False if the disk was too full to update the manifest; call it again later.
        """
        done = True
        for at, chain in enumerate(self.chains):
            if chain.has_dead or self.drops_active:
                # A further chain of the spill stream is not written to for long.
                done = chain.drop_dead(not self.drops_active and at < _USUAL_CHAINS) and done
        self.drops_active = self.drops_active and not done
        return done

    def seal_active(self) -> None:
        """Seal the active segments, so that the next start need not read them."""
        for chain in self.chains:
            chain.seal_active()

    @property
    def persistent_count(self) -> int:
        """Number of live messages of the durable stream."""
        return sum(segment.live for segment in self.chains[DURABLE].segments)

    @property
    def oldest(self) -> int:
        """Arrival of the oldest message in the existing segments; 0 if there is none."""
        return min((chain.segments[0].min_arrived for chain in self.chains if chain.segments), default=0)

    @property
    def size(self) -> int:
        """Total size of all segments in bytes."""
        return sum(chain.size for chain in self.chains)

    @property
    def live_size(self) -> int:
        """Approximate size of the records of live messages in bytes."""
        return sum([segment.live_size for chain in self.chains for segment in chain.segments])

    @property
    def spilled(self) -> tuple[int, int]:
        """Number of live messages of the spill stream and their approximate body bytes."""
        segments = [segment for chain in self.chains[SPILL:] for segment in chain.segments]
        body_bytes = sum(segment.body_bytes * segment.live // max(1, segment.count) for segment in segments)
        return sum(segment.live for segment in segments), body_bytes

    @property
    def segments(self) -> list[Segment]:
        """The segments of the durable stream."""
        return self.chains[DURABLE].segments

    @property
    def has_dead(self) -> bool:
        """Whether there may be segments for drop_dead()."""
        chains = self.chains
        return (
            self.drops_active or chains[0].has_dead or (len(chains) > 1 and any(chain.has_dead for chain in chains[1:]))
        )

    @property
    def has_dropped(self) -> bool:
        """Whether dropped files use disk space until the next commit."""
        return any(chain.has_dropped for chain in self.chains)

    def collect(self, group: CommitGroup) -> None:
        """Add written files to a commit group, and moves of dropped files to the trash after it."""
        for chain in self.chains:
            chain.collect(group)
        self._manifest.collect(group)
        self._manifest.shorten_if_long(group, self.place.clock)
        if len(self.chains) > _USUAL_CHAINS:
            self._forget_empty()

    def _forget_empty(self) -> None:
        """Forget the further chains without a segment, whose files have all been given to a commit group."""
        for chain in self.chains[_USUAL_CHAINS:]:
            if not chain.segments:
                chain.close()
                self.chains.remove(chain)

    def release(self) -> None:
        """Release files and buffers of the readers."""
        for chain in self.chains:
            for reader in chain.readers:
                reader.release()

    def close(self) -> None:
        """Close all files."""
        for chain in self.chains:
            chain.close()


def _divide(
    chains: Sequence[SegmentChain], stream: Stream, first: int, end: int
) -> Iterator[tuple[SegmentChain, int, int]]:
    """Divide a range of messages of one stream by chain.

    Returns:
        Chain, first number, and number after the last one, of each part.
    """
    parts: list[tuple[int, int, SegmentChain]] = []
    if stream is SPILL:
        for chain in chains:
            if chain.members is not None:
                parts += [(max(first, low), min(end, high), chain) for low, high in chain.members.between(first, end)]
    parts.sort(key=lambda part: part[0])
    # The first chain has all that is in no other.
    main = chains[stream]
    for low, high, chain in parts:
        if low > first:
            yield main, first, low
        if high > low:
            yield chain, low, high
        first = max(low, high)
    if end > first:
        yield main, first, end
