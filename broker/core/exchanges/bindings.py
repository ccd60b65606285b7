"""Bindings: from an exchange to a queue or to another exchange."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.terms import Term, table_to_term
from leveret.protocol.field_table import FieldTable, sort_table


class QueueDestination(Protocol):
    """A queue as routing sees it. Queues are compared by identity."""

    @property
    def name(self) -> str:
        """The name, unique in its virtual host."""


Destination: TypeAlias = Exchange | QueueDestination


class BindingIdentity(NamedTuple):
    """The key of a binding in its virtual host.

    Args:
        source: Name of the source exchange.
        destination_type: ``exchange`` or ``queue``.
        destination: Name of the destination.
        routing_key: Routing key or pattern.
        arguments: The term of the arguments, sorted by key: types matter, their order does not.
    """

    source: str
    destination_type: str
    destination: str
    routing_key: str
    arguments: Term


class Binding:
    """One immutable binding.

    Args:
        source: The source exchange.
        destination: The destination queue or exchange.
        routing_key: Routing key or pattern, interpreted by the source.
        arguments: Binding arguments in any order.

    Attributes:
        arguments: Binding arguments, sorted by key.
        identity: Equal for bindings that RabbitMQ considers the same.
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
