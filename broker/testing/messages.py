"""Messages as tests see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.messages.origin import published_to
from leveret.broker.core.queues.browsing import Browser
from leveret.broker.core.queues.queue import Queue
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope

#: Bytes of a body that its representation shows.
_SHOWN_BYTES: Final = 100


@dataclass(frozen=True, repr=False)
class PublishedMessage:
    """A message as it was published.

    Attributes:
        exchange: The exchange that it was published to; "" is the default exchange.
        routing_key: Its routing key.
        body: Its body.
        properties: Its properties by name, without the headers.
        headers: Its headers.
    """

    exchange: str
    routing_key: str
    body: bytes
    properties: dict[str, Any]
    headers: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The body as UTF-8.

        Raises:
            UnicodeDecodeError: It is something else.
        """
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Return the value that the body has as JSON.

        Raises:
            ValueError: It is not JSON.
        """
        return json.loads(self.body)

    def __repr__(self) -> str:
        shown = repr(self.body[:_SHOWN_BYTES]) + (
            f"… ({len(self.body)} bytes)" if len(self.body) > _SHOWN_BYTES else ""
        )
        about = [shown, f"exchange={self.exchange!r}", f"routing_key={self.routing_key!r}", *self._details()]
        return f"<{type(self).__name__} {' '.join(about)}>"

    def _details(self) -> Iterator[str]:
        yield from (f"{name}={value!r}" for name, value in self.properties.items())
        if self.headers:
            yield f"headers={self.headers!r}"


@dataclass(frozen=True, repr=False)
class QueuedMessage(PublishedMessage):
    """A message in a queue.

    Attributes:
        is_ready: Whether it is ready; otherwise it has been delivered and is not acknowledged, or waits for its retry.
        redelivered: Whether it may have been delivered before.
    """

    is_ready: bool
    redelivered: bool

    def _details(self) -> Iterator[str]:
        yield from super()._details()
        if not self.is_ready:
            yield "unacked"
        elif self.redelivered:
            yield "redelivered"


def read_published(envelope: Envelope, body: bytes) -> PublishedMessage:
    """Return a message as it was published."""
    return PublishedMessage(*published_to(envelope), body, *_read_header(envelope.header))


def read_queue(queue: Queue) -> list[QueuedMessage]:
    """Return the messages of a queue, ready and unacked, without taking them."""
    return [
        QueuedMessage(
            *published_to(found.message.envelope),
            found.message.body,
            *_read_header(found.message.envelope.header),
            found.is_ready,
            found.redelivered,
        )
        for step in Browser(queue).steps()
        for found in step
    ]


def _read_header(header: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the properties without headers, and the headers."""
    properties = Properties(header)
    return properties.as_dict(with_headers=False), table_to_json(properties.headers())
