"""Where the messages of one queue are kept: in memory; the base classes of queues in the data directory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from leveret.storage.interface import MessageStore
from leveret.storage.stores.memory_store import MemoryStore, QuorumStore
from leveret.storage.stores.numbered_store import NumberedMemory, NumberedStore
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import RETURNS_PRIORITY_MAX, ReturnsStore
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


class QueueBacking(Backing):
    """The store of one queue, in memory only.

    Args:
        store: The message store.
        awaits_sync: See Backing.
        persists_transient: See Backing.

    Attributes:
        store: The message store; set_lazy() and page_out() may replace it.
    """

    __slots__ = ("store",)

    def __init__(self, store: MessageStore, awaits_sync: bool = False, persists_transient: bool = False) -> None:
        super().__init__(awaits_sync, persists_transient)
        self.store = store

    def set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or also in memory as far as there is room."""

    def page_out(self, body_bytes: int) -> None:
        """Page about this many bytes of bodies out to disk."""

    def keep_returns(self) -> bool:
        """Keep returned messages apart from now on, to deliver them first.

        Returns:
            False if there are too many priorities.
        """
        return self._keep_returns(_memory_level)

    def _keep_returns(self, make_level: Callable[[int], MessageStore]) -> bool:
        store = self.store
        if isinstance(store, ReturnsStore):
            return True
        if isinstance(store, PriorityStore):
            if store.max_priority > RETURNS_PRIORITY_MAX:
                return False
            self.store = ReturnsStore(make_level, store.levels, store.max_priority)
        else:
            self.store = ReturnsStore(make_level, {0: store})
        return True

    @property
    def has_waiting(self) -> bool:
        """Whether a restart has found messages that wait for their retry."""
        return False

    def open_waiting(self) -> NumberedStore:
        """Return where messages wait for their retry."""
        return NumberedMemory()

    @property
    def unreadable_count(self) -> int:
        """Number of messages that are not ready for now, because the system cannot read them."""
        return sum([store.aside_count for store in self.stores()])

    def look_again(self) -> None:
        """Look for ready messages that could not be read before."""
        if isinstance(self.store, PriorityStore):
            self.store.look_again()

    @property
    def held_bytes(self) -> int:
        """Body bytes of ready messages in memory."""
        return self.store.ready_bytes

    @property
    def stream_segment_bytes(self) -> int | None:
        """Size in bytes of the segments of a stream on disk, which is that of its declaration; None for a queue."""
        return None

    def delete(self) -> None:
        """Delete the messages of a deleted queue."""
        self.store.close()

    def figures(self, unacked_count: int, unacked_bytes: int) -> StoreFigures:
        """Return message and byte counts by location.

        Args:
            unacked_count: Number of unacknowledged messages; their bodies are in memory.
            unacked_bytes: Body bytes of these.
        """
        return StoreFigures(
            messages_ready_ram=self.store.ready_count,
            messages_unacknowledged_ram=unacked_count,
            message_bytes_ram=self.store.ready_bytes + unacked_bytes,
        )


def _memory_level(level: int) -> MessageStore:
    return MemoryStore()


def memory_store(request: StoreRequest) -> MessageStore:
    """Return a new store in memory."""
    if request.max_priority:
        return PriorityStore(request.max_priority, lambda level: MemoryStore())
    return ReturnsStore(lambda level: QuorumStore()) if request.persists_transient else MemoryStore()
