"""Streams in the tables of Spark: their messages while they are there, and what retention has removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leveret.storage.analytics.batch_reader import LeveretReader
from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.options import parse_options
from leveret.storage.stores.stream_store import StreamStore
from tests.spark.directories import DirectoryBuilder


def read(path: Path, table: str, **options: str) -> list[dict[str, Any]]:
    reader = LeveretReader(parse_options({"path": str(path), "table": table, **options}), list(TABLES[table]))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_messages_and_events(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    attributes = {"vhost": "shop", "name": "log", "persists_transient": True, "stream_segment_bytes": 1000}
    store = builder.store(builder.engine.create_queue(True, attributes))
    stream = StreamStore(store, 1000)
    for number in range(30):
        builder.publish(store, [b"%d" % number])
        builder.tick()
    removed = stream.retain(1500, None).messages
    for _ in range(3):
        builder.tick()
    assert 5 < removed < 29
    rows = read(tmp_path, "messages")
    # The offset is the number minus one.
    assert [(row["queue"], row["seq"] - 1) for row in rows] == [("log", number) for number in range(removed, 30)]
    assert [row["body"] for row in rows] == [b"%d" % number for number in range(removed, 30)]
    events = [(row["queue"], row["kind"], row["messages"]) for row in read(tmp_path, "events")]
    assert events == [("log", "retention", removed)]
    assert [row["messages"] for row in read(tmp_path, "queues")] == [30 - removed]
