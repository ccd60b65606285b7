"""Cuts: moments of which a reader knows that all that happened before them is in the files."""

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


class Cut(NamedTuple):
    """A moment, and where it is in the event log.

    Attributes:
        position: Events before this are from before it.
        time: Messages that came until then are in the files; microseconds since 1970.
    """

    position: EventPosition
    time: int


def latest_cut(
    files: Files, directory: str, store_id: bytes, checkpoints: list[Checkpoint], as_of: int | None = None
) -> Cut | None:
    """Return the last tick of the event log or the last checkpoint, whichever is later.

    Args:
        files: The file system interface.
        directory: Path of the event log.
        store_id: ID of the data directory.
        checkpoints: Those that can be read.
        as_of: Not later than this, in microseconds since 1970; None for the latest.
    """
    cuts = [Cut(each.position, each.created) for each in checkpoints if as_of is None or each.created <= as_of]
    tick = last_tick(files, directory, store_id, as_of)
    if tick is not None:
        cuts.append(tick)
    return max(cuts, default=None)


def oldest_time(files: Files, directory: str) -> int | None:
    """Return when the oldest file of the event log begins, in microseconds since 1970; None if there is none."""
    return next(iter(event_files(files, directory)), None)


def last_tick(files: Files, directory: str, store_id: bytes, as_of: int | None = None) -> Cut | None:
    """Return the last tick of the event log.

    Args:
        files: The file system interface.
        directory: Path of the event log.
        store_id: ID of the data directory.
        as_of: Not later than this, in microseconds since 1970; None for the latest.
    """
    salt = crc32(store_id)
    for file in reversed(event_files(files, directory)):
        if as_of is not None and file > as_of:
            continue
        path = f"{directory}/{file_name(file)}"
        # As a rule it is near the end.
        for size in (_TAIL_BYTES, _WHOLE):
            start, octets = read_tail(files, path, size)
            found = _last_tick_in(octets, start, salt, as_of)
            if found is not None:
                return Cut(EventPosition(file, found[0]), found[1])
            if not start:
                break
    return None


def read_tail(files: Files, path: str, size: int) -> tuple[int, bytes]:
    """Return the end of a file, and where it begins; nothing if there is no such file.

    Args:
        files: The file system interface.
        path: Where it is.
        size: Bytes, at most.
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


def _last_tick_in(octets: bytes, start: int, salt: int, as_of: int | None) -> tuple[int, int] | None:
    """Return where in a file the last tick of a part of it ends, and its time."""
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
