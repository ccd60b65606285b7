"""Publishes messages to queues and reads their content, for tests of queues without sessions."""

from __future__ import annotations

from typing import Any

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr, plain_values
from leveret.protocol.properties import Properties, encode_content_header, encode_headers, encode_text
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message


def arguments(**values: Any) -> FieldTable:
    """Return queue arguments from names without `x-` and with _ for -; strings are longstr, integers long."""
    return tuple(
        (f"x-{name.replace('_', '-')}", longstr(value) if isinstance(value, str) else FieldValue("l", value))
        for name, value in values.items()
    )


def envelope(
    key: str = "q",
    *,
    exchange: str = "",
    headers: FieldTable = (),
    expiration: int | None = None,
    priority: int = 0,
    persistent: bool = False,
    blind_keys: tuple[str, ...] = (),
) -> Envelope:
    """Return an envelope; an expiration in milliseconds is also set as a property."""
    values: dict[int, bytes] = {}
    if headers:
        values[properties.HEADERS] = encode_headers(headers)
    if expiration is not None:
        values[properties.EXPIRATION] = encode_text(str(expiration))
    route = encode_shortstr(exchange) + encode_shortstr(key)
    header = encode_content_header(0, values)
    return Envelope(route, header, persistent, priority, expiration, blind_keys=blind_keys)


def publish(queue: Queue, *texts: str, **options: Any) -> int:
    """Publish messages of equal size as a run, with the options of `envelope`; return how many were accepted."""
    common = envelope(**{"key": queue.name} | options)
    messages = [Message(common, text.encode()) for text in texts]
    return queue.publish(messages, sum(map(len, texts)))


def drain(queue: Queue) -> list[Message]:
    """Take all ready messages, settle and return them."""
    assert isinstance(queue, ClassicQueue)
    found = []
    while (entry := queue.get(None)) is not None:
        found.append(entry[1])
    return found


def texts(messages: list[Message]) -> list[str]:
    """Return the bodies of messages as text."""
    return [message.body.decode() for message in messages]


def contents(queue: Queue) -> list[str]:
    """Take all ready messages, settle them and return their bodies."""
    return texts(drain(queue))


def headers_of(message: Message) -> FieldTable:
    """Return the headers of a message."""
    return Properties(message.envelope.header).headers()


def deaths(message: Message) -> list[tuple[str, str, int]]:
    """Return queue, reason and count of the entries of x-death, newest first."""
    found = find(headers_of(message), "x-death")
    if found is None:
        return []
    plain = [plain_values(entry.value) for entry in found.value]
    return [(entry["queue"], entry["reason"], entry["count"]) for entry in plain]


def route_of(message: Message) -> tuple[str, str]:
    """Return exchange and routing key of a message."""
    octets = message.envelope.route
    split = 1 + octets[0]
    return octets[1:split].decode(), octets[split + 1 :].decode()
