"""The exchange of events: publishes what is done as messages without a body, whose headers say what.

Source: https://www.rabbitmq.com/docs/event-exchange, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, ip_address
from typing import Any, Final

from leveret.broker.core.events import Event
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.json_values import field_from_json
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.terms import format_value
from leveret.broker.core.vhosts.routing import publish
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol import properties
from leveret.protocol.erlang_terms import format_binary, format_tuple
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, FieldValue, longstr

#: Name and type of the exchange; it is internal and predeclared.
EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
EVENT_EXCHANGE_TYPE: Final = "topic"
_PERSISTENT: Final = 2
#: Fields with IP addresses, which RabbitMQ prints as Erlang's tuples.
_ADDRESSES: Final = frozenset({"host", "peer_host"})


class EventExchange:
    """Publishes events to the exchange of a virtual host, as long as something is bound to it.

    Events are published at the end of the turn, when what they are about has changed completely.

    Args:
        turn: Runs deliver() at the end of the turn.

    Attributes:
        scheduled: Whether deliver() is scheduled for the end of the turn; set by Turn.
    """

    def __init__(self, turn: Turn) -> None:
        self._topology: Topology | None = None
        self._exchange: Exchange | None = None
        self._turn = turn
        self._waiting: list[Event] = []
        self.scheduled = False

    def open(self, topology: Topology) -> None:
        """Declare the exchange in a new virtual host."""
        topology.predeclare(EVENT_EXCHANGE, EVENT_EXCHANGE_TYPE, internal=True)
        self._topology = topology
        self._exchange = topology.exchanges[EVENT_EXCHANGE]

    def wants(self, kind: str) -> bool:
        """Check whether something is bound to the exchange."""
        return self._exchange is not None and bool(self._exchange.bindings)

    def take(self, event: Event) -> None:
        """Publish an event at the end of the turn."""
        self._waiting.append(event)
        self._turn.deliver_later(self)

    def deliver(self) -> None:
        """Publish the events that wait."""
        waiting, self._waiting = self._waiting, []
        assert self._topology is not None
        assert self._exchange is not None
        for event in waiting:
            present = {
                properties.DELIVERY_MODE: bytes([_PERSISTENT]),
                properties.TIMESTAMP: (event.time // 1000).to_bytes(8, "big"),
            }
            publish(self._topology, self._exchange, event.kind.encode(), event_headers(event), [b""], present)


def event_headers(event: Event) -> FieldTable:
    """Return the headers of an event: its fields, who has done it and from where."""
    named = {"user_who_performed_action": event.user, **event.fields}
    if event.actor.host:
        named.setdefault("peer_host", event.actor.host)
    headers = tuple([(name, _as_field(name, value)) for name, value in named.items() if value is not None])
    return (*headers, ("timestamp_in_ms", FieldValue("l", event.time)))


def _as_field(name: str, value: Any) -> FieldValue:
    """Return the value of a header. Field tables become lists of Erlang's terms, one for each entry."""
    if name in _ADDRESSES and isinstance(value, str):
        return longstr(_format_address(value))
    if isinstance(value, bool | int | float | str):
        return field_from_json(value)
    if isinstance(value, Mapping):
        return FieldValue("F", tuple([(key, _as_field(key, each)) for key, each in value.items()]))
    if isinstance(value, tuple):
        return FieldValue("A", tuple([longstr(_format_entry(key, each)) for key, each in value]))
    return FieldValue("A", tuple([_as_field("", each) for each in value or ()]))


def _format_entry(key: str, field: FieldValue) -> str:
    entry = format_tuple(
        format_binary(key.encode("utf-8", "surrogateescape")), TYPE_NAMES[field.kind], format_value(field)
    )
    return entry.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _format_address(host: str) -> str:
    """Return an IP address as Erlang prints it: ``{127,0,0,1}``."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    octets = address.packed
    if isinstance(address, IPv4Address):
        return format_tuple(*map(str, octets))
    return format_tuple(*(str(int.from_bytes(octets[at : at + 2], "big")) for at in range(0, 16, 2)))
