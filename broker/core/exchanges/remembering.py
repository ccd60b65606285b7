"""The exchange types that remember messages or header values: x-recent-history and x-message-deduplication."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.filter import DuplicateFilter, FilteredRoute
from leveret.broker.core.exchanges.amqp_types import FanoutExchange
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.terms import format_value
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import INTEGER_KINDS, FieldTable, FieldValue, as_text, find
from leveret.storage.message import Message

_LENGTH: Final = "x-recent-history-length"
_LENGTH_DEFAULT: Final = 20
#: Types of the length that RabbitMQ accepts.
_LENGTH_KINDS: Final = "bsIlL"
_NO_STORE: Final = "x-recent-history-no-store"


class RecentHistoryExchange(FanoutExchange):
    """A fanout that remembers its last messages; every new binding gets them.

    They are in memory only: a restart forgets them, as in RabbitMQ 3.10.

    Spec: RabbitMQ's plugin rabbitmq_recent_history_exchange.
    """

    __slots__ = ("_messages",)

    type_name: ClassVar[str] = "x-recent-history"
    description: ClassVar[str] = "Recent History Exchange."
    has_memory: ClassVar[bool] = True

    def _create_index(self) -> None:
        # A header says whether a message is remembered.
        self.uses_headers = True
        self._messages: deque[Message] = deque(maxlen=_read_length(self.arguments))

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember messages, and forget the oldest ones if they are too many."""
        self._messages.extend(messages)

    def remembered(self) -> list[Message]:
        """Return the remembered messages, oldest first."""
        return list(self._messages)

    def history(self, headers: FieldTable) -> Remembering | None:
        """Return itself, unless a header says that a message is not to be remembered."""
        field = find(headers, _NO_STORE)
        return self if field is None or field.kind != "t" or not field.value else None


def _read_length(arguments: FieldTable) -> int:
    """Return the number of messages to remember.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, _LENGTH)
    if field is None:
        return _LENGTH_DEFAULT
    if field.kind not in _LENGTH_KINDS or field.value <= 0:
        raise precondition_failed(f"Invalid argument {format_value(field)}, '{_LENGTH}' must be a positive integer")
    return int(field.value)


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

    def close(self) -> None:
        """Forget the values."""
        if self.duplicates is not None:
            self.duplicates.close()

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
        """Let the keys of a policy replace the arguments; what is remembered stays."""
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
