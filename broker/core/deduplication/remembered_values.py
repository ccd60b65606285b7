"""The values that an exchange x-message-deduplication remembers: each for some time, and only the newest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

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
