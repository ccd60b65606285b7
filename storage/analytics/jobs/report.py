"""Job report: the results of all jobs as one HTML page with charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from leveret.storage.analytics.findings import findings
from leveret.storage.analytics.job_options import JobOptions, Results
from leveret.storage.analytics.jobs import backlog, capacity, deadletters, duplicates, latency, overflow, throughput
from leveret.storage.analytics.report_page import ROWS_KEPT, bytes_text, duration_text, make_page
from leveret.storage.analytics.report_sections import Grain, grain_for, sections
from leveret.storage.analytics.result_output import Rows, rows_of
from leveret.storage.analytics.times import utc_time

#: If the broker has written nothing for longer than this, the page says so.
_QUIET: Final = timedelta(minutes=1)
#: Results that can have as many rows as there are messages.
_LONG: Final = ("backlog", "duplicates")
_TITLE: Final = "What waits, what was lost, and how long it took"


def run(spark: SparkSession, options: JobOptions) -> Results:
    """Return the results that the page shows, by name.

    Args:
        spark: The session.
        options: Queues and time.
    """
    options = options.with_snapshot(spark)
    queues = options.table(spark, "queues").orderBy("vhost", "queue")
    found: dict[str, DataFrame] = {"queues": queues}
    for job in (backlog, overflow, throughput, latency, capacity, deadletters, duplicates):
        found |= job.run(spark, options)
    return found


def page(spark: SparkSession, options: JobOptions) -> str:
    """Return the page.

    Args:
        spark: The session.
        options: Queues and time.
    """
    requested = utc_time(options.moment)
    options = options.with_snapshot(spark)
    events = options.table(spark, "events", ("at",)).agg(f.min("at").alias("first"))
    queues = rows_of(options.table(spark, "queues", ("oldest_at",)))
    starts = [row[name] for row, name in [(rows_of(events)[0], "first"), *((row, "oldest_at") for row in queues)]]
    grain = grain_for(requested - min((each for each in starts if each is not None), default=requested), len(queues))
    frames = run(spark, replace(options, grain=grain.name))
    rows = {name: rows_of(frame.limit(ROWS_KEPT) if name in _LONG else frame) for name, frame in frames.items()}
    return compose(rows, requested, grain, options)


def compose(rows: Mapping[str, Rows], requested: datetime, grain: Grain, options: JobOptions) -> str:
    """Return the page for results.

    Args:
        rows: Results of run(), by name.
        requested: The requested time.
        grain: Time span by which the results are grouped.
        options: Options of the job.
    """
    queues = rows["queues"]
    # The snapshot may have been taken shortly after the requested time.
    moment = requested if options.as_of is not None else max([requested, *(row["as_of"] for row in queues[:1])])
    return make_page(
        _TITLE,
        _subtitle(moment, queues, options),
        _figures(rows, moment),
        findings(rows, moment),
        sections(rows, moment, grain),
    )


def _figures(rows: Mapping[str, Rows], moment: datetime) -> list[tuple[str, str, bool]]:
    queues = rows["queues"]
    ages = [(moment - row["oldest_at"]).total_seconds() for row in queues if row["oldest_at"]]
    lost = sum(row["messages"] for row in rows["overflow"] if not row["reason"].endswith("+dead_letter"))
    waiting = sum(row["messages"] for row in queues)
    return [
        (
            f"{waiting:,}",
            f"messages wait in {sum(row['messages'] > 0 for row in queues)} of {len(queues)} queues",
            False,
        ),
        (bytes_text(sum(row["body_bytes"] for row in queues)), "in their bodies", False),
        (duration_text(max(ages)) if ages else "–", "is the age of the oldest of them", False),
        (f"{lost:,}", "messages were dropped, refused or expired", lost > 0),
        (f"{sum(row['messages'] for row in rows['deadletters']):,}", "dead letters wait", False),
    ]


def _subtitle(moment: datetime, queues: Rows, options: JobOptions) -> str:
    """Return the time and the source of the data, as text."""
    last = queues[0]["as_of"] if queues else moment
    text = f"As of {moment:%Y-%m-%d %H:%M:%S} UTC, {options.data_dir}"
    return text if moment - last < _QUIET else f"{text}. Nothing has happened since {last:%Y-%m-%d %H:%M:%S} UTC"
