"""Bindings: from an exchange to a queue or to another exchange."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.terms import Term, table_to_term
from leveret.protocol.field_table import FieldTable, sort_table


class QueueDestination(Protocol):
    """What routing needs to know of a queue. Queues are told apart by identity."""

    @property
    def name(self) -> str:
        """Its name, unique in its virtual host at any time."""


Destination: TypeAlias = Exchange | QueueDestination


class BindingIdentity(NamedTuple):
    """What makes two bindings of a virtual host the same.

    Args:
        source: Name of the source exchange.
        destination_type: ``exchange`` or ``queue``.
        destination: Name of the destination.
        routing_key: Routing key or pattern.
        arguments: The arguments' term, sorted by key: types count, the order does not.
    """

    source: str
    destination_type: str
    destination: str
    routing_key: str
    arguments: Term


class Binding:
    """One binding; it never changes.

    Args:
        source: Where messages come from.
        destination: Where they go to.
        routing_key: Routing key or pattern, for source to make sense of.
        arguments: In any order.

    Attributes:
        arguments: Sorted by key.
        identity: Equal for bindings that RabbitMQ takes for the same.
    """

    __slots__ = ("arguments", "destination", "identity", "routing_key", "source")

    def __init__(
        self, source: Exchange, destination: Destination, routing_key: str, arguments: FieldTable = ()
    ) -> None:
        self.source = source
        self.destination = destination
        self.routing_key = routing_key
        self.arguments = sort_table(arguments)
        self.identity = BindingIdentity(
            source.name,
            "exchange" if isinstance(destination, Exchange) else "queue",
            destination.name,
            routing_key,
            table_to_term(self.arguments),
        )
