"""Where a dead letter comes from, by its headers.

Headers are tuples as in ``leveret.protocol.field_table``: (key, (type letter, value)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from leveret.policies.dead_letter import Table, Value

#: Headers that dead-lettering adds.
DEATH_HEADERS: Final = (
    "x-death",
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")),
)


@dataclass(frozen=True, slots=True)
class DeathOrigin:
    """Where a message was when it was dead-lettered.

    Args:
        queue: Name of the queue.
        reason: Why it was dead-lettered.
        exchange: Exchange that it was published to before.
        routing_keys: Its routing keys then: that of the message, and those of its CC header.
    """

    queue: str
    reason: str
    exchange: str
    routing_keys: tuple[str, ...]


def death_origin(headers: Table, which: Literal["first", "last"]) -> DeathOrigin | None:
    """Return the origin of a dead letter; None if the message is not one.

    Args:
        headers: Its headers.
        which: Whether that of its first death counts, which the headers x-first-death-… name, or of its last one,
            which is the newest entry of x-death.
    """
    found = dict(headers)
    deaths = found.get("x-death")
    entries = [dict(value) for kind, value in deaths[1] if kind == "F"] if deaths and deaths[0] == "A" else []
    if which == "last":
        return _of_entry(entries[0]) if entries else None
    queue, reason = _text(found.get("x-first-death-queue")), _text(found.get("x-first-death-reason"))
    if queue is None:
        return _of_entry(entries[-1]) if entries else None
    same = (each for each in entries if _text(each.get("queue")) == queue and _text(each.get("reason")) == reason)
    entry: dict[str, Any] = next(same, {})
    exchange = _text(found.get("x-first-death-exchange")) or _text(entry.get("exchange")) or ""
    return DeathOrigin(queue, reason or "", exchange, _keys(entry))


def _of_entry(entry: dict[str, Any]) -> DeathOrigin | None:
    queue = _text(entry.get("queue"))
    if queue is None:
        return None
    return DeathOrigin(queue, _text(entry.get("reason")) or "", _text(entry.get("exchange")) or "", _keys(entry))


def _keys(entry: dict[str, Any]) -> tuple[str, ...]:
    keys = entry.get("routing-keys", ("A", ()))
    return tuple(text for each in keys[1] if (text := _text(each)) is not None) if keys[0] == "A" else ()


def _text(value: Value | None) -> str | None:
    if value is None or not isinstance(value[1], bytes):
        return None
    return value[1].decode("utf-8", "surrogateescape")
