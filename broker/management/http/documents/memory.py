"""Memory breakdown of the node as JSON. It has RabbitMQ's parts, most of which only exist in Erlang."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.resources.memory import used_memory

#: Parts in RabbitMQ's order. Those that are not computed below are 0.
_PARTS: Final = (
    "connection_readers",
    "connection_writers",
    "connection_channels",
    "connection_other",
    "queue_procs",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "other_proc",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "metadata_store",
    "metadata_store_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)
#: Measured memory of a connection and a channel in bytes.
_CONNECTION: Final = 12_000
_CHANNEL: Final = 3_000


class MemoryBreakdown:
    """Adds up the memory of the broker's objects.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        connections = len(broker.connections)
        self._parts = dict.fromkeys(_PARTS, 0)
        self._parts["connection_channels"] = broker.connections.channel_count * _CHANNEL
        self._parts["connection_other"] = connections * _CONNECTION
        self._parts["connection_writers"] = sum(connection.output.pending_bytes() for connection in broker.connections)

    def add(self, queue: Queue) -> None:
        """Add the memory of a queue and of the message bodies in it."""
        figures = queue.figures()
        part = "quorum_queue_procs" if queue.queue_type == "quorum" else "queue_procs"
        self._parts[part] += 4096 + figures.messages_ram * 128
        self._parts["binary"] += figures.message_bytes_ram

    def document(self) -> dict[str, Any]:
        """Return all parts in bytes. Memory in none of them belongs to the interpreter."""
        total = used_memory()
        known = sum(self._parts.values())
        parts = {**self._parts, "other_system": max(0, total - known)}
        return {
            **parts,
            "strategy": "rss",
            "total": {"erlang": total, "rss": total, "allocated": total},
        }

    def shares(self) -> dict[str, Any]:
        """Return all parts in per cent, rounded up."""
        absolute = self.document()
        total = max(1, absolute["total"]["rss"])
        return {"total": 100, **{part: min(100, -(-absolute[part] * 100 // total)) for part in _PARTS}}
