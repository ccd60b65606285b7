from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from leveret.analytics.errors import OptionError
from leveret.analytics.jobs import export, flow, sql, waiting
from leveret.analytics.jobs.flow import replay, run_capacity
from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.report import page
from leveret.analytics.results.result_output import (
    ConditionError,
    as_csv,
    as_json_lines,
    as_table,
    failure_text,
    rows_of,
    rows_that_fulfil,
)
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import DEAD_LETTERED, TOLD, EventKind
from leveret.storage.snapshots.snapshot import Request
from tests.spark.directories import START, DirectoryBuilder
from tests.support.plain_reader import open_reader

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two minutes of three queues: `a` is limited to 20 messages, `b` dead-letters what expires to `dead`."""
    builder = DirectoryBuilder(tmp_path_factory.mktemp("data"))
    a, b, dead = (builder.store(builder.queue(name)) for name in ("a", "b", "dead"))
    for second in range(120):
        builder.clock.time = START + second * 1_000_000
        builder.publish(a, [b"a%d" % second], f"key.{second % 2}", message_id=f"id{second % 100}")
        if a.ready_count > 20:
            builder.settle(a, 1, EventKind.MAXLEN)
        builder.publish(b, [b"b" * 100], "b")
        if second >= 60 and second % 2:
            builder.settle(b, 1)
        if second >= 110:
            builder.settle(b, 1, EventKind.EXPIRED, 1)
            when = datetime.fromtimestamp(START // 1_000_000 + second, UTC)
            death = {"queue": "b", "reason": "expired", "count": 2, "time": when}
            builder.publish(dead, [b"dead %d" % second], "b", headers={"x-death": [death]})
    builder.tick()
    builder.close()
    return builder.path


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.spark
def test_what_waits(spark: SparkSession, directory: str) -> None:
    results = waiting.run_backlog(spark, JobOptions(directory))
    rows = rows_of(results["backlog"])
    assert columns(rows, "vhost", "queue", "routing_key", "messages", "body_bytes") == [
        ("/", "b", "b", 80, 8000),
        ("/", "a", "key.0", 10, 40),
        ("/", "a", "key.1", 10, 40),
        ("/", "dead", "b", 10, 80),
    ]
    assert rows[0]["oldest_at"].timestamp() == pytest.approx(START / 1e6 + 40, abs=0.1)
    assert rows[0]["oldest_age_s"] > 86_400
    assert columns(rows_of(results["sizes"]), "queue", "from_bytes", "to_bytes", "messages") == [
        ("a", 4, 7, 20),
        ("b", 64, 127, 80),
        ("dead", 8, 15, 10),
    ]
    rows = rows_of(waiting.run_deadletters(spark, JobOptions(directory))["deadletters"])
    names = ("queue", "origin_queue", "reason", "messages", "deaths")
    assert columns(rows, *names) == [("dead", "b", "expired", 10, 2)]
    rows = rows_of(waiting.run_duplicates(spark, JobOptions(directory, queue="[ab]"))["duplicates"])
    assert columns(rows, "queue", "same", "messages") == [("b", "body", 80)]


@pytest.mark.spark
def test_returned_messages_are_no_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Neither in their own queue nor in another one that got them again by the exchange."""
    builder = DirectoryBuilder(tmp_path)
    death = {"queue": "work", "reason": "rejected", "count": 1, "exchange": "amq.topic", "routing-keys": ["k"]}
    for queue, key in (("work", "work"), ("other", "k"), ("dead", "dead")):
        builder.publish(builder.store(builder.queue(queue)), [b"m"], key, headers={"x-death": [death]})
    builder.tick()
    builder.close()
    rows = rows_of(waiting.run_deadletters(spark, JobOptions(builder.path))["deadletters"])
    assert columns(rows, "queue", "origin_queue", "messages") == [("dead", "work", 1)]


@pytest.mark.spark
def test_rejected_messages_are_losses(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 10)
    builder.settle(store, 3, EventKind.REJECT)
    builder.settle(store, 2, EventKind.REJECT, DEAD_LETTERED)
    builder.settle(store, 4)
    builder.settle(store, 1, EventKind.PURGED)
    builder.tick()
    builder.close()
    rows = rows_of(flow.run_overflow(spark, JobOptions(builder.path))["overflow"])
    assert columns(rows, "queue", "reason", "messages") == [("q", "reject", 3), ("q", "reject+dead_letter", 2)]


@pytest.mark.spark
def test_what_has_happened(spark: SparkSession, directory: str) -> None:
    # Minutes of the clock, in which the first one begins 20 s late.
    rows = rows_of(flow.run_overflow(spark, JobOptions(directory))["overflow"])
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["queue"], row["reason"]] += row["messages"]
        assert row["minute"].second == 0
    assert found == {("a", "maxlen"): 100, ("b", "expired+dead_letter"): 10}
    assert {row["max_wait_ms"] // 1000 for row in rows if row["queue"] == "a"} == {20}
    rows = rows_of(flow.run_latency(spark, JobOptions(directory))["latency"])
    assert {row["queue"] for row in rows} == {"b"}
    assert sum(row["messages"] for row in rows) == 30
    waits: dict[int, list[int]] = {}
    with open_reader(directory, Request(messages=False, events=True)) as reader:
        for event in reader.events():
            if event.kind == EventKind.ACK:
                waits.setdefault(event.time // 60_000_000 * 60, []).extend([event.wait_ms] * event.length)
    for row in rows:
        found_there = waits.pop(int(row["minute"].timestamp()))
        expected = [round(float(each), 1) for each in np.percentile(found_there, (50, 90, 99))]
        assert [row["p50_ms"], row["p90_ms"], row["p99_ms"], row["max_ms"]] == [*expected, max(found_there)]
    assert waits == {}
    rows = rows_of(flow.run_throughput(spark, JobOptions(directory))["throughput"])
    totals = {
        name: [sum(row[way] for row in rows if row["queue"] == name) for way in ("messages_in", "messages_out")]
        for name in ("a", "b", "dead")
    }
    assert totals == {"a": [120, 100], "b": [120, 40], "dead": [10, 0]}
    assert columns([row for row in rows if row["queue"] == "a"], "messages_in") == [(40,), (60,), (20,)]


@pytest.mark.spark
def test_messages_acknowledged_together_have_waits_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    waits = []
    for each in (40, 1, 2, 3, 500):
        arrived = []
        for number in range(each):
            builder.publish(store, [b"x"])
            arrived.append(builder.clock.time)
            builder.wait(0.09 / each if number % 3 else 0)
        builder.settle(store, each)
        waits += [(builder.clock.time - at) / 1000 for at in arrived]
    builder.tick()
    builder.close()
    (row,) = rows_of(flow.run_latency(spark, JobOptions(builder.path))["latency"])
    assert row["messages"] == 546
    for name, share in (("p50_ms", 50), ("p90_ms", 90), ("p99_ms", 99)):
        assert row[name] == pytest.approx(np.percentile(waits, share), abs=3), name
    (row,) = rows_of(flow.run_throughput(spark, JobOptions(builder.path))["throughput"])
    assert (row["messages_in"], row["messages_out"]) == (546, 546)


@pytest.mark.spark
def test_what_queues_that_are_gone_have_held(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    gone, other = builder.queue("gone"), builder.store(builder.queue("other"))
    store = builder.store(gone)
    builder.publish(store, [b"12345"] * 10)
    builder.wait(60)
    builder.settle(store, 3)
    store.settle(store.take(2, 100)[0], EventKind.MAXLEN, 1)
    store.note(EventKind.DEAD_LETTER_LOST, 2, 10)
    store.note(EventKind.REFUSED, 4, 20, TOLD)
    builder.publish(other, [b"x"])
    # To the tail of a quorum queue, under another number.
    builder.publish(other, [b"x"])
    other.settle(other.take(1, 100)[0], EventKind.RETURNED)
    builder.tick()
    builder.engine.delete_queue(gone)
    builder.tick()
    options = JobOptions(builder.path, as_of=str(builder.clock.time / 1e6 + 3600))
    sums: Counter[tuple[str, str]] = Counter()
    for row in rows_of(flow.run_throughput(spark, options)["throughput"]):
        for name in ("messages_in", "messages_out", "body_bytes_in", "body_bytes_out"):
            sums[row["queue"], name] += row[name]
    assert [sums["gone", name] for name in ("messages_in", "messages_out")] == [10, 10]
    assert [sums["gone", name] for name in ("body_bytes_in", "body_bytes_out")] == [50, 50]
    assert [sums["other", name] for name in ("messages_in", "messages_out")] == [1, 0]
    rows = rows_of(flow.run_overflow(spark, replace(options, grain="day"))["overflow"])
    assert columns(rows, "queue", "reason", "messages", "body_bytes") == [
        ("gone", "dead_letter_lost", 2, 10),
        ("gone", "maxlen+dead_letter", 2, 10),
        ("gone", "refused+told", 4, 20),
    ]
    assert (rows[0]["max_wait_ms"], rows[1]["max_wait_ms"] // 1000) == (None, 60)
    assert rows[0]["minute"] == datetime(2023, 11, 14, tzinfo=UTC)


@pytest.mark.spark
def test_ages_are_those_of_the_moment_that_is_asked_for(spark: SparkSession, directory: str) -> None:
    options = JobOptions(directory, as_of=str(START / 1e6 + 1000))
    rows = rows_of(waiting.run_backlog(spark, options)["backlog"])
    assert rows[0]["oldest_age_s"] == pytest.approx(960, abs=0.1)
    (row,) = rows_of(waiting.run_deadletters(spark, options)["deadletters"])
    assert row["oldest_age_s"] == 890


@pytest.mark.spark
def test_values_of_all_kinds_are_shown(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        frame = spark.sql(
            "select timestamp'2026-03-08T12:34:56Z' at, timestamp_ntz'2026-03-08 12:00:00' local, 1.5bd d, 2bd e, "
            "double('nan') nan, map_filter(map('a', 1), (k, v) -> false) none, map(1, 'a') one, date'2026-01-01' day, "
            "null nothing, cast('12345678901234567890.0123456789' as decimal(38, 10)) long, array(0.10bd) list"
        )
        (row,) = rows_of(frame)
        days = frame.select(*(JobOptions("/data", grain=grain).span("at") for grain in ("hour", "day")))
        spans = days.toDF("hour", "day").collect()[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert json.loads(as_json_lines(frame.columns, [row])) == {
        "at": "2026-03-08T12:34:56.000000Z",
        "local": "2026-03-08T12:00:00.000000",
        "d": 1.5,
        "e": 2,
        "nan": "NaN",
        "none": {},
        "one": {"1": "a"},
        "day": "2026-01-01",
        "nothing": None,
        "long": 12345678901234567890.0123456789,
        "list": [0.1],
    }
    # No float has all of its digits.
    assert '"long": 12345678901234567890.0123456789, "list": [0.10]}' in as_json_lines(frame.columns, [row])
    assert as_csv(["d", "long", "list"], [row]) == "d,long,list\n1.5,12345678901234567890.0123456789,[0.10]\n"
    assert f"{row['at']:%H:%M}" == "12:34"
    # Where the zone of the session stands at half past, and its day begins later.
    assert spans.hour.timestamp() == datetime(2026, 3, 8, 12, tzinfo=UTC).timestamp()
    assert spans.day.timestamp() == datetime(2026, 3, 8, tzinfo=UTC).timestamp()


@pytest.mark.spark
def test_what_limits_would_have_done(spark: SparkSession, directory: str) -> None:
    hours = str((datetime.now(UTC).timestamp() - START / 1e6) / 3600 + 1)
    options = JobOptions(directory, queue="a", values={"max_length": "10,200", "hours": hours})
    rows = rows_of(run_capacity(spark, options)["capacity"])
    assert columns(rows, "queue", "max_length", "messages_in", "peak_messages", "dropped") == [
        ("a", 10, 120, 10, 110),
        ("a", 200, 120, 120, 0),
    ]
    assert rows[0]["first_drop_at"].timestamp() == START // 1_000_000 + 10


def test_replay_of_a_history_with_a_limit() -> None:
    rows = [
        {"second": second, "in_window": True, "arrived": arrived, "left": left}
        for second, (arrived, left) in enumerate([(5, 0), (5, 0), (0, 4), (0, 6), (3, 0)])
    ]
    unlimited = replay(rows, None)
    assert (unlimited["messages_in"], unlimited["peak_messages"], unlimited["dropped"]) == (13, 10, 0)
    tight = replay(rows, 7)
    # Three are dropped in the second second; the first three departures were these messages.
    assert (tight["peak_messages"], tight["dropped"], tight["dropped_percent"]) == (7, 3, 23.08)
    assert tight["first_drop_at"] == datetime.fromtimestamp(1, UTC)


@pytest.mark.spark
def test_an_export_goes_on_from_the_last_one(spark: SparkSession, tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    store = builder.store(builder.queue("q"))
    output = str(tmp_path / "lake")
    options = JobOptions(builder.path, output=output, values={"max_records": "40"})
    for count in (50, 130):
        builder.publish(store, [b"x"] * 80 if count > 50 else [b"x"] * 50)
        builder.tick()
        assert columns(rows_of(export.run(spark, options)["export"]), "queue", "messages") == [("q", count)]
        builder.settle(store, 30)
        builder.tick()
    assert sorted(row.seq for row in spark.read.parquet(output).select("seq").collect()) == list(range(1, 131))
    assert (tmp_path / "lake" / "vhost_dir=%2F" / "queue_dir=q" / "date=2023-11-14").is_dir()
    with pytest.raises(OptionError, match="--output"):
        export.run(spark, JobOptions(builder.path))


@pytest.mark.spark
def test_an_export_says_what_it_has_missed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = DirectoryBuilder(tmp_path / "data", EngineOptions(segment_bytes=1000, trash_bytes=1, ballast_bytes=0))
    store = builder.store(builder.queue("q"))
    values = {"fail_on_data_loss": "false"}
    options = JobOptions(builder.path, output=str(tmp_path / "lake"))
    builder.publish(store, [b"x" * 90] * 20)
    builder.tick()
    export.run(spark, replace(options, values=values))
    assert capsys.readouterr().err == ""
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 40)
    builder.tick()
    builder.tick()
    builder.publish(store, [b"new"] * 2)
    builder.tick()
    with pytest.raises(StreamingQueryException, match="20 messages of queue 'q' in virtual host '/'"):
        export.run(spark, options)
    assert columns(rows_of(export.run(spark, replace(options, values=values))["export"]), "messages") == [(22,)]
    assert capsys.readouterr().err == "20 messages of queue 'q' in virtual host '/' were not exported\n"
    export.run(spark, options)
    assert capsys.readouterr().err == ""


@pytest.mark.spark
def test_sql(spark: SparkSession, directory: str) -> None:
    query = "select m.queue, count(*) n, first(q.messages) depth from messages m join queues q using (queue) group by 1"
    rows = rows_of(sql.run(spark, JobOptions(directory, queue="a", values={"query": query}))["sql"])
    assert rows == [{"queue": "a", "n": 20, "depth": 20}]
    with pytest.raises(OptionError, match="--query"):
        sql.run(spark, JobOptions(directory))


def run_program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "leveret.analytics.command", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


@pytest.mark.spark
def test_rows_that_fulfil_a_condition(spark: SparkSession, directory: str) -> None:
    frame = waiting.run_backlog(spark, JobOptions(directory))["backlog"]
    condition = "messages >= 20 or routing_key = 'key.1'"
    text = failure_text(rows_that_fulfil(frame.select("queue", "routing_key", "messages"), condition), condition)
    assert text.splitlines() == [
        f"2 rows with {condition}",
        "queue  routing_key  messages",
        "-----  -----------  --------",
        "b      b                  80",
        "a      key.1              10",
    ]
    assert failure_text(rows_that_fulfil(frame, "messages > 80"), "messages > 80") == ""
    many = failure_text(rows_that_fulfil(spark.range(50).coalesce(1), "id > 10"), "id > 10").splitlines()
    assert (many[0], many[3].strip(), len(many), many[-1]) == ("39 rows with id > 10", "11", 24, "and 19 more")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("mesages > 1", r"--fail-if 'mesages > 1': \[UNRESOLVED_COLUMN.* The columns are vhost, queue, routing_key,"),
        ("messages >", "--fail-if 'messages >': .*PARSE_SYNTAX_ERROR.* The columns are"),
        ("messages", r"\[DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN\]"),
        ("count(*) > 1", r"\[INVALID_WHERE_CONDITION\]"),
    ],
)
def test_what_is_not_a_condition(spark: SparkSession, directory: str, condition: str, expected: str) -> None:
    frame = waiting.run_backlog(spark, JobOptions(directory))["backlog"]
    with pytest.raises(ConditionError, match=expected):
        rows_that_fulfil(frame, condition)


@pytest.mark.spark
def test_the_program_fails_if_rows_fulfil_a_condition(directory: str) -> None:
    options = ("--data-dir", directory, "--format", "json", "--fail-if")
    failing = run_program("backlog", *options, "messages > 20")
    assert failing.returncode == 3, failing.stderr
    assert len(failing.stdout.splitlines()) == 4, "the result is complete"
    assert "leveret-analytics: 1 row with messages > 20\n" in failing.stderr
    assert run_program("backlog", *options, "messages > 80").returncode == 0
    wrong = run_program("backlog", *options, "mesages > 80")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "The columns are vhost, queue, routing_key, messages," in wrong.stderr
    refused = run_program("report", *options, "messages > 20")
    assert refused.returncode == 2
    assert "--fail-if does not apply to the job report" in refused.stderr


@pytest.mark.spark
def test_the_report_is_one_page(spark: SparkSession, directory: str) -> None:
    text = page(spark, JobOptions(directory))
    for part in (
        "<b>100</b>",
        "messages were dropped, refused or expired",
        "<li>a: 100 messages were dropped (queue too long), 83 % of the messages sent to it.</li>",
        "<li>b: 10 messages were expired, dead-lettered, 8 % of the messages sent to it.</li>",
        "<li>dead: 10 dead letters waiting, from b (expired).</li>",
    ):
        assert part in text
    # Nothing is loaded from elsewhere.
    assert "<script src" not in text
    assert "<link" not in text
    assert text.count("Plotly.newPlot(") >= 7


def test_the_program_needs_java(directory: str, tmp_path: Path) -> None:
    done = run_program("backlog", "--data-dir", directory, JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "Spark needs Java: JAVA_HOME is" in done.stderr
    assert run_program("dance", "--data-dir", directory).returncode == 2


def test_forms_of_output() -> None:
    names = ["name", "number", "when", "octets", "map", "none"]
    row = {
        "name": 'ä,"b"',
        "number": 5,
        "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "octets": b"\x00\x01",
        "map": [("k", "v")],
        "none": None,
    }
    assert json.loads(as_json_lines(names, [row])) == {
        "name": 'ä,"b"',
        "number": 5,
        "when": "2026-01-02T03:04:05.000000Z",
        "octets": "AAE=",
        "map": {"k": "v"},
        "none": None,
    }
    head, line = as_csv(names, [row]).splitlines()
    assert head == "name,number,when,octets,map,none"
    assert line == '"ä,""b""",5,2026-01-02T03:04:05.000000Z,AAE=,"{""k"": ""v""}",'
    table = as_table(["name", "number"], [row, {**row, "number": 1234}]).splitlines()
    assert table == ["name   number", "-----  ------", 'ä,"b"       5', 'ä,"b"    1234']


def test_a_table_keeps_its_lines_whatever_is_in_it() -> None:
    rows = [{"q": name, "n": number} for name, number in (("日本", None), ("a\nb\x1b[2J\u2028", 5), ("e\u0301", 10))]
    assert as_table(["q", "n"], rows).split("\n") == [
        "q                   n",
        "-----------------  --",
        "日本",
        "a\\nb\\x1b[2J\\u2028   5",
        "e\u0301                  10",
        "",
    ]
