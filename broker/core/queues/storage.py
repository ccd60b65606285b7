"""Where one queue keeps its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from leveret.storage.interface import Entry, MessageStore, mark_returned
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import ReturnsStore

#: What a queue and a message of it take in memory beside the bodies, about, in bytes.
_QUEUE_MEMORY: Final = 4096
_MESSAGE_MEMORY: Final = 128


class StorageRequest(NamedTuple):
    """What a queue asks of its storage.

    Attributes:
        vhost_name: Its virtual host.
        name: Its name.
        durable: It outlives the broker.
        max_priority: Priorities above 0 that it tells apart, 0..255.
        persists_transient: Its transient messages outlive the broker too, as in quorum queues.
    """

    vhost_name: str
    name: str
    durable: bool
    max_priority: int = 0
    persists_transient: bool = False


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Messages and body bytes by where they are.

    Args:
        messages_persistent: Persistent messages, where the queue is durable; ready or unacknowledged.
        message_bytes_persistent: Their body bytes.
        messages_ready_ram: Ready messages whose bodies are in memory.
        messages_unacknowledged_ram: Unacknowledged ones.
        message_bytes_ram: Body bytes of both.
        messages_paged_out: Transient messages whose bodies are on disk only.
        message_bytes_paged_out: Their body bytes.
        disk_reads: Messages read from disk, since the queue was made or the broker was started.
        disk_writes: Messages written to disk.
        segments: Files that hold its messages.
        disk_bytes: Bytes of these files.
        oldest: When the first message came that was written to the oldest of them, in microseconds since 1970; 0
            without files. Those that live may have come later.
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
        """Messages whose bodies are in memory."""
        return self.messages_ready_ram + self.messages_unacknowledged_ram

    @property
    def memory(self) -> int:
        """Bytes that the queue takes in memory, about."""
        return _QUEUE_MEMORY + self.messages_ram * _MESSAGE_MEMORY + self.message_bytes_ram


class QueueStorage:
    """Keeps the messages of one queue in memory, and nowhere else.

    Args:
        store: The messages.

    Attributes:
        store: The messages; another object after set_lazy() or page_out().
    """

    __slots__ = ("store",)

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    @property
    def qid(self) -> int | None:
        """The number of the queue on disk; None if it is not there."""
        return None

    @property
    def awaits_sync(self) -> bool:
        """Whether persistent messages are confirmed only once they are on disk."""
        return False

    @property
    def persists_transient(self) -> bool:
        """Whether all messages are, whatever they say."""
        return False

    def set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or in memory as far as there is room."""

    def page_out(self, body_bytes: int) -> None:
        """Have about this many bytes of bodies leave memory."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the bodies of ready messages that are in memory."""
        return self.store.ready_bytes

    def delete(self) -> None:
        """Forget everything: the queue is gone."""
        self.store.close()

    def figures(self, unacked_count: int, unacked_bytes: int) -> StoreFigures:
        """Where the messages are.

        Args:
            unacked_count: Unacknowledged messages, whose bodies are in memory.
            unacked_bytes: Bytes of these bodies.
        """
        return StoreFigures(
            messages_ready_ram=self.store.ready_count,
            messages_unacknowledged_ram=unacked_count,
            message_bytes_ram=self.store.ready_bytes + unacked_bytes,
        )


class QuorumStore(MemoryStore):
    """Messages that were returned may stand among the others and still count as delivered before."""

    __slots__ = ()

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        entries, taken_bytes = super().take(count, body_bytes)
        return mark_returned(entries), taken_bytes


def memory_store(request: StorageRequest) -> MessageStore:
    """A store in memory."""
    if request.max_priority:
        return PriorityStore(request.max_priority, lambda level: MemoryStore())
    return ReturnsStore(lambda level: QuorumStore()) if request.persists_transient else MemoryStore()
