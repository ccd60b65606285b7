"""How long the messages of an event have waited: the longest, the shortest and the sum, however the log is divided."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

import leveret
from leveret.analytics.tables import partitions, table_plan
from leveret.storage.event_format import EVENT_BYTES, EventKind
from tests.spark.directories import DirectoryBuilder

COLUMNS = ["messages", "wait_ms", "min_wait_ms", "sum_wait_ms"]


def test_a_run_has_the_sum_and_the_extremes_of_its_waits(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    arrived = []
    for number in range(200):
        builder.publish(store, [b"x"])
        arrived.append(builder.clock.time)
        builder.wait(0.001 * (number % 7))
    builder.wait(0.05)
    # One after the other in one turn: the log makes runs of them.
    waits = []
    for at in arrived:
        store.settle(store.take(1, 1)[0])
        waits.append((builder.clock.time - at) / 1000)
    builder.tick()
    rows = leveret.scan(builder.path, "events", columns=COLUMNS).read_all().to_pylist()
    assert 1 < len(rows) < 20
    first = 0
    for row in rows:
        members = np.array(waits[first : first + row["messages"]])
        first += row["messages"]
        assert abs(row["sum_wait_ms"] - members.sum()) < 1 + 0.1 * len(members)
        assert abs(row["wait_ms"] - members.max()) <= 1
        assert abs(row["min_wait_ms"] - members.min()) <= 1
        assert row["wait_ms"] - row["min_wait_ms"] <= 2 * max(100, row["wait_ms"] / 10)
    assert first == 200
    assert sum(row["sum_wait_ms"] for row in rows) < 0.9 * sum(row["wait_ms"] * row["messages"] for row in rows)
    # What says it is in a record of its own, which is also found where a part ends between the two.
    whole = leveret.scan(builder.path, "events").read_all()
    event_partitions = partitions.event_partitions
    for step in (1, 2, 3):
        divided = partial(event_partitions, step=step * EVENT_BYTES)
        with mock.patch.object(table_plan, "event_partitions", divided):
            assert leveret.scan(builder.path, "events").read_all() == whole
    builder.close()


def test_messages_dropped_from_the_disk_wait_between_the_first_and_the_last(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    for _ in range(10):
        builder.publish(store, [b"x"])
        builder.wait(0.01)
    builder.reopen()
    store = builder.store(next(iter(builder.engine.queues.values())))
    store.drop(10, 1 << 30, EventKind.MAXLEN)
    builder.tick()
    (row,) = leveret.scan(builder.path, "events", columns=COLUMNS).read_all().to_pylist()
    assert row["messages"] == 10
    assert row["wait_ms"] - row["min_wait_ms"] in (89, 90, 91)
    assert abs(row["sum_wait_ms"] - 10 * (row["wait_ms"] + row["min_wait_ms"]) / 2) <= 10
    builder.close()
