"""Queues with length limits: declares them, publishes with confirms, and reads their dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pamqp import commands

from tests.conformance.deaths import deaths
from tests.conformance.fixtures import Unique
from tests.conformance.topology import new_queue
from tests.support import content, methods
from tests.support.tables import Triple
from tests.support.wire import BODY, HEADER, METHOD, Channel, frame

REJECTING = ("reject-publish", "reject-publish-dlx")
QUORUM: Triple = ("x-queue-type", "S", "quorum")


def limits(
    length: int | None = None,
    size: int | None = None,
    overflow: str | None = None,
    *,
    letters: str | None = None,
    priority: int | None = None,
) -> list[Triple]:
    arguments: list[Triple] = []
    if length is not None:
        arguments.append(("x-max-length", "l", length))
    if size is not None:
        arguments.append(("x-max-length-bytes", "l", size))
    if overflow is not None:
        arguments.append(("x-overflow", "S", overflow))
    if priority is not None:
        arguments.append(("x-max-priority", "I", priority))
    if letters is not None:
        arguments += [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", letters)]
    return arguments


def bounded(channel: Channel, unique: Unique, *limited: Any, **given: Any) -> str:
    """Declare a queue with a new name and `limits`; return the name."""
    return new_queue(channel, unique, arguments=limits(*limited, **given))


def quorum(channel: Channel, unique: Unique, *limited: Any, arguments: Sequence[Triple] = (), **given: Any) -> str:
    """Declare a quorum queue with a new name, `limits` and further arguments; return the name."""
    return new_queue(channel, unique, arguments=[QUORUM, *limits(*limited, **given), *arguments], durable=True)


def outcomes(
    channel: Channel,
    routing_key: str,
    *bodies: bytes,
    exchange: str = "",
    properties: Mapping[str, Any] | bytes | None = None,
) -> list[bool]:
    """Publish messages in one write, in confirm mode on a new channel."""
    publisher = channel.connection.channel()
    publisher.confirm_select()
    in_one_write(publisher, routing_key, *bodies, exchange=exchange, properties=properties)
    settled = publisher.wait_for_confirms(len(bodies))
    publisher.close()
    return settled


def in_one_write(
    channel: Channel,
    routing_key: str,
    *bodies: bytes,
    exchange: str = "",
    properties: Mapping[str, Any] | bytes | None = None,
) -> None:
    """Publish messages with as little delay between them as possible."""
    encoded = properties if isinstance(properties, bytes) else content.properties(**(properties or {}))
    publish = methods.payload(commands.Basic.Publish, exchange=exchange, routing_key=routing_key)
    out = []
    for body in bodies:
        out += [(METHOD, publish), (HEADER, content.header(len(body), encoded))]
        out += [(BODY, body)] if body else []
    channel.connection.wire.send_bytes(b"".join(frame(kind, channel.number, payload) for kind, payload in out))


def refill(channel: Channel, queue: str, *bodies: bytes, **properties: Any) -> None:
    """Publish messages, and assert that all are acked; the queue has processed them afterwards."""
    assert all(outcomes(channel, queue, *bodies, properties=properties))


def take_dead_letters(channel: Channel, letters: str) -> list[tuple[bytes, str]]:
    """Take all messages of a queue of dead letters; return body and reason of the latest death, in order.

    Make sure first that the original queue has processed its requests, as a dead letter is only then on its way.
    """
    found = []
    while (delivery := channel.get(letters, no_ack=True)) is not None:
        found.append((delivery.body, deaths(delivery)[0]["reason"]))
    return found
