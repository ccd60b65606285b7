"""Streaming source of messages: yields each message that was written to a file once, in the order of its queue.

An offset has the next sequence number for each store of a queue and each stream of that store. It also names the
snapshot with the segments of the batch that ends there. That snapshot outlives the process: a batch that is repeated
after a crash reads the same files, even if the queue has changed or was deleted.

A queue of type stream keeps all that was written until its retention removes it. So a query knows when it has missed
something of a stream, and its offset says the next offset of each stream as clients know it. What it has missed of
other queues is found with the event log (missed_messages.py), and counted in the offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from leveret.storage.analytics.data_loss import report_data_loss
from leveret.storage.analytics.directory_state import DirectoryState, directory_state
from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.message_batches import Label
from leveret.storage.analytics.missed_messages import (
    Missed,
    MissedMessages,
    add_missed,
    latest_events,
    position_after,
)
from leveret.storage.analytics.named_reader import NamedReader
from leveret.storage.analytics.options import STREAM_TIMEOUT, Options
from leveret.storage.analytics.partitions import MessagesPartition, SegmentPart, SnapshotLocation, group_parts
from leveret.storage.analytics.pinned_segments import load_parts, save_parts, set_lease_timeout
from leveret.storage.analytics.record_rows import RowLimits, select_rows
from leveret.storage.analytics.stream_chains import NUMBERS_MAX, Chain, chains_of, measure
from leveret.storage.analytics.stream_offsets import (
    EARLIEST,
    LATEST,
    OffsetPlace,
    PlaceKind,
    check_streams,
    note_gap,
)
from leveret.storage.disk.files import DiskFiles
from leveret.storage.format import Stream
from leveret.storage.snapshots.lease import SNAPSHOTS, SnapshotLease
from leveret.storage.snapshots.snapshot import Request, Snapshot, read_directory_format, take_snapshot


@dataclass(slots=True)
class _Batch:
    """What a batch reads.

    Attributes:
        next: Next sequence number by chain, at its end.
        parts: The segments that it reads.
        unread: Chains of which it may leave messages that are there.
    """

    next: dict[str, int]
    parts: list[SegmentPart] = field(default_factory=list)
    unread: list[Chain] = field(default_factory=list)


class MessageStream:
    """Reads messages after an offset.

    Args:
        options: Options of the data source.
    Raises:
        DataDirectoryError: The path is not a data directory, or a newer version wrote it.
        AnalyticsError: The data directory is not local.
    """

    def __init__(self, options: Options) -> None:
        if "://" in options.path:
            raise AnalyticsError("streams need a data directory on a local or mounted file system")
        self._options = options
        self._path = options.path.rstrip("/")
        self._store_id = read_directory_format(DiskFiles(), self._path).store_id
        #: Snapshot of the last offset, which Spark may not have saved in its checkpoint.
        self._unsaved = ""
        #: Next sequence number at the end of the last batch, by chain; None for an endless stream.
        self._target: dict[str, int] | None = None
        self._missed = MissedMessages(options, self._path, self._store_id)
        self._reader = NamedReader(options, self._path)
        #: An offset after which nothing had come when the directory was in this state.
        self._idle: tuple[dict[str, Any], DirectoryState | None] | None = None

    def first(self) -> dict[str, Any]:
        """Return the start offset of a new query.

        Raises:
            AnalyticsError: startingOffsets does not fit, or the reader cannot be made.
        """
        first = self._first()
        self._reader.begin(first["next"])
        return first | self._reader.mark

    def _first(self) -> dict[str, Any]:
        starting = self._options.starting
        if starting == EARLIEST:
            events = latest_events(self._path, self._store_id)
            return {"snapshot": "", "next": {}, "events": events}
        with self._take() as snapshot:
            chains = chains_of(snapshot)
            if starting == LATEST:
                return {"snapshot": "", "next": _ends(snapshot)} | position_after(snapshot, {}, ())
            check_streams(snapshot, starting, LATEST)
            numbers = {each.key: self._number_at(snapshot, each, starting) for each in chains}
            return _with_offsets({"snapshot": "", "next": numbers}, chains)

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
        snapshot = self._take()
        try:
            if snapshot.lease is None:
                where = f"{self._path}/{SNAPSHOTS}"
                raise AnalyticsError(f"streams need to make hard links in {where}, which is not allowed")
            missed = self._missed.find(start, snapshot)
            batch = self._batch(start, snapshot, limit)
            end = self._offset(start, snapshot, batch, missed)
            if not batch.parts:
                snapshot.close()
                self._idle = (start, state) if end is start else None
                return end
            save_parts(snapshot.lease.path, snapshot.cut.time, batch.parts)
        except BaseException:
            snapshot.close()
            raise
        self._unsaved = snapshot.lease.path.rpartition("/")[2]
        return end | {"snapshot": self._unsaved}

    def _batch(self, start: dict[str, Any], snapshot: Snapshot, limit: int) -> _Batch:
        """Choose what the next batch reads."""
        batch = _Batch(dict(start["next"]))
        chains = chains_of(snapshot)
        # With a limit, each batch starts at a different chain, so that all chains are read in turn.
        turn = int(start["snapshot"][:8] or "0", 16) % max(1, len(chains))
        left = limit
        for at, chain in enumerate(chains[turn:] + chains[:turn]):
            share = -(-left // (len(chains) - at)) if limit else 0
            if limit and not share:
                batch.unread.append(chain)
                continue
            first = chain.next_in(start["next"])
            if chain.queue.is_stream and first:
                first = self._pass_removed(chain, first)
            stop = NUMBERS_MAX if self._target is None else chain.next_in(self._target)
            count, end = measure(snapshot.cut.time, chain, first, share, stop)
            left -= count
            if end > first and count:
                # Set the numbers of both streams: next_in() must no longer derive one from the other.
                batch.next = chain.with_both_streams(batch.next) | {chain.key: end}
                batch.parts += parts_between(chain, first, end)
            if self._target is not None or count == share > 0:
                batch.unread.append(chain)
        return batch

    def _offset(
        self, start: dict[str, Any], snapshot: Snapshot, batch: _Batch, missed: Sequence[Missed]
    ) -> dict[str, Any]:
        """Return the end of a batch, without its snapshot; `start` if there is nothing to note."""
        if not batch.parts and not missed:
            self._missed.note_idle(start, snapshot)
            # An old position is noted before its file is deleted, at the price of an empty batch.
            if start.get("events", {}).get("file") in (None, 0, snapshot.cut.position.file):
                return start
        offset = {"snapshot": "", "next": batch.next} | position_after(snapshot, batch.next, batch.unread)
        offset |= self._reader.mark
        counts = add_missed(start.get("missed", {}), missed)
        return _with_offsets(offset | {"missed": counts} if counts else offset, chains_of(snapshot))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[MessagesPartition]:
        """Yield the partitions between two offsets.

        Raises:
            AnalyticsError: The snapshot of the batch is gone, and failOnDataLoss is true.
        """
        if start["next"] == end["next"]:
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
        """Release the snapshot that no saved offset names."""
        self._release(self._unsaved)

    def _take(self) -> Snapshot:
        options = self._options
        return take_snapshot(
            self._path,
            Request(dead_too=True, wanted=options.wants, described=options.described, purpose="analytics, stream"),
        )

    def _remaining_parts(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> tuple[SnapshotLocation, list[SegmentPart]]:
        """Take a new snapshot and return what it still has of a batch."""
        snapshot = self._take()
        parts: list[SegmentPart] = []
        for chain in chains_of(snapshot):
            if chain.next_in(end["next"]) > chain.next_in(start["next"]):
                parts += parts_between(chain, chain.next_in(start["next"]), chain.next_in(end["next"]))
        lease = snapshot.lease.path if snapshot.lease is not None else ""
        return SnapshotLocation(self._path, lease, snapshot.cut.time, self._store_id, lease), parts

    def _pass_removed(self, chain: Chain, first: int) -> int:
        """Return the number of the first message of a stream that is there from a number on.

        Raises:
            AnalyticsError: Retention has removed some before, and failOnDataLoss is true.
        """
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
        return measure(snapshot.cut.time, chain, 0, 0, NUMBERS_MAX)[1]

    def _directory(self, name: str) -> str:
        return f"{self._path}/{SNAPSHOTS}/{name}"

    def _release(self, name: str) -> None:
        if name and name.isalnum():
            SnapshotLease(self._directory(name)).release()


def _ends(snapshot: Snapshot) -> dict[str, int]:
    """Return the number after the last message of each chain."""
    return {each.key: measure(snapshot.cut.time, each, 0, 0, NUMBERS_MAX)[1] for each in chains_of(snapshot)}


def _with_offsets(position: dict[str, Any], chains: list[Chain]) -> dict[str, Any]:
    """Return a position that also says, for people, the next offset of each stream, by virtual host and name."""
    offsets: dict[str, dict[str, int]] = {}
    for chain in chains:
        if chain.queue.is_stream and chain.stream == Stream.DURABLE:
            number = chain.next_in(position["next"])
            offsets.setdefault(chain.queue.vhost, {})[chain.queue.name] = max(0, number - 1)
    return position | {"offsets": offsets} if offsets else position


def parts_between(chain: Chain, first: int, end: int) -> list[SegmentPart]:
    """Return what is to be read of a chain.

    Args:
        chain: The chain.
        first: Number of the first message.
        end: Number after the last one.
    """
    label = Label(chain.queue.vhost, chain.queue.name, chain.queue.is_stream)
    return [
        SegmentPart(view, label, chain.store.delivered, RowLimits(first, end - 1))
        for view in chain.segments
        if view.first_seq < end and view.last_seq >= first
    ]
