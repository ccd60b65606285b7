"""The direct exchange: routes by exact routing key."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.protocol.field_table import FieldTable


class DirectExchange(Exchange):
    """Routes a message by its exact routing key, which may be empty.

    Spec: AMQP 0-9-1 section 3.1.3.1.
    """

    __slots__ = ("_by_key",)

    type_name: ClassVar[str] = "direct"
    description: ClassVar[str] = "AMQP direct exchange, as per the AMQP specification"

    def _create_index(self) -> None:
        self._by_key: dict[str, dict[BindingIdentity, Destination]] = {}

    def _add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding.identity] = binding.destination

    def _remove(self, binding: Binding) -> None:
        bound = self._by_key[binding.routing_key]
        del bound[binding.identity]
        if not bound:
            del self._by_key[binding.routing_key]

    def destinations(self, routing_key: str, headers: FieldTable) -> Collection[Destination]:
        """Return the destinations bound with exactly this key."""
        bound = self._by_key.get(routing_key)
        return tuple(bound.values()) if bound is not None else ()
