"""Messages as JSON."""

from __future__ import annotations

import base64
from codecs import getincrementaldecoder
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from leveret.broker.core.delays.schedule import WaitingMessage
from leveret.broker.core.delays.waiting_messages import published_delay
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.messages import published_to
from leveret.broker.core.queues.browsing import Browsed
from leveret.broker.management.http.responses import encode
from leveret.protocol.properties import Properties
from leveret.storage.interface import Entry

#: Bytes of a body that are encoded at once; a multiple of three, for base64.
_WINDOW: Final = 49_152
_Utf8Decoder: Final = getincrementaldecoder("utf-8")


def properties_document(header: bytes) -> Any:
    """Return the properties of a message; as in RabbitMQ, none are an empty list."""
    properties = Properties(header).as_dict()
    if "headers" in properties:
        properties["headers"] = table_to_json(properties["headers"])
    return properties or []


def message_text(document: Mapping[str, Any], body: bytes, as_base64: bool, truncate: int | None) -> Iterator[str]:
    """Return a message as JSON, in pieces that are short however long the body is; some are empty.

    Args:
        document: The message without its body; not empty.
        body: The body, which follows as text, with its encoding.
        as_base64: Whether to encode it even if it is UTF-8.
        truncate: Number of bytes after which it is cut off; None for all.
    """
    shown = memoryview(body)[:truncate]
    windows = [shown[start : start + _WINDOW] for start in range(0, len(shown), _WINDOW)]
    is_text = not as_base64 and (yield from _is_utf8(windows))
    yield f'{encode(document)[:-1]},"payload":"'
    decoder = _Utf8Decoder()
    for window in windows:
        yield encode(decoder.decode(window))[1:-1] if is_text else base64.b64encode(window).decode("ascii")
    yield f'","payload_encoding":"{"string" if is_text else "base64"}"}}'


def _is_utf8(windows: list[memoryview]) -> Generator[str, None, bool]:
    """Check a body window by window, with an empty piece of text for each."""
    decoder = _Utf8Decoder()
    try:
        for window in windows:
            decoder.decode(window)
            yield ""
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def waiting_document(waiting: WaitingMessage, has_delay: bool = True) -> dict[str, Any]:
    """Return a message that waits, without its body.

    Args:
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


def got_document(entry: Entry, left: int) -> dict[str, Any]:
    """Return a message that was got, without its body.

    Args:
        left: Number of messages that are ready after it.
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
    }


def browsed_document(found: Browsed, now: int) -> dict[str, Any]:
    """Return a message that was looked at, without its body.

    Args:
        now: Microseconds since 1970.
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
    }
