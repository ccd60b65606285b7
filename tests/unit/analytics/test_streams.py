from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.errors import AnalyticsError, OptionError
from leveret.analytics.options import parse_options
from leveret.analytics.streaming.event_stream import EventStream
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_reading import read_partition
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from tests.spark.directories import DirectoryBuilder

COLUMNS = ["queue", "priority", "seq", "body"]


def stream(path: Path, **options: str) -> MessageStream:
    return MessageStream(parse_options({"path": str(path), **options}))


def read(source: MessageStream | EventStream, start: Any, end: Any, table: str = "messages") -> list[Any]:
    columns = COLUMNS if table == "messages" else ["at", "kind", "messages", "seq"]
    # As Spark keeps them.
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    found: list[Any] = []
    for partition in source.partitions(start, end):
        for batch in read_partition(partition, table, columns, fail_fast=True):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def test_every_message_comes_once_whatever_becomes_of_it(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, EngineOptions(segment_bytes=3000, trash_bytes=4000, ballast_bytes=0))
    stores = {name: builder.store(builder.queue(name)) for name in "ab"}
    rng = random.Random(3)
    source = stream(tmp_path, failOnDataLoss="false")
    offset = source.first()
    published: list[tuple[str, bytes]] = []
    received: list[tuple[str, bytes]] = []
    for step in range(80):
        for name, store in stores.items():
            bodies = [b"%d-%d" % (step, number) for number in range(rng.randrange(12))]
            builder.publish(store, bodies)
            published += [(name, body) for body in bodies]
        builder.tick()
        limit = rng.choice((0, 5, 30))
        end = source.advance(offset, limit)
        # They may go as soon as the batch has been promised.
        for store in stores.values():
            if rng.random() < 0.6:
                builder.settle(store, rng.randrange(1, 15))
            elif rng.random() < 0.1:
                store.purge()
        builder.tick()
        rows = read(source, offset, end)
        assert len(rows) <= (limit or 1 << 30)
        if rng.random() < 0.4:
            # It was killed: the next reader gets the same rows.
            source = stream(tmp_path, failOnDataLoss="false")
            assert read(source, offset, end) == rows
        received += [(row[0], row[3]) for row in rows]
        offset = end
    while (end := source.advance(offset, 0)) != offset:
        received += [(row[0], row[3]) for row in read(source, offset, end)]
        offset = end
    assert len(received) == len(set(received))
    # What was removed before a batch could see it, which the small limits have kept waiting, is counted.
    assert set(received) <= set(published)
    missing = Counter(name for name, _ in set(published) - set(received))
    assert offset["missed"] == {"/": missing}
    assert missing.total() < len(published) // 2
    source.commit(offset)
    assert os.listdir(tmp_path / "snap") == []


def test_nothing_is_missing_when_nothing_is_left_behind(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, EngineOptions(segment_bytes=1500, trash_bytes=1, ballast_bytes=0))
    store = builder.store(builder.queue("q"))
    source = stream(tmp_path)
    offset = source.first()
    received: list[int] = []
    for step in range(40):
        builder.publish(store, [b"%d" % step] * 7)
        builder.tick()
        end = source.advance(offset, 0)
        builder.settle(store, 7)
        builder.tick()
        received += [row[2] for row in read(source, offset, end)]
        offset = end
    assert received == list(range(1, 281))


def test_what_is_written_late_comes_too(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    store.set_lazy(False)
    builder.publish(store, [b"in memory"] * 3, delivery_mode=1)
    builder.publish(store, [b"on disk"])
    builder.tick()
    source = stream(tmp_path)
    start = source.first()
    end = source.advance(start, 0)
    assert [row[2] for row in read(source, start, end)] == [4]
    # They are paged out, with lower numbers than what has been read.
    store.set_lazy(True)
    builder.tick()
    last = source.advance(end, 0)
    assert [row[2] for row in read(source, end, last)] == [1, 2, 3]
    assert source.advance(last, 0) == last
    # An offset of a version that had one number for both streams.
    old = {"snapshot": "", "next": {"1/0": 5}}
    assert source.advance(old, 0) == old


def test_small_batches_let_no_queue_wait(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    stores = [builder.store(builder.queue(name)) for name in "abcdefgh"]
    source = stream(tmp_path)
    offset = source.first()
    seen: set[str] = set()
    for _ in range(200):
        for store in stores:
            builder.publish(store, [b"x"])
        builder.tick()
        end = source.advance(offset, 2)
        rows = read(source, offset, end)
        assert len(rows) <= 2
        seen.update(row[0] for row in rows)
        offset = end
        if len(seen) == len(stores):
            break
    assert seen == set("abcdefgh")


@pytest.mark.parametrize(
    "options",
    [{"asOf": "5"}, {"since": "5"}, {"lastSeq": "5"}, {"snapshot": "5"}, {"table": "queues"}, {"table": "segments"}],
)
def test_options_that_do_not_apply_to_streams(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"do not apply to streaming queries|cannot be read as a stream"):
        parse_options({"path": str(tmp_path), **options}).for_stream()


def test_a_batch_that_is_gone_is_not_passed_over(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"] * 10)
    builder.tick()
    source = stream(tmp_path)
    start = source.first()
    end = source.advance(start, 0)
    source.commit(end)
    with pytest.raises(AnalyticsError, match="failOnDataLoss"):
        read(stream(tmp_path), start, end)
    assert len(read(stream(tmp_path, failOnDataLoss="false"), start, end)) == 10


def test_a_stream_can_begin_with_what_comes(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"old"] * 10)
    builder.tick()
    source = stream(tmp_path, startingOffsets="latest")
    start = source.first()
    assert source.advance(start, 0) == start
    builder.publish(store, [b"new"])
    builder.tick()
    assert [row[3] for row in read(source, start, source.advance(start, 0))] == [b"new"]


def test_events_come_once(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    source = EventStream(parse_options({"path": str(tmp_path), "table": "events"}))
    offset = source.first()
    found: list[Any] = []
    for step in range(30):
        builder.publish(store, [b"x"] * 3)
        builder.settle(store, 2, EventKind.ACK if step % 2 else EventKind.EXPIRED)
        builder.tick()
        if step % 7 == 0:
            # A new file begins.
            builder.close()
            builder = DirectoryBuilder(tmp_path, start=builder.clock.time)
            store = builder.engine.store(next(iter(builder.engine.queues.values())))
        end = source.advance(offset, step % 3)
        found += read(source, offset, end, "events")
        offset = end
    while (end := source.advance(offset, 1)) != offset:
        found += read(source, offset, end, "events")
        offset = end
    assert sum(row[2] for row in found) == 60
    numbers = [seq for _, _, count, first in found for seq in range(first, first + count)]
    assert len(set(numbers)) == 60
