"""The exchange types by name, and x-delayed-message, which has another type inside.

A new type needs a class in this folder and a row here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from leveret.broker.core.delays.waiting_messages import WaitingMessages, read_delay
from leveret.broker.core.exchanges.amqp_types import DirectExchange, FanoutExchange, HeadersExchange, TopicExchange
from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.choosing import (
    ConsistentHashExchange,
    LocalRandomExchange,
    ModulusHashExchange,
    RandomExchange,
)
from leveret.broker.core.exchanges.remembering import DeduplicatingExchange, RecentHistoryExchange
from leveret.broker.core.messages import Target
from leveret.protocol.faults import ConnectionFault, ReplyCode, precondition_failed
from leveret.protocol.field_table import FieldTable, as_text, find

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
