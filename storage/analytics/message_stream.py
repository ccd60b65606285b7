"""Messages as a stream: each that was written to a file, once, in the order of its queue.

An offset says for each store of a queue which number is next, and names the snapshot whose segments hold what lies
before it. That snapshot outlives the process, so that a batch that has to be repeated after a crash reads the same
files, whatever has become of the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from storage.analytics.errors import AnalyticsError
from storage.analytics.message_batches import Label
from storage.analytics.options import STREAM_TIMEOUT, Options
from storage.analytics.partitions import MessagesPartition, Place, SegmentPart
from storage.analytics.pinned_segments import keep_for, load_parts, save_parts
from storage.analytics.record_rows import Limits, select_rows
from storage.disk.files import DiskFiles
from storage.snapshots.lease import SNAPSHOTS, Lease
from storage.snapshots.segments import SegmentView
from storage.snapshots.snapshot import QueueView, Request, Snapshot, StoreView, read_directory_format, take_snapshot

_NUMBERS_MAX: Final = (1 << 63) - 1


class MessageStream:
    """What has come since an offset.

    Args:
        options: What is asked for.
    Raises:
        DataDirectoryError: It is no data directory, or was written by a newer version.
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
        #: Where the last batch is to end, by store; None if there is always a next one.
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
            limit: How many messages it has at the most; 0 for any number.
        Returns:
            `start` itself if nothing has come.
        """
        self._forget(self._tentative)
        self._tentative = ""
        # Whoever asks what follows has written down what was before.
        self._forget(start["snapshot"])
        snapshot = self._take()
        if snapshot.lease is None:
            raise AnalyticsError(f"streams make hard links in {self._path}/{SNAPSHOTS}, which is not allowed here")
        offset: dict[str, int] = dict(start["next"])
        parts: list[SegmentPart] = []
        stores = [(queue, store) for queue in snapshot.queues for store in queue.stores]
        left = limit
        for at, (queue, store) in enumerate(stores):
            key = _key(queue, store)
            share = -(-left // (len(stores) - at)) if limit else 0
            if limit and not share:
                break
            first = offset.get(key, 0)
            stop = _NUMBERS_MAX if self._target is None else self._target.get(key, 0)
            count, end = self._measure(snapshot, store, first, share, stop)
            left -= count
            if end > first and count:
                offset[key] = end
                parts += self._parts(queue, store, first, end)
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
            Lease(directory).renew()
            self._tentative = ""
        place, parts = found
        step = self._options.segments_per_partition
        for at in range(0, len(parts), step):
            yield MessagesPartition(place, parts[at : at + step])

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
        for queue in snapshot.queues:
            for store in queue.stores:
                key = _key(queue, store)
                if end["next"].get(key, 0) > start["next"].get(key, 0):
                    parts += self._parts(queue, store, start["next"].get(key, 0), end["next"][key])
        lease = snapshot.lease.path if snapshot.lease is not None else ""
        return Place(self._path, lease, snapshot.cut.time, self._store_id), parts

    def _parts(self, queue: QueueView, store: StoreView, first: int, end: int) -> list[SegmentPart]:
        limits = Limits(first, end - 1)
        label = Label(queue.vhost, queue.name)
        return [
            SegmentPart(view, label, store.delivered, limits)
            for view in store.segments
            if view.first_seq < end and view.last_seq >= first
        ]

    def _ends(self) -> dict[str, int]:
        """The number behind the last message of each store."""
        with self._take() as snapshot:
            return {
                _key(queue, store): self._measure(snapshot, store, 0, 0, _NUMBERS_MAX)[1]
                for queue in snapshot.queues
                for store in queue.stores
            }

    def _measure(self, snapshot: Snapshot, store: StoreView, first: int, share: int, stop: int) -> tuple[int, int]:
        """How many messages there are from a number on, and the number behind them.

        Args:
            snapshot: What there is.
            store: Of which store.
            first: The number to begin with.
            share: Not more than so many; 0 for any number.
            stop: Only lower numbers.
        """
        count, end = 0, first
        for view in sorted(store.segments, key=lambda each: each.first_seq):
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
        rows = select_rows(octets, view, snapshot.cut.time, Limits(first, stop - 1), view.live)
        numbers: list[int] = rows.seq.tolist()
        return numbers

    def _directory(self, name: str) -> str:
        return f"{self._path}/{SNAPSHOTS}/{name}"

    def _forget(self, name: str) -> None:
        if name and name.isalnum():
            Lease(self._directory(name)).release()


def _key(queue: QueueView, store: StoreView) -> str:
    return f"{queue.qid}/{store.priority}"
