"""Headers of dead-lettered messages: how they are written, and what they say of where a message has been.

Headers are tuples as in ``leveret.protocol.field_table``: (key, (type letter, value)).

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/dlx
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Value: TypeAlias = tuple[str, Any]
Table: TypeAlias = tuple[tuple[str, Value], ...]

#: Reasons for which a message is dead-lettered.
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
#: All reasons, in the order in which they are shown.
REASONS: Final = (MAXLEN, EXPIRED, REJECTED, DELIVERY_LIMIT)

_DEATHS: Final = "x-death"
#: Headers that dead-lettering adds.
DEATH_HEADERS: Final = (
    "x-death",
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")),
)
#: The largest count that can be written.
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Death:
    """One dead-lettering of a message.

    Args:
        queue: Name of the queue that dead-lettered it.
        reason: One of REASONS.
        time: Seconds since 1970.
        exchange: Name of the exchange that it was published to.
        routing_keys: Its routing key and those of its CC header.
        original_expiration: Its expiration property as published; None without one.
    """

    queue: str
    reason: str
    time: int
    exchange: str
    routing_keys: Sequence[str]
    original_expiration: str | None = None


def record_death(headers: Table, death: Death, trusted: bool) -> Table:
    """Return a message's headers with one more death recorded.

    Args:
        trusted: Whether an existing x-death header counts. One from a publisher does not since RabbitMQ 4.0; in
            3.10.8 it does.
    Returns:
        All headers, sorted by key as RabbitMQ sorts them.
    """
    known = dict(headers).get(_DEATHS)
    is_first = known is None or not trusted
    earlier: list[Table] = []
    if not is_first and known is not None and known[0] == "A":
        earlier = [value for kind, value in known[1] if kind == "F"]
    changed: dict[str, Value] = {_DEATHS: ("A", tuple(("F", entry) for entry in _with_death(earlier, death)))}
    changed |= _summary("first", death) if is_first else {}
    changed |= _summary("last", death)
    kept = [entry for entry in headers if entry[0] not in changed]
    return tuple(sorted([*kept, *changed.items()], key=lambda entry: _octets(entry[0])))


def visited_queues(headers: Table) -> Collection[str | None]:
    """Return the names of the queues that a dead letter has been in since its last rejection, the latest first.

    Args:
        headers: Headers with the current death recorded, whose reason is not REJECTED.
    """
    names: dict[str | None, None] = {}
    for _, entry in dict(headers).get(_DEATHS, ("A", ()))[1]:
        fields = dict(entry)
        if _text(fields.get("reason")) == REJECTED:
            break
        names[_text(fields.get("queue"))] = None
    return names


def _with_death(earlier: list[Table], death: Death) -> list[Table]:
    """Return the x-death entries, newest first; an existing entry with this queue and reason counts one more."""
    same = [entry for entry in earlier if _is_of(entry, death)]
    if same:
        # There is exactly one, unless a trusted publisher has sent several.
        count = min(1 + sum(map(_count, same)), _LARGEST)
        others = [entry for entry in earlier if not _is_of(entry, death)]
        return [_sorted((dict(same[0]) | {"count": ("l", count)}).items()), *others]
    fields = _new_entry(death)
    # As in RabbitMQ: the fields of the very first entry are in this order, those of later ones sorted.
    return [_sorted(fields.items()) if earlier else tuple(fields.items()), *earlier]


def _is_of(entry: Table, death: Death) -> bool:
    fields = dict(entry)
    return _text(fields.get("queue")) == death.queue and _text(fields.get("reason")) == death.reason


def _count(entry: Table) -> int:
    value = dict(entry).get("count", ("l", 1))[1]
    return value if isinstance(value, int) else 1


def _new_entry(death: Death) -> dict[str, Value]:
    entry = {
        "count": ("l", 1),
        "reason": _string(death.reason),
        "queue": _string(death.queue),
        "time": ("T", death.time),
        "exchange": _string(death.exchange),
        "routing-keys": ("A", tuple(map(_string, death.routing_keys))),
    }
    if death.original_expiration is not None:
        entry["original-expiration"] = _string(death.original_expiration)
    return entry


def _summary(which: str, death: Death) -> dict[str, Value]:
    return {
        f"x-{which}-death-reason": _string(death.reason),
        f"x-{which}-death-queue": _string(death.queue),
        f"x-{which}-death-exchange": _string(death.exchange),
    }


def _sorted(entries: Any) -> Table:
    return tuple(sorted(entries, key=lambda entry: _octets(entry[0])))


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _string(text: str) -> Value:
    return ("S", _octets(text))


def _text(value: Value | None) -> str | None:
    if value is None or not isinstance(value[1], bytes):
        return None
    return value[1].decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class DeathOrigin:
    """Where a message was when it was dead-lettered.

    Args:
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
        which: Whether that of its first death counts, which the headers x-first-death-… name, or of its last one,
            which is the newest entry of x-death.
    """
    found = dict(headers)
    deaths = found.get("x-death")
    entries = [dict(value) for kind, value in deaths[1] if kind == "F"] if deaths and deaths[0] == "A" else []
    if which == "last":
        return _origin_of(entries[0]) if entries else None
    queue, reason = _text(found.get("x-first-death-queue")), _text(found.get("x-first-death-reason"))
    if queue is None:
        return _origin_of(entries[-1]) if entries else None
    same = (each for each in entries if _text(each.get("queue")) == queue and _text(each.get("reason")) == reason)
    entry: dict[str, Any] = next(same, {})
    exchange = _text(found.get("x-first-death-exchange")) or _text(entry.get("exchange")) or ""
    return DeathOrigin(queue, reason or "", exchange, _keys(entry))


def _origin_of(entry: dict[str, Any]) -> DeathOrigin | None:
    queue = _text(entry.get("queue"))
    if queue is None:
        return None
    return DeathOrigin(queue, _text(entry.get("reason")) or "", _text(entry.get("exchange")) or "", _keys(entry))


def _keys(entry: dict[str, Any]) -> tuple[str, ...]:
    keys = entry.get("routing-keys", ("A", ()))
    return tuple(text for each in keys[1] if (text := _text(each)) is not None) if keys[0] == "A" else ()
