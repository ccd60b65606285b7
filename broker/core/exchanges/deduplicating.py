"""The exchange x-message-deduplication: a fanout that drops messages whose header value it remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.duplicate_filter import DuplicateFilter
from leveret.broker.core.deduplication.filtered_route import FilteredRoute
from leveret.broker.core.exchanges.fanout import FanoutExchange
from leveret.broker.core.messages.target import Remembering, Target
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import INTEGER_KINDS, FieldTable, FieldValue, as_text, find

#: Arguments, and policy keys that replace them.
CACHE_SIZE: Final = "x-cache-size"
CACHE_TTL: Final = "x-cache-ttl"
CACHE_PERSISTENCE: Final = "x-cache-persistence"
#: The values of the latter.
MEMORY: Final = "memory"
DISK: Final = "disk"

#: Digits of a number in a string; more are above any limit.
_DIGITS_MAX: Final = 18


class DeduplicatingExchange(FanoutExchange):
    """Routes messages to all destinations, without those whose header x-deduplication-header has a remembered value.

    Spec: RabbitMQ's plugin rabbitmq_message_deduplication.

    Attributes:
        duplicates: Remembers the values; None until the virtual host has made it.
        persistence: Where values are kept, ``memory`` or ``disk``.
    """

    __slots__ = ("_cache_size", "_cache_ttl", "_declared_persistence", "duplicates", "persistence")

    type_name: ClassVar[str] = "x-message-deduplication"
    description: ClassVar[str] = "Message Deduplication Exchange."
    has_memory: ClassVar[bool] = True

    def _create_index(self) -> None:
        size = _read_number(self.arguments, CACHE_SIZE)
        if size is None:
            raise precondition_failed(f"Missing or invalid argument, '{CACHE_SIZE}' must be an integer greater than 0")
        # As in RabbitMQ "0" is accepted, and one value has room.
        self._cache_size = max(size, 1)
        self._cache_ttl: int | None = None
        if find(self.arguments, CACHE_TTL) is not None:
            self._cache_ttl = _read_number(self.arguments, CACHE_TTL)
            if self._cache_ttl is None:
                raise precondition_failed(f"Invalid argument, '{CACHE_TTL}' must be an integer greater than 0")
        self.persistence = self._declared_persistence = _read_persistence(self.arguments)
        self.duplicates: DuplicateFilter | None = None

    @property
    def is_filter(self) -> bool:
        """Whether the virtual host has made the filter."""
        return self.duplicates is not None

    def filtered(
        self, behind: tuple[Target, ...], histories: tuple[Remembering, ...], counters: ExchangeCounters | None
    ) -> Target:
        """Return what drops duplicates and passes the other messages on; see Exchange.filtered()."""
        assert self.duplicates is not None
        return FilteredRoute(self.vhost_name, self.name, self.duplicates, behind, histories, counters)

    def apply_policy(self, definition: Mapping[str, Any]) -> None:
        """Let the keys of a policy replace the arguments; what is remembered stays.

        Args:
            definition: The definition of the policy in force; empty without one.
        """
        self.persistence = definition.get(CACHE_PERSISTENCE, self._declared_persistence)
        if self.duplicates is not None:
            size, ttl = definition.get(CACHE_SIZE, self._cache_size), definition.get(CACHE_TTL, self._cache_ttl)
            self.duplicates.set_limits(size, ttl)


def _read_number(arguments: FieldTable, name: str) -> int | None:
    """Return the value of an argument: an integer above 0, or a string of digits; None if it is neither."""
    field = find(arguments, name)
    if field is None:
        return None
    number: int = -1
    if field.kind in INTEGER_KINDS:
        number = field.value or -1
    elif field.kind == "S" and field.value.isdigit() and len(field.value) <= _DIGITS_MAX:
        number = int(field.value)
    return number if number >= 0 else None


def _read_persistence(arguments: FieldTable) -> str:
    """Return where values are kept.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, CACHE_PERSISTENCE) or FieldValue("S", MEMORY.encode())
    text = as_text(field) if field.kind in ("S", "x") else ""
    if text not in (MEMORY, DISK):
        raise precondition_failed(f"Invalid argument, '{CACHE_PERSISTENCE}' must be either 'disk' or 'memory'")
    return text
