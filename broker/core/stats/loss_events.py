"""Converts events of the event log to counters of losses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REASONS, REJECTED
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, TOLD, Event, EventKind

#: Drop reasons of queue counters by kind of event.
DROP_REASONS: Final[Mapping[int, str]] = {
    EventKind.MAXLEN: MAXLEN,
    EventKind.MAXLEN_BYTES: MAXLEN,
    EventKind.EXPIRED: EXPIRED,
    EventKind.REJECT: REJECTED,
    EventKind.DELIVERY_LIMIT: DELIVERY_LIMIT,
}
#: The bits of a reason in the flags of an event.
_REASON_MASK: Final = 7


def rows_of_events(events: Iterable[Event], exchanges: Collection[int] = ()) -> dict[int, list[int]]:
    """Sum up the losses in events.

    Args:
        events: The events.
        exchanges: Numbers on disk of exchanges with delayed messages; all others are queues.
    Returns:
        By number on disk, a row with one number for each of the LOSS_FIELDS of QueueCounters or ExchangeCounters.
    """
    found: dict[int, list[int]] = {}
    for event in events:
        is_exchange = event.qid in exchanges
        changes = _changes_of_exchange(event) if is_exchange else _changes(event)
        if changes:
            fields = ExchangeCounters.LOSS_FIELDS if is_exchange else QueueCounters.LOSS_FIELDS
            row = found.setdefault(event.qid, [0] * len(fields))
            for name in changes:
                row[fields.index(name)] += event.length
    return found


def _changes_of_exchange(event: Event) -> tuple[str, ...]:
    """Return the names of the counters of an exchange that an event of its delayed messages increases."""
    if event.kind == EventKind.NOT_ROUTED:
        return "drop_unroutable", "lost"
    if event.kind == EventKind.REFUSED:
        return "refuse", "refuse_told" if event.flags & TOLD else "lost"
    return ()


def _changes(event: Event) -> tuple[str, ...]:
    """Return the names of the counters that an event increases, none if its messages are not lost."""
    is_letter = event.flags & DEAD_LETTERED
    lost = "refuse_told" if event.flags & TOLD else "lost"
    if event.kind == EventKind.PURGED:
        return ("drop_purged",)
    if event.kind == EventKind.REFUSED:
        return ("refuse", f"dead_letter_{MAXLEN}") if is_letter else ("refuse", lost)
    if event.kind == EventKind.DEAD_LETTER_LOST:
        reason = event.flags >> LETTER_REASON_SHIFT & _REASON_MASK
        return (lost, f"dead_letter_lost_{REASONS[reason - 1]}") if 1 <= reason <= len(REASONS) else (lost,)
    dropped = DROP_REASONS.get(event.kind)
    if dropped is None:
        return ()
    return (f"drop_{dropped}", f"dead_letter_{dropped}") if is_letter else (f"drop_{dropped}", "lost")
