"""Where a queue, exchange or stream keeps its messages: its stores, in memory or in the data directory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.engine import StorageEngine, StoredQueue
from leveret.storage.interface import MessageStore
from leveret.storage.stores.numbered_store import NumberedStore
from leveret.storage.stores.priority_store import (
    RETURNS_PRIORITY_MAX,
    PriorityStore,
    ReturnsStore,
    StrictPriorityStore,
    first_returned_level,
    waiting_level,
)
from leveret.storage.stores.segment_store import SegmentStore

log = logging.getLogger("leveret.storage")
#: Approximate memory of a queue and of a message, without bodies, in bytes.
_QUEUE_MEMORY: Final = 4096
_MESSAGE_MEMORY: Final = 128


class StoreRequest(NamedTuple):
    """Properties of a queue that determine its stores.

    Attributes:
        vhost_name: Name of the virtual host.
        name: Name of the queue.
        durable: Whether the queue survives a restart.
        max_priority: The highest priority, 0..255; 31 for a quorum queue with strict priorities.
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

    def attributes(self) -> Mapping[str, object]:
        """Return what is stored of it on disk."""
        found: dict[str, object] = {"vhost": self.vhost_name, "name" if self.kind == "queue" else self.kind: self.name}
        if self.persists_transient:
            found["persists_transient"] = True
        if self.stream_segment_bytes is not None:
            found["stream_segment_bytes"] = self.stream_segment_bytes
        if self.owner is not None:
            found["owner"] = self.owner
        return found


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


class _EngineBacking(Backing):
    """Stores of a data directory.

    Args:
        request: Name and properties of what has the messages.
        found: The recovered stores on disk, if any.
        has_files: Whether files are made if there are none yet.
        when_written: Calls a callback once all definition changes made so far are on disk.
    Raises:
        OSError: The files cannot be created.
    """

    __slots__ = ("_engine", "_request", "_stored", "_when_written")

    def __init__(
        self,
        engine: StorageEngine,
        request: StoreRequest,
        found: StoredQueue | None,
        has_files: bool,
        when_written: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(request.durable, request.persists_transient)
        self._engine = engine
        self._request = request
        self._when_written = when_written
        self._stored = self._create() if found is None and has_files else found
        if found is not None and not found.attributes:
            engine.describe_queue(found, request.attributes())

    def _create(self) -> StoredQueue:
        return self._engine.create_queue(self._request.durable, self._request.attributes())

    @property
    def qid(self) -> int | None:
        """Number of the queue on disk; None if it is in memory."""
        return None if self._stored is None else self._stored.qid

    def stores(self) -> Collection[SegmentStore]:
        """The stores on disk, one for each priority."""
        return () if self._stored is None else self._stored.stores.values()


class QueueBacking(_EngineBacking):
    """The stores of one queue in a data directory.

    A transient queue is kept in memory until it becomes lazy or is paged out.

    Args:
        request: See _EngineBacking.
        found: See _EngineBacking.
        on_preload: Called when messages should be loaded into memory; see preload().
        when_written: See _EngineBacking.

    Attributes:
        store: The message store; set_lazy() and page_out() may replace it.
    """

    __slots__ = ("_lazy", "_on_preload", "_preloading", "store")

    def __init__(
        self,
        engine: StorageEngine,
        request: StoreRequest,
        found: StoredQueue | None,
        on_preload: Callable[[QueueBacking], None],
        when_written: Callable[[Callable[[], None]], None] = lambda callback: callback(),
    ) -> None:
        super().__init__(engine, request, found, request.durable, when_written)
        self._lazy = False
        self._on_preload = on_preload
        #: Position of preload() in each store.
        self._preloading: dict[SegmentStore, int] = {}
        self.store = self._in_memory() if self._stored is None else self._open()
        # Nothing takes the messages of a stream, so it keeps none in memory.
        self._set_lazy(request.stream_segment_bytes is not None)

    def set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or also in memory as far as there is room."""
        if lazy is self._lazy:
            return
        if lazy:
            self._try_move_to_disk()
        self._set_lazy(lazy)
        self._preloading = {} if lazy else dict.fromkeys(self.stores(), 0)
        if self._preloading:
            self._on_preload(self)

    def preload(self, count: int, below: int) -> int:
        """Load a batch of messages into memory, from the head, after a queue has ceased to be lazy.

        Args:
            count: Maximum number of messages to examine.
            below: Size limit in bytes: only smaller messages are loaded.
        Returns:
            Number of messages examined; 0 once preloading is complete.
        """
        while self._preloading:
            # The highest priority is delivered first.
            store = max(self._preloading, key=_priority)
            seq = max(self._preloading[store], store.cursor.position)
            self._preloading[store], looked_at = store.paging.preload(seq, count, below)
            if looked_at:
                return looked_at
            del self._preloading[store]
        return 0

    def page_out(self, body_bytes: int) -> None:
        """Page about this many bytes of bodies out to disk."""
        self._try_move_to_disk()
        self._preloading.clear()
        # The lowest priority is delivered last.
        for store in sorted(self.stores(), key=_priority):
            if body_bytes <= 0:
                break
            held = store.ram.held_bytes
            store.page_out(body_bytes)
            body_bytes -= held

    def keep_returns(self) -> bool:
        """Keep returned messages apart from now on, to deliver them first.

        Returns:
            False if there are too many priorities.
        """
        store = self.store
        if isinstance(store, ReturnsStore):
            return True
        max_priority = self._request.max_priority
        if max_priority > RETURNS_PRIORITY_MAX:
            return False
        self.store = ReturnsStore(self._level, dict(store.ordered_levels()), max_priority)
        return True

    @property
    def has_waiting(self) -> bool:
        """Whether a restart has found messages that wait for their retry."""
        stored = self._stored
        return stored is not None and self._waiting_level in stored.stores

    def open_waiting(self) -> NumberedStore:
        """Return where messages wait for their retry: on disk, so that a queue that is in memory moves there."""
        self._try_move_to_disk()
        stored = self._stored
        if stored is None:
            # The disk is full, or damaged.
            return NumberedStore(self._engine.new_store())
        store = self._engine.store(stored, self._waiting_level)
        store.set_lazy(True)
        return NumberedStore(store)

    @property
    def _waiting_level(self) -> int:
        """The level of the waiting messages; -1 if there are too many priorities."""
        max_priority = self._request.max_priority
        return waiting_level(max_priority) if max_priority <= RETURNS_PRIORITY_MAX else -1

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
        if self._stored is None:
            return self.store.ready_bytes
        return sum(store.ram.held_bytes for store in self.stores())

    @property
    def stream_segment_bytes(self) -> int | None:
        """Size in bytes of the segments of a stream on disk, which is that of its declaration; None for a queue."""
        return None if self._stored is None else self._stored.stream_segment_bytes

    def delete(self) -> None:
        """Delete the messages of a deleted queue.

        They are deleted once the definition is deleted on disk: a queue that is recovered after a crash keeps them.
        """
        stored, self._stored = self._stored, None
        if stored is None:
            self.store.close()
        elif self._request.durable:
            self._when_written(partial(self._engine.delete_queue, stored))
        else:
            self._engine.delete_queue(stored)

    def figures(self, unacked_count: int, unacked_bytes: int) -> StoreFigures:
        """Return message and byte counts by location.

        Args:
            unacked_count: Number of unacknowledged messages; their bodies are in memory.
            unacked_bytes: Body bytes of these.
        """
        if self._stored is None:
            return StoreFigures(
                messages_ready_ram=self.store.ready_count,
                messages_unacknowledged_ram=unacked_count,
                message_bytes_ram=self.store.ready_bytes + unacked_bytes,
            )
        stores = self.stores()
        paged_out = [store.log.spilled for store in stores]
        return StoreFigures(
            messages_persistent=sum(store.persistent_count for store in stores),
            message_bytes_persistent=sum(store.persistent_bytes for store in stores),
            messages_ready_ram=sum(len(store.ram) for store in stores),
            messages_unacknowledged_ram=unacked_count,
            message_bytes_ram=sum(store.ram.held_bytes for store in stores) + unacked_bytes,
            messages_paged_out=sum(count for count, _ in paged_out),
            message_bytes_paged_out=sum(body_bytes for _, body_bytes in paged_out),
            disk_reads=sum(store.log.disk_reads for store in stores),
            disk_writes=sum(store.log.disk_writes for store in stores),
            segments=sum(len(store.log.segments) for store in stores),
            disk_bytes=sum(store.log.size for store in stores),
            oldest=min(filter(None, (store.log.oldest for store in stores)), default=0),
        )

    # --- inside -------------------------------------------------------------------------------------------------------

    def _in_memory(self) -> MessageStore:
        """Return the store of a queue that is not on disk."""
        max_priority = self._request.max_priority
        return PriorityStore(max_priority, self._level) if max_priority else self._engine.new_store()

    def _open(self) -> MessageStore:
        """Return the store of a queue on disk, including recovered messages."""
        assert self._stored is not None
        if self._request.stream_segment_bytes is not None:
            return self._engine.store(self._stored)
        levels, max_priority = dict(self._stored.stores), self._request.max_priority
        levels.pop(self._waiting_level, None)
        has_returns = max_priority <= RETURNS_PRIORITY_MAX and any(
            level >= first_returned_level(max_priority) for level in levels
        )
        if self._request.persists_transient and max_priority:
            return StrictPriorityStore(self._level, levels)
        if self._request.persists_transient or has_returns:
            return ReturnsStore(self._level, levels, max_priority)
        if not max_priority:
            return self._engine.store(self._stored)
        return PriorityStore(max_priority, self._level, levels)

    def _level(self, priority: int) -> SegmentStore:
        """Return the store of one priority."""
        if self._stored is None:
            return self._engine.new_store()
        store = self._engine.store(self._stored, priority)
        store.set_lazy(self._lazy)
        return store

    def _try_move_to_disk(self) -> None:
        """Give files to stores in memory; on disk errors the queue stays in memory."""
        if self._stored is not None:
            return
        try:
            self._stored = self._create()
        except OSError as error:
            log.warning("queue '%s' stays in memory: %s", self._request.name, error)
            return
        for level, store in self.store.ordered_levels():
            assert isinstance(store, SegmentStore)
            self._engine.add_files(self._stored, level, store)

    def _set_lazy(self, lazy: bool) -> None:
        self._lazy = lazy
        for store in self.stores():
            # Waiting messages are never in memory.
            store.set_lazy(lazy or store.place.priority == self._waiting_level)


class LevelBacking(_EngineBacking):
    """One store in the data directory, of an exchange or a stream: of delayed messages, or of what it remembers.

    For the arguments see _EngineBacking.
    """

    __slots__ = ("store",)

    def __init__(
        self,
        engine: StorageEngine,
        request: StoreRequest,
        found: StoredQueue | None,
        when_written: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(engine, request, found, True, when_written)
        assert self._stored is not None
        self.store = engine.store(self._stored)
        self.store.set_lazy(True)

    def write(self) -> None:
        """Write what was appended at once, so that it survives the end of the process; a full disk delays it."""
        self._engine.flush()

    def delete(self) -> None:
        """Delete the files, once the definitions on disk no longer name them."""
        assert self._stored is not None
        delete = partial(self._engine.delete_queue, self._stored)
        if self.awaits_sync:
            self._when_written(delete)
        else:
            delete()


def _priority(store: SegmentStore) -> int:
    return store.place.priority
