"""Where one queue keeps its messages."""

from __future__ import annotations

from typing import NamedTuple

from storage.interface import Entry, MessageStore, mark_returned
from storage.memory_store import MemoryStore
from storage.priority_store import PriorityStore


class StorageRequest(NamedTuple):
    """What a queue asks of its storage.

    Attributes:
        vhost_name: Its virtual host.
        name: Its name.
        durable: It outlives the broker.
        max_priority: Priorities above 0 that it tells apart, 0..255.
        keeps_all: Its transient messages outlive the broker too, as in quorum queues.
    """

    vhost_name: str
    name: str
    durable: bool
    max_priority: int = 0
    keeps_all: bool = False


class StorageFigures(NamedTuple):
    """What a queue's storage holds.

    Attributes:
        ram_count: Ready messages whose bodies are in memory.
        ram_bytes: Bytes of those bodies.
        persistent_count: Ready and unacknowledged messages that outlive the broker.
        persistent_bytes: Bytes of their bodies.
        paged_out_count: Ready transient messages that are on disk only.
        paged_out_bytes: Bytes of their bodies.
        disk_bytes: Length of its files.
        segments: How many they are.
        disk_reads: Messages read from them since the broker was started.
        disk_writes: Messages written to them.
    """

    ram_count: int
    ram_bytes: int
    persistent_count: int = 0
    persistent_bytes: int = 0
    paged_out_count: int = 0
    paged_out_bytes: int = 0
    disk_bytes: int = 0
    segments: int = 0
    disk_reads: int = 0
    disk_writes: int = 0


class QueueStorage:
    """Keeps the messages of one queue in memory, and nowhere else.

    Args:
        store: The messages.

    Attributes:
        store: The messages; another object after set_lazy() or page_out().
        qid: The number of the queue on disk; None if it is not there.
        awaits_sync: Persistent messages are confirmed only once they are on disk.
        keeps_all: All messages are, whatever they say.
    """

    __slots__ = ("store",)

    qid: int | None = None
    awaits_sync = False
    keeps_all = False

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    def set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or in memory as far as there is room."""

    def page_out(self, body_bytes: int) -> None:
        """Have about so many bytes of bodies leave memory."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the bodies of ready messages that are in memory."""
        return self.store.ready_bytes

    def delete(self) -> None:
        """Forget everything: the queue is gone."""
        self.store.close()

    def figures(self) -> StorageFigures:
        """What it holds."""
        return StorageFigures(self.store.ready_count, self.store.ready_bytes)


class QuorumStore(MemoryStore):
    """Messages that were returned stand among the others and still count as delivered before."""

    __slots__ = ()

    def take(self, count: int, body_bytes: int) -> list[Entry]:
        """Take messages from the head."""
        return mark_returned(super().take(count, body_bytes))


def memory_store(request: StorageRequest) -> MessageStore:
    """A store in memory."""
    if request.max_priority:
        return PriorityStore(request.max_priority, lambda level: MemoryStore())
    return QuorumStore() if request.keeps_all else MemoryStore()
