"""Length limits of a queue: how much more fits, and how much is too much.

Only ready messages count, and of their bytes only the bodies. A queue at its limit is not over it.

Source: https://www.rabbitmq.com/docs/maxlength
"""

from __future__ import annotations

from typing import Final

from leveret.policies.settings import QueueSettings
from leveret.storage.interface import MessageStore

#: More than any queue holds.
UNBOUNDED: Final = 1 << 62


class Limits:
    """The limits of one queue.

    Args:
        settings: What is in force on it.

    Attributes:
        refuses: New messages that do not fit are refused, rather than old ones dropped.
        dead_letters_refused: Refused messages are dead-lettered.
    """

    __slots__ = ("_max_bytes", "_max_messages", "dead_letters_refused", "refuses")

    def __init__(self, settings: QueueSettings) -> None:
        self._max_messages = UNBOUNDED if settings.max_length is None else settings.max_length
        self._max_bytes = UNBOUNDED if settings.max_length_bytes is None else settings.max_length_bytes
        self.refuses = settings.overflow != "drop-head"
        self.dead_letters_refused = settings.overflow == "reject-publish-dlx"

    def room(self, store: MessageStore, size: int) -> int:
        """How many more messages fit; 0 or less for none.

        Args:
            store: Holds what is there.
            size: Body bytes of each.
        """
        room = self._max_messages - store.ready_count
        free = self._max_bytes - store.ready_bytes
        if size:
            return min(room, free // size)
        # A message without a body fits as long as the bytes are not over the limit already.
        return room if free >= 0 else 0

    def excess_messages(self, store: MessageStore) -> int:
        """How many messages are too many; 0 or less if none is."""
        return store.ready_count - self._max_messages

    def excess_bytes(self, store: MessageStore) -> int:
        """How many body bytes are too many; 0 or less if none is."""
        return store.ready_bytes - self._max_bytes

    def exceeded(self, store: MessageStore) -> bool:
        """Whether the oldest messages must go."""
        return store.ready_count > self._max_messages or store.ready_bytes > self._max_bytes
