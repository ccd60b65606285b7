"""Length limits of a queue.

Only ready messages count, and only the bytes of their bodies. A queue at its limit does not exceed it.

Source: https://www.rabbitmq.com/docs/maxlength
"""

from __future__ import annotations

from typing import Final

from leveret.policies.settings import QueueSettings
from leveret.storage.interface import MessageStore

#: A limit above the length of any queue.
UNBOUNDED: Final = 1 << 62


class Limits:
    """The limits of one queue.

    Args:
        settings: Effective settings of the queue.

    Attributes:
        refuses: Whether new messages are refused at the limit, instead of dropping the oldest.
        dead_letters_refused: Whether refused messages are dead-lettered.
    """

    __slots__ = ("_max_bytes", "_max_messages", "dead_letters_refused", "refuses")

    def __init__(self, settings: QueueSettings) -> None:
        self._max_messages = UNBOUNDED if settings.max_length is None else settings.max_length
        self._max_bytes = UNBOUNDED if settings.max_length_bytes is None else settings.max_length_bytes
        self.refuses = settings.overflow != "drop-head"
        self.dead_letters_refused = settings.overflow == "reject-publish-dlx"

    def room(self, store: MessageStore, size: int) -> int:
        """Return how many more messages fit; 0 or less for none.

        Args:
            store: The store of the queue.
            size: Body size of each new message, in bytes.
        """
        room = self._max_messages - store.ready_count
        free = self._max_bytes - store.ready_bytes
        if size:
            return min(room, free // size)
        # A message with an empty body fits unless the byte limit is exceeded already.
        return room if free >= 0 else 0

    def excess_messages(self, store: MessageStore) -> int:
        """Return the number of messages above the limit; 0 or less if there are none."""
        return store.ready_count - self._max_messages

    def excess_bytes(self, store: MessageStore) -> int:
        """Return the number of body bytes above the limit; 0 or less if there are none."""
        return store.ready_bytes - self._max_bytes

    def exceeded(self, store: MessageStore) -> bool:
        """Check whether a limit is exceeded."""
        return store.ready_count > self._max_messages or store.ready_bytes > self._max_bytes
