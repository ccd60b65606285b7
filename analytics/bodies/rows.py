"""Reads bodies one by one into an Arrow array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from leveret.analytics.bodies.compression import Payloads
from leveret.analytics.bodies.errors import BodyError


def read_rows(
    read: Callable[[bytes, str], tuple[Any, str | None]],
    kind: pa.DataType,
    payloads: Payloads,
    start: int,
    octets: pa.Array,
) -> pa.Array:
    """Return the values of bodies; add what is wrong with some to the reasons of the payloads.

    Args:
        read: Returns the value of a body, and what did not fit; takes the body and its character encoding; raises
            BodyError if there is no value.
        kind: The type of the values.
        payloads: All bodies.
        start: Row of the first of those that are read.
        octets: Those.
    """
    values: list[Any] = []
    for row, body in enumerate(octets.to_pylist(), start):
        value = reason = None
        if body is not None:
            try:
                value, reason = read(body, payloads.charsets.get(row, ""))
            except BodyError as error:
                reason = str(error)
        values.append(value)
        if reason is not None:
            payloads.reasons[row] = reason
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(values) > 1:
            halves = (octets.slice(0, len(values) // 2), octets.slice(len(values) // 2))
            parts = [
                read_rows(read, kind, payloads, start + offset, half)
                for offset, half in zip((0, len(halves[0])), halves, strict=True)
            ]
            return pa.concat_arrays(parts)
        payloads.reasons[start] = str(error)
        return pa.nulls(1, kind)
