"""Filters for messages: by routing key, exchange, headers and dead-lettering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED

REASONS: Final = (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)


class FilterError(ValueError):
    """An invalid filter; the text says why."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter for messages: all its conditions must match. None and an empty mapping mean no condition.

    Args:
        routing_key: Shell pattern (``*``, ``?``, ``[…]``) for the routing key.
        exchange: Shell pattern for the exchange; the default exchange is "".
        headers: Required JSON values by header.
        reason: Reason for which it was dead-lettered last, one of REASONS.
        queue: Name of the queue that dead-lettered it last.
    """

    routing_key: str | None = None
    exchange: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None
    queue: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no condition, so that every message passes."""
        return not self.headers and (self.routing_key, self.exchange, self.reason, self.queue) == (None,) * 4

    def passes(self, exchange: str, routing_key: str, headers: Mapping[str, Any]) -> bool:
        """Return whether a message passes the filter.

        Args:
            exchange: Exchange that it was published to last.
            routing_key: Routing key that it was published with last.
            headers: Headers as JSON values.
        """
        if self.routing_key is not None and not fnmatchcase(routing_key, self.routing_key):
            return False
        if self.exchange is not None and not fnmatchcase(exchange, self.exchange):
            return False
        if any(name not in headers or not _equal(headers[name], value) for name, value in self.headers.items()):
            return False
        if self.reason is None and self.queue is None:
            return True
        death = _last_death(headers)
        return (self.reason is None or death.get("reason") == self.reason) and (
            self.queue is None or death.get("queue") == self.queue
        )


def read_filter(document: Any) -> MessageFilter:
    """Parse a filter from JSON.

    Args:
        document: Object with any of routing_key, exchange, headers, reason, queue; None for no condition.
    Raises:
        FilterError: It is not an object, or has other keys or values.
    """
    if document is None:
        return MessageFilter()
    if not isinstance(document, Mapping):
        raise FilterError("filter must be an object")
    known = MessageFilter.__dataclass_fields__
    unknown = [name for name in document if name not in known]
    if unknown:
        raise FilterError(f"filter: unknown key '{unknown[0]}', known are {', '.join(known)}")
    headers = document.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise FilterError("filter: headers must be an object")
    for name in ("routing_key", "exchange", "reason", "queue"):
        if not isinstance(document.get(name), str | None):
            raise FilterError(f"filter: {name} must be a string")
    reason = document.get("reason")
    if reason is not None and reason not in REASONS:
        raise FilterError(f"filter: reason '{reason}' is not one of {', '.join(REASONS)}")
    return MessageFilter(**{**document, "headers": headers})


def _equal(value: Any, wanted: Any) -> bool:
    """Return whether JSON values are equal; true is not equal to 1."""
    return isinstance(value, bool) is isinstance(wanted, bool) and bool(value == wanted)


def _last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first entry of the x-death header, which is the latest; empty if there is none."""
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return deaths[0]
    return {}
