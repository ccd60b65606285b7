"""The table `delayed`: messages that wait in an exchange, which are in no other table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import parse_options
from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.snapshot import NoSuchQueueError
from leveret.storage.stores.numbered_store import NumberedStore
from tests.spark.directories import START, DirectoryBuilder, rows_of_table

_BEGIN = datetime.fromtimestamp(START / 1_000_000, UTC)


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    """A data directory with a queue, and a delayed exchange with three messages, one of which has been routed."""
    made = DirectoryBuilder(tmp_path)
    made.publish(made.store(made.queue("late", "shop")), [b"waits in the queue"])
    exchange = made.engine.create_queue(True, {"vhost": "shop", "exchange": "late", "persists_transient": True})
    store = made.store(exchange)
    made.publish(store, [b"one", b"two", b"three"], "key", START + 3_600_000_000, headers={"x-delay": -3_600_000})
    numbered = NumberedStore(store)
    numbered.settle(numbered.take([2], 1 << 20)[0], EventKind.ROUTED)
    store.note(EventKind.REFUSED, 5, 50)
    for _ in range(3):
        made.tick()
    return made


def test_has_what_waits(builder: DirectoryBuilder, tmp_path: Path) -> None:
    rows = rows_of_table(tmp_path, "delayed")
    assert [(row["vhost"], row["delayed_in"], row["seq"], row["body"]) for row in rows] == [
        ("shop", "late", 1, b"one"),
        ("shop", "late", 3, b"three"),
    ]
    first = rows[0]
    assert first["due_at"] == _BEGIN + timedelta(hours=1)
    assert _BEGIN <= first["published_at"] < _BEGIN + timedelta(minutes=1)
    assert (first["exchange"], first["routing_key"], first["headers"]) == (
        "amq.topic",
        "key",
        [("x-delay", "-3600000")],
    )


@pytest.mark.parametrize("table", ["messages", "segments", "queues"])
def test_other_tables_have_queues_only(builder: DirectoryBuilder, tmp_path: Path, table: str) -> None:
    (row,) = rows_of_table(tmp_path, table)
    assert (row["vhost"], row["queue"]) == ("shop", "late")
    assert row.get("body", b"waits in the queue") == b"waits in the queue"
    assert row.get("messages", 1) == 1


def test_events_name_the_exchange(builder: DirectoryBuilder, tmp_path: Path) -> None:
    rows = [
        (row["vhost"], row["queue"], row["exchange"], row["kind"], row["messages"])
        for row in rows_of_table(tmp_path, "events")
    ]
    assert rows == [("shop", None, "late", "refused", 5), ("shop", None, "late", "routed", 1)]
    assert rows_of_table(tmp_path, "events", queue="late") == []


def test_a_deleted_exchange_keeps_its_name(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.engine.delete_queue(builder.engine.queues[2])
    builder.tick()
    events = rows_of_table(tmp_path, "events")
    assert sum(row["messages"] for row in events if (row["exchange"], row["kind"]) == ("late", "queue_deleted")) == 2
    assert rows_of_table(tmp_path, "delayed") == []


def test_options(builder: DirectoryBuilder, tmp_path: Path) -> None:
    assert len(rows_of_table(tmp_path, "delayed", vhost="shop")) == 2
    assert rows_of_table(tmp_path, "delayed", vhost="other") == []
    with pytest.raises(AnalyticsError, match="option 'queue' does not apply to table delayed"):
        parse_options({"path": str(tmp_path), "table": "delayed", "queue": "late"})
    builder.engine.delete_queue(builder.engine.queues[1])
    builder.tick()
    with pytest.raises(NoSuchQueueError, match="queues there: none"):
        rows_of_table(tmp_path, "messages", queue="late")
