"""The firehose: copies all published and delivered messages of a virtual host to its trace exchange.

Source: https://www.rabbitmq.com/docs/firehose, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from leveret.broker.core.messages import Origin, Target, names_of, published_to, read_extra_keys
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.routing import publish
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol.field_table import FieldTable, FieldValue, longstr, normalize
from leveret.protocol.properties import FLAGS, Properties
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: The predeclared exchange that copies are published to.
TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
_TRACE_ROUTE: Final = encode_shortstr(TRACE_EXCHANGE)
_INT32_MAX: Final = 2**31 - 1


class Tracer:
    """Copies messages of one virtual host to its trace exchange while tracing is on.

    A copy has the body of the message; its headers describe the original. Copies are transient and not traced.

    Args:
        turn: Runs deliver() at the end of the turn.

    Attributes:
        scheduled: Whether deliver() is scheduled for the end of the turn; set by Turn.
    """

    def __init__(self, topology: Topology, turn: Turn, node_name: str) -> None:
        self._topology = topology
        self._turn = turn
        self._node_name = node_name
        self._waiting: list[tuple[str, Origin, Sequence[Entry]]] = []
        self.scheduled = False

    def published(self, origin: Origin, messages: Sequence[Message], queues: Iterable[Target]) -> None:
        """Copy published messages, with the routing key ``publish.EXCHANGE``.

        Args:
            origin: The publisher.
            messages: Messages with one envelope and of one size.
            queues: Queues that they are routed to.
        """
        # Keep the order: pending copies of earlier deliveries are published first.
        self.deliver()
        exchange, _ = published_to(messages[0].envelope)
        routed = tuple(longstr(name) for name in sorted(names_of(queues)))
        self._copy(
            f"publish.{exchange}", messages, (*self._origin_headers(origin), ("routed_queues", FieldValue("A", routed)))
        )

    def delivered(self, origin: Origin, queue_name: str, entries: Sequence[Entry]) -> None:
        """Schedule copies of delivered messages, with the routing key ``deliver.QUEUE``.

        They are published later, because the queue is still delivering, and copies may be routed to the same queue.

        Args:
            origin: The consumer.
            entries: The messages.
        """
        self._waiting.append((queue_name, origin, entries))
        self._turn.deliver_later(self)

    def deliver(self) -> None:
        """Publish the pending copies of deliveries."""
        waiting, self._waiting = self._waiting, []
        for queue_name, origin, entries in waiting:
            runs = groupby(entries, key=lambda entry: (id(entry[1].envelope), len(entry[1].body), entry[2]))
            for (_, _, redelivered), run in runs:
                about = (("redelivered", FieldValue("I", int(redelivered))), *self._origin_headers(origin))
                self._copy(f"deliver.{queue_name}", [entry[1] for entry in run], about)

    def _origin_headers(self, origin: Origin) -> FieldTable:
        return (
            ("vhost", longstr(self._topology.vhost_name)),
            ("connection", longstr(origin.connection)),
            ("channel", FieldValue("I", origin.channel)),
            ("user", longstr(origin.user)),
        )

    def _copy(self, key: str, messages: Sequence[Message], about: FieldTable) -> None:
        """Publish copies of messages with one envelope and of one size."""
        envelope = messages[0].envelope
        exchange = self._topology.exchanges[TRACE_EXCHANGE]
        if not exchange.bindings or envelope.route.startswith(_TRACE_ROUTE):
            return
        headers = (*_describe(envelope), ("node", longstr(self._node_name)), *about)
        octets = key.encode("utf-8", "surrogateescape")
        publish(self._topology, exchange, octets, headers, [message.body for message in messages])


def _describe(envelope: Envelope) -> FieldTable:
    """Return headers that describe a message: its exchange, routing keys and properties."""
    read = Properties(envelope.header)
    exchange, key = published_to(envelope)
    keys = (key, *read_extra_keys(read.headers(), "CC"), *envelope.blind_keys)
    return (
        ("exchange_name", longstr(exchange)),
        ("routing_keys", FieldValue("A", tuple(map(longstr, keys)))),
        ("properties", FieldValue("F", _property_table(read.as_dict()))),
    )


def _property_table(present: dict[str, Any]) -> FieldTable:
    """Convert properties to a table: in reverse wire order, with integers as signed 32-bit ones where they fit."""
    entries: list[tuple[str, FieldValue]] = []
    for _, name in reversed(FLAGS):
        if name not in present:
            continue
        value = present[name]
        if name == "headers":
            entries.append((name, FieldValue("F", normalize(value))))
        elif isinstance(value, int):
            # RabbitMQ truncates larger values.
            entries.append((name, FieldValue("I" if value <= _INT32_MAX else "l", value % 2**63)))
        else:
            entries.append((name, longstr(value)))
    return tuple(entries)
