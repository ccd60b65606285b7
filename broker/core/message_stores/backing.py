"""Where messages are kept, as far as confirms and definitions depend on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from leveret.storage.compiler_hints import mypyc_attr
from leveret.storage.stores.segment_store import SegmentStore

#: Approximate memory of a queue and of a message, without bodies, in bytes.
_QUEUE_MEMORY: Final = 4096
_MESSAGE_MEMORY: Final = 128


class StoreRequest(NamedTuple):
    """Properties of a queue that determine its stores.

    Attributes:
        vhost_name: Name of the virtual host.
        name: Name of the queue.
        durable: Whether the queue survives a restart.
        max_priority: The highest priority, 0..255.
        persists_transient: Whether transient messages survive a restart too, as in quorum queues.
        kind: ``queue`` or ``exchange``: what keeps the messages; ``deduplication``: what an exchange remembers;
            ``offsets``: what a stream knows of its named consumers.
        stream_segment_bytes: Size of the segments of a stream in bytes; None for a queue.
        owner: Number on disk of the queue that this belongs to; None for one of its own.
    """

    vhost_name: str
    name: str
    durable: bool
    max_priority: int = 0
    persists_transient: bool = False
    kind: str = "queue"
    stream_segment_bytes: int | None = None
    owner: int | None = None


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Message and body byte counts by location.

    Args:
        messages_persistent: Persistent messages of a durable queue, ready and unacknowledged.
        message_bytes_persistent: Body bytes of persistent messages.
        messages_ready_ram: Ready messages with bodies in memory.
        messages_unacknowledged_ram: Unacknowledged messages with bodies in memory.
        message_bytes_ram: Body bytes in memory.
        messages_paged_out: Transient messages with bodies on disk only.
        message_bytes_paged_out: Body bytes of these.
        disk_reads: Messages read from disk since the declaration or the start of the broker.
        disk_writes: Messages written to disk in the same time.
        segments: Number of segments.
        disk_bytes: Size of the segments, in bytes.
        oldest: Arrival time of the first message written to the oldest segment, in microseconds since 1970; 0
            without segments. The oldest message in the queue may be newer.
    """

    messages_persistent: int = 0
    message_bytes_persistent: int = 0
    messages_ready_ram: int = 0
    messages_unacknowledged_ram: int = 0
    message_bytes_ram: int = 0
    messages_paged_out: int = 0
    message_bytes_paged_out: int = 0
    disk_reads: int = 0
    disk_writes: int = 0
    segments: int = 0
    disk_bytes: int = 0
    oldest: int = 0

    @property
    def messages_ram(self) -> int:
        """Number of messages with bodies in memory."""
        return self.messages_ready_ram + self.messages_unacknowledged_ram

    @property
    def memory(self) -> int:
        """Approximate memory use of the queue, in bytes."""
        return _QUEUE_MEMORY + self.messages_ram * _MESSAGE_MEMORY + self.message_bytes_ram


class Backing:
    """Where messages are kept, as far as confirms and definitions depend on it.

    Args:
        awaits_sync: Whether confirms of persistent messages wait for the sync to disk.
        persists_transient: Whether all messages survive a restart, whatever their delivery mode.

    Attributes:
        awaits_sync: See Args.
        persists_transient: See Args.
    """

    __slots__ = ("awaits_sync", "persists_transient")

    def __init__(self, awaits_sync: bool = False, persists_transient: bool = False) -> None:
        self.awaits_sync = awaits_sync
        self.persists_transient = persists_transient

    @property
    def qid(self) -> int | None:
        """Number of the queue on disk; None if it is in memory."""
        return None

    def stores(self) -> Collection[SegmentStore]:
        """The stores on disk, one for each priority."""
        return ()


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


class SyncWaiter(Protocol):
    """An object that waits until the messages of this turn are on disk, for example to send confirms."""

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Handle the write of this turn's messages.

        Args:
            failures: What could not be written.
        Returns:
            Called once they are synced; None if nothing waits for that.
        """
