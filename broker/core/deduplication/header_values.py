"""The values of x-deduplication-header: how they are read, and which ones an exchange remembers or a queue contains.

Source: RabbitMQ's plugin rabbitmq_message_deduplication, observed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import Final

from leveret.protocol.header_scan import locate_header
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message

#: Name of the header by which messages are compared.
DEDUPLICATION_HEADER: Final = "x-deduplication-header"
#: Name of the header with the time for which its value is remembered.
TTL_HEADER: Final = "x-cache-ttl"

#: Length of a value's key: 120 bits, which makes a Python object of 48 bytes, without any room left over.
KEY_BYTES: Final = 15

_VALUE_NAME: Final = bytes((len(DEDUPLICATION_HEADER),)) + DEDUPLICATION_HEADER.encode()
_TTL_NAME: Final = bytes((len(TTL_HEADER),)) + TTL_HEADER.encode()
_U32: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct(">d")
#: Integers, also timestamps, by type letter; L is read as signed, as in RabbitMQ.
_INTEGERS: Final = {
    ord(letter): struct.Struct(form)
    for letter, form in {
        "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q", "T": ">Q",
    }.items()
}  # fmt: skip
_FLOATS: Final = {ord("f"): struct.Struct(">f"), ord("d"): struct.Struct(">d")}
_STRINGS: Final = b"Sx"
_CONTAINERS: Final = b"AF"
_BOOLEAN: Final = ord("t")
_TIMESTAMP: Final = ord("T")
_DECIMAL: Final = ord("D")
_DECIMAL_BYTES: Final = 5

#: Of all queues whose values have not been cleared.
_NONE_PURGED: Final[Mapping[int, int]] = {}


def read_key(header: bytes) -> bytes | None:
    """Return a short key of the header's value, so that equal keys mean equal values; None without the header.

    Equal are integers of all widths, S and x, f and d. Otherwise values of different types differ.

    Args:
        header: The content header of a message.
    """
    at = locate_header(header, _VALUE_NAME)
    if at < 0:
        return None
    kind, start = header[at], at + 1
    if kind in _STRINGS:
        plain = b"S" + header[start + 4 : start + 4 + _length(header, start)]
    elif kind in _INTEGERS:
        plain = b"I%d" % _INTEGERS[kind].unpack_from(header, start)[0]
    elif kind in _FLOATS:
        # Both zeros are equal.
        plain = b"d" + _DOUBLE.pack(_FLOATS[kind].unpack_from(header, start)[0] + 0.0)
    elif kind in _CONTAINERS:
        plain = header[at : start + 4 + _length(header, start)]
    elif kind == _BOOLEAN:
        plain = b"t" if header[start] else b"f"
    elif kind == _DECIMAL:
        plain = header[at : start + _DECIMAL_BYTES]
    else:
        # Void counts as a value.
        plain = b"V"
    return blake2b(plain, digest_size=KEY_BYTES).digest()


def read_ttl(header: bytes) -> int | None:
    """Return for how long a message's value is remembered.

    Args:
        header: The content header of a message.
    Returns:
        Milliseconds, a fraction without what is behind the point; None without the header or if it is not a number.
        Those of 0 and below are not remembered.
    """
    at = locate_header(header, _TTL_NAME)
    if at < 0:
        return None
    kind = header[at]
    if kind in _INTEGERS and kind != _TIMESTAMP:
        return int(_INTEGERS[kind].unpack_from(header, at + 1)[0])
    if kind in _FLOATS:
        milliseconds: float = _FLOATS[kind].unpack_from(header, at + 1)[0]
        return int(milliseconds) if isfinite(milliseconds) else None
    return None


def _length(header: bytes, at: int) -> int:
    length: int = _U32.unpack_from(header, at)[0]
    return length


#: The expiry of a value that does not expire.
NEVER: Final = (1 << 62) - 1
#: Surplus entries beyond those of the values after which an index is rebuilt.
_SURPLUS: Final = 1024


class RememberedValues:
    """Values with expiry times, in the order in which they were remembered. Times are of one clock, in microseconds.

    A value takes about 100 bytes: 48 for the key, the rest for its place in a dictionary and in the order. One that
    expires takes about 170, and 200 if it expires before one that was remembered earlier: it is in a heap, too.

    Attributes:
        expiries: When each value is forgotten, by key, oldest first.
    """

    __slots__ = ("_holes", "_hole_count", "_latest", "_order", "_sooner", "expiries")

    def __init__(self) -> None:
        self.expiries: dict[bytes, int] = {}
        #: The keys again: a dictionary finds its first key slowly once many before it have been removed.
        self._order: deque[bytes] = deque()
        #: How often a key is in the order without a value: it was forgotten before older ones.
        self._holes: dict[bytes, int] = {}
        self._hole_count = 0
        #: The latest expiry so far; values that expire then or later expire in order.
        self._latest = 0
        #: Expiry and key of the others.
        self._sooner: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.expiries)

    def has(self, key: bytes, now: int) -> bool:
        """Return whether a value is remembered."""
        return self.expiries.get(key, 0) > now

    def add(self, key: bytes, expiry: int) -> None:
        """Remember a value, which has() does not find.

        Args:
            key: Key of the value.
            expiry: When it is forgotten; NEVER for never.
        """
        if key in self.expiries:
            # It has expired, and nothing has removed it yet.
            self.remove(key)
        self.expiries[key] = expiry
        self._order.append(key)
        if expiry >= self._latest:
            self._latest = expiry
            return
        heappush(self._sooner, (expiry, key))
        if len(self._sooner) > 2 * len(self.expiries) + _SURPLUS:
            self._sooner = [(expiry, key) for key, expiry in self.expiries.items() if expiry != NEVER]
            heapify(self._sooner)

    def remove(self, key: bytes) -> None:
        """Forget a value, if it is remembered."""
        if self.expiries.pop(key, 0):
            self._holes[key] = self._holes.get(key, 0) + 1
            self._hole_count += 1
            if self._hole_count > len(self.expiries) + _SURPLUS:
                self._order = deque(self.expiries)
                self._holes.clear()
                self._hole_count = 0

    def drop_oldest(self) -> None:
        """Forget the oldest value. There must be one."""
        self._skip_holes()
        del self.expiries[self._order.popleft()]
        self._reset_if_empty()

    def drop_expired(self, now: int, count: int) -> bool:
        """Forget values that have expired.

        Args:
            now: The time.
            count: Maximum number of steps.
        Returns:
            Whether all are forgotten.
        """
        sooner, expiries = self._sooner, self.expiries
        while sooner and sooner[0][0] <= now:
            if count <= 0:
                return False
            count -= 1
            expiry, key = heappop(sooner)
            # It may have been forgotten, and remembered again for longer.
            if expiries.get(key, 0) == expiry:
                self.remove(key)
        self._skip_holes()
        while self._order and expiries[self._order[0]] <= now:
            if count <= 0:
                return False
            count -= 1
            del expiries[self._order.popleft()]
            self._skip_holes()
        self._reset_if_empty()
        return True

    def next_expiry(self) -> int:
        """Return when the next value may expire; NEVER if none does."""
        self._skip_holes()
        first = self.expiries[self._order[0]] if self._order else NEVER
        return min(first, self._sooner[0][0]) if self._sooner else first

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Return keys and expiries of all values, oldest first."""
        return iter(self.expiries.items())

    def _skip_holes(self) -> None:
        """Remove places without a value from the front of the order."""
        order, holes = self._order, self._holes
        while order and holes:
            count = holes.get(order[0], 0)
            if not count:
                return
            key = order.popleft()
            self._hole_count -= 1
            if count > 1:
                holes[key] = count - 1
            else:
                del holes[key]

    def _reset_if_empty(self) -> None:
        if not self.expiries:
            # A dictionary that was large stays so until then.
            self.expiries = {}
            self._order.clear()
            self._holes.clear()
            self._sooner.clear()
            self._hole_count = self._latest = 0


#: Approximate memory of a value, in bytes: its key, and its place in a dictionary.
VALUE_BYTES: Final = 120


class QueuedValues:
    """Which values are in a queue.

    Attributes:
        is_active: Whether the queue drops duplicates. If not, there are no values.
        is_incomplete: Whether messages that the queue had when it became active have to be entered.
        entering: Number of the last time that messages were to be entered: an older one has to end.
    """

    __slots__ = ("_counts", "_purged", "entering", "is_active", "is_incomplete")

    def __init__(self) -> None:
        self.is_active = False
        self.is_incomplete = False
        self.entering = 0
        #: How many messages have a value, by its key. More than one only if they were there before it was active.
        self._counts: dict[bytes, int] = {}
        #: By level of the store, the first number that was not purged.
        self._purged: Mapping[int, int] = _NONE_PURGED

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
        level, number = store.place_of(entry)
        return number < self._purged.get(level, 0)
