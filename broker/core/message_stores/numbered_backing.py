"""Where messages of an exchange are kept that leave by number."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from leveret.broker.core.message_stores.backing import Backing, StoreRequest
from leveret.storage.engine import StorageEngine, StoredQueue, describe_queue
from leveret.storage.stores.numbered_store import NumberedSegments, NumberedStore
from leveret.storage.stores.segment_store import SegmentStore


class NumberedBacking(Backing):
    """Messages of an exchange in the data directory. Those of one that is not durable do not survive a restart.

    Args:
        engine: The storage engine of the data directory.
        request: Name and properties of the exchange.
        found: The recovered store on disk, if any.
        when_written: Calls a callback once all definition changes made so far are on disk.

    Attributes:
        messages: The store.

    Raises:
        OSError: The files cannot be created.
    """

    __slots__ = ("_engine", "_stored", "_when_written", "messages")

    def __init__(
        self,
        engine: StorageEngine,
        request: StoreRequest,
        found: StoredQueue | None,
        when_written: Callable[[Callable[[], None]], None],
    ) -> None:
        self._engine = engine
        self._when_written = when_written
        if found is None or not found.attributes:
            attributes: dict[str, object] = {"vhost": request.vhost_name, "exchange": request.name}
            if request.persists_transient:
                attributes["persists_transient"] = True
            if found is None:
                found = engine.create_queue(request.durable, attributes)
            else:
                describe_queue(engine, found, attributes)
        self._stored = found
        store = engine.store(found)
        store.set_lazy(True)
        super().__init__(request.durable, request.persists_transient)
        self.messages: NumberedStore = NumberedSegments(store)

    @property
    def qid(self) -> int | None:
        """Number of the store on disk."""
        return self._stored.qid

    def stores(self) -> Collection[SegmentStore]:
        """The store on disk."""
        return self._stored.stores.values()

    def delete(self) -> None:
        """Delete the messages, once the definition of the exchange is deleted on disk."""
        if self.awaits_sync:
            self._when_written(partial(self._engine.delete_queue, self._stored))
        else:
            self._engine.delete_queue(self._stored)
