"""Where the messages of a queue are: what the HTTP API, the command line and the metrics show of its store."""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.queues.queue import Queue


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

    @property
    def messages_ram(self) -> int:
        """Messages whose bodies are in memory."""
        return self.messages_ready_ram + self.messages_unacknowledged_ram


def store_figures(queue: Queue) -> StoreFigures:
    """Look into the store of a queue; cheap enough to be asked of ten thousand queues in a row."""
    found = queue.storage.figures()
    return StoreFigures(
        messages_persistent=found.persistent_count,
        message_bytes_persistent=found.persistent_bytes,
        messages_ready_ram=found.ram_count,
        messages_unacknowledged_ram=queue.unacked_count,
        message_bytes_ram=found.ram_bytes + queue.unacked_bytes,
        messages_paged_out=found.paged_out_count,
        message_bytes_paged_out=found.paged_out_bytes,
        disk_reads=found.disk_reads,
        disk_writes=found.disk_writes,
        segments=found.segments,
        disk_bytes=found.disk_bytes,
    )
