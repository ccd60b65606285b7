"""The values of the header x-deduplication-header that the messages of a queue have, ready and unacked ones.

Source: RabbitMQ's plugin rabbitmq_message_deduplication, observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from leveret.broker.core.deduplication.header_value import read_key
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message
from leveret.storage.stores.looking import place_of

#: Approximate memory of a value, in bytes: its key, and its place in a dictionary.
VALUE_BYTES: Final = 120


class QueuedValues:
    """Which values are in a queue.

    Attributes:
        is_active: Whether the queue drops duplicates. If not, there are no values.
        is_checked: Whether what is published next is known to be no duplicate; see has_to_check().
        is_incomplete: Whether messages that the queue had when it became active have to be entered.
        entering: Number of the last time that messages were to be entered: an older one has to end.
    """

    __slots__ = ("_counts", "_purged", "entering", "is_active", "is_checked", "is_incomplete")

    def __init__(self) -> None:
        self.is_active = False
        self.is_checked = False
        self.is_incomplete = False
        self.entering = 0
        #: How many messages have a value, by its key. More than one only if they were there before it was active.
        self._counts: dict[bytes, int] = {}
        #: By level of the store, the first number that was not purged.
        self._purged: Mapping[int, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def activate(self, has_messages: bool) -> None:
        """Begin to note values; messages that are there already have to be entered with add_found()."""
        self.is_active, self.is_incomplete = True, has_messages
        self.entering += 1

    def deactivate(self) -> None:
        """Forget all values."""
        self.is_active = self.is_incomplete = False
        self.entering += 1
        self.clear({})

    def has_to_check(self) -> bool:
        """Return whether messages that are being published may be duplicates; is_checked is reset."""
        is_checked, self.is_checked = self.is_checked, False
        return self.is_active and not is_checked

    def has(self, key: bytes) -> bool:
        """Return whether a message in the queue has a value."""
        return key in self._counts

    def add(self, key: bytes) -> None:
        """Note the value of a message that is about to be added, and that has() does not find."""
        self._counts[key] = 1

    def discard(self, key: bytes) -> None:
        """Forget the value of a message that was not added."""
        self._counts.pop(key, None)

    def add_found(self, message: Message) -> None:
        """Note the value of a message that was there before."""
        key = read_key(message.envelope.header)
        if key is not None:
            self._counts[key] = self._counts.get(key, 0) + 1

    def release(self, store: MessageStore, entries: Sequence[Entry]) -> None:
        """Make the values of messages free that leave the queue.

        Args:
            store: The store of the queue.
            entries: The messages.
        """
        counts = self._counts
        for entry in entries:
            key = read_key(entry[1].envelope.header)
            count = 0 if key is None else counts.get(key, 0)
            if key is None or not count or (self._purged and self._is_purged(store, entry)):
                continue
            if count > 1:
                counts[key] = count - 1
            else:
                del counts[key]

    def note_copies(self, store: MessageStore, entries: Sequence[Entry]) -> None:
        """Note the values of returned messages of which copies were appended: a copy is not one that was purged.

        Args:
            store: The store of the queue.
            entries: The messages, which still are in the store.
        """
        if self._purged:
            for entry in entries:
                if self._is_purged(store, entry):
                    self.add_found(entry[1])

    def release_waiting(self, message: Message) -> None:
        """Make the value of a message free that waits for its retry; it has come after the last purge."""
        key = read_key(message.envelope.header)
        count = 0 if key is None else self._counts.get(key, 0)
        if key is not None and count > 1:
            self._counts[key] = count - 1
        elif key is not None:
            self.discard(key)

    def clear(self, ends: Mapping[int, int]) -> None:
        """Make all values free, also those of unacked messages, because the queue is purged.

        Args:
            ends: By level of the store, the number of the next message.
        """
        self._counts, self._purged, self.is_incomplete = {}, ends, False
        self.entering += 1

    def _is_purged(self, store: MessageStore, entry: Entry) -> bool:
        """Return whether a message was there when the queue was purged: another one may have its value now."""
        level, number = place_of(store, entry)
        return number < self._purged.get(level, 0)
