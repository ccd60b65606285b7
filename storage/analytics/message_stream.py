"""Messages as a stream: each that was written to a file, once, in the order of its queue.

An offset says for each store of a queue and each of its streams which number is next, and names the snapshot whose
segments hold what lies before it. That snapshot outlives the process, so that a batch that has to be repeated after a
crash reads the same files, whatever has become of the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from leveret.storage.analytics.errors import AnalyticsError
from leveret.storage.analytics.message_batches import Label
from leveret.storage.analytics.options import STREAM_TIMEOUT, Options
from leveret.storage.analytics.partitions import MessagesPartition, Place, SegmentPart, group_parts
from leveret.storage.analytics.pinned_segments import keep_for, load_parts, save_parts
from leveret.storage.analytics.record_rows import RowLimits, select_rows
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
    """What has come since an offset.

    Args:
        options: What is asked for.
    Raises:
        DataDirectoryError: It is not a data directory, or was written by a newer version.
        AnalyticsError: It is not on this machine.
    """

    def __init__(self, options: Options) -> None:
        if "://" in options.path:
            raise AnalyticsError("streams read a data directory of this machine, or of a file system mounted here")
        self._options = options
        self._path = options.path.rstrip("/")
        self._store_id = read_directory_format(DiskFiles(), self._path).store_id
        #: The snapshot of the last offset that may not have been written down anywhere.
        self._tentative = ""
        #: Where the last batch is to end, by chain; None if there is always a next one.
        self._target: dict[str, int] | None = None

    def first(self) -> dict[str, Any]:
        """The offset to begin with."""
        if not self._options.latest:
            return {"snapshot": "", "next": {}}
        return {"snapshot": "", "next": self._ends()}

    def end_here(self) -> None:
        """Batches from now on have nothing that came after this."""
        self._target = self._ends()

    def advance(self, start: dict[str, Any], limit: int) -> dict[str, Any]:
        """Find out up to where a batch goes, and keep what it is to read.

        Args:
            start: Where it begins.
            limit: How many messages it has at most; 0 for any number.
        Returns:
            `start` itself if nothing has come.
        """
        self._forget(self._tentative)
        self._tentative = ""
        # A caller that asks for what follows has stored what came before.
        self._forget(start["snapshot"])
        snapshot = self._take()
        if snapshot.lease is None:
            raise AnalyticsError(f"streams make hard links in {self._path}/{SNAPSHOTS}, which is not allowed here")
        offset: dict[str, int] = dict(start["next"])
        parts: list[SegmentPart] = []
        chains = _chains(snapshot)
        # Where a batch has no room for all, each begins with another one.
        turn = int(start["snapshot"][:8] or "0", 16) % max(1, len(chains))
        left = limit
        for at, chain in enumerate(chains[turn:] + chains[:turn]):
            share = -(-left // (len(chains) - at)) if limit else 0
            if limit and not share:
                break
            first = chain.next_in(start["next"])
            stop = _NUMBERS_MAX if self._target is None else chain.next_in(self._target)
            count, end = self._measure(snapshot, chain, first, share, stop)
            left -= count
            if end > first and count:
                # Both, so that it is known of both that neither is told by the other.
                offset = chain.without_change(offset) | {chain.key: end}
                parts += _parts(chain, first, end)
        if not parts:
            snapshot.close()
            return start
        save_parts(snapshot.lease.path, snapshot.cut.time, parts)
        self._tentative = snapshot.lease.path.rpartition("/")[2]
        return {"snapshot": self._tentative, "next": offset}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[MessagesPartition]:
        """What lies between two offsets.

        Raises:
            AnalyticsError: The segments are gone.
        """
        if start["next"] == end["next"]:
            return
        directory = self._directory(end["snapshot"])
        found = load_parts(directory, self._path, self._store_id)
        if found is None:
            if self._options.fail_on_data_loss:
                raise AnalyticsError(
                    f"{directory} is gone, which kept the messages of a batch that has to be repeated: the query did "
                    "not run for long, or the disk was short. Start it with a new checkpoint directory, or with the "
                    "option failOnDataLoss=false to go on with those that are left; leaseSeconds says how long they "
                    "are kept"
                )
            found = self._take_again(start, end)
        else:
            keep_for(directory, self._options.lease_seconds or STREAM_TIMEOUT)
            SnapshotLease(directory).renew()
            self._tentative = ""
        place, parts = found
        for group in group_parts(parts, self._options.segments_per_partition):
            yield MessagesPartition(place, group)

    def commit(self, end: dict[str, Any]) -> None:
        """Give up what a batch has read that need not be repeated."""
        self._forget(end["snapshot"])

    def stop(self) -> None:
        """Give up what no batch will read."""
        self._forget(self._tentative)

    def _take(self) -> Snapshot:
        options = self._options
        return take_snapshot(
            self._path,
            Request(dead_too=True, wanted=options.wants, described=options.described, purpose="analytics, stream"),
        )

    def _take_again(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[Place, list[SegmentPart]]:
        snapshot = self._take()
        parts: list[SegmentPart] = []
        for chain in _chains(snapshot):
            if chain.next_in(end["next"]) > chain.next_in(start["next"]):
                parts += _parts(chain, chain.next_in(start["next"]), chain.next_in(end["next"]))
        lease = snapshot.lease.path if snapshot.lease is not None else ""
        return Place(self._path, lease, snapshot.cut.time, self._store_id, lease), parts

    def _ends(self) -> dict[str, int]:
        """The number behind the last message of each chain."""
        with self._take() as snapshot:
            return {each.key: self._measure(snapshot, each, 0, 0, _NUMBERS_MAX)[1] for each in _chains(snapshot)}

    def _measure(self, snapshot: Snapshot, chain: _Chain, first: int, share: int, stop: int) -> tuple[int, int]:
        """How many messages there are from a number on, and the number behind them.

        Args:
            snapshot: What there is.
            chain: In which chain.
            first: The number to begin with.
            share: At most this many; 0 for any number.
            stop: Only lower numbers.
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
            seqs = self._numbers(snapshot, view, first, stop)[:room]
            if seqs:
                count, end = count + len(seqs), max(end, seqs[-1] + 1)
        return count, end

    def _numbers(self, snapshot: Snapshot, view: SegmentView, first: int, stop: int) -> list[int]:
        with open(view.path, "rb") as file:
            octets = file.read()
        rows = select_rows(octets, view, snapshot.cut.time, RowLimits(first, stop - 1), view.live)
        numbers: list[int] = rows.seq.tolist()
        return numbers

    def _directory(self, name: str) -> str:
        return f"{self._path}/{SNAPSHOTS}/{name}"

    def _forget(self, name: str) -> None:
        if name and name.isalnum():
            SnapshotLease(self._directory(name)).release()


class _Chain(NamedTuple):
    """The segments of one stream of a store, in which numbers only grow.

    What is in memory only may be written, to the spill stream, long after durable messages with higher numbers.
    """

    queue: QueueView
    store: StoreView
    stream: Stream

    @property
    def key(self) -> str:
        """What offsets call it."""
        return self._key(self.stream)

    @property
    def segments(self) -> list[SegmentView]:
        """In order."""
        found = (view for view in self.store.segments if view.stream == self.stream)
        return sorted(found, key=lambda view: view.first_seq)

    def next_in(self, offset: Mapping[str, int]) -> int:
        """The number at which an offset stands; older ones have one number for both streams."""
        return offset.get(self.key, offset.get(self._key(Stream.DURABLE), 0))

    def without_change(self, offset: dict[str, int]) -> dict[str, int]:
        """The same offset, with a number for each stream."""
        both = (self._replace(stream=stream) for stream in Stream)
        return offset | {each.key: each.next_in(offset) for each in both}

    def _key(self, stream: int) -> str:
        return f"{self.queue.qid}/{self.store.priority}" + ("/spill" if stream == Stream.SPILL else "")


def _chains(snapshot: Snapshot) -> list[_Chain]:
    return [
        _Chain(queue, store, stream)
        for queue in snapshot.queues
        for store in queue.stores
        for stream in Stream
        if any(view.stream == stream for view in store.segments)
    ]


def _parts(chain: _Chain, first: int, end: int) -> list[SegmentPart]:
    label = Label(chain.queue.vhost, chain.queue.name)
    return [
        SegmentPart(view, label, chain.store.delivered, RowLimits(first, end - 1))
        for view in chain.segments
        if view.first_seq < end and view.last_seq >= first
    ]
