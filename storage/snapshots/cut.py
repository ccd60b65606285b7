"""Cuts: times at which the files are consistent for readers, because everything before them has been written."""

from __future__ import annotations

import os
from typing import Final, NamedTuple
from zlib import crc32

from leveret.storage.disk.files import DiskFiles, Files
from leveret.storage.event_format import EVENT_BYTES, Event, EventKind, unpack_event
from leveret.storage.event_log import EventPosition, event_files, file_name
from leveret.storage.recovery.checkpoint import Checkpoint

_KIND_AT: Final = 28
_TAIL_BYTES: Final = 256 << 10
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
        for size in (_TAIL_BYTES, _WHOLE):
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
