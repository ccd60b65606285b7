"""Messages as JSON."""

from __future__ import annotations

import base64
from typing import Any

from leveret.broker.core.delays.delay_header import published_delay
from leveret.broker.core.delays.waiting import WaitingMessage
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.messages.published import published_to
from leveret.protocol.properties import Properties


def properties_document(header: bytes) -> Any:
    """Return the properties of a message; as in RabbitMQ, none are an empty list.

    Args:
        header: The content header.
    """
    properties = Properties(header).as_dict()
    if "headers" in properties:
        properties["headers"] = table_to_json(properties["headers"])
    return properties or []


def payload_document(body: bytes, as_base64: bool, truncate: int | None) -> dict[str, str]:
    """Return a body as text, with its encoding.

    Args:
        body: The body.
        as_base64: Whether to encode it even if it is UTF-8.
        truncate: Number of bytes after which it is cut off; None for all.
    """
    shown = body if truncate is None else body[:truncate]
    if not as_base64:
        try:
            return {"payload": shown.decode("utf-8"), "payload_encoding": "string"}
        except UnicodeDecodeError:
            pass
    return {"payload": base64.b64encode(shown).decode("ascii"), "payload_encoding": "base64"}


def waiting_document(waiting: WaitingMessage) -> dict[str, Any]:
    """Return a message that waits in a delayed exchange, without its body."""
    envelope = waiting.message.envelope
    exchange, routing_key = published_to(envelope)
    return {
        "id": waiting.number,
        # A message is never early, so the time is rounded up.
        "due": -(-waiting.due // 1000),
        "delay": published_delay(envelope),
        "exchange": exchange,
        "routing_key": routing_key,
        "payload_bytes": len(waiting.message.body),
        "properties": properties_document(envelope.header),
    }
