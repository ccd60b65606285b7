"""What the event log says of losses, as the counters count them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from leveret.broker.core.queues.counters import QueueCounters
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REASONS, REJECTED
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, Event, EventKind

#: By the kind of an event: the reason by which queues count it.
DROP_REASONS: Final = {
    EventKind.MAXLEN: MAXLEN,
    EventKind.MAXLEN_BYTES: MAXLEN,
    EventKind.EXPIRED: EXPIRED,
    EventKind.REJECT: REJECTED,
    EventKind.DELIVERY_LIMIT: DELIVERY_LIMIT,
}
_REASON_MASK: Final = 7


def rows_of_events(events: Iterable[Event]) -> dict[int, list[int]]:
    """The losses that events tell of, by the number of the queue; by the LOSS_FIELDS of queues."""
    found: dict[int, list[int]] = {}
    for event in events:
        changes = _changes(event)
        if changes:
            row = found.setdefault(event.qid, [0] * len(QueueCounters.LOSS_FIELDS))
            for name in changes:
                row[QueueCounters.LOSS_FIELDS.index(name)] += event.length
    return found


def _changes(event: Event) -> tuple[str, ...]:
    """The numbers that an event adds to."""
    is_letter = event.flags & DEAD_LETTERED
    if event.kind == EventKind.PURGED:
        return ("drop_purged",)
    if event.kind == EventKind.REFUSED:
        return ("refuse", f"dead_letter_{MAXLEN}") if is_letter else ("refuse", "lost")
    if event.kind == EventKind.DEAD_LETTER_LOST:
        reason = event.flags >> LETTER_REASON_SHIFT & _REASON_MASK
        return ("lost", f"dead_letter_lost_{REASONS[reason - 1]}") if 1 <= reason <= len(REASONS) else ("lost",)
    dropped = DROP_REASONS.get(EventKind(event.kind)) if event.kind in _KNOWN else None
    if dropped is None:
        return ()
    return (f"drop_{dropped}", f"dead_letter_{dropped}") if is_letter else (f"drop_{dropped}", "lost")


_KNOWN: Final = frozenset(EventKind)
