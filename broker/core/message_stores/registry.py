"""The message stores of all queues of a broker; the base class of those in a data directory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from leveret.broker.core.message_stores.backing import Backing, QueueBacking, StoreRequest, memory_store
from leveret.broker.core.message_stores.numbered_backing import NumberedBacking
from leveret.broker.core.message_stores.value_backing import ValueBacking
from leveret.storage.compiler_hints import mypyc_attr
from leveret.storage.disk.files import FileCounts
from leveret.storage.event_details import EventDetails
from leveret.storage.readers.named_readers import ReaderCounts, ReaderState


class Backed(Protocol):
    """A queue, or an exchange with delayed messages, as far as its messages may have failed to be written."""

    @property
    def stored(self) -> Backing:
        """Where its messages are kept."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteFailures:
    """Which messages of a turn could not be written.

    Args:
        stores: The stores that could not be written.

    Attributes:
        any: Whether there are such messages. Normally not, so that queues need not be checked one by one.
    """

    __slots__ = ("_stores", "any")

    def __init__(self, stores: Collection[object] = ()) -> None:
        self._stores = stores
        self.any: Final = bool(stores)

    def concern(self, queues: Collection[Backed]) -> bool:
        """Return whether messages of any of these queues could not be written."""
        return self.any and any(store in self._stores for queue in queues for store in queue.stored.stores())


_NO_FAILURES: Final = WriteFailures()


class SyncWaiter(Protocol):
    """An object that waits until the messages of this turn are on disk, for example to send confirms."""

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Handle the write of this turn's messages.

        Args:
            failures: What could not be written.
        Returns:
            Called once they are synced; None if nothing waits for that.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class MessageStores:
    """Keeps all messages in memory. Nothing has to be synced.

    Args:
        file_counts: Counts reads, writes and syncs of message files.

    Attributes:
        file_counts: See Args.
        on_readable: Called with the numbers of queues that have ready messages again which could not be read before.
    """

    def __init__(self, file_counts: FileCounts | None = None) -> None:
        self.file_counts = file_counts or FileCounts()
        self.on_readable: Callable[[Collection[int]], None] = _ignore

    def open(self, request: StoreRequest, qid: int | None = None) -> QueueBacking:
        """Open the stores of a queue.

        Args:
            request: Properties of the queue.
            qid: Queue number on disk, from an earlier run; None for a new queue.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506): its files cannot be created.
        """
        return QueueBacking(memory_store(request))

    def open_numbered(self, request: StoreRequest, qid: int | None = None) -> NumberedBacking:
        """Open the store of an exchange that delays messages; see open()."""
        return NumberedBacking()

    def open_values(self, request: StoreRequest, qid: int | None = None, creates: bool = True) -> ValueBacking | None:
        """Open the store of what an exchange or stream remembers; see open().

        Args:
            request: Properties of the exchange or stream.
            qid: See open().
            creates: Whether it is made if it does not exist.
        Returns:
            None if it does not exist, or nothing is kept on disk.
        """
        return None

    @property
    def reader_counts(self) -> ReaderCounts | None:
        """What is kept for named readers; None if nothing is kept on disk."""
        return None

    @property
    def readers(self) -> list[ReaderState]:
        """The named readers."""
        return []

    def drop_reader(self, name: str) -> bool:
        """Drop a named reader; return whether there was one.

        Raises:
            OSError: Its file could not be deleted.
        """
        return False

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""
        synced = waiter.written(_NO_FAILURES)
        if synced is not None:
            synced()

    def when_synced(self, callback: Callable[[], None]) -> None:
        """Call back once all messages of this turn are synced."""
        self.await_sync(_Callback(callback))

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once it is synced that messages have left their queues in this turn."""
        self.when_synced(callback)

    def note_unroutable(self, count: int, body_bytes: int, flags: int, details: EventDetails) -> None:
        """Record unroutable messages.

        Args:
            count: Number of messages.
            body_bytes: Sum of their body lengths in bytes.
            flags: Event flags: TOLD if they are returned to the publisher, or 0.
            details: Where they were published to, and by whom.
        """

    def keep_unrestored(self, vhost_name: str, name: str, qid: int | None, kind: str = "queue") -> None:
        """Keep the messages on disk of a queue or exchange that could not be restored.

        Args:
            vhost_name: Name of the virtual host.
            name: Name of the queue or exchange.
            qid: Queue number on disk; None if unknown.
            kind: ``queue`` or ``exchange``.
        """

    def keep_all_unclaimed(self) -> None:
        """Keep all messages on disk, because a queue that could not be restored is unknown."""

    def delete_unrestored(self, vhost_name: str, name: str, kind: str = "queue") -> None:
        """Delete the messages that keep_unrestored() has kept of a queue or exchange."""

    def delete_unclaimed(self) -> None:
        """Delete the messages on disk of all queues that have not been opened; called after all have been restored."""


def _ignore(numbers: Collection[int]) -> None:
    """Do nothing: messages in memory can always be read."""


class _Callback:
    """A SyncWaiter that only calls back after the sync."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def written(self, failures: WriteFailures) -> Callable[[], None]:
        return self._callback
