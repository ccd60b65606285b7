"""Reads routing information and the expiration from the raw form of a message."""

from __future__ import annotations

from leveret.policies.arguments import MAX_TTL_MS
from leveret.protocol import properties
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, find
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope


def published_to(envelope: Envelope) -> tuple[str, str]:
    """Return exchange and routing key of a message; bytes that are not UTF-8 become surrogate escapes."""
    octets = envelope.route
    split = 1 + octets[0]
    exchange, routing_key = octets[1:split], octets[split + 1 :]
    return exchange.decode("utf-8", "surrogateescape"), routing_key.decode("utf-8", "surrogateescape")


def read_expiration(read: Properties) -> int | None:
    """Return the expiration in milliseconds, parsed as Erlang parses integers: an optional sign, then only digits.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    text = read.text(properties.EXPIRATION)
    if text is None:
        return None
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    digits = unsigned[: len(unsigned) - len(unsigned.lstrip("0123456789"))]
    rest = unsigned[len(digits) :]
    if not digits:
        reason = "no_integer"
    elif rest:
        reason = f'{{leftover_string,"{rest}"}}'
    else:
        # 19 digits are above the limit already; int() of thousands of digits would be slow.
        value = int(digits) if len(digits) < 4000 else MAX_TTL_MS + 1
        value = -value if text[0] == "-" else value
        if 0 <= value <= MAX_TTL_MS:
            return value
        reason = f"{{{'value_negative' if value < 0 else 'value_too_large'},{value}}}"
    raise precondition_failed(f"invalid expiration '{text}': {reason}")


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
