"""The chains of a store: one of durable messages, and those of the spill stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from leveret.storage.format import Stream
from leveret.storage.segments.chain import SegmentChain
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.reader import SegmentReader
from leveret.storage.segments.segment import Arrival, Segment, StorePlace
from leveret.storage.seq_ranges import SeqRanges


class Chains:
    """A chain of the durable stream, and one of the spill stream once there is a message for it.

    A chain takes ascending numbers only. Messages that have returned before they were written may have lower numbers
    than messages that were, so that the spill stream has further chains as long as such messages live. Ranges alone do
    not say then how many messages of a range are in which chain: the numbers in further ones are remembered.

    Args:
        place: Where the files are.
        manifest: The store's.
        segments: Sealed segments of the durable stream that recovery found, in order.

    Attributes:
        chains: That of the durable stream, that of the spill stream if there is one, and further ones.
        readers: Two for each, for messages in order, and for those that came back.
    """

    __slots__ = ("_manifest", "_members", "_place", "chains", "readers")

    def __init__(self, place: StorePlace, manifest: Manifest, segments: Sequence[Segment]) -> None:
        self._place = place
        self._manifest = manifest
        self._members: dict[SegmentChain, SeqRanges] = {}
        self.chains: Final = [SegmentChain(place, Stream.DURABLE, manifest, segments)]
        self.readers: Final = [(SegmentReader(place), SegmentReader(place))]

    def of(self, stream: Stream) -> SegmentChain:
        """The first chain of a stream."""
        return self.chains[stream] if stream < len(self.chains) else self._begin_spill()

    def for_append(self, stream: Stream, seq: int) -> SegmentChain:
        """The chain that a message can be written to, and those behind it.

        Args:
            stream: Where it goes.
            seq: Its number; in the durable stream it is higher than all before.
        """
        chain = self.of(stream)
        if stream is Stream.DURABLE or chain.last_seq < seq:
            return chain
        for further in self.chains[Stream.SPILL + 1 :]:
            if further.last_seq < seq:
                return further
        chain = self._begin_spill()
        self._members[chain] = SeqRanges()
        return chain

    def note_written(self, chain: SegmentChain, batch: Sequence[Arrival]) -> None:
        """Note what was written to a chain.

        Args:
            chain: Which one.
            batch: In the order of their numbers; those up to the chain's last one were written.
        """
        members = self._members.get(chain)
        if members is None:
            return
        last = chain.last_seq
        first = end = batch[0][0]
        for seq, _, _ in batch:
            if seq > last:
                break
            if seq != end:
                members.add(first, end)
                first = seq
            end = seq + 1
        if end > first:
            members.add(first, end)

    def divide(self, stream: Stream, first: int, end: int) -> Iterator[tuple[SegmentChain, int, int]]:
        """Divide a range of messages of one stream by chain, as (chain, first, end).

        Args:
            stream: Where all of them were written to.
            first: Number of the first.
            end: The number behind the last.
        """
        parts: list[tuple[int, int, SegmentChain]] = []
        if stream is Stream.SPILL:
            for chain, members in self._members.items():
                parts += [(max(first, low), min(end, high), chain) for low, high in members.between(first, end)]
        parts.sort(key=_low)
        # The first chain has all that is in no other.
        main = self.of(stream)
        for low, high, chain in parts:
            if low > first:
                yield main, first, low
            if high > low:
                yield chain, low, high
            first = max(low, high)
        if end > first:
            yield main, first, end

    @property
    def has_further(self) -> bool:
        """Whether the spill stream has more than one chain."""
        return bool(self._members)

    def forget_empty(self) -> None:
        """Forget the further chains without a segment, whose files have all been given to a commit group."""
        for at in range(len(self.chains) - 1, Stream.SPILL, -1):
            chain = self.chains[at]
            if not chain.segments:
                del self._members[chain]
                for reader in self.readers[at]:
                    reader.release()
                del self.chains[at], self.readers[at]

    def _begin_spill(self) -> SegmentChain:
        chain = SegmentChain(self._place, Stream.SPILL, self._manifest)
        self.chains.append(chain)
        self.readers.append((SegmentReader(self._place), SegmentReader(self._place)))
        return chain


def _low(part: tuple[int, int, SegmentChain]) -> int:
    return part[0]
