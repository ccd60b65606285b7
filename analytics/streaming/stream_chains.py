"""The segments that a streaming query reads, by queue, priority and stream, in the order of their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from leveret.analytics.rows.record_rows import RowLimits, select_rows
from leveret.storage.format import Stream
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView, Snapshot, StoreView

#: Higher than any sequence number.
NUMBERS_MAX: Final = (1 << 63) - 1


class Chain(NamedTuple):
    """The segments of one stream of a store, in which sequence numbers ascend.

    Streams are read separately, because a message may be spilled long after durable messages with higher numbers.
    """

    queue: QueueView
    store: StoreView
    stream: Stream

    @property
    def key(self) -> str:
        """Key of this chain in offsets."""
        return chain_key(self.queue.qid, self.store.priority, self.stream)

    @property
    def segments(self) -> list[SegmentView]:
        """Segments of the chain, in order."""
        found = (view for view in self.store.segments if view.stream == self.stream)
        return sorted(found, key=lambda view: view.first_seq)

    def next_in(self, offset: Mapping[str, int]) -> int:
        """Return the next number in an offset; offsets of older versions have one number for both streams."""
        return next_number(offset, self.queue.qid, self.store.priority, self.stream)

    def both_streams(self, offset: Mapping[str, int]) -> dict[str, int]:
        """Return the next number of each stream of the store in an offset, by key."""
        both = (self._replace(stream=stream) for stream in Stream)
        return {each.key: each.next_in(offset) for each in both}


def chain_key(qid: int, priority: int, stream: int) -> str:
    """Return the key of a chain in offsets.

    Args:
        qid: Number of the queue.
        priority: Priority of the store.
        stream: Durable or spill.
    """
    return f"{qid}/{priority}" + ("/spill" if stream == Stream.SPILL else "")


def next_number(offset: Mapping[str, int], qid: int, priority: int, stream: int) -> int:
    """Return the next number of a chain in an offset; offsets of older versions have one number for both streams."""
    durable = offset.get(chain_key(qid, priority, Stream.DURABLE), 0)
    return offset.get(chain_key(qid, priority, stream), durable)


def chains_of(snapshot: Snapshot) -> list[Chain]:
    """Return the chains of a snapshot that have segments."""
    return [
        Chain(queue, store, stream)
        for queue in snapshot.queues
        for store in queue.stores
        for stream in Stream
        if any(view.stream == stream for view in store.segments)
    ]


class Measured(NamedTuple):
    """Messages of a chain in a range.

    Attributes:
        messages: How many there are.
        end: Number after the last one; the first of the range if there is none.
        is_all: Whether the files have nothing after it, not even messages that have come after the cut.
    """

    messages: int
    end: int
    is_all: bool


def measure(cut: int, chain: Chain, first: int, share: int, stop: int) -> Measured:
    """Return what a chain has in a range.

    Args:
        cut: Time at which the snapshot ends, in microseconds since 1970.
        chain: The chain.
        first: First sequence number.
        share: Maximum count; 0 for no limit.
        stop: End of the range, exclusive.
    """
    count, end, is_all = 0, first, True
    for view in chain.segments:
        if view.last_seq < first:
            continue
        room = share - count if share else NUMBERS_MAX
        if room <= 0 or view.first_seq >= stop:
            is_all = False
            break
        inner = view.sealed and view.first_seq >= first and view.last_seq < stop
        whole = inner and view.max_arrived <= cut
        if whole and view.records <= room and len(view.live) == 2 and view.live_numbers >= view.records:
            count, end = count + view.records, max(end, view.last_seq + 1)
            continue
        seqs, later = _read(cut, view, first, stop)
        is_all = is_all and not later and len(seqs) <= room and (stop >= NUMBERS_MAX or view.last_seq < stop)
        if seqs:
            count, end = count + len(seqs[:room]), max(end, seqs[:room][-1] + 1)
    return Measured(count, end, is_all)


def read_numbers(cut: int, view: SegmentView, first: int, stop: int) -> list[int]:
    """Return the numbers of the records of a segment in a range, ascending.

    Args:
        cut: Time at which the snapshot ends, in microseconds since 1970; later records are left out.
        view: The segment.
        first: First sequence number.
        stop: End of the range, exclusive.
    """
    return _read(cut, view, first, stop)[0]


def _read(cut: int, view: SegmentView, first: int, stop: int) -> tuple[list[int], int]:
    """Return read_numbers(), and how many records there are after the cut."""
    with open(view.path, "rb") as file:
        octets = file.read()
    rows = select_rows(octets, view, cut, RowLimits(first, stop - 1), view.live)
    return rows.seq.tolist(), rows.later
