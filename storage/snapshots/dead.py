"""The cut at which a snapshot ends, and which messages are dead there: of checkpoints and the event log."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.disk.files import DiskFiles, Files
from leveret.storage.event_format import EVENT_BYTES, LAST_REMOVAL, Event, EventKind, unpack_event
from leveret.storage.event_log import EventPosition, event_files, file_name
from leveret.storage.recovery.checkpoint import Checkpoint
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.seq_ranges import SeqRanges

_TICK_BYTES: Final = 256 << 10
_WHOLE: Final = 1 << 62
#: A file is named, by the time, up to so many microseconds after its first events.
_NAMED_LATER: Final = 1_000_000


class Cut(NamedTuple):
    """A time and its position in the event log.

    Attributes:
        position: Position after the last event before the cut.
        time: Time of the cut in microseconds since 1970. Messages that arrived until then are in the files.
    """

    position: EventPosition
    time: int


def latest_cut(
    files: Files, directory: str, store_id: bytes, checkpoints: list[Checkpoint], as_of: int | None = None
) -> Cut | None:
    """Return the last tick of the event log or the last checkpoint, whichever is later.

    Args:
        directory: Path of the event log.
        store_id: ID of the data directory.
        checkpoints: The readable checkpoints.
        as_of: Latest time in microseconds since 1970; None for no limit.
    """
    cuts = [Cut(each.position, each.created) for each in checkpoints if as_of is None or each.created <= as_of]
    tick = last_tick(files, directory, store_id, as_of)
    if tick is not None:
        cuts.append(tick)
    return max(cuts, default=None)


def oldest_time(files: Files, directory: str) -> int | None:
    """Return the start of the oldest event log file in microseconds since 1970; None if there is none."""
    return next(iter(event_files(files, directory)), None)


def last_tick(files: Files, directory: str, store_id: bytes, as_of: int | None = None) -> Cut | None:
    """Return the last tick of the event log.

    Args:
        directory: Path of the event log.
        store_id: ID of the data directory.
        as_of: Latest time in microseconds since 1970; None for no limit.
    """
    salt = crc32(store_id)
    for file in reversed(event_files(files, directory)):
        if as_of is not None and file > as_of + _NAMED_LATER:
            continue
        path = f"{directory}/{file_name(file)}"
        # Usually it is near the end.
        for size in (_TICK_BYTES, _WHOLE):
            start, octets = read_tail(files, path, size)
            found = _last_tick_in(octets, start, salt, as_of)
            if found is not None:
                return Cut(EventPosition(file, found[0]), found[1])
            if not start:
                break
    return None


def read_tail(files: Files, path: str, size: int) -> tuple[int, bytes]:
    """Return the offset and bytes of the end of a file; empty if it does not exist.

    Args:
        path: Path of the file.
        size: Maximum number of bytes.
    """
    if type(files) is not DiskFiles:
        octets = files.read_all(path) or b""
        start = max(0, len(octets) - size)
        return start, octets[start:]
    try:
        with open(path, "rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - size)
            file.seek(start)
            return start, file.read()
    except FileNotFoundError:
        return 0, b""


def read_from(files: Files, path: str, offset: int) -> bytes | None:
    """Return the bytes of a file from an offset on; None if it does not exist.

    Args:
        path: Path of the file.
        offset: The offset in bytes.
    """
    if type(files) is not DiskFiles:
        octets = files.read_all(path)
        return None if octets is None else octets[offset:]
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return None


def _last_tick_in(octets: bytes, start: int, salt: int, as_of: int | None) -> tuple[int, int] | None:
    """Return the end offset and time of the last tick in a part of a file; None if there is none."""
    first = max(EVENT_BYTES, -(-start // EVENT_BYTES) * EVENT_BYTES) - start
    kinds = octets[first + _KIND_AT :: EVENT_BYTES]
    at = len(kinds)
    while (at := kinds.rfind(EventKind.TICK, 0, at)) >= 0:
        offset = first + EVENT_BYTES * at
        tick = _tick_at(octets, offset, salt)
        if tick is not None and (as_of is None or tick.time <= as_of):
            return start + offset + EVENT_BYTES, tick.time
    return None


def _tick_at(octets: bytes, offset: int, salt: int) -> Event | None:
    if offset + EVENT_BYTES > len(octets):
        return None
    event = unpack_event(octets, offset, salt)
    return event if event is not None and event.kind == EventKind.TICK else None


_EVENT: Final = struct.Struct("<QqIIIBBHII")
_KIND_AT: Final = 28
#: Bytes before a cut that usually have all that it says.
_TAIL_BYTES: Final = 400 * EVENT_BYTES
#: Higher than any sequence number.
ENDLESS: Final = 1 << 63


@dataclass(slots=True)
class StoreDead:
    """Dead messages of one store at a cut.

    Attributes:
        dead: Messages that were dead at the checkpoint.
        revived: Messages among these that died after the cut.
        next_seq: Numbers from here on are unknown and count as live.
        delivered: Messages that had been delivered before.
        leaving: Messages whose copies are in other queues at the cut.
    """

    dead: DeadSet = field(default_factory=DeadSet)
    revived: SeqRanges = field(default_factory=SeqRanges)
    next_seq: int = 1
    delivered: SeqRanges = field(default_factory=SeqRanges)
    leaving: SeqRanges = field(default_factory=SeqRanges)

    def live_bounds(self, first: int, end: int) -> array[int]:
        """Return the live numbers as ascending bounds of ranges: first, end, first, end, and so on.

        Args:
            first: The first number.
            end: The end of the numbers, excluded; ENDLESS for no limit.
        """
        live = SeqRanges()
        for start, stop in self.dead.live_runs(first, min(end, self.next_seq)):
            live.add(start, stop)
        for start, stop in self.revived:
            if start < end and stop > first:
                live.add(max(start, first), min(stop, end))
        if end > self.next_seq:
            live.add(max(first, self.next_seq), end)
        for start, stop in self.leaving.between(first, end):
            live.remove(start, stop)
        return bounds_of(live)


@dataclass(slots=True)
class DeadAtCut:
    """Dead messages and deleted queues at a cut.

    Attributes:
        stores: Dead messages by qid and priority; a store without entry has none.
        deleted: Numbers of queues deleted before the cut.
        deleted_later: Numbers of queues deleted after the cut.
        damaged: Number of unreadable events; messages they settled count as live.
    """

    stores: dict[tuple[int, int], StoreDead] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    deleted_later: set[int] = field(default_factory=set)
    damaged: int = 0

    def store(self, qid: int, priority: int) -> StoreDead:
        """Return the dead messages of one store."""
        return self.stores.setdefault((qid, priority), StoreDead())


def dead_at(files: Files, directory: str, store_id: bytes, cut: Cut, checkpoints: list[Checkpoint]) -> DeadAtCut:
    """Determine what was dead at a cut.

    Args:
        directory: Path of the event log.
        store_id: ID of the data directory.
        cut: The cut.
        checkpoints: The readable checkpoints. If all are later than the cut, messages settled in between count as live.
    """
    base = base_of(checkpoints, cut)
    found = DeadAtCut()
    position = EventPosition(0, 0)
    if base is not None:
        position = base.position
        for key, store in base.stores.items():
            known = found.stores[key] = StoreDead(store.dead, next_seq=max(store.next_seq, store.dead.floor))
            if store.redelivered_below > 1:
                known.delivered.add(1, store.redelivered_below)
    read_on(found, files, directory, store_id, position, cut)
    return found


def base_of(checkpoints: list[Checkpoint], cut: Cut) -> Checkpoint | None:
    """Return the checkpoint from which a cut is reached with the fewest events; None if there is none.

    Args:
        checkpoints: The readable checkpoints.
        cut: The cut.
    """
    earlier = [each for each in checkpoints if each.position <= cut.position]
    later = [each for each in checkpoints if each.position > cut.position]
    return max(earlier, key=_position, default=None) or min(later, key=_position, default=None)


def read_on(found: DeadAtCut, files: Files, directory: str, store_id: bytes, position: EventPosition, cut: Cut) -> None:
    """Change what was dead at a position of the event log to what was dead at a cut.

    Args:
        found: What was dead at the position.
        directory: Path of the event log.
        store_id: ID of the data directory.
        position: The position. If it is later than the cut, messages settled in between count as live.
        cut: The cut.
    """
    found.deleted_later = set()
    start, end = min(position, cut.position), max(position, cut.position)
    for file in event_files(files, directory):
        if file < start.file:
            continue
        first = max(EVENT_BYTES, start.offset if file == start.file else 0)
        octets = read_from(files, f"{directory}/{file_name(file)}", first) or b""
        stop = len(octets) if file < end.file else end.offset - first if file == end.file else 0
        if stop > 0:
            _replay(found, octets[:stop], crc32(store_id), revive=cut.position < position)
        if file >= cut.position.file:
            _note_deleted(found, octets, max(0, cut.position.offset - first) if file == cut.position.file else 0)
    for store in found.stores.values():
        store.leaving.clear()
    for seq, count, qid, priority in leaving_at(files, directory, store_id, cut):
        found.store(qid, priority).leaving.add(seq, seq + count)


def leaving_at(files: Files, directory: str, store_id: bytes, cut: Cut) -> list[tuple[int, int, int, int]]:
    """Return the messages whose copies are in other queues at a cut: first number, count, queue and priority.

    Args:
        directory: Path of the event log.
        store_id: ID of the data directory.
        cut: The cut.
    """
    path, salt, end = f"{directory}/{file_name(cut.position.file)}", crc32(store_id), cut.position.offset
    size = _TAIL_BYTES
    while True:
        start = max(EVENT_BYTES, end - size)
        octets = (read_from(files, path, start) or b"")[: max(0, end - start)]
        found: list[tuple[int, int, int, int]] = []
        at = len(octets) - EVENT_BYTES
        if at < 0 or octets[at + _KIND_AT] != EventKind.TICK:
            # The cut is that of a checkpoint without a tick.
            return found
        while (at := at - EVENT_BYTES) >= 0 and octets[at + _KIND_AT] == EventKind.LEAVING:
            event = unpack_event(octets, at, salt)
            if event is not None:
                found.append((event.seq, event.wait_ms, event.qid, event.priority))
        if at >= 0 or start == EVENT_BYTES:
            return found
        size *= 16


def bounds_of(ranges: SeqRanges) -> array[int]:
    """Return ranges as ascending bounds: first, end, first, end, and so on."""
    bounds: array[int] = array("Q")
    for pair in ranges:
        bounds.extend(pair)
    return bounds


def _position(checkpoint: Checkpoint) -> EventPosition:
    return checkpoint.position


def _replay(found: DeadAtCut, octets: bytes, salt: int, revive: bool) -> None:
    for seq, length, qid, kind, priority in _events(found, octets, salt):
        if kind == EventKind.QUEUE_DELETED:
            if not revive:
                found.deleted.add(qid)
        elif kind <= LAST_REMOVAL:
            store = found.store(qid, priority)
            if revive:
                store.revived.add(seq, seq + length)
            else:
                store.dead.add(seq, length)
            store.next_seq = max(store.next_seq, seq + length)
        elif kind == EventKind.REQUEUE and not revive:
            found.store(qid, priority).delivered.add(seq, seq + length)


def _events(found: DeadAtCut, octets: bytes, salt: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Iterate over events with messages as (seq, length, qid, kind, priority)."""
    at = 0
    whole = octets[: len(octets) // EVENT_BYTES * EVENT_BYTES]
    for seq, _, qid, length, _, kind, priority, _, _, crc in _EVENT.iter_unpack(whole):
        if crc32(octets[at : at + EVENT_BYTES - 4]) ^ salt != crc:
            found.damaged += 1
        elif kind and length:
            yield seq, length, qid, kind, priority
        at += EVENT_BYTES


def _note_deleted(found: DeadAtCut, octets: bytes, first: int) -> None:
    """Record the queues deleted from an offset on, which is after the cut; their files may be gone."""
    kinds = octets[first + _KIND_AT :: EVENT_BYTES]
    at = -1
    while (at := kinds.find(EventKind.QUEUE_DELETED, at + 1)) >= 0:
        offset = first + at * EVENT_BYTES
        if offset + EVENT_BYTES <= len(octets):
            found.deleted_later.add(_EVENT.unpack_from(octets, offset)[2])
