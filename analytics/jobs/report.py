"""Job report: the results of all jobs as one HTML page with charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.analytics.columns import BROKER
from leveret.analytics.jobs import flow, waiting
from leveret.analytics.jobs.job_options import JobOptions, Results
from leveret.analytics.results.report_page import ROWS_KEPT, bytes_text, duration_text, make_page
from leveret.analytics.results.report_sections import TOLD, Grain, findings, grain_for, sections
from leveret.analytics.results.result_output import Rows, rows_of
from leveret.analytics.times import utc_time

#: If the broker has written nothing for longer than this, the page says so.
_QUIET: Final = timedelta(minutes=1)
#: Results that can have as many rows as there are messages.
_LONG: Final = ("backlog", "duplicates")
_TITLE: Final = "What waits, what was lost, and how long it took"


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Return the results that the page shows, by name; an archive alone has none about what waits."""
    options = options.with_snapshot(spark)
    found: dict[str, DataFrame] = {}
    if options.snapshots:
        found["queues"] = options.live_table(spark, "queues").orderBy(*options.queue_key)
        found |= waiting.run_backlog(spark, options)
    for run_job in (
        flow.run_overflow,
        flow.run_throughput,
        flow.run_latency,
        flow.run_capacity,
        waiting.run_deadletters,
        waiting.run_duplicates,
    ):
        found |= run_job(spark, options)
    return found


def page(spark: SparkSession, options: JobOptions) -> str:
    """Return the page."""
    requested = utc_time(options.moment)
    options = options.with_snapshot(spark)
    starts, queues = _extent(spark, options)
    grain = grain_for(requested - min((each for each in starts if each is not None), default=requested), queues)
    frames = run(spark, replace(options, grain=grain.name))
    rows = {name: rows_of(frame.limit(ROWS_KEPT) if name in _LONG else frame) for name, frame in frames.items()}
    return compose(rows, requested, grain, options)


def _extent(spark: SparkSession, options: JobOptions) -> tuple[list[datetime | None], int]:
    """Return when what is shown begins, and how many queues there are."""
    first = f.min("at").alias("first")
    if options.sources is None:
        events = options.table(spark, "events", ("at",)).agg(first)
        queues = rows_of(options.table(spark, "queues", ("oldest_at",)))
        return [rows_of(events)[0]["first"], *(row["oldest_at"] for row in queues)], len(queues)
    # What is in queues and never left has no events.
    known = [
        options.table(spark, table, ("vhost", "queue", at)).withColumnRenamed(at, "at")
        for table, at in (("events", "at"), ("messages", "enqueued_at"))
    ]
    rows = rows_of(known[0].unionAll(known[1]).groupBy(*options.queue_key).agg(first))
    return [row["first"] for row in rows], len(rows)


def compose(rows: Mapping[str, Rows], requested: datetime, grain: Grain, options: JobOptions) -> str:
    """Return the page for results; brokers are named if there are several.

    Args:
        rows: Results of run(), by name; those about what waits may be missing.
    """
    brokers = {row[BROKER] for found in rows.values() for row in found if BROKER in row}
    if len(brokers) == 1:
        rows = {name: [_without_broker(row) for row in found] for name, found in rows.items()}
    queues = rows.get("queues", [])
    # The snapshot may have been taken shortly after the requested time.
    moment = requested if options.as_of is not None else max([requested, *(row["as_of"] for row in queues)])
    return make_page(
        _TITLE,
        _subtitle(moment, queues, options),
        _figures(rows, moment, options.sources is not None),
        findings(rows, moment, options.sources is not None),
        sections(rows, moment, grain, options.sources is not None),
    )


def _without_broker(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != BROKER}


def _figures(rows: Mapping[str, Rows], moment: datetime, archived: bool) -> list[tuple[str, str, bool]]:
    lost = sum(row["messages"] for row in rows["overflow"] if not row["reason"].endswith(("+dead_letter", TOLD)))
    letters = sum(row["messages"] for row in rows["deadletters"])
    return [
        *_waiting_figures(rows, moment),
        (f"{lost:,}", "messages were dropped, refused or expired", lost > 0),
        (f"{letters:,}", "dead letters have come" if archived else "dead letters wait", False),
    ]


def _waiting_figures(rows: Mapping[str, Rows], moment: datetime) -> list[tuple[str, str, bool]]:
    """Return the figures of what waits; of an archive alone, how many messages have come."""
    if "queues" not in rows:
        return [(f"{sum(row['messages_in'] for row in rows['throughput']):,}", "messages have come", False)]
    queues = rows["queues"]
    ages = [(moment - row["oldest_at"]).total_seconds() for row in queues if row["oldest_at"]]
    waiting = sum(row["messages"] for row in queues)
    return [
        (
            f"{waiting:,}",
            f"messages wait in {sum(row['messages'] > 0 for row in queues)} of {len(queues)} queues",
            False,
        ),
        (bytes_text(sum(row["body_bytes"] for row in queues)), "in their bodies", False),
        (duration_text(max(ages)) if ages else "–", "is the age of the oldest of them", False),
    ]


def _subtitle(moment: datetime, queues: Rows, options: JobOptions) -> str:
    """Return the time and the source of the data, as text."""
    last = max((row["as_of"] for row in queues), default=moment)
    paths = options.data_dir if isinstance(options.data_dir, str) else " and ".join(options.data_dir)
    text = f"As of {moment:%Y-%m-%d %H:%M:%S} UTC, {paths}"
    if options.sources is not None and not options.live:
        return f"{text}. An archive does not say what waits; name the data directories as well to see that"
    return text if moment - last < _QUIET else f"{text}. Nothing has happened since {last:%Y-%m-%d %H:%M:%S} UTC"
