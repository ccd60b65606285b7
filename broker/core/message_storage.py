"""Message storage of the broker: in memory, or in a data directory with syncs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from leveret.broker.core.definitions.gate import ALWAYS_OPEN, DefinitionsGate
from leveret.broker.core.queues.disk_storage import DiskQueueStorage
from leveret.broker.core.queues.storage import QueueStorage, StorageRequest, memory_store
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.storage.engine import StorageEngine, StoredQueue
from leveret.storage.stores.segment_store import SegmentStore

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue

#: Tells whether messages of any of these queues could not be written in this turn; None stands for all queues.
HasFailed: TypeAlias = Callable[["Collection[Queue] | None"], bool]

#: Messages that a preload reads in one turn.
_PRELOAD_STEP: Final = 256


class SyncWaiter(Protocol):
    """An object that waits until the messages of this turn are on disk, for example to send confirms."""

    def written(self, has_failed: HasFailed) -> Callable[[], None] | None:
        """Handle the write of this turn's messages.

        Args:
            has_failed: Tells whether the write of a queue's messages failed.
        Returns:
            Called once they are synced; None if nothing waits for that.
        """


class MessageStorage:
    """Stores all messages in memory. Nothing has to be synced."""

    def open(self, request: StorageRequest, qid: int | None = None) -> QueueStorage:
        """Open the storage of a queue.

        Args:
            request: Properties of the queue.
            qid: Queue number on disk, from an earlier run; None for a new queue.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506): its files cannot be created.
        """
        return QueueStorage(memory_store(request))

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""
        synced = waiter.written(lambda queues: False)
        if synced is not None:
            synced()

    def when_synced(self, callback: Callable[[], None]) -> None:
        """Call back once all messages of this turn are synced."""
        self.await_sync(_Callback(callback))

    def note_unroutable(self, count: int, body_bytes: int) -> None:
        """Record unroutable messages.

        Args:
            count: Number of messages.
            body_bytes: Sum of their body lengths in bytes.
        """

    def keep_unrestored(self, vhost_name: str, name: str, qid: int | None) -> None:
        """Keep the messages on disk of a queue that could not be restored.

        Args:
            vhost_name: Name of the virtual host.
            name: Name of the queue.
            qid: Queue number on disk; None if unknown.
        """

    def keep_all_unclaimed(self) -> None:
        """Keep all messages on disk, because a queue that could not be restored is unknown."""

    def delete_unrestored(self, vhost_name: str, name: str) -> None:
        """Delete the messages that keep_unrestored() has kept of a queue."""

    def delete_unclaimed(self) -> None:
        """Delete the messages on disk of all queues that have not been opened; called after all have been restored."""


class DiskStorage(MessageStorage):
    """Stores messages in a data directory.

    Args:
        engine: The message stores.
        end_turn: Schedules the end of the turn, which calls write().
        preload_messages: Number of messages that are loaded into memory when a queue is no longer lazy.
        embed_bodies_below: Bytes of a body below which a message is preloaded.
        gate: Tells when definitions are written; None if they are never pending.
    """

    def __init__(
        self,
        engine: StorageEngine,
        end_turn: Callable[[], None],
        preload_messages: int,
        embed_bodies_below: int,
        gate: DefinitionsGate | None = None,
    ) -> None:
        self._engine = engine
        self._gate = gate or ALWAYS_OPEN
        self._end_turn = end_turn
        self._waiting: list[SyncWaiter] = []
        self._preload_messages = preload_messages
        self._embed_bodies_below = embed_bodies_below
        #: Messages left to preload, by queue storage.
        self._preloading: dict[DiskQueueStorage, int] = {}
        self._unclaimed = dict(engine.queues)
        #: Queues that could not be restored, by virtual host and name.
        self._unrestored: dict[tuple[str, str], list[StoredQueue]] = {}
        self._keeps_all_unclaimed = False
        engine.on_work = end_turn

    def open(self, request: StorageRequest, qid: int | None = None) -> QueueStorage:
        """Open the storage of a queue."""
        found = self._unclaimed.pop(qid, None) if qid is not None else None
        try:
            found = found or self._by_name(request, qid or 0)
            return DiskQueueStorage(self._engine, request, found, self._begin_preload, self._gate.when_written)
        except OSError as error:
            text = f"cannot make queue '{request.name}' in vhost '{request.vhost_name}': {error.strerror}"
            raise ConnectionFault(ReplyCode.RESOURCE_ERROR, text) from error

    def note_unroutable(self, count: int, body_bytes: int) -> None:
        """Record unroutable messages."""
        self._engine.note_unroutable(count, body_bytes)

    def _by_name(self, request: StorageRequest, older: int) -> StoredQueue | None:
        """Find the messages of a queue by its name, because the saved definitions may be outdated.

        Args:
            request: Properties of the queue.
            older: The queue number in the definitions. Queues of this name with lower numbers have been deleted.
        """
        for qid, queue in self._unclaimed.items():
            attributes = queue.attributes
            same = attributes.get("name") == request.name and attributes.get("vhost") == request.vhost_name
            if same and qid > older:
                return self._unclaimed.pop(qid)
        return None

    def keep_unrestored(self, vhost_name: str, name: str, qid: int | None) -> None:
        """Keep the messages on disk of a queue that could not be restored."""
        kept = self._unrestored.setdefault((vhost_name, name), [])
        for each, queue in self._engine.queues.items():
            attributes = queue.attributes
            if each == qid or (attributes.get("vhost") == vhost_name and attributes.get("name") == name):
                self._unclaimed.pop(each, None)
                kept.append(queue)

    def keep_all_unclaimed(self) -> None:
        """Keep all messages on disk."""
        self._keeps_all_unclaimed = True

    def delete_unrestored(self, vhost_name: str, name: str) -> None:
        """Delete the messages that keep_unrestored() has kept of a queue."""
        for queue in self._unrestored.pop((vhost_name, name), ()):
            self._gate.when_written(partial(self._engine.delete_queue, queue))

    def delete_unclaimed(self) -> None:
        """Delete the messages on disk of all queues that have not been opened."""
        if self._keeps_all_unclaimed:
            return
        for queue in self._unclaimed.values():
            self._engine.delete_queue(queue)
        self._unclaimed.clear()

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""
        self._waiting.append(waiter)
        self._end_turn()

    def write(self) -> None:
        """Write the messages of this turn, and start a commit if a waiter needs it."""
        failures = self._engine.flush()
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            has_failed = partial(_has_failed, failures)
            callbacks = [waiter.written(has_failed) for waiter in waiting]
            self._engine.commit(partial(_call_all, [each for each in callbacks if each is not None]))
        if self._preloading:
            self._preload()

    def _begin_preload(self, storage: DiskQueueStorage) -> None:
        if self._preload_messages and self._embed_bodies_below:
            self._preloading[storage] = self._preload_messages
            self._end_turn()

    def _preload(self) -> None:
        """Load some messages of each preloading queue into memory."""
        for storage, left in list(self._preloading.items()):
            visited = storage.preload(min(left, _PRELOAD_STEP), self._embed_bodies_below)
            if visited and visited < left:
                self._preloading[storage] = left - visited
            else:
                del self._preloading[storage]
        if self._preloading:
            self._end_turn()


class _Callback:
    """A SyncWaiter that only calls back after the sync."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def written(self, has_failed: HasFailed) -> Callable[[], None]:
        return self._callback


def _has_failed(failures: Mapping[SegmentStore, OSError], queues: Collection[Queue] | None) -> bool:
    if not failures or queues is None:
        return bool(failures)
    return any(
        store in failures
        for queue in queues
        if isinstance(queue.storage, DiskQueueStorage)
        for store in queue.storage.stores()
    )


def _call_all(callbacks: Collection[Callable[[], None]]) -> None:
    for callback in callbacks:
        callback()
