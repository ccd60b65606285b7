"""Publishes messages that the broker makes itself: copies of others, and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.vhosts.routing import route
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol import properties
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable
from leveret.protocol.properties import encode_content_header, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message


def publish(
    topology: Topology,
    exchange: Exchange,
    key: bytes,
    headers: FieldTable,
    bodies: Sequence[bytes],
    present: Mapping[int, bytes] | None = None,
) -> None:
    """Publish messages to an exchange.

    Args:
        key: The routing key; one that is too long is cut.
        bodies: Their bodies, all of one size.
        present: Their other properties, encoded.
    """
    octets, size = key[:SHORTSTR_MAX], len(bodies[0])
    header = encode_content_header(size, {**(present or {}), properties.HEADERS: encode_headers(headers)})
    made = Envelope(encode_shortstr(exchange.name) + encode_shortstr(octets), header)
    messages = [Message(made, body) for body in bodies]
    found = route(topology, exchange, [octets.decode("utf-8", "surrogateescape")], headers, header)
    for history in found.histories:
        history.remember(messages)
    for queue in found.queues:
        if not queue.deleted:
            queue.publish(messages, len(messages) * size)
