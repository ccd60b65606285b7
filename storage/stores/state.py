"""The initial state of a store."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Segment


@dataclass(slots=True)
class StoreState:
    """Recovered state of a store; the defaults are those of a new store.

    Attributes:
        segments: Sealed segments of the durable stream, in order.
        dead: All numbers below next_seq without a live message.
        next_seq: Sequence number of the next message.
        redelivered_below: Messages with lower numbers may have been delivered before.
        count: Number of live messages, all of them ready.
        body_bytes: Sum of their body lengths.
        told: Count and body bytes from a clean checkpoint; None if unknown.
    """

    segments: list[Segment] = field(default_factory=list)
    dead: DeadSet = field(default_factory=DeadSet)
    next_seq: int = 1
    redelivered_below: int = 0
    count: int = 0
    body_bytes: int = 0
    told: tuple[int, int] | None = None
