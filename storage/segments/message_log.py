"""The messages of one store on disk: written once, read by sequence number, marked dead when settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from leveret.storage.commit.committer import CommitGroup
from leveret.storage.format import DURABLE, SPILL, Stream
from leveret.storage.interface import Entry
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import Arrival, Segment, StorePlace
from leveret.storage.segments.segment_chain import SegmentChain, bytes_of_part

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
