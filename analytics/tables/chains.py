"""How the offsets of a streaming query say the next number of each chain, and what was left of it.

With few chains, `next` has all numbers by chain. With more, `base` has the numbers of an earlier offset as a short
text, and `changed` those that differ from it. The text stays the same until many differ, so noting a batch from one of
thousands of queues takes no look at the others. An offset says everything by itself: nothing besides it has to outlive
a restart. Offsets of older versions have `next` only, and these versions fail where it is missing.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zlib import compress, decompress, error

import numpy as np

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.rows.record_rows import select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.partitions import Label, SegmentPart
from leveret.storage.format import Stream
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView, Snapshot, StoreView


def parts_between(chain: Chain, first: int, end: int) -> list[SegmentPart]:
    """Return what is to be read of a chain."""
    label = Label(chain.queue.vhost, chain.queue.name, chain.queue.is_stream)
    return [
        SegmentPart(view, label, chain.store.delivered, RowLimits(first, end - 1))
        for view in chain.segments
        if view.first_seq < end and view.last_seq >= first
    ]


_FORMAT: Final = 1
_NUMBER_BYTES: Final = 8
#: Bytes of format and number of columns.
_HEAD_BYTES: Final = 2


def pack_rows(rows: Sequence[Sequence[int]]) -> str:
    """Return rows as a text.

    Args:
        rows: At least one, all of the same length; integers from 0 to below 2^63, the first ones ascending.
    """
    columns = np.ascontiguousarray(np.array(rows, np.uint64).T, "<u8")
    columns[0, 1:] -= columns[0, :-1].copy()
    planes = columns.view(np.uint8).reshape(*columns.shape, _NUMBER_BYTES).transpose(0, 2, 1)
    return b64encode(compress(bytes([_FORMAT, len(columns)]) + planes.tobytes(), 9)).decode()


def unpack_rows(text: str, columns: int) -> list[list[int]]:
    """Return the rows of a text.

    Args:
        text: Result of pack_rows().
    Raises:
        AnalyticsError: It is damaged, or a newer version has written it.
    """
    try:
        octets = decompress(b64decode(text, validate=True))
    except (ValueError, error):
        octets = b""
    if octets and octets[0] > _FORMAT:
        raise AnalyticsError("the offset in the checkpoint was written by a newer version of Leveret; use that version")
    body, row_bytes = octets[_HEAD_BYTES:], columns * _NUMBER_BYTES
    if octets[:_HEAD_BYTES] != bytes([_FORMAT, columns]) or not body or len(body) % row_bytes:
        raise AnalyticsError(
            "the offset in the checkpoint is damaged: restore the checkpoint from a copy, or begin with a new "
            "checkpoint directory"
        )
    planes = np.frombuffer(body, np.uint8).reshape(columns, _NUMBER_BYTES, len(body) // row_bytes)
    found = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u8").reshape(columns, -1)
    first = np.cumsum(found[:1], 1, dtype=np.uint64)
    rows: list[list[int]] = np.concatenate([first, found[1:]]).T.tolist()
    return rows


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
    """Return the key of a chain in offsets."""
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
        stop: End of the range, exclusive.
    """
    return _read(cut, view, first, stop)[0]


def _read(cut: int, view: SegmentView, first: int, stop: int) -> tuple[list[int], int]:
    """Return read_numbers(), and how many records there are after the cut."""
    with open(view.path, "rb") as file:
        octets = file.read()
    rows = select_rows(octets, view, cut, RowLimits(first, stop - 1), view.live)
    return rows.seq.tolist(), rows.later


#: Up to so many chains are written out.
_PLAIN_MAX: Final = 100
#: There is a new base when this part of its numbers has changed.
_CHANGED_PART: Final = 8
_SPILL: Final = "/spill"


class NextNumbers(Mapping[str, int]):
    """Next sequence numbers by chain. Unchangeable.

    Args:
        base: Numbers of an earlier offset.
        text: The same as a text; empty if there are none.
        changes: Numbers that differ from these, or are not among them.
    """

    __slots__ = ("_base", "_changes", "_text")

    def __init__(self, base: Mapping[str, int], text: str, changes: Mapping[str, int]) -> None:
        self._base = base
        self._text = text
        self._changes = changes

    def __getitem__(self, key: str) -> int:
        found = self._changes.get(key)
        return self._base[key] if found is None else found

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        yield from (key for key in self._changes if key not in self._base)

    def __len__(self) -> int:
        return len(self._base) + sum(key not in self._base for key in self._changes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NextNumbers) and other._text == self._text:
            return self._changes == other._changes
        return isinstance(other, Mapping) and dict(self) == dict(other)

    def changed(self, updates: Mapping[str, int], exists: Callable[[int], bool]) -> NextNumbers:
        """Return the numbers with other ones for some chains.

        Args:
            exists: Returns whether there is a queue with a number, or events of it. Others may be left out.
        """
        changes = dict(self._changes)
        for key, number in updates.items():
            if self._base.get(key) == number:
                changes.pop(key, None)
            else:
                changes[key] = number
        if len(changes) <= max(_PLAIN_MAX, len(self._base) // _CHANGED_PART):
            return NextNumbers(self._base, self._text, changes)
        return _compact({**self._base, **changes}, exists)

    def to_json(self) -> dict[str, Any]:
        """Return what an offset says."""
        if not self._text:
            return {"next": dict(self._changes)}
        return {"base": self._text, "changed": dict(self._changes)}


def numbers_in(offset: Mapping[str, Any]) -> NextNumbers:
    """Return the next numbers of an offset.

    Raises:
        AnalyticsError: The offset is damaged, or a newer version has written it.
    """
    if "base" not in offset:
        return NextNumbers({}, "", offset["next"])
    return NextNumbers(_base_of(offset["base"]), offset["base"], offset["changed"])


def all_numbers(numbers: Mapping[str, int]) -> NextNumbers:
    """Return numbers that are those of no earlier offset."""
    return NextNumbers({}, "", {}).changed(numbers, lambda _: True)


def unread_in(offset: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return what an offset says about messages that were there and not read.

    Returns:
        The number after the last message, and how many there are, by chain of a durable stream.
    Raises:
        AnalyticsError: The offset is damaged, or a newer version has written it.
    """
    found = offset.get("unread", {})
    if not isinstance(found, str):
        return dict(found)
    return {f"{qid}/{priority}": [end, count] for qid, priority, end, count in unpack_rows(found, 4)}


def unread_to_json(unread: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return what an offset says about messages that were there and not read; see unread_in()."""
    if not unread:
        return {}
    if len(unread) <= _PLAIN_MAX:
        return {"unread": dict(unread)}
    return {"unread": pack_rows(sorted([*_store(key), *pair] for key, pair in unread.items()))}


def _compact(numbers: Mapping[str, int], exists: Callable[[int], bool]) -> NextNumbers:
    """Return numbers with a new base, without queues of which nothing is left."""
    keys = numbers.keys()
    stores = {_store(key) for key in keys}
    kept = {qid: exists(qid) for qid in {qid for qid, _ in stores}}
    # A row has the number of each stream and one more, or 0 if there is none.
    rows = [
        (*store, *(numbers.get(chain_key(*store, stream), -1) + 1 for stream in Stream))
        for store in sorted(stores)
        if kept[store[0]]
    ]
    if len(rows) * len(Stream) <= _PLAIN_MAX:
        return NextNumbers({}, "", {key: numbers[key] for key in keys if kept[_store(key)[0]]})
    text = pack_rows(rows)
    return NextNumbers(_base_of(text), text, {})


@lru_cache(maxsize=4)
def _base_of(text: str) -> Mapping[str, int]:
    return {
        chain_key(qid, priority, stream): number - 1
        for qid, priority, *found in unpack_rows(text, 2 + len(Stream))
        for stream, number in enumerate(found)
        if number
    }


def _store(key: str) -> tuple[int, int]:
    """Return the queue and the priority of a chain's key."""
    qid, priority = key.removesuffix(_SPILL).split("/")
    return int(qid), int(priority)
