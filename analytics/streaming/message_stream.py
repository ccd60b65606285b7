"""Streaming source of messages: yields each message that was written to a file once, in the order of its queue.

An offset has the next sequence number for each store of a queue and each stream of that store (tables/chains.py). It
also names the snapshot with the segments of the batch that ends there. That snapshot outlives the process: a batch that
is repeated after a crash reads the same files, even if the queue has changed or was deleted.

A process that goes on looks only at queues whose files have changed since it has read them (changed_queues.py), of
which it has left something, or of which something was removed.

A queue of type stream keeps all that was written until its retention removes it. So a query knows when it has missed
something of a stream, and its offset says the next offset of each stream as clients know it. What it has missed of
other queues is found with the event log (missed_messages.py), and counted in the offset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from leveret.analytics.errors import AnalyticsError, report_data_loss
from leveret.analytics.option_values import EARLIEST, LATEST, OffsetPlace, PlaceKind
from leveret.analytics.options import Options
from leveret.analytics.rows.record_rows import select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.streaming.changed_queues import ChangedQueues, directory_state
from leveret.analytics.streaming.kept_data import NamedReader, load_parts, save_parts, set_lease_timeout
from leveret.analytics.streaming.missed_messages import (
    Missed,
    MissedMessages,
    StoreKey,
    add_missed,
    latest_events,
    position_after,
)
from leveret.analytics.tables.chains import (
    NUMBERS_MAX,
    Chain,
    Measured,
    NextNumbers,
    all_numbers,
    chains_of,
    measure,
    numbers_in,
    parts_between,
)
from leveret.analytics.tables.partitions import MessagesPartition, SegmentPart, SnapshotLocation, group_parts
from leveret.analytics.tables.query_snapshots import check_streams
from leveret.storage.disk.files import DiskFiles
from leveret.storage.format import Stream
from leveret.storage.seq_ranges import SeqRanges
from leveret.storage.snapshots.lease import SNAPSHOTS, SnapshotLease
from leveret.storage.snapshots.snapshot import (
    Choice,
    Request,
    Snapshot,
    SnapshotMemory,
    read_directory_format,
    take_snapshot,
)


def note_gap(stream: str, first: int, end: int, fails: bool) -> None:
    """Report messages of a stream that a query has not read and cannot read any more.

    Args:
        fails: Whether that is an error; otherwise it is logged.
    Raises:
        AnalyticsError: `fails` is set.
    """
    gone = (
        f"offsets {first - 1} to {end - 2} of stream '{stream}' are not there any more, and the query has not read "
        "them: retention has removed them"
    )
    advice = "The stream's limits say how long messages stay"
    report_data_loss(gone, fails, f"go on with offset {end - 1}", advice)


#: Seconds that the segments of a stream's last batch are kept while its query is not running.
STREAM_TIMEOUT: Final = 86_400.0
#: With more streams, an offset names only those of its batch.
_NAMED_STREAMS_MAX: Final = 100


@dataclass(slots=True)
class _Start:
    """Where a batch starts.

    Attributes:
        offset: The offset.
        numbers: Its next numbers.
        removed: What has left files since, by store; up to the snapshot that is taken.
    """

    offset: dict[str, Any]
    numbers: NextNumbers
    removed: dict[StoreKey, SeqRanges] = field(default_factory=dict)


@dataclass(slots=True)
class _Batch:
    """What a batch reads.

    Attributes:
        updates: Next sequence number, at its end, by chain: those that differ from its start.
        parts: The segments that it reads.
        unread: Chains of which it leaves messages that are there, and these.
        incomplete: Numbers of the queues that it may not read to their ends.
    """

    updates: dict[str, int] = field(default_factory=dict)
    parts: list[SegmentPart] = field(default_factory=list)
    unread: list[tuple[Chain, Measured]] = field(default_factory=list)
    incomplete: set[int] = field(default_factory=set)


class MessageStream:
    """Reads messages after an offset.

    Args:
        locks_reader: Whether other queries with the same reader are refused.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        AnalyticsError: The data directory is not local.
    """

    def __init__(self, options: Options, locks_reader: bool = True) -> None:
        self._options = options
        self._path = options.path.rstrip("/")
        self._store_id = read_directory_format(DiskFiles(), self._path).store_id
        #: Snapshot of the last offset, which Spark may not have saved in its checkpoint.
        self._unsaved = ""
        #: Next sequence number at the end of the last batch, by chain; None for an endless stream.
        self._target: dict[str, int] | None = None
        self._missed = MissedMessages(options, self._path, self._store_id)
        self._reader = NamedReader(options, self._path, locks_reader)
        #: An offset after which nothing had come when the directory was in this state.
        self._idle: tuple[dict[str, Any], object] | None = None
        self._memory = SnapshotMemory()
        #: Of the offset `_known`.
        self._changed = ChangedQueues(self._path)
        self._known: dict[str, Any] | None = None

    def first(self) -> dict[str, Any]:
        """Return the start offset of a new query.

        Raises:
            AnalyticsError: startingOffsets does not fit, or the reader cannot be made.
        """
        numbers, told = self._first()
        self._reader.begin(numbers)
        return {"snapshot": ""} | all_numbers(numbers).to_json() | told | self._reader.mark

    def _first(self) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the next numbers at the start of a new query, and what else its offset says."""
        starting = self._options.starting
        if starting == EARLIEST:
            return {}, {"events": latest_events(self._path, self._store_id)}
        with self._take() as snapshot:
            chains = chains_of(snapshot)
            if starting == LATEST:
                return _ends(snapshot), position_after(snapshot, ())
            check_streams(snapshot, starting, LATEST)
            numbers = {each.key: self._number_at(snapshot, each, starting) for each in chains}
            return numbers, stream_places({}, snapshot, numbers, ())

    def stop_at_latest(self) -> None:
        """Limit the stream to the messages that exist now."""
        self._idle = None
        with self._take() as snapshot:
            self._target = _ends(snapshot)

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the end offset of the next batch, and keep a snapshot of its segments.

        Args:
            start: Start offset of the batch.
            limit: Maximum number of messages; 0 for no limit.
        Returns:
            The end offset; `start` itself if there is nothing new.
        Raises:
            AnalyticsError: The snapshot cannot make hard links, or the reader's file is damaged; or messages were
                removed before they could be read, or the reader was dropped, and failOnDataLoss is true.
        """
        self._release(self._unsaved)
        self._unsaved = ""
        # Spark asks for the next batch only after it has stored the previous one.
        self._release(start["snapshot"])
        self._reader.note_passed(start)
        # Before the snapshot, which may have more.
        state = directory_state(self._path)
        if state is not None and self._idle == (start, state):
            return start
        if self._known != start:
            self._changed.forget()
        self._known = None
        at = _Start(start, numbers_in(start))
        snapshot = self._take(partial(self._choose, at))
        try:
            if snapshot.lease is None:
                where = f"{self._path}/{SNAPSHOTS}"
                raise AnalyticsError(f"streams need to make hard links in {where}, which is not allowed")
            self._changed.note_open(snapshot)
            missed = self._missed.find(start, at.numbers, at.removed, snapshot)
            batch = self._batch(at, snapshot, limit)
            end = self._offset(at, snapshot, batch, missed)
            if batch.parts:
                save_parts(snapshot.lease.path, snapshot.cut.time, batch.parts)
        except BaseException:
            snapshot.close()
            raise
        if batch.parts:
            self._unsaved = snapshot.lease.path.rpartition("/")[2]
            end = end | {"snapshot": self._unsaved}
        else:
            snapshot.close()
            self._idle = (start, state) if end is start else None
        for queue in snapshot.queues:
            if queue.qid not in batch.incomplete:
                self._changed.settle(queue.qid)
        self._known = end
        return end

    def _choose(self, at: _Start, choice: Choice) -> set[int]:
        """Return the numbers of the queues of which the next batch may read something, or has missed something."""
        at.removed = self._missed.removed(at.offset, at.numbers, choice.cut.position, choice.names)
        # A queue of which the offset has left something was not read to its end, so it is among the former.
        chosen = self._changed.among(choice.wanted) | {store.qid for store in at.removed}
        self._changed.begin(chosen, choice.lease)
        return chosen

    def _batch(self, at: _Start, snapshot: Snapshot, limit: int) -> _Batch:
        """Choose what the next batch reads."""
        batch = _Batch()
        chains = chains_of(snapshot)
        # With a limit, each batch starts at a different chain, so that all chains are read in turn.
        turn = int(at.offset["snapshot"][:8] or "0", 16) % max(1, len(chains))
        left = limit
        for place, chain in enumerate(chains[turn:] + chains[:turn]):
            share = -(-left // (len(chains) - place)) if limit else 0
            first = chain.next_in(at.numbers)
            if limit and not share:
                self._leave(batch, snapshot, chain, first)
                continue
            if chain.queue.is_stream and first:
                first = self._pass_removed(chain, first)
            stop = NUMBERS_MAX if self._target is None else chain.next_in(self._target)
            found = measure(snapshot.cut.time, chain, first, share, stop)
            left -= found.messages
            if found.end > first and found.messages:
                # The numbers of both streams: next_in() must no longer derive one from the other.
                for key, number in chain.both_streams(at.numbers).items():
                    batch.updates.setdefault(key, number)
                batch.updates[chain.key] = found.end
                batch.parts += parts_between(chain, first, found.end)
            if self._target is not None or found.messages == share > 0:
                self._leave(batch, snapshot, chain, found.end if found.messages else chain.next_in(at.numbers))
            elif not found.is_all:
                batch.incomplete.add(chain.queue.qid)
        return batch

    def _leave(self, batch: _Batch, snapshot: Snapshot, chain: Chain, following: int) -> None:
        """Note what a batch leaves of a chain from a number on."""
        if chain.stream is Stream.DURABLE and not chain.queue.is_stream:
            rest = measure(snapshot.cut.time, chain, following, 0, NUMBERS_MAX)
            batch.unread.append((chain, rest))
            if rest.is_all and not rest.messages:
                return
        batch.incomplete.add(chain.queue.qid)

    def _offset(self, at: _Start, snapshot: Snapshot, batch: _Batch, missed: Sequence[Missed]) -> dict[str, Any]:
        """Return the end of a batch, without its snapshot; the start if there is nothing to note."""
        start = at.offset
        if not batch.parts and not missed:
            self._missed.note_idle(at.numbers, snapshot)
            # An old position is noted before its file is deleted, at the price of an empty batch.
            if start.get("events", {}).get("file") in (None, 0, snapshot.cut.position.file):
                return start
        numbers = at.numbers.changed(batch.updates, partial(self._is_known, snapshot))
        offset = {"snapshot": ""} | numbers.to_json() | position_after(snapshot, batch.unread) | self._reader.mark
        counts = add_missed(start.get("missed", {}), missed)
        if counts:
            offset["missed"] = counts
        read = {part.view.qid for part in batch.parts}
        return offset | stream_places(start.get("offsets", {}), snapshot, numbers, read)

    def _is_known(self, snapshot: Snapshot, qid: int) -> bool:
        """Return whether there is a queue with a number, or events of it."""
        return qid in snapshot.names or os.path.exists(f"{self._path}/q/{qid:08x}")

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[MessagesPartition]:
        """Yield the partitions between two offsets.

        Raises:
            AnalyticsError: The snapshot of the batch is gone, and failOnDataLoss is true.
        """
        if numbers_in(start) == numbers_in(end):
            return
        directory = self._directory(end["snapshot"])
        found = load_parts(directory, self._path, self._store_id)
        if found is None:
            gone = (
                f"{directory} is gone, which kept the messages of a batch that must be repeated: the query was stopped "
                "for longer than leaseSeconds, or the disk was nearly full"
            )
            report_data_loss(gone, self._options.fail_on_data_loss)
            found = self._remaining_parts(start, end)
        else:
            set_lease_timeout(directory, self._options.lease_seconds or STREAM_TIMEOUT)
            SnapshotLease(directory).renew()
            self._unsaved = ""
        location, parts = found
        for group in group_parts(parts, self._options.segments_per_partition):
            yield MessagesPartition(location, group)

    def commit(self, end: dict[str, Any]) -> None:
        """Release the snapshot of a batch that is stored and will not be repeated."""
        self._release(end["snapshot"])

    def note_stored(self, end: dict[str, Any]) -> None:
        """Release the snapshot of a batch that is stored, and let the broker delete what its reader has passed.

        Raises:
            AnalyticsError: The reader's file is damaged or cannot be written, or the reader was dropped, and
                failOnDataLoss is true.
        """
        self.commit(end)
        self._reader.note_passed(end)

    def stop(self) -> None:
        """Release the snapshot that no saved offset names, and the reader."""
        self._release(self._unsaved)
        self._reader.release()

    def _take(self, choose: Callable[[Choice], set[int]] | None = None) -> Snapshot:
        options = self._options
        request = Request(
            dead_too=True,
            wanted=options.wants,
            described=options.described,
            purpose="analytics, stream",
            choose=choose,
            memory=self._memory,
        )
        return take_snapshot(self._path, request)

    def _remaining_parts(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> tuple[SnapshotLocation, list[SegmentPart]]:
        """Take a new snapshot and return what it still has of a batch."""
        snapshot = self._take()
        parts: list[SegmentPart] = []
        before, after = numbers_in(start), numbers_in(end)
        for chain in chains_of(snapshot):
            if chain.next_in(after) > chain.next_in(before):
                parts += parts_between(chain, chain.next_in(before), chain.next_in(after))
        lease = snapshot.lease.path if snapshot.lease is not None else ""
        return SnapshotLocation(self._path, lease, snapshot.cut.time, self._store_id, lease), parts

    def _pass_removed(self, chain: Chain, first: int) -> int:
        """Return the number of the first message of a stream that is there from a number on."""
        there = min([view.first_seq for view in chain.segments if view.last_seq >= first], default=first)
        if there > first:
            note_gap(chain.queue.name, first, there, self._options.fail_on_data_loss)
        return max(first, there)

    def _number_at(self, snapshot: Snapshot, chain: Chain, place: OffsetPlace) -> int:
        """Return the number of the first message from an offset or a time on."""
        segments = chain.segments
        if place.kind is PlaceKind.OFFSET:
            first = min([view.first_seq for view in segments if view.last_seq >= place.value], default=place.value)
            return max(first, place.value)
        for view in segments:
            if view.sealed and view.max_arrived < place.value:
                continue
            with open(view.path, "rb") as file:
                octets = file.read()
            limits = RowLimits(first_time=place.value)
            found = select_rows(octets, view, snapshot.cut.time, limits, view.live).seq.tolist()
            if found:
                return int(found[0])
        return measure(snapshot.cut.time, chain, 0, 0, NUMBERS_MAX).end

    def _directory(self, name: str) -> str:
        return f"{self._path}/{SNAPSHOTS}/{name}"

    def _release(self, name: str) -> None:
        if name and name.isalnum():
            SnapshotLease(self._directory(name)).release()


def _ends(snapshot: Snapshot) -> dict[str, int]:
    """Return the number after the last message of each chain."""
    return {each.key: measure(snapshot.cut.time, each, 0, 0, NUMBERS_MAX).end for each in chains_of(snapshot)}


def stream_places(
    before: Mapping[str, Mapping[str, int]], snapshot: Snapshot, numbers: Mapping[str, int], read: Collection[int]
) -> dict[str, Any]:
    """Return what an offset says for people: the next offset of each stream, by virtual host and name.

    Args:
        before: What the offset before said.
        snapshot: A snapshot with the streams that may have changed.
        read: Numbers of the queues of the batch. If there are too many streams, only these are named.
    """
    there = {(name.vhost, name.name) for name in snapshot.names.values() if name.is_stream} if before else set()
    places = {(vhost, name): place for vhost, names in before.items() for name, place in names.items()}
    places = {key: place for key, place in places.items() if key in there}
    changed: set[tuple[str, str]] = set()
    for chain in chains_of(snapshot):
        queue = chain.queue
        if queue.is_stream and chain.stream == Stream.DURABLE:
            places[queue.vhost, queue.name] = max(0, chain.next_in(numbers) - 1)
            if queue.qid in read:
                changed.add((queue.vhost, queue.name))
    if len(places) > _NAMED_STREAMS_MAX:
        places = {key: places[key] for key in changed}
    offsets: dict[str, dict[str, int]] = {}
    for (vhost, name), place in places.items():
        offsets.setdefault(vhost, {})[name] = place
    return {"offsets": offsets} if offsets else {}
