"""What a job is to do: return dead letters, move messages to another queue, replay a stream, or restore a queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, cast

from leveret.broker.core.json_values import table_from_json
from leveret.policies.dead_letter import DEATH_HEADERS
from leveret.policies.message_filter import MessageFilter, read_filter
from leveret.policies.stream_arguments import FIRST, NEXT, StreamPlace, read_place
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers

_KEYS: Final = ("filter", "via", "death", "rate", "limit", "remove_death", "remove_headers", "set_headers", "dry_run")
_MOVE_KEYS: Final = ("to", "filter", "rate", "limit", "job")
_REPLAY_KEYS: Final = ("from", "to", "into_exchange", "into_queue", "filter", "rate", "limit", "dry_run")
_RESTORE_KEYS: Final = ("queue", "at", "into", "rate", "limit", "dry_run")
#: Name of the queue that a restored one goes into, if none is given.
_RESTORED: Final = "{}.restored"
#: Bounds of the rate, in messages per second: from one in a quarter of an hour on.
_RATE_MIN: Final = 0.001
_RATE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed of a stream, and where to.

    Args:
        exchange: Name of the exchange that messages are published to; None if they go into a queue.
    """

    begin: StreamPlace
    end: StreamPlace
    exchange: str | None


@dataclass(frozen=True, slots=True)
class Restore:
    """What is restored from a backup.

    Args:
        queue: Name of the queue in the backup.
        at: The moment, as `leveret restore --at` takes it.
    """

    queue: str
    at: str


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How dead letters are returned, messages moved, a stream replayed, or a queue restored.

    Args:
        wanted: Selects messages.
        via: Whether they go to the queue that they come from, or through the exchange to all bound queues again.
        death: Whether they come from where they died first or last.
        rate: Maximum number of messages per second; None for no limit.
        limit: Maximum number of messages; None for all.
        removed: Names of headers to remove.
        added: Headers to set.
        to: Name of the queue that all messages are moved to, replayed or restored into; None if they have other
            targets.
        replay: What is replayed of a stream; None to take messages out of a queue.
        restore: What is restored from a backup, if anything.
    """

    wanted: MessageFilter
    via: Literal["queue", "exchange"] = "queue"
    death: Literal["first", "last"] = "first"
    rate: float | None = None
    limit: int | None = None
    removed: frozenset[str] = frozenset()
    added: FieldTable = ()
    to: str | None = None
    replay: Replay | None = None
    restore: Restore | None = None

    def changed(self, published: Properties, headers: FieldTable) -> bytes:
        """Return the content header of a message with the changed headers."""
        if not self.removed and not self.added:
            return published.payload
        replaced = self.removed | {name for name, _ in self.added}
        kept = tuple(entry for entry in headers if entry[0] not in replaced)
        table = sort_table(normalize((*kept, *self.added)))
        return published.replaced({properties.HEADERS: encode_headers(table) if table else None})


#: Options of a job that cannot run.
NO_OPTIONS: Final = JobOptions(MessageFilter())


def read_options(document: Mapping[str, Any]) -> JobOptions:
    """Read the options of a job that returns dead letters from JSON.

    Raises:
        ValueError: One is unknown or has an invalid value; the text says which.
    """
    given = _given(document, _KEYS)
    removed = given.get("remove_headers", [])
    if not isinstance(removed, list) or not all(isinstance(name, str) for name in removed):
        raise ValueError("remove_headers must be a list of names")
    added = given.get("set_headers", {})
    if not isinstance(added, Mapping):
        raise ValueError("set_headers must be an object")
    trusted = [name for name in added if name in DEATH_HEADERS]
    if trusted:
        raise ValueError(f"set_headers cannot have {trusted[0]}, which only the broker sets")
    return JobOptions(
        **_which(given),
        via=cast(Literal["queue", "exchange"], _one_of(given, "via", "queue", "exchange")),
        death=cast(Literal["first", "last"], _one_of(given, "death", "first", "last")),
        removed=frozenset([*removed, *(DEATH_HEADERS if _flag(given, "remove_death") else ())]),
        added=table_from_json(added),
    )


def read_move_options(document: Mapping[str, Any]) -> JobOptions:
    """Read the options of a job that moves messages from JSON.

    Raises:
        ValueError: One is unknown or has an invalid value; the text says which.
    """
    given = _given(document, _MOVE_KEYS)
    target = given.get("to")
    if not isinstance(target, str):
        raise ValueError("to must be the name of a queue")
    return JobOptions(**_which(given), to=target)


def read_replay_options(document: Mapping[str, Any]) -> JobOptions:
    """Read the options of a job that replays a stream from JSON.

    Raises:
        ValueError: One is unknown or has an invalid value; the text says which.
    """
    given = _given(document, _REPLAY_KEYS)
    exchange, queue = _name(given, "into_exchange"), _name(given, "into_queue")
    if (exchange is None) is (queue is None):
        raise ValueError("one of into_exchange and into_queue is needed")
    begin, end = read_place("from", given.get("from", "first")), read_place("to", given.get("to", "next"))
    if begin == NEXT:
        raise ValueError("from cannot be next: only what is there already is replayed")
    if end == FIRST:
        raise ValueError("to cannot be first: it is the place after the last message")
    return JobOptions(**_which(given), to=queue, replay=Replay(begin, end, exchange))


def read_restore_options(document: Mapping[str, Any]) -> JobOptions:
    """Read the options of a job that restores a queue from a backup from JSON.

    Raises:
        ValueError: One is unknown or has an invalid value; the text says which.
    """
    given = _given(document, _RESTORE_KEYS)
    queue, at = _name(given, "queue"), given.get("at")
    if queue is None:
        raise ValueError("queue must be the name of a queue")
    if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < 1 << 53:
        moment = f"{at / 1000:.3f}"
    elif isinstance(at, str):
        try:
            datetime.fromisoformat(at)
        except ValueError:
            raise ValueError(f"at must be a time such as 2026-01-31T12:00:00Z, is '{at:.100}'") from None
        moment = at
    else:
        raise ValueError("at must be a time: such as 2026-01-31T12:00:00Z, or ms since 1970")
    target = _name(given, "into") or _RESTORED.replace("{}", queue)
    return JobOptions(**_which(given), to=target, restore=Restore(queue, moment))


def _given(document: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    unknown = [name for name in document if name not in known]
    if unknown:
        raise ValueError(f"unknown key '{unknown[0]}', known are {', '.join(known)}")
    return {name: value for name, value in document.items() if value is not None}


def _which(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read which messages are meant, how many, and how fast they go: what all kinds of jobs have."""
    return {"wanted": read_filter(given.get("filter")), "rate": _rate(given), "limit": _limit(given)}


def _one_of(given: Mapping[str, Any], name: str, *values: str) -> str:
    value = given.get(name, values[0])
    if value not in values:
        raise ValueError(f"{name} must be {' or '.join(values)}, is {value}")
    return str(value)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, is {value}")
    return value


def _rate(given: Mapping[str, Any]) -> float | None:
    value = given.get("rate")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _RATE_MIN <= value <= _RATE_MAX:
        raise ValueError(f"rate must be {_RATE_MIN} to {_RATE_MAX} messages per second, is {value}")
    return float(value)


def _name(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} must be a name, is {value}")
    return value


def _limit(given: Mapping[str, Any]) -> int | None:
    value = given.get("limit")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"limit must be 1 or more, is {value}")
    return value
