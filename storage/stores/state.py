"""What a store begins with."""

from __future__ import annotations

from dataclasses import dataclass, field

from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Segment


@dataclass(slots=True)
class StoreState:
    """What recovery knows of a store; as it is made, that of a new one.

    Attributes:
        segments: Sealed segments of the durable stream, in order.
        dead: All numbers below next_seq that have no living message.
        next_seq: Number of the next message.
        redelivered_below: Messages with lower numbers may have been delivered before.
        count: Living messages, all of them ready.
        body_bytes: Sum of their body lengths.
        told: What count and body_bytes are if nothing has been done since it was said; None if that is not known.
    """

    segments: list[Segment] = field(default_factory=list)
    dead: DeadSet = field(default_factory=DeadSet)
    next_seq: int = 1
    redelivered_below: int = 0
    count: int = 0
    body_bytes: int = 0
    told: tuple[int, int] | None = None
