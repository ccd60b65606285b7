"""The messages of one store on disk: written once, read by number, buried when they are dead."""

from __future__ import annotations

from collections.abc import Sequence

from storage.commit_group import CommitGroup
from storage.dead_set import DeadSet
from storage.format import Stream
from storage.interface import Entry
from storage.manifest import Manifest
from storage.segment import Arrival, Segment, StorePlace
from storage.segment_chain import SegmentChain
from storage.segment_reader import SegmentReader


class MessageLog:
    """A durable stream, a spill stream once there is a message for it, and which of their messages are dead.

    Args:
        place: Where the files are.
        durable: Whether persistent messages are to outlive the process.
        manifest: The store's.
        segments: Sealed segments of the durable stream that recovery found, in order.
        dead: Which of their messages are dead.

    Attributes:
        dead: All numbers below the next one that have no living message.
    """

    __slots__ = ("_chains", "_durable", "_manifest", "_place", "_readers", "dead")

    def __init__(
        self, place: StorePlace, durable: bool, manifest: Manifest, segments: Sequence[Segment], dead: DeadSet
    ) -> None:
        self.dead = dead
        self._place = place
        self._durable = durable
        self._manifest = manifest
        self._chains = [SegmentChain(place, Stream.DURABLE, manifest, segments)]
        #: One for each chain, for messages in order, and one for those that came back.
        self._readers = [(SegmentReader(place), SegmentReader(place))]

    def stream_of(self, persistent: bool) -> Stream:
        """Where a message goes."""
        return Stream.DURABLE if persistent and self._durable else Stream.SPILL

    def append(self, batch: Sequence[Arrival]) -> OSError | None:
        """Write messages.

        Args:
            batch: In the order of their numbers.
        Returns:
            What went wrong, if not all were written; was_written() tells which were.
        """
        spilled: list[Arrival] = []
        if not self._durable or not all(arrival[1].envelope.persistent for arrival in batch):
            spilled = [each for each in batch if self.stream_of(each[1].envelope.persistent) is Stream.SPILL]
            batch = [each for each in batch if self.stream_of(each[1].envelope.persistent) is Stream.DURABLE]
        failure: OSError | None = None
        for stream, part in zip(Stream, (batch, spilled), strict=True):
            if part:
                try:
                    self._chain(stream).append(part)
                except OSError as error:
                    failure = error
        return failure

    def was_written(self, arrival: Arrival) -> bool:
        """Whether a message of the last append() was written."""
        return arrival[0] <= self._chain(self.stream_of(arrival[1].envelope.persistent)).last_seq

    def read_run(
        self, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool, again: bool
    ) -> list[Entry]:
        """Read messages whose numbers follow each other; see SegmentReader.read_run().

        Args:
            seq: Number of the first.
            count: At most so many.
            body_bytes: No further one once their bodies have reached so many bytes.
            expired_at: Only messages that expire by then; 0 for all.
            redelivered: What the entries say.
            again: They have been taken before; those are read apart, so that both are read in order.
        """
        for chain, readers in zip(self._chains, self._readers, strict=True):
            segment = chain.find(seq)
            if segment is not None:
                try:
                    entries = readers[again].read_run(segment, seq, count, body_bytes, expired_at, redelivered)
                except FileNotFoundError:
                    continue
                if entries:
                    return entries
        return []

    def next_seq(self, seq: int, end: int, again: bool) -> int:
        """The lowest number from `seq` on that can be read; `end` if there is none below it."""
        for chain, readers in zip(self._chains, self._readers, strict=True):
            for segment in chain.overlapping(seq, end):
                try:
                    found = readers[again].next_seq(segment, seq)
                except FileNotFoundError:
                    continue
                if found is not None:
                    end = min(end, found)
                    break
        return end

    def bury(self, first: int, end: int, stream: Stream) -> None:
        """Mark messages dead, all of which were written to one stream."""
        self.dead.add(first, end - first)
        chain = self._chain(stream)
        for segment in chain.overlapping(first, end):
            segment.live -= max(0, min(end, segment.last_seq + 1) - max(first, segment.first_seq))
            chain.has_dead = chain.has_dead or segment.live <= 0

    def bury_all(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Mark all messages in ranges dead, whether they were written or not.

        Args:
            ranges: As (first, end), in order; ends are not inside.
        """
        for first, end in ranges:
            if end > first:
                self.dead.add(first, end - first)
        if ranges:
            for chain, readers in zip(self._chains, self._readers, strict=True):
                for segment in chain.overlapping(ranges[0][0], ranges[-1][1]):
                    segment.live = self._count_live(segment, readers[1])
                    chain.has_dead = chain.has_dead or segment.live <= 0

    def _count_live(self, segment: Segment, reader: SegmentReader) -> int:
        try:
            return count_live(segment, reader, self.dead)
        except FileNotFoundError:
            return 0

    def mean_body(self, seq: int) -> int:
        """Bytes that the body of a message has that cannot be read, as far as one can tell."""
        for chain in self._chains:
            segment = chain.find(seq)
            if segment is not None:
                return segment.body_bytes // max(1, segment.count)
        return 0

    def drop_dead(self, keep_active: bool) -> bool:
        """Give up the segments without a living message; see SegmentChain.drop_dead()."""
        done = True
        for chain in self._chains:
            if chain.has_dead or not keep_active:
                done = chain.drop_dead(keep_active) and done
        return done

    def seal_active(self) -> None:
        """Begin a segment with the next message, so that the next start need not read the last one."""
        for chain in self._chains:
            chain.seal_active()

    @property
    def persistent_count(self) -> int:
        """Living messages of the durable stream."""
        return sum(segment.live for segment in self._chains[Stream.DURABLE].segments)

    @property
    def oldest(self) -> int:
        """When the oldest message of those segments came that are not empty; 0 if there is none."""
        return min((chain.segments[0].min_arrived for chain in self._chains if chain.segments), default=0)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(chain.size for chain in self._chains)

    @property
    def segments(self) -> list[Segment]:
        """The segments of the durable stream."""
        return self._chains[Stream.DURABLE].segments

    @property
    def unsynced(self) -> bool:
        """Whether there is something for a commit group."""
        return any(chain.unsynced for chain in self._chains)

    def collect(self, group: CommitGroup) -> None:
        """Have what was written synced, and what was given up moved away after that."""
        for chain in self._chains:
            chain.collect(group)
        self._manifest.collect(group)

    def release(self) -> None:
        """Give back what reading keeps open and in memory."""
        for readers in self._readers:
            for reader in readers:
                reader.release()

    def close(self) -> None:
        """Close all files; nothing is given up."""
        self.release()
        for chain in self._chains:
            chain.close()
        self._manifest.close()

    def _chain(self, stream: Stream) -> SegmentChain:
        if stream >= len(self._chains):
            self._chains.append(SegmentChain(self._place, Stream.SPILL, self._manifest))
            self._readers.append((SegmentReader(self._place), SegmentReader(self._place)))
        return self._chains[stream]


def count_live(segment: Segment, reader: SegmentReader, dead: DeadSet) -> int:
    """How many of a segment's messages are not dead; that is arithmetic if no number is missing in it."""
    if segment.gapless:
        return dead.count_live(segment.first_seq, segment.last_seq + 1)
    return sum(header.seq not in dead for header in reader.headers(segment))
