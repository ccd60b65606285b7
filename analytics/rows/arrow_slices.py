"""Builds Arrow arrays from slices of a file in bulk, without a Python object per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leveret.analytics.rows.record_rows import Positions

#: Up to this number, slices are made one by one: to import pyarrow.compute takes longer.
_FEW: Final = 100


def binary_slices(octets: bytes, starts: Positions, ends: Positions, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Return slices of a file as a binary array.

    The whole file becomes one Arrow array in which slices and the bytes between them alternate. Arrow then copies
    every second element.

    Args:
        octets: The file; less than 2 GiB.
        starts: Start offsets of the slices, ascending; slices do not overlap.
        ends: End offsets of the slices.
        valid: False for elements that become null; None if all are valid.
    """
    count = len(starts)
    if count <= _FEW:
        kept = [True] * count if valid is None else valid.tolist()
        pieces = zip(starts.tolist(), ends.tolist(), kept, strict=True)
        return pa.array([octets[start:end] if keep else None for start, end, keep in pieces], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[::2] = starts
    offsets[1::2] = ends
    spread = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
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
    """Convert an array, calling `convert` once per distinct value.

    Args:
        pieces: A binary array.
        kind: The Arrow type of the result.
        convert: Converts one value.
    """
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
