"""Reads routing information from the raw form of a message."""

from __future__ import annotations

from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, find
from leveret.storage.message import Envelope


def published_to(envelope: Envelope) -> tuple[str, str]:
    """Return exchange and routing key of a message; bytes that are not UTF-8 become surrogate escapes."""
    octets = envelope.route
    split = 1 + octets[0]
    exchange, routing_key = octets[1:split], octets[split + 1 :]
    return exchange.decode("utf-8", "surrogateescape"), routing_key.decode("utf-8", "surrogateescape")


def read_extra_keys(headers: FieldTable, name: str) -> list[str]:
    """Return the routing keys of a CC or BCC header; elements that are not strings are skipped.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    field = find(headers, name)
    if field is None:
        return []
    if field.kind != "A":
        kind = TYPE_NAMES[field.kind]
        raise precondition_failed(f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}')
    return [element.value.decode("utf-8", "surrogateescape") for element in field.value if element.kind == "S"]
