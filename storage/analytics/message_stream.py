"""Streaming source of messages: yields each message that was written to a file once, in the order of its queue.

An offset has the next sequence number for each store of a queue and each stream of that store. It also names the
snapshot with the segments of the batch that ends there. That snapshot outlives the process: a batch that is repeated
after a crash reads the same files, even if the queue has changed or was deleted.

A queue of type stream keeps all that was written until its retention removes it. So a query knows when it has missed
something of a stream, and its offset says the next offset of each stream as clients know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.message_batches import Label
from leveret.storage.analytics.options import STREAM_TIMEOUT, Options
from leveret.storage.analytics.partitions import MessagesPartition, SegmentPart, SnapshotLocation, group_parts
from leveret.storage.analytics.pinned_segments import load_parts, save_parts, set_lease_timeout
from leveret.storage.analytics.record_rows import RowLimits, select_rows
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
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import (
    QueueView,
    Request,
    Snapshot,
    StoreView,
    read_directory_format,
    take_snapshot,
)

_NUMBERS_MAX: Final = (1 << 63) - 1


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

    def first(self) -> dict[str, Any]:
        """Return the start offset of a new query."""
        starting = self._options.starting
        if starting == EARLIEST:
            return {"snapshot": "", "next": {}}
        if starting == LATEST:
            return {"snapshot": "", "next": self._ends()}
        with self._take() as snapshot:
            check_streams(snapshot, starting, LATEST)
            chains = _chains(snapshot)
            numbers = {each.key: self._number_at(snapshot, each, starting) for each in chains}
            return _with_offsets({"snapshot": "", "next": numbers}, chains)

    def stop_at_latest(self) -> None:
        """Limit the stream to the messages that exist now."""
        self._target = self._ends()

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Return the end offset of the next batch, and keep a snapshot of its segments.

        Args:
            start: Start offset of the batch.
            limit: Maximum number of messages; 0 for no limit.
        Returns:
            The end offset; `start` itself if there are no new messages.
        Raises:
            AnalyticsError: The snapshot cannot make hard links.
        """
        self._release(self._unsaved)
        self._unsaved = ""
        # Spark asks for the next batch only after it has stored the previous one.
        self._release(start["snapshot"])
        snapshot = self._take()
        if snapshot.lease is None:
            raise AnalyticsError(f"streams need to make hard links in {self._path}/{SNAPSHOTS}, which is not allowed")
        offset: dict[str, int] = dict(start["next"])
        parts: list[SegmentPart] = []
        chains = _chains(snapshot)
        # With a limit, each batch starts at a different chain, so that all chains are read in turn.
        turn = int(start["snapshot"][:8] or "0", 16) % max(1, len(chains))
        left = limit
        for at, chain in enumerate(chains[turn:] + chains[:turn]):
            share = -(-left // (len(chains) - at)) if limit else 0
            if limit and not share:
                break
            first = chain.next_in(start["next"])
            if chain.queue.is_stream and first:
                first = self._pass_removed(chain, first)
            stop = _NUMBERS_MAX if self._target is None else chain.next_in(self._target)
            count, end = self._measure(snapshot, chain, first, share, stop)
            left -= count
            if end > first and count:
                # Set the numbers of both streams: next_in() must no longer derive one from the other.
                offset = chain.with_both_streams(offset) | {chain.key: end}
                parts += _parts(chain, first, end)
        if not parts:
            snapshot.close()
            return start
        save_parts(snapshot.lease.path, snapshot.cut.time, parts)
        self._unsaved = snapshot.lease.path.rpartition("/")[2]
        return _with_offsets({"snapshot": self._unsaved, "next": offset}, chains)

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
            if self._options.fail_on_data_loss:
                raise AnalyticsError(
                    f"{directory} is gone, which kept the messages of a batch that must be repeated: the query was "
                    "stopped for too long, or the disk was nearly full. Start it with a new checkpoint directory, or "
                    "set the option failOnDataLoss=false to continue with the remaining messages; leaseSeconds is how "
                    "long they are kept"
                )
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
        for chain in _chains(snapshot):
            if chain.next_in(end["next"]) > chain.next_in(start["next"]):
                parts += _parts(chain, chain.next_in(start["next"]), chain.next_in(end["next"]))
        lease = snapshot.lease.path if snapshot.lease is not None else ""
        return SnapshotLocation(self._path, lease, snapshot.cut.time, self._store_id, lease), parts

    def _pass_removed(self, chain: _Chain, first: int) -> int:
        """Return the number of the first message of a stream that is there from a number on.

        Raises:
            AnalyticsError: Retention has removed some before, and failOnDataLoss is true.
        """
        there = min([view.first_seq for view in chain.segments if view.last_seq >= first], default=first)
        if there > first:
            note_gap(chain.queue.name, first, there, self._options.fail_on_data_loss)
        return max(first, there)

    def _number_at(self, snapshot: Snapshot, chain: _Chain, place: OffsetPlace) -> int:
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
        return self._measure(snapshot, chain, 0, 0, _NUMBERS_MAX)[1]

    def _ends(self) -> dict[str, int]:
        """Return the number after the last message of each chain."""
        with self._take() as snapshot:
            return {each.key: self._measure(snapshot, each, 0, 0, _NUMBERS_MAX)[1] for each in _chains(snapshot)}

    def _measure(self, snapshot: Snapshot, chain: _Chain, first: int, share: int, stop: int) -> tuple[int, int]:
        """Return the count of messages of a chain in a range, and the number after the last of them.

        Args:
            snapshot: The snapshot.
            chain: The chain.
            first: First sequence number.
            share: Maximum count; 0 for no limit.
            stop: End of the range, exclusive.
        """
        count, end = 0, first
        for view in chain.segments:
            if view.last_seq < first or view.first_seq >= stop:
                continue
            room = share - count if share else _NUMBERS_MAX
            if room <= 0:
                break
            inner = view.sealed and view.first_seq >= first and view.last_seq < stop
            whole = inner and view.max_arrived <= snapshot.cut.time
            if whole and view.records <= room and len(view.live) == 2 and view.live_numbers >= view.records:
                count, end = count + view.records, max(end, view.last_seq + 1)
                continue
            seqs = self._read_seqs(snapshot, view, first, stop)[:room]
            if seqs:
                count, end = count + len(seqs), max(end, seqs[-1] + 1)
        return count, end

    def _read_seqs(self, snapshot: Snapshot, view: SegmentView, first: int, stop: int) -> list[int]:
        with open(view.path, "rb") as file:
            octets = file.read()
        rows = select_rows(octets, view, snapshot.cut.time, RowLimits(first, stop - 1), view.live)
        seqs: list[int] = rows.seq.tolist()
        return seqs

    def _directory(self, name: str) -> str:
        return f"{self._path}/{SNAPSHOTS}/{name}"

    def _release(self, name: str) -> None:
        if name and name.isalnum():
            SnapshotLease(self._directory(name)).release()


class _Chain(NamedTuple):
    """The segments of one stream of a store, in which sequence numbers ascend.

    Streams are read separately, because a message may be spilled long after durable messages with higher numbers.
    """

    queue: QueueView
    store: StoreView
    stream: Stream

    @property
    def key(self) -> str:
        """Key of this chain in offsets."""
        return self._key(self.stream)

    @property
    def segments(self) -> list[SegmentView]:
        """Segments of the chain, in order."""
        found = (view for view in self.store.segments if view.stream == self.stream)
        return sorted(found, key=lambda view: view.first_seq)

    def next_in(self, offset: Mapping[str, int]) -> int:
        """Return the next number in an offset; offsets of older versions have one number for both streams."""
        return offset.get(self.key, offset.get(self._key(Stream.DURABLE), 0))

    def with_both_streams(self, offset: dict[str, int]) -> dict[str, int]:
        """Return an equal offset that has a number for each stream."""
        both = (self._replace(stream=stream) for stream in Stream)
        return offset | {each.key: each.next_in(offset) for each in both}

    def _key(self, stream: int) -> str:
        return f"{self.queue.qid}/{self.store.priority}" + ("/spill" if stream == Stream.SPILL else "")


def _with_offsets(position: dict[str, Any], chains: list[_Chain]) -> dict[str, Any]:
    """Return a position that also says, for people, the next offset of each stream, by virtual host and name."""
    offsets: dict[str, dict[str, int]] = {}
    for chain in chains:
        if chain.queue.is_stream and chain.stream == Stream.DURABLE:
            number = chain.next_in(position["next"])
            offsets.setdefault(chain.queue.vhost, {})[chain.queue.name] = max(0, number - 1)
    return position | {"offsets": offsets} if offsets else position


def _chains(snapshot: Snapshot) -> list[_Chain]:
    return [
        _Chain(queue, store, stream)
        for queue in snapshot.queues
        for store in queue.stores
        for stream in Stream
        if any(view.stream == stream for view in store.segments)
    ]


def _parts(chain: _Chain, first: int, end: int) -> list[SegmentPart]:
    label = Label(chain.queue.vhost, chain.queue.name, chain.queue.is_stream)
    return [
        SegmentPart(view, label, chain.store.delivered, RowLimits(first, end - 1))
        for view in chain.segments
        if view.first_seq < end and view.last_seq >= first
    ]
