"""Messages as JSON."""

from __future__ import annotations

import base64
from typing import Any

from leveret.broker.core.delays.delay_header import published_delay
from leveret.broker.core.delays.schedule import WaitingMessage
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.messages.published import published_to
from leveret.broker.core.queues.browsing import Browsed
from leveret.protocol.properties import Properties
from leveret.storage.interface import Entry


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


def waiting_document(waiting: WaitingMessage, has_delay: bool = True) -> dict[str, Any]:
    """Return a message that waits, without its body.

    Args:
        waiting: The message.
        has_delay: Whether it says how long it waits, as in a delayed exchange.
    """
    envelope = waiting.message.envelope
    exchange, routing_key = published_to(envelope)
    return {
        "id": waiting.number,
        # A message is never early, so the time is rounded up.
        "due": -(-waiting.due // 1000),
        **({"delay": published_delay(envelope)} if has_delay else {}),
        "exchange": exchange,
        "routing_key": routing_key,
        "payload_bytes": len(waiting.message.body),
        "properties": properties_document(envelope.header),
    }


def got_document(entry: Entry, left: int, as_base64: bool, truncate: int | None) -> dict[str, Any]:
    """Return a message that was got.

    Args:
        entry: The message.
        left: Number of messages that are ready after it.
        as_base64: See payload_document().
        truncate: See payload_document().
    """
    _, message, redelivered = entry
    exchange, routing_key = published_to(message.envelope)
    return {
        "payload_bytes": len(message.body),
        "redelivered": redelivered,
        "exchange": exchange,
        "routing_key": routing_key,
        "message_count": left,
        "properties": properties_document(message.envelope.header),
        **payload_document(message.body, as_base64, truncate),
    }


def browsed_document(found: Browsed, now: int, as_base64: bool, truncate: int | None) -> dict[str, Any]:
    """Return a message that was looked at.

    Args:
        found: The message.
        now: Microseconds since 1970.
        as_base64: See payload_document().
        truncate: See payload_document().
    """
    exchange, routing_key = published_to(found.message.envelope)
    return {
        "place": str(found.place),
        "state": "delayed" if found.due else "ready" if found.is_ready else "unacked",
        # A message is never early, so the time is rounded up.
        "due": -(-found.due // 1000) or None,
        "redelivered": found.redelivered,
        "arrived": found.arrived // 1000 or None,
        "age": round(max(0, now - found.arrived) / 1_000_000, 3) if found.arrived else None,
        "exchange": exchange,
        "routing_key": routing_key,
        "payload_bytes": len(found.message.body),
        "properties": properties_document(found.message.envelope.header),
        **payload_document(found.message.body, as_base64, truncate),
    }
