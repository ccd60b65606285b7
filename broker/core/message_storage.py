"""Where queues keep their messages, and when these are safe."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from leveret.broker.core.definitions_gate import OPEN, DefinitionsGate
from leveret.broker.core.queues.disk_storage import DiskQueueStorage
from leveret.broker.core.queues.storage import QueueStorage, StorageRequest, memory_store
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.storage.engine import StorageEngine, StoredQueue
from leveret.storage.stores.segment_store import SegmentStore

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue

#: Tells whether some of what one of these queues was given in this turn could not be written.
HasFailed: TypeAlias = Callable[["Collection[Queue] | None"], bool]

#: Messages that a preload looks at in one turn.
_PRELOAD_STEP: Final = 256


class AwaitingSync(Protocol):
    """Somebody who has promised something that holds once this turn's messages are on disk."""

    def written(self, has_failed: HasFailed) -> Callable[[], None] | None:
        """Learn that the messages of this turn have been written.

        Args:
            has_failed: Tells what has not.
        Returns:
            What to call once they are synced.
        """


class MessageStorage:
    """Keeps all messages in memory. Nothing has to be waited for."""

    def open(self, request: StorageRequest, qid: int | None = None) -> QueueStorage:
        """Where a queue keeps its messages.

        Args:
            request: What it asks for.
            qid: The number it had on disk in an earlier run; None for a new queue.
        Raises:
            ConnectionFault: RESOURCE_ERROR (506): there is no room for it.
        """
        return QueueStorage(memory_store(request))

    def await_sync(self, waiter: AwaitingSync) -> None:
        """Have somebody told once all messages of this turn are safe."""
        synced = waiter.written(lambda queues: False)
        if synced is not None:
            synced()

    def when_synced(self, callback: Callable[[], None]) -> None:
        """Call back once all messages of this turn are safe."""
        self.await_sync(_Callback(callback))

    def note_unroutable(self, count: int, body_bytes: int) -> None:
        """Note messages that no queue was there for.

        Args:
            count: How many.
            body_bytes: Sum of their body lengths.
        """

    def keep(self, vhost_name: str, name: str, qid: int | None) -> None:
        """Leave what is on disk of a queue that could not be restored as it is.

        Args:
            vhost_name: Its virtual host.
            name: Its name.
            qid: Its number on disk; None if that is not known.
        """

    def keep_unknown(self) -> None:
        """Leave all that is on disk as it is: it is not known which queues could not be restored."""

    def delete_kept(self, vhost_name: str, name: str) -> None:
        """Delete what keep() has kept of a queue."""

    def forget_unknown(self) -> None:
        """Delete what is on disk of queues that were not opened: all that there are have been."""


class DiskStorage(MessageStorage):
    """Keeps messages in a data directory.

    Args:
        engine: The stores in it.
        end_turn: Has the turn end, which calls write().
        preload_messages: Messages that are brought to memory when a queue ceases to be lazy.
        embed_bodies_below: Only messages shorter than this, in bytes.
        gate: Knows which definitions are written; without one all are.
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
        self._gate = gate or OPEN
        self._end_turn = end_turn
        self._waiting: list[AwaitingSync] = []
        self._preload_messages = preload_messages
        self._embed_bodies_below = embed_bodies_below
        #: With the messages that are left to be looked at.
        self._preloading: dict[DiskQueueStorage, int] = {}
        self._unclaimed = dict(engine.queues)
        #: Queues that could not be restored, by virtual host and name.
        self._kept: dict[tuple[str, str], list[StoredQueue]] = {}
        self._keeps_unknown = False
        engine.on_work = end_turn

    def open(self, request: StorageRequest, qid: int | None = None) -> QueueStorage:
        """Where a queue keeps its messages."""
        found = self._unclaimed.pop(qid, None) if qid is not None else None
        try:
            found = found or self._by_name(request, qid or 0)
            return DiskQueueStorage(self._engine, request, found, self._begin_preload, self._gate.when_written)
        except OSError as error:
            text = f"cannot make queue '{request.name}' in vhost '{request.vhost_name}': {error.strerror}"
            raise ConnectionFault(ReplyCode.RESOURCE_ERROR, text) from error

    def note_unroutable(self, count: int, body_bytes: int) -> None:
        """Note messages that no queue was there for."""
        self._engine.note_unroutable(count, body_bytes)

    def _by_name(self, request: StorageRequest, older: int) -> StoredQueue | None:
        """What an earlier run left of a queue, if it says whose it is: definitions may be older than that.

        Args:
            request: What the queue asks for.
            older: The number that definitions say. Who had the name under a lower one was deleted before.
        """
        for qid, queue in self._unclaimed.items():
            attributes = queue.attributes
            same = attributes.get("name") == request.name and attributes.get("vhost") == request.vhost_name
            if same and qid > older:
                return self._unclaimed.pop(qid)
        return None

    def keep(self, vhost_name: str, name: str, qid: int | None) -> None:
        """Leave what is on disk of a queue that could not be restored as it is."""
        kept = self._kept.setdefault((vhost_name, name), [])
        for each, queue in self._engine.queues.items():
            attributes = queue.attributes
            if each == qid or (attributes.get("vhost") == vhost_name and attributes.get("name") == name):
                self._unclaimed.pop(each, None)
                kept.append(queue)

    def keep_unknown(self) -> None:
        """Leave all that is on disk as it is."""
        self._keeps_unknown = True

    def delete_kept(self, vhost_name: str, name: str) -> None:
        """Delete what keep() has kept of a queue."""
        for queue in self._kept.pop((vhost_name, name), ()):
            self._gate.when_written(partial(self._engine.delete_queue, queue))

    def forget_unknown(self) -> None:
        """Delete what is on disk of queues that were not opened."""
        if self._keeps_unknown:
            return
        for queue in self._unclaimed.values():
            self._engine.delete_queue(queue)
        self._unclaimed.clear()

    def await_sync(self, waiter: AwaitingSync) -> None:
        """Have somebody told once all messages of this turn are safe."""
        self._waiting.append(waiter)
        self._end_turn()

    def write(self) -> None:
        """Write what queues were given in this turn, and have it synced if somebody waits for that."""
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
        """Bring some messages of each queue to memory."""
        for storage, left in list(self._preloading.items()):
            looked_at = storage.preload(min(left, _PRELOAD_STEP), self._embed_bodies_below)
            if looked_at and looked_at < left:
                self._preloading[storage] = left - looked_at
            else:
                del self._preloading[storage]
        if self._preloading:
            self._end_turn()


class _Callback:
    """Somebody who wants nothing but to be called."""

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
