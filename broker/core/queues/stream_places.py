"""Finds places in a stream."""

from __future__ import annotations

from leveret.policies.stream_offset import Begin, StreamPlace
from leveret.storage.stores.stream_store import FIRST_NUMBER, StreamStore


def number_at(stream: StreamStore, place: StreamPlace, now: int) -> int:
    """Return the number of the first message from a place on, which may be one of the future.

    Args:
        stream: The stream.
        place: The place. An offset before the first one is that of the first one.
        now: Microseconds since 1970.
    """
    begin, value = place
    if begin is Begin.FIRST:
        return FIRST_NUMBER
    if begin is Begin.LAST:
        return stream.last_batch()
    if begin is Begin.NEXT:
        return stream.next_number
    if begin is Begin.OFFSET:
        return max(FIRST_NUMBER, value + FIRST_NUMBER)
    return stream.number_at(value if begin is Begin.TIME else now - value)
