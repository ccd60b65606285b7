"""The default exchange: every queue is implicitly bound to it by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.direct import DirectExchange
from leveret.broker.core.queues.queue import Queue
from leveret.protocol.faults import access_refused
from leveret.protocol.field_table import FieldTable

#: Name of the default exchange.
DEFAULT_EXCHANGE = ""


class DefaultExchange(Exchange):
    """Routes a message to the queue whose name is the routing key. It has no explicit bindings.

    Args:
        vhost_name: Name of the virtual host.
        queues: The queues of the virtual host by name; must be kept up to date by the caller.
        since: Time of its creation, in seconds since 1970.
    Spec: AMQP 0-9-1 section 3.1.3.1.
    """

    __slots__ = ("_queues",)

    type_name: ClassVar[str] = "direct"
    description: ClassVar[str] = DirectExchange.description

    def __init__(self, vhost_name: str, queues: Mapping[str, Queue], since: int = 0) -> None:
        super().__init__(vhost_name, DEFAULT_EXCHANGE, since=since)
        self._queues = queues

    def _create_index(self) -> None:
        pass

    def _add(self, binding: Binding) -> None:
        refuse_default(DEFAULT_EXCHANGE)

    def _remove(self, binding: Binding) -> None:
        raise AssertionError("the default exchange has no bindings to remove")

    def destinations(self, routing_key: str, headers: FieldTable) -> Sequence[Destination]:
        """Return the queue whose name is the routing key, if it exists."""
        queue = self._queues.get(routing_key)
        return () if queue is None else (queue,)


def refuse_default(name: str) -> None:
    """Refuse to declare, delete, bind or unbind the default exchange.

    Args:
        name: Name of the exchange.
    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
