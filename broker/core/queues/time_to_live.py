"""Time to live of messages.

Source: https://www.rabbitmq.com/docs/ttl
"""

from __future__ import annotations

from leveret.policies.settings import QueueSettings
from leveret.storage.interface import Entry
from leveret.storage.message import Message


def split_expired(entries: list[Entry], now: int) -> tuple[list[Entry], list[Entry]]:
    """Split entries into those that are deliverable and those that have expired.

    Args:
        entries: Entries taken from a store.
        now: Current time in microseconds since 1970.
    """
    expired = [entry for entry in entries if 0 < entry[1].expires_at <= now]
    return [entry for entry in entries if not 0 < entry[1].expires_at <= now] if expired else entries, expired


def time_to_live(message: Message, settings: QueueSettings) -> int | None:
    """Return the TTL of a new message in milliseconds: the lower of its expiration and the queue's message-ttl."""
    own, common = message.envelope.expiration_ms, settings.message_ttl
    if own is None or common is None:
        return common if own is None else own
    return min(own, common)
