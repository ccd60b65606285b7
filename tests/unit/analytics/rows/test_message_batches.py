from __future__ import annotations

import json
import struct
from array import array
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pamqp import encode

from leveret.analytics.errors import DamagedRecordError
from leveret.analytics.options import parse_options
from leveret.analytics.rows.record_rows import find_records, in_ranges, select_rows
from leveret.analytics.selection import RowLimits
from leveret.analytics.tables.table_query import make_query
from leveret.analytics.times import microseconds
from leveret.storage.snapshots.snapshot import take_snapshot
from tests.spark.directories import START, DirectoryBuilder, rows_of_table


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    return DirectoryBuilder(tmp_path)


def test_all_columns_of_a_message(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("orders", "shop"))
    death = {"queue": "work", "reason": "maxlen", "count": 3, "time": datetime(2023, 1, 2, tzinfo=UTC)}
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"tenant": "ä", "n": 5, "flag": True, "x-death": [death, {**death, "count": 1}]},
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": datetime(2023, 5, 6, 7, 8, 9, tzinfo=UTC),
        "message_type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    builder.publish(store, [b"hello"], "orders.neu.ü", START + 5_000_000, **properties)
    builder.publish(store, [b""])
    builder.tick()
    first, second = rows_of_table(tmp_path)
    typed = json.loads(first.pop("headers_json"))
    assert (typed["tenant"], typed["n"]) == ({"type": "longstr", "value": "ä"}, {"type": "int8", "value": 5})
    assert typed["x-death"]["value"][0]["value"]["time"] == {"type": "timestamp", "value": 1672617600}
    headers = dict(first.pop("headers"))
    assert {name: headers[name] for name in ("tenant", "n", "flag")} == {"tenant": "ä", "n": "5", "flag": "true"}
    assert json.loads(headers["x-death"])[0] == {**death, "time": 1672617600}
    assert START < first.pop("enqueued_at").timestamp() * 1e6 < START + 1000
    assert first == {
        "vhost": "shop",
        "queue": "orders",
        "queue_id": 1,
        "store_priority": 0,
        "seq": 1,
        "stream_offset": None,
        "expires_at": datetime.fromtimestamp(START / 1e6 + 5, UTC),
        "exchange": "amq.topic",
        "routing_key": "orders.neu.ü",
        **{name: value for name, value in properties.items() if name not in ("headers", "message_type")},
        "type": "t",
        "delivery_mode": 2,
        "cluster_id": None,
        "dead_letter_count": 4,
        "dead_letter_reason": "maxlen",
        "dead_letter_queue": "work",
        "dead_lettered_at": datetime(2023, 1, 2, tzinfo=UTC),
        "original_exchange": None,
        "original_routing_key": None,
        "persistent": True,
        "redelivered": False,
        "body_bytes": 5,
        "body": b"hello",
    }
    assert (second["seq"], second["body"], second["body_bytes"], second["headers"]) == (2, b"", 0, None)
    assert [second[name] for name in ("expires_at", "content_type", "timestamp", "priority")] == [None] * 4
    assert (second["dead_letter_count"], second["dead_letter_reason"]) == (0, None)


def test_many_segments_of_mixed_messages(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    expected = {}
    for number in range(1, 700):
        body = b"b" * (number * 7 % 90)
        properties: dict[str, Any] = {"message_id": f"id{number}"} if number % 3 else {"headers": {"n": number}}
        if number % 5 == 0:
            properties["content_type"] = "x" * (number % 40 + 1)
        builder.publish(store, [body], "k" * (number % 9), **properties)
        expected[number] = (body, properties.get("message_id"), properties.get("content_type"), "k" * (number % 9))
    builder.settle(store, 123)
    builder.tick()
    rows = rows_of_table(
        tmp_path, columns=["seq", "body", "message_id", "content_type", "routing_key", "headers", "redelivered"]
    )
    found = {row["seq"]: (row["body"], row["message_id"], row["content_type"], row["routing_key"]) for row in rows}
    assert found == {seq: each for seq, each in expected.items() if seq > 123}
    assert all(dict(row["headers"]) == {"n": str(row["seq"])} for row in rows if row["seq"] % 3 == 0)
    # What was read together with the settled ones, or ahead of them, was not delivered.
    assert not any(row["redelivered"] for row in rows)


def test_priorities_spilled_messages_and_queues_that_do_not_last(builder: DirectoryBuilder, tmp_path: Path) -> None:
    queue = builder.queue("p")
    for priority in (0, 4):
        builder.publish(builder.store(queue, priority), [b"%d" % priority] * 3, priority=priority)
    builder.publish(builder.store(queue, 4), [b"transient"], delivery_mode=1)
    builder.publish(builder.store(builder.queue("volatile", durable=False)), [b"v"])
    builder.tick()
    rows = rows_of_table(tmp_path, columns=["queue", "seq", "body", "persistent", "priority"])
    assert sorted((row["queue"], row["seq"], row["body"], row["persistent"]) for row in rows) == [
        ("p", 1, b"0", True),
        ("p", 1, b"4", True),
        ("p", 2, b"0", True),
        ("p", 2, b"4", True),
        ("p", 3, b"0", True),
        ("p", 3, b"4", True),
        ("p", 4, b"transient", False),
        ("volatile", 1, b"v", True),
    ]


def test_redelivered_messages(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"a", b"b", b"c"])
    taken = store.take(2, 100)[0]
    store.requeue(taken)
    builder.engine.checkpoint()
    builder.tick()
    assert [row["redelivered"] for row in rows_of_table(tmp_path, columns=["redelivered"])] == [True, True, False]


def test_as_of_a_moment_in_the_past(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 500] * 30)
    first = builder.tick()
    builder.wait(10)
    builder.settle(store, 20)
    second = builder.tick()
    builder.wait(10)
    builder.publish(store, [b"y"])
    builder.engine.checkpoint()
    builder.tick()

    def seqs(as_of: int) -> list[int]:
        return [row["seq"] for row in rows_of_table(tmp_path, columns=["seq"], asOf=str(as_of / 1e6))]

    # Their segments are in the trash.
    assert seqs(first + 10) == list(range(1, 31))
    assert seqs(second + 10) == list(range(21, 31))
    assert seqs(builder.clock.time) == list(range(21, 32))


def test_events_of_a_file_that_began_after_them(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"])
    builder.settle(store, 1)
    builder.tick()
    (row,) = rows_of_table(tmp_path, table="events")
    assert row["event_at"] == row["at"]
    at = Decimal(microseconds(row["at"])) / 1_000_000
    assert len(rows_of_table(tmp_path, table="events", since=str(at), until=str(at))) == 1
    assert rows_of_table(tmp_path, table="events", until=str(at - Decimal("0.000001"))) == []


def test_damaged_records_are_counted(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"%04d" % number for number in range(100)])
    builder.tick()
    victim = min(tmp_path.glob("q/*/*.seg"))
    octets = bytearray(victim.read_bytes())
    octets[octets.index(b"0010") + 1] ^= 1
    victim.write_bytes(octets)
    rows = rows_of_table(tmp_path, columns=["seq", "body"])
    assert [row["body"] for row in rows] == [b"%04d" % number for number in range(100) if number != 10]
    with take_snapshot(str(tmp_path)) as snapshot:
        view = snapshot.queues[0].stores[0].segments[0]
        assert view.sealed
        found = select_rows(bytes(octets), view, snapshot.cut.time, RowLimits(), view.live)
        assert found.damage.records == 1
    with pytest.raises(DamagedRecordError):
        rows_of_table(tmp_path, columns=["seq"], mode="failfast")


def test_the_walk_along_the_index_finds_what_a_scan_finds(builder: DirectoryBuilder, tmp_path: Path) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"z" * (number % 50) for number in range(300)])
    builder.close()
    count = 0
    with take_snapshot(str(tmp_path)) as snapshot:
        for view in snapshot.queues[0].stores[0].segments:
            octets = Path(view.path).read_bytes()
            walked = find_records(octets, view)
            scanned = find_records(octets[:-1], view)
            assert walked.positions.tolist() == scanned.positions.tolist()
            count += len(walked.positions)
    assert count == 300


def test_claims_of_publishers_do_not_stop_a_query(builder: DirectoryBuilder, tmp_path: Path) -> None:
    deaths = [{"queue": "q", "reason": "maxlen", "count": 1 << 62}] * 3
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"a"], headers={"x-death": deaths})
    builder.publish(store, [b"b"], headers={"x-death": [{"count": -5}, "no table"]})
    builder.publish(store, [b"c"], headers={"x-death": 5})
    builder.tick()
    rows = rows_of_table(tmp_path, columns=["dead_letter_count", "dead_letter_reason", "dead_lettered_at"])
    assert [tuple(row.values()) for row in rows] == [((1 << 63) - 1, "maxlen", None), (0, None, None), (0, None, None)]


def test_a_timestamp_in_milliseconds_or_microseconds_is_the_same_time(
    builder: DirectoryBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMQP says seconds, but many publishers do not divide. What is no time in any of these units is null."""
    # pamqp takes a datetime only, which has no such years.
    monkeypatch.setitem(encode.METHODS, "timestamp", struct.Struct(">Q").pack)
    store = builder.store(builder.queue("q"))
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for timestamp in (1_769_860_800, 1_769_860_800_000, 1_769_860_800_000_000, 253_402_300_799, 1 << 63):
        builder.publish(store, [b"m"], timestamp=timestamp)
    builder.tick()
    rows = rows_of_table(tmp_path, columns=["timestamp"])
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert [row["timestamp"] for row in rows] == [at, at, at, last, None]


def test_a_dead_letter_has_its_original_exchange_and_routing_key(builder: DirectoryBuilder, tmp_path: Path) -> None:
    """Those of its first death, which need not be the last entry of x-death: what counts again comes to the front."""

    def death(queue: str, exchange: str, *keys: str) -> dict[str, Any]:
        return {"queue": queue, "reason": "rejected", "exchange": exchange, "routing-keys": [*keys]}

    def first(queue: str, exchange: str) -> dict[str, str]:
        names = {"queue": queue, "reason": "rejected", "exchange": exchange}
        return {f"x-first-death-{name}": value for name, value in names.items()}

    twice = [death("work", "shop", "order.new", "copy"), death("retry", "again", "retry")]
    store = builder.store(builder.queue("q"))
    given = [
        {"x-death": twice, **first("work", "shop")},
        {"x-death": twice},
        {"x-death": twice, **first("gone", "left")},
        {"x-death": [death("work", "")]},
        {"x-death": [{"exchange": 5, "routing-keys": 5}]},
        {"x-death": 5, **first("work", "shop")},
        {**first("work", "shop")},
        {"x-death": twice, **first("work", "shop")},
    ]
    for headers in given:
        builder.publish(store, [b"m"], "dead", headers=headers)
    builder.publish(store, [b"m"])
    builder.tick()
    rows = rows_of_table(tmp_path, columns=["original_routing_key", "original_exchange"])
    assert [(row["original_exchange"], row["original_routing_key"]) for row in rows] == [
        ("shop", "order.new"),
        ("again", "retry"),
        ("left", None),
        ("", None),
        (None, None),
        ("shop", None),
        (None, None),
        ("shop", "order.new"),
        (None, None),
    ]


def test_a_row_has_a_key_for_the_whole_life_of_its_queue(builder: DirectoryBuilder, tmp_path: Path) -> None:
    keys: list[tuple[int, ...]] = []
    for _ in range(2):
        queue = builder.queue("q")
        for priority in (0, 5, 0):
            builder.publish(builder.store(queue, priority), [b"x"] * 3)
        builder.tick()
        rows = rows_of_table(tmp_path, columns=["queue_id", "store_priority", "seq", "queue"])
        assert {row.pop("queue") for row in rows} == {"q"}
        keys += [tuple(row.values()) for row in rows]
        builder.engine.delete_queue(queue)
    assert len(keys) == len(set(keys)) == 18
    assert sorted(keys) == [
        (queue_id, priority, seq)
        for queue_id in (1, 2)
        for priority, last in ((0, 6), (5, 3))
        for seq in range(1, last + 1)
    ]


def test_small_queues_share_a_task(builder: DirectoryBuilder, tmp_path: Path) -> None:
    for number in range(100):
        builder.publish(builder.store(builder.queue(f"q{number}")), [b"x"])
    builder.tick()
    query = make_query(parse_options({"path": str(tmp_path)}), None, ["queue"])
    parts = query.plan().parts
    assert len(parts) < 50
    queues = [row["queue"] for batch in query.read(parts) for row in batch.to_pylist()]
    assert sorted(queues) == sorted(f"q{number}" for number in range(100))


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ([], [False] * 4),
        ([1, 10], [True] * 4),
        ([1, 3, 4, 5], [True, True, False, True]),
        ([2, 3], [False, True, False, False]),
    ],
)
def test_inside(bounds: list[int], expected: list[bool]) -> None:
    assert in_ranges(np.array([1, 2, 3, 4], np.uint64), array("Q", bounds)).tolist() == expected
