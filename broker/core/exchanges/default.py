"""The default exchange: every queue is bound to it with its name, and nobody can change that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from leveret.broker.core.exchanges.base import Exchange
from leveret.protocol.faults import access_refused
from leveret.protocol.field_table import FieldTable

if TYPE_CHECKING:
    from leveret.broker.core.bindings import Binding, Destination, QueueDestination

#: Its name.
DEFAULT_EXCHANGE = ""


class DefaultExchange(Exchange):
    """Sends a message to the queue that is named like its routing key. It has no bindings of its own.

    Args:
        vhost_name: Its virtual host.
        queues: The queues of that virtual host, by name; looked up at every message.
    Spec: AMQP 0-9-1 section 3.1.3.1.
    """

    __slots__ = ("_queues",)

    type_name: ClassVar[str] = "direct"

    def __init__(self, vhost_name: str, queues: Mapping[str, QueueDestination]) -> None:
        super().__init__(vhost_name, DEFAULT_EXCHANGE)
        self._queues = queues

    def _create_index(self) -> None:
        pass

    def _add(self, binding: Binding) -> None:
        refuse_default(DEFAULT_EXCHANGE)

    def _remove(self, binding: Binding) -> None:
        raise AssertionError("the default exchange takes no bindings, so none can go")

    def destinations(self, routing_key: str, headers: FieldTable) -> Sequence[Destination]:
        """The queue of that name, if there is one."""
        queue = self._queues.get(routing_key)
        return () if queue is None else (queue,)


def refuse_default(name: str) -> None:
    """Refuse to declare, delete, bind or unbind the default exchange.

    Args:
        name: Of the exchange that this is to be done to.
    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if name == DEFAULT_EXCHANGE:
        raise access_refused("operation not permitted on the default exchange")
