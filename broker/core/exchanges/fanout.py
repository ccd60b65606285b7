"""The fanout exchange: routes every message to all destinations."""

from __future__ import annotations

from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.protocol.field_table import FieldTable


class FanoutExchange(Exchange):
    """Routes every message to all destinations and ignores the routing key.

    Spec: AMQP 0-9-1 section 3.1.3.2.
    """

    __slots__ = ()

    type_name: ClassVar[str] = "fanout"
    description: ClassVar[str] = "AMQP fanout exchange, as per the AMQP specification"
    uses_keys: ClassVar[bool] = False

    # No index is needed.

    def _create_index(self) -> None:
        pass

    def _add(self, binding: Binding) -> None:
        pass

    def _remove(self, binding: Binding) -> None:
        pass

    def destinations(self, routing_key: str, headers: FieldTable) -> list[Destination]:
        """Return all destinations."""
        return [binding.destination for binding in self.bindings.values()]
