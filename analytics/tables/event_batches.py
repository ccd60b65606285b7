"""Converts a part of the event log to an Arrow record batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leveret.analytics.rows.property_slices import times
from leveret.analytics.rows.record_rows import RowDamage
from leveret.analytics.selection import RowLimits
from leveret.storage.directory.queue_names import QueueName
from leveret.storage.event_format import DEAD_LETTERED, DETAIL_NAMES, EVENT_BYTES, NEVER_STORED, TOLD, EventKind

_EVENT: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("time", "<i8"),
        ("qid", "<u4"),
        ("length", "<u4"),
        ("wait_ms", "<u4"),
        ("kind", "u1"),
        ("priority", "u1"),
        ("flags", "<u2"),
        ("body_bytes", "<u4"),
        ("crc", "<u4"),
    ]
)
#: Kinds of events whose seq is the place of details.
_DESCRIBED: Final = (EventKind.REFUSED, EventKind.UNROUTABLE)
#: Columns that details of events fill.
DETAILS: Final = frozenset(DETAIL_NAMES)
_KINDS: Final = {kind.value: kind.name.lower() for kind in EventKind}


class EventRows(NamedTuple):
    """Selected events.

    Attributes:
        events: The events as a structured array with the file's fields.
        damage: Records that could not be read.
        shortest: The shortest wait of each event's messages in milliseconds.
        sums: The sum of their waits in milliseconds.
    """

    events: npt.NDArray[Any]
    damage: RowDamage
    shortest: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]

    def where(self, keep: npt.NDArray[np.bool_]) -> EventRows:
        """Return some of them."""
        return EventRows(self.events[keep], self.damage, self.shortest[keep], self.sums[keep])


def select_events(
    octets: bytes, salt: int, wanted: frozenset[int] | None, limits: RowLimits, is_continued: bool = False
) -> EventRows:
    """Select events from a part of the event log; ticks are omitted.

    Args:
        octets: A part of a file after its header, starting at an event.
        wanted: Queue ids; None for all events, including those without a queue.
        limits: Time limits; sequence numbers are ignored.
        is_continued: Whether the first record is of another part, and is here for what it says about the second one.
    """
    count = len(octets) // EVENT_BYTES
    events = np.frombuffer(octets, _EVENT, count)
    whole = _checksums(octets, count) == events["crc"] ^ np.uint32(salt)
    shortest, sums = _waits(events, whole)
    if is_continued:
        events, whole, shortest, sums = events[1:], whole[1:], shortest[1:], sums[1:]
    damaged = len(events) - int(whole.sum())
    damage = RowDamage(damaged, int(np.argmin(whole)) * EVENT_BYTES) if damaged else RowDamage()
    # Records of remembered values are no messages; kinds above TICK say more about the events that follow.
    keep = whole & (events["kind"] < EventKind.TICK) & (events["kind"] != EventKind.FORGOTTEN)
    if limits.first_time > 0:
        keep &= events["time"] >= limits.first_time
    keep &= events["time"] <= limits.last_time
    if wanted is not None:
        keep &= np.isin(events["qid"], np.array(sorted(wanted), np.uint32))
    return EventRows(events, damage, shortest, sums).where(keep)


def _waits(
    events: npt.NDArray[Any], whole: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the shortest wait of each event's messages, and the sum of all, in milliseconds."""
    shortest = events["wait_ms"].astype(np.int64)
    sums = shortest * events["length"]
    at = np.flatnonzero(whole[:-1] & whole[1:] & (events["kind"][:-1] == EventKind.WAITS))
    same = [events[name][at] == events[name][at + 1] for name in ("qid", "priority", "time", "flags")]
    at = at[np.logical_and.reduce(same)]
    shortest[at + 1] = events["wait_ms"][at]
    sums[at + 1] = (events["seq"][at].astype(np.int64) + 500) // 1000
    return shortest, sums


def times_in(octets: bytes, salt: int) -> tuple[int, int] | None:
    """Return the first and the last time in a part of the event log, ticks included; None if it has no whole record.

    Args:
        octets: A part of a file after its header, starting at an event.
    """
    count = len(octets) // EVENT_BYTES
    events = np.frombuffer(octets, _EVENT, count)
    times_there = events["time"][_checksums(octets, count) == events["crc"] ^ np.uint32(salt)]
    return (int(times_there.min()), int(times_there.max())) if len(times_there) else None


def places_of_details(events: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return the place plus 1 of each event's details, 0 for events without any; see EventDetails."""
    return np.where(np.isin(events["kind"], _DESCRIBED), events["seq"], np.uint64(0))


def event_batch(
    rows: EventRows,
    columns: Sequence[str],
    names: Mapping[int, QueueName],
    details: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
) -> Any:
    """Return events as a record batch.

    Args:
        names: Queue names by queue id; deleted queues are missing.
        details: Details by their places plus 1; those that cannot be read are missing.
    """
    arrays = []
    for name in columns:
        if name in ("vhost", "queue", "exchange"):
            column = _name_column(rows.events["qid"], names, name)
            if details and name in DETAILS:
                column = _first_of(_detail_column(rows.events, details, name), column)
            arrays.append(column)
        elif name in DETAILS:
            arrays.append(_detail_column(rows.events, details, name))
        elif name == "event_at":
            arrays.append(_COLUMNS["at"](rows.events))
        elif name == "told":
            arrays.append(pa.array((rows.events["flags"] & TOLD) != 0))
        elif name in _WAITS:
            arrays.append(pa.array(_WAITS[name](rows)))
        else:
            arrays.append(_COLUMNS[name](rows.events))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _detail_column(events: npt.NDArray[Any], details: Mapping[int, Mapping[str, str]], name: str) -> Any:
    known, at = np.unique(places_of_details(events), return_inverse=True)
    texts = [details.get(int(place), {}).get(name) for place in known]
    return pa.array([readable(text) for text in texts], pa.string()).take(pa.array(at.ravel()))


def readable(text: str | None) -> str | None:
    """Return a text without surrogates, which stand for bytes that are not UTF-8."""
    return None if text is None else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _first_of(column: Any, other: Any) -> Any:
    """Return a column, with the values of another one where it has none."""
    # Imported late, since it takes long to load and few queries need it.
    import pyarrow.compute as pc

    return pc.coalesce(column, other)


def _name_column(qids: npt.NDArray[np.uint32], names: Mapping[int, QueueName], column: str) -> Any:
    """Return the virtual hosts, or the names of what is of the kind that the column names."""
    known, places = np.unique(qids, return_inverse=True)
    found = [names.get(int(qid)) for qid in known]
    texts = [
        None if name is None else name.vhost if column == "vhost" else name.name if name.kind == column else None
        for name in found
    ]
    return pa.array(texts, pa.string()).take(pa.array(places.ravel()))


def _kind_column(events: npt.NDArray[Any]) -> Any:
    known, places = np.unique(events["kind"], return_inverse=True)
    return pa.array([_KINDS.get(int(kind), f"kind_{kind}") for kind in known], pa.string()).take(
        pa.array(places.ravel())
    )


def _longs(field: str) -> Callable[[npt.NDArray[Any]], Any]:
    return lambda events: pa.array(events[field].astype(np.int64))


_COLUMNS: Final[dict[str, Callable[[npt.NDArray[Any]], Any]]] = {
    "queue_id": _longs("qid"),
    "at": lambda events: times(events["time"].astype(np.int64)),
    "kind": _kind_column,
    "seq": lambda events: pa.array(np.where(np.isin(events["kind"], _DESCRIBED), 0, events["seq"]).astype(np.int64)),
    "messages": _longs("length"),
    "body_bytes": _longs("body_bytes"),
    "wait_ms": _longs("wait_ms"),
    "dead_lettered": lambda events: pa.array((events["flags"] & DEAD_LETTERED) != 0),
    "redeliveries": lambda events: pa.array((events["flags"] >> 8).astype(np.int32)),
    "stored": lambda events: pa.array((events["flags"] & NEVER_STORED) == 0),
    "priority": lambda events: pa.array(events["priority"].astype(np.int32)),
}
#: Columns that archives of older versions do not have.
_WAITS: Final[dict[str, Callable[[EventRows], npt.NDArray[np.int64]]]] = {
    "min_wait_ms": lambda rows: rows.shortest,
    "sum_wait_ms": lambda rows: rows.sums,
}
#: Names of the columns that depend on nothing but the record of an event, and that every archive has.
EVENT_NUMBERS: Final = tuple(_COLUMNS)


def event_keys(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return what the columns EVENT_NUMBERS have in each row."""
    return list(zip(*(batch.column(name).to_pylist() for name in EVENT_NUMBERS), strict=True))


def _make_table() -> npt.NDArray[np.uint32]:
    """Return the lookup table of CRC-32, one entry per byte."""
    return np.array([crc32(bytes([byte]), 0xFFFFFFFF) ^ 0xFFFFFFFF for byte in range(256)], np.uint32)


_TABLE: Final = _make_table()


def _checksums(octets: bytes, count: int) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of the first 36 bytes of each record, computed for all records at once."""
    records = np.frombuffer(octets, np.uint8, count * EVENT_BYTES).reshape(count, EVENT_BYTES)
    crc = np.full(count, 0xFFFFFFFF, np.uint32)
    for column in range(EVENT_BYTES - 4):
        crc = _TABLE[(crc ^ records[:, column]) & 0xFF] ^ (crc >> np.uint32(8))
    found: npt.NDArray[np.uint32] = crc ^ np.uint32(0xFFFFFFFF)
    return found
