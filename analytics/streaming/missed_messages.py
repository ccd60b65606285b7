"""Finds what a streaming query can no longer read: messages that were in files, and were removed between two triggers.

The event log says which numbers have left which queue, and which of them had been written. What is in no segment any
more has been missed. Messages that were settled before they were written, and transient ones that a restart dropped,
were in no file that lasts: the query does not promise them.

An offset has the position in the event log up to which this is known. If a batch was limited, it also has, for each
chain, how many messages were there and not read yet: those that left before that position can still be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from leveret.analytics.errors import report_data_loss
from leveret.analytics.options import Options
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.chains import (
    Chain,
    Measured,
    NextNumbers,
    chain_key,
    chains_of,
    measure,
    next_number,
    read_numbers,
    unread_in,
    unread_to_json,
)
from leveret.analytics.tables.event_batches import select_events
from leveret.storage.directory.queue_names import QueueName
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_format import EVENT_BYTES, NEVER_STORED, EventKind
from leveret.storage.event_log import EventPosition, event_files, file_name
from leveret.storage.format import Stream
from leveret.storage.recovery.checkpoint import read_checkpoints
from leveret.storage.seq_ranges import SeqRanges, runs_of
from leveret.storage.snapshots.dead import latest_cut, read_from
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import Snapshot

#: Kinds of events whose messages a query misses. A returned message comes again under its new number, and one that is
#: lost was damaged: the option `mode` says what becomes of those.
_REMOVALS: Final = np.array(
    [
        EventKind.ACK,
        EventKind.AUTO_ACK,
        EventKind.REJECT,
        EventKind.EXPIRED,
        EventKind.MAXLEN,
        EventKind.MAXLEN_BYTES,
        EventKind.DELIVERY_LIMIT,
        EventKind.PURGED,
        EventKind.QUEUE_DELETED,
        EventKind.MOVED,
    ],
    np.uint8,
)
#: How many queues an error names.
_NAMED_MAX: Final = 5


class Missed(NamedTuple):
    """Messages of a queue that a query has missed.

    Attributes:
        vhost: Virtual host of the queue.
        queue: Its name.
        first: Number of the first one.
        last: Number of the last one.
        messages: How many there are.
    """

    vhost: str
    queue: str
    first: int
    last: int
    messages: int


class StoreKey(NamedTuple):
    """One priority of a queue."""

    qid: int
    priority: int


class MissedMessages:
    """Finds the missed messages of one query."""

    def __init__(self, options: Options, path: str, store_id: bytes) -> None:
        self._options = options
        self._events = f"{path}/events"
        self._salt = crc32(store_id)
        #: The last numbers after which nothing had come, and the position up to which the events are known.
        self._idle: tuple[dict[str, Any], EventPosition] | None = None

    def removed(
        self, start: Mapping[str, Any], numbers: NextNumbers, until: EventPosition, names: Mapping[int, QueueName]
    ) -> dict[StoreKey, SeqRanges]:
        """Return the numbers that have left files since an offset and are behind it, by store.

        Args:
            start: The offset.
            until: The position in the event log up to which is looked.
            names: Names of all queues by number, including deleted ones that still have events.
        Returns:
            The numbers; empty for an offset of a version that did not note the position.
        Raises:
            AnalyticsError: Some of the events are gone, and failOnDataLoss is true.
        """
        found: dict[StoreKey, SeqRanges] = {}
        if "events" not in start:
            return found
        since = EventPosition(**start["events"])
        if self._idle is not None and self._idle[0] == numbers.to_json():
            since = max(since, self._idle[1])
        unread = unread_in(start)
        behind: dict[StoreKey, int] = {}
        for octets in self._read(since, until):
            events = select_events(octets, self._salt, None, RowLimits()).events
            events = events[np.isin(events["kind"], _REMOVALS) & (events["flags"] & NEVER_STORED == 0)]
            wanted = [qid for qid in np.unique(events["qid"]).tolist() if self._reads(names.get(qid))]
            events = events[np.isin(events["qid"], np.array(wanted, np.uint32))]
            for qid, priority, seq, length in events[["qid", "priority", "seq", "length"]].tolist():
                store = StoreKey(qid, priority)
                if store not in behind:
                    behind[store] = _first_unread(numbers, unread, store)
                if seq + length > behind[store] and length:
                    found.setdefault(store, SeqRanges()).add(max(seq, behind[store]), seq + length)
        return found

    def _reads(self, name: QueueName | None) -> bool:
        """Return whether the query reads a queue whose messages leave when they are consumed."""
        if name is None or name.kind != "queue" or name.is_stream:
            return False
        return self._options.wants(name.vhost, name.name)

    def find(
        self,
        start: Mapping[str, Any],
        numbers: NextNumbers,
        removed: Mapping[StoreKey, SeqRanges],
        snapshot: Snapshot,
    ) -> list[Missed]:
        """Return what has left since an offset and was not read.

        Args:
            start: The offset.
            removed: Result of removed() up to the end of the snapshot. What is missed is removed from it.
            snapshot: A later snapshot, with the dead messages that are still there. It has all queues of `removed`, and
                those that the offset has left something of.
        Returns:
            The missed messages, by queue.
        Raises:
            AnalyticsError: Messages are missing, and failOnDataLoss is true.
        """
        if "events" not in start:
            return []
        found: dict[tuple[str, str], Missed] = {}
        for each in [*_unread(start, numbers, snapshot), *_removed(removed, snapshot)]:
            before = found.get(each[:2])
            found[each[:2]] = each if before is None else _together(before, each)
        missed = list(found.values())
        if missed:
            _report(missed, self._options)
        return missed

    def note_idle(self, numbers: NextNumbers, snapshot: Snapshot) -> None:
        """Note that nothing has come after an offset up to a snapshot, so that its events are not read again."""
        self._idle = numbers.to_json(), snapshot.cut.position

    def _read(self, since: EventPosition, until: EventPosition) -> Iterator[bytes]:
        """Yield the parts of the event log between two positions."""
        files = DiskFiles()
        numbers = event_files(files, self._events)
        if since.file and numbers and numbers[0] > since.file:
            self._report_gone(since.file, numbers[0])
        for file in numbers:
            if not since.file <= file <= until.file:
                continue
            path = f"{self._events}/{file_name(file)}"
            first = max(EVENT_BYTES, since.offset) if file == since.file else EVENT_BYTES
            octets = read_from(files, path, first)
            if octets is None:
                self._report_gone(file, file)
                continue
            yield octets[: max(0, until.offset - first)] if file == until.file else octets

    def _report_gone(self, first: int, end: int) -> None:
        text = (
            f"the events from {first} to {end} (microseconds since 1970) are gone, so it is not known which messages "
            "were removed in that time: the query was stopped for longer than the broker keeps events"
        )
        report_data_loss(text, self._options.fail_on_data_loss)


def latest_events(path: str, store_id: bytes) -> dict[str, int]:
    """Return the position of the event log at which a snapshot that is taken now would end."""
    files = DiskFiles()
    checkpoints = [each for each in read_checkpoints(files, f"{path}/ckpt", []) if each.store_id == store_id]
    cut = latest_cut(files, f"{path}/events", store_id, checkpoints)
    return (cut.position if cut is not None else EventPosition(0, 0))._asdict()


def position_after(snapshot: Snapshot, unread: Iterable[tuple[Chain, Measured]]) -> dict[str, Any]:
    """Return what an offset says besides the next numbers, so that missed messages are found later."""
    # Transient messages may go with a restart.
    left = {
        chain.key: [rest.end, rest.messages]
        for chain, rest in unread
        if rest.messages and chain.stream is Stream.DURABLE and not chain.queue.is_stream
    }
    return {"events": snapshot.cut.position._asdict()} | unread_to_json(left)


def add_missed(before: Mapping[str, Mapping[str, int]], missed: Sequence[Missed]) -> dict[str, dict[str, int]]:
    """Return the counts of missed messages by virtual host and queue, with further ones."""
    counts = {vhost: dict(queues) for vhost, queues in before.items()}
    for each in missed:
        queues = counts.setdefault(each.vhost, {})
        queues[each.queue] = queues.get(each.queue, 0) + each.messages
    return counts


def _unread(start: Mapping[str, Any], numbers: NextNumbers, snapshot: Snapshot) -> Iterator[Missed]:
    """Yield what was there and not read when the offset was made, and is not there any more."""
    unread = unread_in(start)
    chains = {chain.key: chain for chain in chains_of(snapshot)} if unread else {}
    for key, (end, count) in unread.items():
        chain, first = chains.get(key), numbers.get(key, 0)
        left = measure(snapshot.cut.time, chain, first, 0, end).messages if chain is not None else 0
        if left < count:
            qid = int(key.partition("/")[0])
            name = snapshot.names.get(qid)
            vhost, queue = (name.vhost, name.name) if name is not None else ("", f"#{qid}")
            yield Missed(vhost, queue, max(1, first), end - 1, count - left)


def _removed(removed: Mapping[StoreKey, SeqRanges], snapshot: Snapshot) -> Iterator[Missed]:
    """Yield what has left and is in no segment."""
    known = {StoreKey(queue.qid, store.priority): store for queue in snapshot.queues for store in queue.stores}
    for store, left in removed.items():
        there = known.get(store)
        for view in there.segments if there is not None else ():
            _leave_out(left, view, snapshot.cut.time)
        if left:
            name = snapshot.names[store.qid]
            ranges = list(left)
            count = sum(end - first for first, end in ranges)
            yield Missed(name.vhost, name.name, ranges[0][0], ranges[-1][1] - 1, count)


def _first_unread(numbers: NextNumbers, unread: Mapping[str, list[int]], store: StoreKey) -> int:
    """Return the lowest number of a store that was not there when an offset was made."""
    following: list[int] = [next_number(numbers, *store, stream) for stream in Stream]
    return max(following + unread.get(chain_key(*store, Stream.DURABLE), [])[:1])


def _leave_out(numbers: SeqRanges, view: SegmentView, cut: int) -> None:
    """Remove the numbers of a segment's records from a set."""
    first, end = view.first_seq, view.last_seq + 1
    if not numbers.between(first, end):
        return
    if view.gapless and len(view.live) == 2 and view.live_numbers >= view.records:
        numbers.remove(first, end)
    else:
        for low, high in runs_of(read_numbers(cut, view, first, end)):
            numbers.remove(low, high)


def _together(one: Missed, other: Missed) -> Missed:
    """Return missed messages of one queue as one."""
    first, last = min(one.first, other.first), max(one.last, other.last)
    return one._replace(first=first, last=last, messages=one.messages + other.messages)


def _report(missed: Sequence[Missed], options: Options) -> None:
    """Say what was missed, as an error or a warning."""
    texts = [
        f"{each.messages} messages of queue '{each.queue}' in virtual host '{each.vhost}' (numbers {each.first} to "
        f"{each.last})"
        for each in missed[:_NAMED_MAX]
    ]
    if len(missed) > _NAMED_MAX:
        texts.append(f"messages of {len(missed) - _NAMED_MAX} more queues")
    gone = f"{', '.join(texts)} were consumed or removed, and their files deleted, before the query has read them"
    advice = (
        "The broker keeps at most storage.reader_max_bytes for readers, and nothing of deleted queues and of transient "
        "messages"
        if options.reader
        else "With the option reader=NAME the broker keeps messages until the query has read them"
    )
    report_data_loss(gone, options.fail_on_data_loss, "go on with what is there, which counts them", advice)
