"""How long a message may wait, and which ones have waited too long.

Source: https://www.rabbitmq.com/docs/ttl
"""

from __future__ import annotations

from leveret.policies.settings import QueueSettings
from leveret.storage.interface import Entry
from leveret.storage.message import Message


def split_expired(entries: list[Entry], now: int) -> tuple[list[Entry], list[Entry]]:
    """Divide a run into those that may be delivered, and those that have expired behind its head.

    Args:
        entries: Taken from a store.
        now: Microseconds since 1970.
    """
    expired = [entry for entry in entries if 0 < entry[1].expires_at <= now]
    return [entry for entry in entries if not 0 < entry[1].expires_at <= now] if expired else entries, expired


def time_to_live(message: Message, settings: QueueSettings) -> int | None:
    """Milliseconds that a new message may wait: the less of its own limit and the queue's."""
    own, common = message.envelope.expiration_ms, settings.message_ttl
    if own is None or common is None:
        return common if own is None else own
    return min(own, common)
