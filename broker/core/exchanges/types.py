"""The exchange types by name, and those with a memory: x-recent-history, x-message-deduplication, x-delayed-message.

A new type needs a class in this folder and a row here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.filter import DuplicateFilter, FilteredRoute
from leveret.broker.core.delays.waiting_messages import WaitingMessages, read_delay
from leveret.broker.core.exchanges.amqp_types import DirectExchange, FanoutExchange, HeadersExchange, TopicExchange
from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.choosing import (
    ConsistentHashExchange,
    LocalRandomExchange,
    ModulusHashExchange,
    RandomExchange,
)
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.terms import format_value
from leveret.protocol.faults import ConnectionFault, ReplyCode, precondition_failed
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


#: Words that exist as atoms in RabbitMQ but are not exchange types: its error text is ``invalid``, not ``unknown``.
_OTHER_WORDS: Final = frozenset(
    (
        *("", "all", "amqp", "classic", "consistent", "default", "durable", "exchange", "exchanges", "false"),
        *("federation", "hash", "internal", "lazy", "local", "message", "mqtt", "none", "null", "policy", "priority"),
        *("queue", "queues", "quorum", "rabbit", "random", "stream", "system", "true", "undefined"),
    )
)


def index_types(types: Iterable[type[Exchange]]) -> dict[str, type[Exchange]]:
    """Return exchange types by name.

    Raises:
        ValueError: Two types have the same name.
    """
    index: dict[str, type[Exchange]] = {}
    for exchange_type in types:
        name = exchange_type.type_name
        if name in index:
            raise ValueError(f"exchange type {name!r} is registered twice: {index[name]}, {exchange_type}")
        index[name] = exchange_type
    return index


PLAIN_TYPES: Final[Mapping[str, type[Exchange]]] = index_types(
    (
        DirectExchange,
        FanoutExchange,
        HeadersExchange,
        TopicExchange,
        ConsistentHashExchange,
        DeduplicatingExchange,
        LocalRandomExchange,
        ModulusHashExchange,
        RandomExchange,
        RecentHistoryExchange,
    )
)


def unknown_type_text(type_name: str) -> str:
    """Return RabbitMQ's error text for an exchange type that does not exist."""
    adjective = "invalid" if type_name in _OTHER_WORDS else "unknown"
    return f"{adjective} exchange type '{type_name}'"


#: Name of the argument with the type that routes.
DELAYED_TYPE: Final = "x-delayed-type"


class DelayedExchange(Exchange):
    """Routes as the exchange type inside it does: messages with a delay when they are due, others at once.

    Spec: RabbitMQ's plugin rabbitmq_delayed_message_exchange.

    Attributes:
        inner: The exchange that finds destinations; it has the same bindings.
        waiting: Messages that are not due yet; None until the virtual host has opened their store.
    """

    __slots__ = ("inner", "waiting")

    type_name: ClassVar[str] = "x-delayed-message"
    description: ClassVar[str] = "Delayed Message Exchange."
    has_memory: ClassVar[bool] = True

    def _create_index(self) -> None:
        # A header says whether a message is delayed.
        self.uses_headers = True
        inner_type = PLAIN_TYPES[_read_type(self.arguments)]
        flags = self.durable, self.auto_delete, self.internal
        self.inner: Exchange = inner_type(self.vhost_name, self.name, *flags, self.arguments)
        self.waiting: WaitingMessages | None = None

    def _add(self, binding: Binding) -> None:
        self.inner.bind(binding)

    def _remove(self, binding: Binding) -> None:
        self.inner.unbind(binding)

    def apply_policy(self, definition: Mapping[str, Any]) -> None:
        """Limit the number of waiting messages; the exchange inside reads its own keys."""
        self.inner.apply_policy(definition)
        if self.waiting is not None:
            self.waiting.limit = definition.get("max-delayed")

    def close(self) -> None:
        """Delete the waiting messages."""
        if self.waiting is not None:
            self.waiting.delete()
        self.inner.close()

    def keeper(self, headers: FieldTable) -> Target | None:
        """Return what keeps a message until it is due; None if it has no delay."""
        return self.waiting if read_delay(headers) else None

    def router(self) -> Exchange:
        """Return the exchange inside."""
        return self.inner

    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Find the destinations of a message that is due, or not delayed."""
        return self.inner.find(keys, headers, header)

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Find the destinations of a message that is due, or not delayed."""
        return self.inner.destinations(routing_key, headers)


def _read_type(arguments: FieldTable) -> str:
    """Return the name of the type inside.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(arguments, DELAYED_TYPE)
    if field is None or field.kind not in ("S", "x"):
        raise precondition_failed(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    name = as_text(field)
    if name == DelayedExchange.type_name:
        raise precondition_failed(f"Invalid argument, '{name}' can't be used for '{DELAYED_TYPE}'")
    if name not in PLAIN_TYPES:
        raise precondition_failed(unknown_type_text(name))
    return name


#: The type that RabbitMQ's federation declares on the upstream broker. If it is refused exactly as by RabbitMQ 3.10,
#: federation uses a fanout exchange instead; after any other error it does not start.
_FEDERATION_TYPE: Final = "x-federation-upstream"

EXCHANGE_TYPES: Final[Mapping[str, type[Exchange]]] = index_types((*PLAIN_TYPES.values(), DelayedExchange))


def check_exchange_type(type_name: str) -> None:
    """Refuse an exchange type that does not exist.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406), as RabbitMQ since 4.0; 3.10 closes the connection with 503.
        ConnectionFault: COMMAND_INVALID (503) for the type of federation.
    """
    if type_name == _FEDERATION_TYPE:
        raise ConnectionFault(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{type_name}'")
    if type_name not in EXCHANGE_TYPES:
        raise precondition_failed(unknown_type_text(type_name))
