"""The header x-delay: how long an exchange x-delayed-message keeps a message.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from leveret.protocol import properties
from leveret.protocol.field_table import FLOAT_KINDS, INTEGER_KINDS, FieldTable, FieldValue, find, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.message import Envelope

#: Name of the header.
DELAY: Final = "x-delay"

#: Longest delay, in milliseconds: 100,000 years, which keeps all times within 64 bits.
DELAY_MAX: Final = 100_000 * 366 * 86_400_000
#: Digits that are read; more are longer than the longest delay.
_DIGITS_MAX: Final = 30


def read_delay(headers: FieldTable) -> int:
    """Return the delay of a message.

    Args:
        headers: Its headers. All integers count, fractions without what is behind the point, and strings that are a
            decimal integer, with a sign or without.
    Returns:
        Milliseconds, 1..DELAY_MAX; 0 if the message is not to be delayed: without the header, with one that is not
        positive, or that cannot be used.
    """
    field = find(headers, DELAY)
    if field is None:
        return 0
    milliseconds = 0
    if field.kind in INTEGER_KINDS or (field.kind in FLOAT_KINDS and isfinite(field.value)):
        milliseconds = int(field.value)
    elif field.kind == "S":
        milliseconds = _parse(field.value)
    return max(0, min(milliseconds, DELAY_MAX))


def published_delay(envelope: Envelope) -> int:
    """Return the delay with which a stored message was published, in milliseconds."""
    field = find(Properties(envelope.header).headers(), DELAY)
    return -field.value if field is not None and field.kind == "l" else 0


def mark_delayed(envelope: Envelope) -> tuple[int, Envelope]:
    """Return the delay of a message, and its envelope as it will be delivered.

    The header then has the negative delay, as in RabbitMQ since 3.13: so it is not delayed again where it is published
    again with the same headers.
    """
    read = Properties(envelope.header)
    headers = read.headers()
    delay = read_delay(headers)
    if not delay:
        return 0, envelope
    changed = tuple(
        (key, FieldValue("l", -delay) if key == DELAY else value) for key, value in sort_table(normalize(headers))
    )
    return delay, Envelope(
        envelope.route,
        read.replaced({properties.HEADERS: encode_headers(changed)}),
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.dead,
        envelope.blind_keys,
        envelope.delivery_count,
    )


def _parse(octets: bytes) -> int:
    """Return the value of a decimal integer; 0 for other strings."""
    digits = octets[1:] if octets[:1] in (b"+", b"-") else octets
    if not digits.isdigit() or octets[:1] == b"-":
        return 0
    return int(digits) if len(digits) <= _DIGITS_MAX else DELAY_MAX
