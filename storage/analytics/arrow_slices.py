"""Arrow arrays out of pieces of a file, made in bulk: no Python object for any row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leveret.storage.analytics.record_rows import Positions


def binary_slices(octets: bytes, starts: Positions, ends: Positions, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Pieces of a file as an array of binary.

    The file is taken for one array in which wanted pieces and what lies between them take turns; Arrow then copies
    every second element.

    Args:
        octets: The file; under 2 GiB.
        starts: Of the pieces, which are in order and do not overlap.
        ends: Theirs.
        valid: Which of them are there; the others become null.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[::2] = starts
    offsets[1::2] = ends
    spread = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])
    chosen = np.arange(0, 2 * count, 2, dtype=np.int32)
    return spread.take(pa.array(chosen, mask=None if valid is None else ~valid))


def text_slices(octets: bytes, starts: Positions, ends: Positions, valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Pieces of a file as an array of strings; what is no UTF-8 in them is replaced."""
    found = binary_slices(octets, starts, ends, valid)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return by_value(found, pa.string(), lambda piece: piece.decode("utf-8", "replace"))


def by_value(pieces: Any, kind: Any, convert: Callable[[bytes], Any]) -> Any:
    """Convert each distinct value once.

    Args:
        pieces: An array of binary.
        kind: The Arrow type of the result.
        convert: Makes a value of it.
    """
    encoded = pieces.dictionary_encode()
    values = [convert(piece) for piece in encoded.dictionary.to_pylist()]
    return pa.array(values, kind).take(encoded.indices)


def constant(value: Any, kind: Any, count: int) -> Any:
    """The same value over and over."""
    return pa.repeat(pa.scalar(value, kind), count)


def times(microseconds: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None = None) -> Any:
    """Microseconds since 1970 as an array of timestamps."""
    mask = None if valid is None else ~valid
    return pa.array(microseconds, pa.int64(), mask=mask).cast(pa.timestamp("us", tz="UTC"))
