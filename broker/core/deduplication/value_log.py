"""The values that an exchange remembers, on disk: so a restart does not forget them.

A value is written when its message is on disk, and before that is confirmed. So a message that a publisher sends again,
because the broker was killed before the confirm, is a duplicate only if the first one is there; after a confirm it
always is. Values are synced with what is written next, within about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from leveret.broker.core.deduplication.header_values import NEVER, RememberedValues
from leveret.broker.core.message_stores import SyncWaiter, WriteFailures
from leveret.broker.core.scheduling.timers import Timers
from leveret.protocol.properties import encode_content_header
from leveret.storage.backings import LevelBacking
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, StoredMessage, TimedMessage
from leveret.storage.stores.numbered_store import scan_all

#: What all records have in common; their bodies are the keys.
_ENVELOPE: Final = Envelope(b"\x00\x00", encode_content_header(0), persistent=True)
#: Records that are read together at a start.
_READ: Final = 4096
#: Records beyond those that are needed, after which the oldest ones are removed; at least, and by values.
_SURPLUS: Final = 4096
_SURPLUS_SHARE: Final = 2
#: The largest number of records removed at once.
_REMOVE: Final = 2048
_ALL_BYTES: Final = 1 << 62
#: Seconds until values are written again whose messages could not be.
_RETRY_SECONDS: Final = 1.0


class Sync(Protocol):
    """Tells when messages are on disk; see MessageStores."""

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""


class ValueLog:
    """Appends values to a store, and removes the oldest records when most are not needed any more.

    Implements SyncWaiter.

    Args:
        backing: The store.
        stores: Tells when messages are on disk.
        offset: Returns what is added to the expiry of a value to get the time of the system's clock.
    """

    __slots__ = (
        "_is_closed", "_is_waiting", "_offset", "_pending", "_stores", "_timers", "_unwritten", "_values", "backing",
    )  # fmt: skip

    def __init__(
        self, backing: LevelBacking, values: RememberedValues, stores: Sync, timers: Timers, offset: Callable[[], int]
    ) -> None:
        self.backing = backing
        self._values = values
        self._stores = stores
        self._timers = timers
        self._offset = offset
        #: Values of this turn, by key.
        self._pending: dict[bytes, int] = {}
        #: Keys of values whose messages are not known to be on disk.
        self._unwritten: set[bytes] = set()
        self._is_waiting = False
        self._is_closed = False

    def load(self, size: int) -> None:
        """Remember what is in the store, up to a number of values.

        The records are gone through as they were written, so that the same values have made room for others.

        Raises:
            UnreadableFileError: The system cannot read them.
        """
        values, offset = self._values, self._offset()
        for entries in scan_all(self.backing.store, _READ):
            for _, record, _ in entries:
                arrived = record.arrived_at if isinstance(record, StoredMessage) else 0
                values.drop_expired(arrived - offset, _READ)
                values.remove(record.body)
                while len(values) >= size:
                    values.drop_oldest()
                values.add(record.body, record.expires_at - offset if record.expires_at else NEVER)

    def add(self, key: bytes, expiry: int) -> None:
        """Write a value as soon as the messages of this turn are on disk."""
        self._pending[key] = expiry
        self._unwritten.add(key)
        if not self._is_waiting:
            self._is_waiting = True
            self._stores.await_sync(self)

    def remove(self, key: bytes) -> None:
        """Do not write a value of this turn: its message was refused."""
        self._pending.pop(key, None)
        self._unwritten.discard(key)

    def write_all(self) -> Iterator[None]:
        """Write all that is remembered now, in steps."""
        keys = list(self._values.expiries)
        for at in range(0, len(keys), _REMOVE):
            if self._is_closed:
                return
            live: dict[bytes, int] = {}
            for key in keys[at : at + _REMOVE]:
                expiry = self._values.expiries.get(key, 0)
                if expiry:
                    live[key] = expiry
            self._append(live)
            yield

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Handle the write of this turn's messages."""
        self._is_waiting = False
        if self._is_closed:
            return None
        if failures.any:
            self._timers.call_later(_RETRY_SECONDS, self._retry)
            return None
        pending, self._pending = self._pending, {}
        return partial(self._synced, pending)

    def delete(self) -> None:
        """Delete the store."""
        self._is_closed = True
        self._pending.clear()
        self._unwritten.clear()
        self.backing.delete()

    def _retry(self) -> None:
        if self._pending and not self._is_waiting and not self._is_closed:
            self._is_waiting = True
            self._stores.await_sync(self)

    def _synced(self, pending: dict[bytes, int]) -> None:
        """Write values whose messages are on disk. The confirms of these follow."""
        if not self._is_closed and pending:
            self._unwritten.difference_update(pending)
            self._append(pending)
            self.backing.write()

    def _append(self, values: dict[bytes, int]) -> None:
        offset = self._offset()
        records = [
            TimedMessage(_ENVELOPE, key, 0 if expiry == NEVER else expiry + offset) for key, expiry in values.items()
        ]
        store = self.backing.store
        if records:
            store.append(records, sum([len(record.body) for record in records]))
        surplus = store.ready_count - len(self._values)
        if surplus > _SURPLUS + len(self._values) // _SURPLUS_SHARE:
            self._remove_oldest(min(_REMOVE, 2 * len(records) + 64))

    def _remove_oldest(self, count: int) -> None:
        """Remove the oldest records; values among them that are remembered are written again."""
        store, offset = self.backing.store, self._offset()
        entries: list[Entry] = store.take(count, _ALL_BYTES)[0]
        again: list[TimedMessage] = []
        for _, record, _ in entries:
            expiry = self._values.expiries.get(record.body, 0)
            if expiry and record.body not in self._unwritten:
                again.append(TimedMessage(_ENVELOPE, record.body, 0 if expiry == NEVER else expiry + offset))
        if again:
            store.append(again, sum([len(record.body) for record in again]))
        store.settle(entries, EventKind.FORGOTTEN)
