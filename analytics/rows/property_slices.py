"""Locates message properties in a file: parses all content headers in parallel, one property at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leveret.analytics.rows.record_rows import Positions, RecordRows, numbers_at
from leveret.protocol.properties import FLAGS

#: Up to this number, slices are made one by one: to import pyarrow.compute takes longer.
_FEW: Final = 100


def binary_slices(octets: bytes, starts: Positions, ends: Positions, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return slices of a file as a binary array.

    The whole file becomes one Arrow array in which slices and the bytes between them alternate. Arrow then copies
    every second element; those between have a negative length where slices go back.

    Args:
        octets: The file; less than 2 GiB.
        starts: Start offsets of the slices.
        ends: End offsets of the slices.
        valid: False for elements that become null; None if all are valid.
    """
    count = len(starts)
    if count <= _FEW:
        kept = [True] * count if valid is None else valid.tolist()
        pieces = zip(starts.tolist(), ends.tolist(), kept, strict=True)
        return pa.array([octets[start:end] if keep else None for start, end, keep in pieces], pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2] = starts
    offsets[1::2] = ends
    # From the first and the last offset Arrow guesses how much it will copy.
    offsets[-1] = max(int(starts[0]), int(ends[-1]))
    spread = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
    chosen = np.arange(0, 2 * count, 2, dtype=np.int32)
    return spread.take(pa.array(chosen, mask=None if valid is None else ~valid))


def text_slices(octets: bytes, starts: Positions, ends: Positions, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return slices of a file as a string array; invalid UTF-8 is replaced."""
    found = binary_slices(octets, starts, ends, valid)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return convert_distinct(found, pa.string(), lambda piece: piece.decode("utf-8", "replace"))


def convert_distinct(pieces: Any, kind: Any, convert: Callable[[bytes], Any]) -> Any:
    """Convert an array, calling `convert` once per distinct value."""
    encoded = pieces.dictionary_encode()
    values = [convert(piece) for piece in encoded.dictionary.to_pylist()]
    return pa.array(values, kind).take(encoded.indices)


def constant(value: Any, kind: Any, count: int) -> Any:
    """Return an array that repeats one value."""
    return pa.repeat(pa.scalar(value, kind), count)


def times(microseconds: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return microseconds since 1970 as a timestamp array."""
    mask = None if valid is None else ~valid
    return pa.array(microseconds, pa.int64(), mask=mask).cast(pa.timestamp("us", tz="UTC"))


#: Class id, weight and body size precede the flags.
_FLAGS_AT: Final = 12
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
#: Arrow types of the properties that are no text.
_KINDS: Final = {**dict.fromkeys(_OCTETS, pa.int32()), "timestamp": pa.timestamp("us", tz="UTC")}
#: The year 10000.
_SECONDS_END: Final = 253_402_300_800


class Slices(NamedTuple):
    """One property of all messages.

    Attributes:
        start, end: Offsets of the values without length prefix; equal where the property is absent.
        present: True for messages that have the property.
    """

    start: Positions
    end: Positions
    present: npt.NDArray[np.bool_]


def property_slices(rows: RecordRows, wanted: frozenset[str]) -> dict[str, Slices]:
    """Locate properties.

    Args:
        wanted: Names of the properties, which may include `headers`.
    Returns:
        The slices by name. If a content header is malformed, the message has no properties after that point.
    """
    found: dict[str, Slices] = {}
    if not wanted:
        return found
    octets = rows.bytes8
    last = len(octets) - 4
    props_at = rows.props_at
    stop = props_at + rows.props_len
    at = props_at + _FLAGS_AT
    flags = numbers_at(octets, at, ">u2").astype(np.uint32)
    at = at + 2
    # Messages of one queue mostly have the same properties: those that none of them has take no time.
    used = int(np.bitwise_or.reduce(flags, initial=0))
    for flag, name in FLAGS:
        if name in wanted and not used & flag:
            found[name] = Slices(at, at, np.zeros(len(at), np.bool_))
    missing = wanted - found.keys()
    for flag, name in FLAGS:
        if not missing:
            break
        if not used & flag:
            continue
        start, length = _measure(octets, np.minimum(at, last), name)
        end = start + length
        present = (flags & flag != 0) & (end <= stop)
        if not present.all():
            start = np.where(present, start, at)
            end = np.where(present, end, at)
            # A value that exceeds the content header is malformed; ignore all properties after it.
            flags = np.where(present | (flags & flag == 0), flags, 0)
        at = end
        if name in missing:
            found[name] = Slices(start, end, present)
            missing -= {name}
    return found


def property_column(rows: RecordRows, name: str, slices: Slices) -> Any:
    """Return a property other than `headers` as an Arrow array."""
    start, end, present = slices
    if not present.any():
        return pa.nulls(len(present), _KINDS.get(name, pa.string()))
    if name in _OCTETS:
        values = rows.bytes8[np.minimum(start, len(rows.bytes8) - 1)].astype(np.int32)
        return pa.array(values, pa.int32(), mask=~present)
    if name == "timestamp":
        return _timestamps(rows, start, present)
    return text_slices(rows.octets, start, end, present)


def _measure(octets: npt.NDArray[np.uint8], at: Positions, name: str) -> tuple[Positions, Positions]:
    """Return the offset and the length of a value, assuming that it is present."""
    if name in _OCTETS:
        return at, np.ones(len(at), np.int64)
    if name == "timestamp":
        return at, np.full(len(at), 8, np.int64)
    if name == "headers":
        return at + 4, numbers_at(octets, at, ">u4").astype(np.int64)
    return at + 1, octets[at].astype(np.int64)


def _timestamps(rows: RecordRows, start: Positions, present: npt.NDArray[np.bool_]) -> Any:
    at = np.minimum(start, len(rows.bytes8) - 8)
    seconds = numbers_at(rows.bytes8, at, ">u8").astype(np.uint64)
    # Spark has no timestamps after the year 9999. What would be one is milliseconds or microseconds of a publisher that
    # has not divided them: from 1978 on they are more than the seconds until then.
    scale = np.where(seconds < _SECONDS_END, 1_000_000, np.where(seconds < _SECONDS_END * 1000, 1000, 1))
    valid = present & (seconds < _SECONDS_END * 1_000_000)
    return times(np.where(valid, seconds, 0).astype(np.int64) * scale, valid)
