"""The exchange x-delayed-message: keeps messages for as long as their header x-delay says, then routes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from leveret.broker.core.delays.delay_header import read_delay
from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.plain_types import PLAIN_TYPES, unknown_type_text
from leveret.broker.core.messages.target import Target
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import FieldTable, as_text, find

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
