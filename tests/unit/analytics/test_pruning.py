from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from leveret.analytics.errors import OptionError
from leveret.analytics.options import Options, parse_options
from leveret.analytics.selection import RowLimits
from leveret.analytics.spark.readers import Pruning
from leveret.analytics.times import parse_time

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_767_268_800_000_000


def test_conditions_that_can_be_decided_beforehand() -> None:
    pruning = Pruning()
    given: list[Filter] = [
        In(("queue",), ("a", "b")),
        EqualTo(("vhost",), "/"),
        GreaterThan(("seq",), 10),
        LessThanOrEqual(("seq",), 20),
        LessThan(("seq",), 100),
        GreaterThanOrEqual(("enqueued_at",), NOON),
    ]
    others: list[Filter] = [
        StringContains(("queue",), "x"),
        GreaterThan(("body_bytes",), 5),
        EqualTo(("headers", "seq"), "1"),
        GreaterThan(("seq",), None),
    ]
    assert pruning.apply("messages", given + others) == others
    assert pruning.limits == RowLimits(11, 20, NOON_US, RowLimits().last_time)
    assert [pruning.wants(vhost, queue) for vhost, queue in (("/", "a"), ("/", "c"), ("v", "a"))] == [
        True,
        False,
        False,
    ]
    assert pruning.apply("messages", [EqualTo(("queue",), "b"), EqualTo(("seq",), 12)]) == []
    assert not pruning.wants("/", "a")
    assert pruning.limits[:2] == (12, 12)


def test_the_time_of_events() -> None:
    pruning = Pruning()
    assert pruning.apply("events", [LessThan(("at",), NOON)]) == []
    assert pruning.limits.last_time == NOON_US - 1
    assert len(pruning.apply("events", [LessThan(("enqueued_at",), NOON), EqualTo(("seq",), 1)])) == 2
    assert len(pruning.apply("queues", [LessThan(("oldest_at",), NOON)])) == 1


def test_options() -> None:
    found = parse_options(
        {"path": "file:///data", "Table": "events", "asOf": "5", "MODE": "FailFast", "queue": "a*", "since": "1.5"}
    )
    assert found == Options("/data", "events", None, "a*", 5_000_000, True, limits=RowLimits(first_time=1_500_000))
    assert found.wants("/", "abc")
    assert not found.wants("/", "b")
    assert found.described is None
    assert parse_options({"path": "/d", "queue": "a"}).described == "'a'"
    assert parse_options({"path": "/d", "lastSeq": str(10**30)}).limits.last_seq == (1 << 63) - 1


@pytest.mark.parametrize("name", ["w?[x]y", "[ab]", "a*", "[", "日本 [1]"])
def test_queues_that_are_called_like_patterns(name: str) -> None:
    assert parse_options({"path": "/d", "queue": name, "vhost": name}).wants(name, name)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "name the data directory"),
        ({"path": "/d", "segmentsPerPartition": "0"}, "must be an integer of at least 1, not '0'"),
        ({"path": "/d", "maxRecordsPerTrigger": "many"}, "must be an integer of at least 0, not 'many'"),
        ({"path": "/d", "asOf": "inf"}, "'inf' is not a time"),
        ({"path": "/d", "asOf": "nan"}, "'nan' is not a time"),
        ({"path": "/d", "until": "1e999999999"}, "'1e999999999' is not a time"),
        ({"path": "/d", "since": "2026-02-30"}, "'2026-02-30' is not a time"),
        ({"path": "/d", "since": ""}, "'' is not a time"),
        (
            {"path": "/d", "table": "queues", "since": "5"},
            "'since' does not apply to table queues, only to messages and events",
        ),
        ({"path": "/d", "table": "events", "firstSeq": "5"}, "'firstseq' does not apply to table events"),
    ],
)
def test_options_without_meaning(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_options(given)


@pytest.mark.parametrize(
    "text", ["2026-01-01T12:00:00Z", "2026-01-01 12:00", "2026-01-01T13:00:00+01:00", "1767268800"]
)
def test_times(text: str) -> None:
    assert parse_time(text) == NOON_US


def test_times_keep_microseconds() -> None:
    assert parse_time("1767268800.123457") == NOON_US + 123_457
    assert parse_time("2026-01-01T12:00:00.000001+00:00") == NOON_US + 1
    assert parse_time("2025-12-31T23:59:59.5-12:00") == NOON_US - 500_000
    assert parse_time("-1.5") == -1_500_000
