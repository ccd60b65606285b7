"""A store of the data directory for what is remembered: by an exchange that drops duplicates, of named consumers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from leveret.broker.core.message_stores.backing import Backing, StoreRequest
from leveret.storage.engine import StorageEngine, StoredQueue, describe_queue
from leveret.storage.stores.segment_store import SegmentStore


class ValueBacking(Backing):
    """The store of one exchange or stream: each value is a record without a message.

    Args:
        engine: The storage engine of the data directory.
        request: Name and properties of the exchange or stream.
        found: The recovered store on disk, if any.
        when_written: Calls a callback once all definition changes made so far are on disk.
    Raises:
        OSError: The files cannot be created.

    Attributes:
        store: The store.
    """

    __slots__ = ("_engine", "_stored", "_when_written", "store")

    def __init__(
        self,
        engine: StorageEngine,
        request: StoreRequest,
        found: StoredQueue | None,
        when_written: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(awaits_sync=True, persists_transient=True)
        self._engine = engine
        self._when_written = when_written
        if found is None or not found.attributes:
            attributes: dict[str, object] = {"vhost": request.vhost_name, request.kind: request.name}
            attributes["persists_transient"] = True
            if request.owner is not None:
                attributes["owner"] = request.owner
            if found is None:
                found = engine.create_queue(True, attributes)
            else:
                describe_queue(engine, found, attributes)
        self._stored = found
        self.store = engine.store(found)
        self.store.set_lazy(True)

    @property
    def qid(self) -> int | None:
        """Number of the store on disk."""
        return self._stored.qid

    def stores(self) -> Collection[SegmentStore]:
        """The store on disk."""
        return self._stored.stores.values()

    def write(self) -> None:
        """Write what was appended at once, so that it survives the end of the process; a full disk delays it."""
        self._engine.flush()

    def delete(self) -> None:
        """Delete the files, once the definitions no longer name them."""
        self._when_written(partial(self._engine.delete_queue, self._stored))
