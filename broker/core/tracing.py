"""The firehose: copies of all that is published and delivered in a virtual host, for those who look for a fault.

Source: https://www.rabbitmq.com/docs/firehose, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from leveret.broker.core.published import published_to, read_extra_keys
from leveret.broker.core.routing import route
from leveret.protocol import properties
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable, FieldValue, longstr, normalize
from leveret.protocol.properties import FLAGS, Properties, encode_content_header, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.core.vhost import VirtualHost

#: The exchange that copies are published to; every virtual host has it.
TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
_TRACE_ROUTE: Final = encode_shortstr(TRACE_EXCHANGE)
_INT32_MAX: Final = 2**31 - 1


class Origin(NamedTuple):
    """Who publishes or takes a message.

    Args:
        connection: Name of the connection.
        channel: Number of the channel.
        user: Who is logged in there.
    """

    connection: str
    channel: int
    user: str


class Tracer:
    """Copies messages of one virtual host to its trace exchange, as long as tracing is on.

    A copy has the body of the message, and says in its headers all that is known of it. Copies themselves are not
    traced, and are transient.

    Args:
        vhost: The virtual host.
        node_name: The name of the node.

    Attributes:
        scheduled: Whether deliver() is due at the end of the turn; kept by Turn.
    """

    def __init__(self, vhost: VirtualHost, node_name: str) -> None:
        self._vhost = vhost
        self._node_name = node_name
        self._waiting: list[tuple[str, Origin, Sequence[Entry]]] = []
        self.scheduled = False

    def published(self, origin: Origin, messages: Sequence[Message], queues: Iterable[Queue]) -> None:
        """Copy messages that have been published, with the routing key ``publish.EXCHANGE``.

        Args:
            origin: Who publishes.
            messages: With one envelope and of one size.
            queues: Where they go.
        """
        # What was delivered before is told before.
        self.deliver()
        exchange, _ = published_to(messages[0].envelope)
        routed = tuple(longstr(name) for name in sorted(queue.name for queue in queues))
        self._copy(f"publish.{exchange}", messages, (*self._whence(origin), ("routed_queues", FieldValue("A", routed))))

    def delivered(self, origin: Origin, queue_name: str, entries: Sequence[Entry]) -> None:
        """Copy messages that have been delivered or got, with the routing key ``deliver.QUEUE``, soon.

        Not at once: the queue is still at it, and the copies may be for that very queue.

        Args:
            origin: Who gets them.
            queue_name: Whence they come.
            entries: The messages.
        """
        self._waiting.append((queue_name, origin, entries))
        self._vhost.turn.deliver_later(self)

    def deliver(self) -> None:
        """Publish the copies that wait."""
        waiting, self._waiting = self._waiting, []
        for queue_name, origin, entries in waiting:
            runs = groupby(entries, key=lambda entry: (id(entry[1].envelope), len(entry[1].body), entry[2]))
            for (_, _, redelivered), run in runs:
                about = (("redelivered", FieldValue("I", int(redelivered))), *self._whence(origin))
                self._copy(f"deliver.{queue_name}", [entry[1] for entry in run], about)

    def _whence(self, origin: Origin) -> FieldTable:
        return (
            ("vhost", longstr(self._vhost.name)),
            ("connection", longstr(origin.connection)),
            ("channel", FieldValue("I", origin.channel)),
            ("user", longstr(origin.user)),
        )

    def _copy(self, key: str, messages: Sequence[Message], about: FieldTable) -> None:
        """Publish copies of messages with one envelope and of one size."""
        envelope, size = messages[0].envelope, len(messages[0].body)
        topology = self._vhost.topology
        exchange = topology.exchanges[TRACE_EXCHANGE]
        if not exchange.bindings or envelope.route.startswith(_TRACE_ROUTE):
            return
        headers = (*_describe(envelope), ("node", longstr(self._node_name)), *about)
        octets = key.encode("utf-8", "surrogateescape")[:SHORTSTR_MAX]
        header = encode_content_header(size, {properties.HEADERS: encode_headers(headers)})
        made = Envelope(_TRACE_ROUTE + encode_shortstr(octets), header)
        copies = [Message(made, message.body) for message in messages]
        found = route(topology, exchange, [octets.decode("utf-8", "surrogateescape")], headers)
        for queue in cast("tuple[Queue, ...]", found.queues):
            if not queue.deleted:
                queue.publish(copies, len(copies) * size)


def _describe(envelope: Envelope) -> FieldTable:
    """What a message says: where it was published, its routing keys, its properties."""
    read = Properties(envelope.header)
    exchange, key = published_to(envelope)
    keys = (key, *read_extra_keys(read.headers(), "CC"), *envelope.blind_keys)
    return (
        ("exchange_name", longstr(exchange)),
        ("routing_keys", FieldValue("A", tuple(map(longstr, keys)))),
        ("properties", FieldValue("F", _property_table(read.as_dict()))),
    )


def _property_table(present: dict[str, Any]) -> FieldTable:
    """Properties as a table: the last one of the wire first, whole numbers as signed 32-bit ones."""
    entries: list[tuple[str, FieldValue]] = []
    for _, name in reversed(FLAGS):
        if name not in present:
            continue
        value = present[name]
        if name == "headers":
            entries.append((name, FieldValue("F", normalize(value))))
        elif isinstance(value, int):
            # RabbitMQ cuts off what does not fit.
            entries.append((name, FieldValue("I" if value <= _INT32_MAX else "l", value % 2**63)))
        else:
            entries.append((name, longstr(value)))
    return tuple(entries)
