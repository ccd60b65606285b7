"""Data directories with known contents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from leveret.analytics.options import parse_options
from leveret.analytics.tables.table_query import make_query
from leveret.storage.engine import EngineOptions, StorageEngine, StoredQueue
from leveret.storage.event_format import EventKind
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.segment_store import SegmentStore
from tests.spark.messages import content_header
from tests.support.segment_stores import Clock

#: 2023-11-14 22:13:20 UTC
START = 1_700_000_000_000_000


def rows_of_table(
    path: Path | str, table: str = "messages", columns: Sequence[str] | None = None, **options: str
) -> list[dict[str, Any]]:
    """The rows of a table, as Spark's tasks and `leveret.scan` read them; options are those of the data source."""
    query = make_query(parse_options({"path": str(path), "table": table, **options}), None, columns)
    rows: list[dict[str, Any]] = []
    for batch in query.read(query.plan().parts):
        assert batch.schema == query.schema
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


class DirectoryBuilder:
    """Writes a data directory as the broker does, with a clock of its own.

    Args:
        path: Where.
        options: Of the engine; small segments by default.
        start: What its clock shows, in microseconds since 1970.
    """

    def __init__(self, path: Path, options: EngineOptions | None = None, start: int = START) -> None:
        self.path = str(path)
        self.clock = Clock(start, 10)
        self._options = options or EngineOptions(segment_bytes=4000, ballast_bytes=0)
        self._open()

    def _open(self) -> None:
        self.engine = StorageEngine(self.path, clock=self.clock, options=self._options)
        self.audit_log = self.engine.open_audit_log(keep_seconds=0, keep_bytes=0)

    def queue(self, name: str, vhost: str = "/", durable: bool = True) -> StoredQueue:
        """Make a queue."""
        return self.engine.create_queue(durable, {"vhost": vhost, "name": name})

    def store(self, queue: StoredQueue, priority: int = 0) -> SegmentStore:
        """Of one priority."""
        return self.engine.store(queue, priority)

    def publish(
        self, store: SegmentStore, bodies: Iterable[bytes], key: str = "k", expires: int = 0, **properties: Any
    ) -> None:
        """Append messages to a store, published to the exchange `amq.topic`, and write them."""
        self.append(store, bodies, key, expires, **properties)
        self.engine.flush()

    def append(
        self, store: SegmentStore, bodies: Iterable[bytes], key: str = "k", expires: int = 0, **properties: Any
    ) -> None:
        """Append messages to a store; they are not written before the end of the turn."""
        for body in bodies:
            route = b"\x09amq.topic" + bytes([len(key.encode())]) + key.encode()
            header = content_header(len(body), **properties)
            persistent = properties.get("delivery_mode", 2) == 2
            envelope = Envelope(route, header, persistent, properties.get("priority", 0))
            message = TimedMessage(envelope, body, expires) if expires else Message(envelope, body)
            store.append([message], len(body))

    def settle(self, store: SegmentStore, count: int, kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Take messages from the head and settle them."""
        store.settle(store.take(count, 1 << 30)[0], kind, flags)
        self.engine.flush()

    def audit(self, kind: str, subject: str, vhost: str | None = "/", user: str = "ann", **more: Any) -> None:
        """Write a line of the audit log."""
        record = {"at": self.clock.time, "kind": kind, "user": user, "host": "10.0.0.1", "object": subject}
        where = {} if vhost is None else {"vhost": vhost}
        self.audit_log.add({**record, **where, "details": {}, **more})
        self.audit_log.write()

    def tick(self) -> int:
        """Make what was done visible to readers; return the time."""
        self.engine.flush()
        self.engine.commit(events=True)
        self.engine.housekeeping()
        return self.clock.time

    def wait(self, seconds: float) -> None:
        """Let the clock go on."""
        self.clock.time += int(seconds * 1_000_000)

    def reopen(self, in_order: bool = True) -> None:
        """Stop, in order or as by the death of the process, and start again."""
        if in_order:
            self.close()
        else:
            self.audit_log.abandon()
            self.engine.abandon()
        self._open()

    def close(self) -> None:
        """Stop in order."""
        self.audit_log.close()
        self.engine.close()
