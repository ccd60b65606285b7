"""All of it as one HTML page with charts, for people who never saw Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from storage.analytics.charts import bars_over_time, curves, horizontal_bars, lines_over_time
from storage.analytics.findings import findings, queue_text, reason_text
from storage.analytics.job_options import JobOptions, Results
from storage.analytics.jobs import backlog, capacity, deadletters, duplicates, latency, overflow, throughput
from storage.analytics.report_page import Section, bytes_text, duration_text, make_page
from storage.analytics.result_output import Rows, rows_of

_BARS_MAX = 20


def run(spark: SparkSession, options: JobOptions) -> Results:
    """All results that the page is made of, by name.

    Args:
        spark: The session.
        options: Which queues, and when.
    """
    options = options.at_one_moment(spark)
    queues = options.table(spark, "queues").orderBy("vhost", "queue")
    found: dict[str, DataFrame] = {"queues": queues}
    for job in (backlog, overflow, throughput, latency, capacity, deadletters, duplicates):
        found |= job.run(spark, options)
    return found


def page(spark: SparkSession, options: JobOptions) -> str:
    """The page.

    Args:
        spark: The session.
        options: Which queues, and when.
    """
    rows = {name: rows_of(frame) for name, frame in run(spark, options).items()}
    queues = rows["queues"]
    moment = queues[0]["as_of"] if queues else datetime.now(UTC)
    ages = [(moment - row["oldest_at"]).total_seconds() for row in queues if row["oldest_at"]]
    lost = sum(row["messages"] for row in rows["overflow"] if not row["reason"].endswith("+dead_letter"))
    waiting = sum(row["messages"] for row in queues)
    figures = [
        (
            f"{waiting:,}",
            f"messages wait in {sum(row['messages'] > 0 for row in queues)} of {len(queues)} queues",
            False,
        ),
        (bytes_text(sum(row["body_bytes"] for row in queues)), "in their bodies", False),
        (duration_text(max(ages)) if ages else "–", "has the oldest of them waited", False),
        (f"{lost:,}", "messages were dropped, refused or expired", lost > 0),
        (f"{sum(row['messages'] for row in rows['deadletters']):,}", "dead letters wait", False),
    ]
    sections = [*_now(rows, moment), _losses(rows), _flow(rows), _waits(rows), *_rest(rows)]
    title = "What waits, what was lost, and how long it took"
    return make_page(
        title, f"As of {moment:%Y-%m-%d %H:%M:%S} UTC, {options.data_dir}", figures, findings(rows, moment), sections
    )


def _now(rows: Mapping[str, Rows], moment: datetime) -> list[Section]:
    queues = [
        {
            **row,
            "size": bytes_text(row["body_bytes"]),
            "disk": bytes_text(row["file_bytes"]),
            "age": duration_text((moment - row["oldest_at"]).total_seconds()) if row["oldest_at"] else "",
        }
        for row in sorted(rows["queues"], key=lambda row: -row["messages"])
    ]
    keys = rows["backlog"][:_BARS_MAX]
    sizes: dict[int, dict[str, Any]] = {}
    for row in rows["sizes"]:
        bucket = sizes.setdefault(row["from_bytes"], {**row, "messages": 0})
        bucket["messages"] += row["messages"]
    histogram = [sizes[start] for start in sorted(sizes)]
    return [
        Section(
            "Queues now",
            "How many messages wait in each queue, how much room they take, and for how long the oldest has waited. "
            "A queue whose oldest message grows older and older is not being drained.",
            queues,
            {
                "vhost": "virtual host",
                "queue": "queue",
                "messages": "messages",
                "size": "bodies",
                "disk": "on disk",
                "age": "oldest waits for",
            },
            horizontal_bars(queues[:_BARS_MAX], queue_text, "messages", "messages waiting"),
            "There is no queue.",
        ),
        Section(
            "What kind of messages wait",
            "The same messages by the routing key they were published with: which kind of message piles up?",
            rows["backlog"],
            {
                "vhost": "virtual host",
                "queue": "queue",
                "routing_key": "routing key",
                "messages": "messages",
                "body_bytes": "body bytes",
                "oldest_at": "oldest since",
            },
            horizontal_bars(
                keys, lambda row: f"{queue_text(row)} · {row['routing_key']}", "messages", "messages waiting"
            ),
            "Nothing waits.",
            folded=True,
        ),
        Section(
            "How large they are",
            "Waiting messages by the size of their bodies. A few very large ones can fill a disk that many small ones "
            "would not.",
            histogram,
            {"from_bytes": "from bytes", "to_bytes": "to bytes", "messages": "messages"},
            horizontal_bars(
                histogram,
                lambda row: f"{bytes_text(row['from_bytes'])} – {bytes_text(row['to_bytes'])}",
                "messages",
                "messages waiting",
            ),
            "Nothing waits.",
            folded=True,
        ),
    ]


def _losses(rows: Mapping[str, Rows]) -> Section:
    losses = [{**row, "queue": queue_text(row), "why": reason_text(row["reason"])} for row in rows["overflow"]]
    return Section(
        "What was dropped, and why",
        "Messages that left a queue without having been consumed, or never got in: because the queue was longer than "
        "its limit, or full so that the publisher was turned away, or because nobody fetched them in time. What was "
        "dead-lettered is not lost; it was kept elsewhere, in a dead-letter queue.",
        losses,
        {
            "minute": "minute",
            "vhost": "virtual host",
            "queue": "queue",
            "why": "why",
            "messages": "messages",
            "body_bytes": "body bytes",
            "mean_wait_ms": "mean wait, ms",
            "max_wait_ms": "longest wait, ms",
        },
        _chart(
            losses,
            lambda found: bars_over_time(
                found, "minute", "messages", lambda row: f"{row['queue']}: {row['why']}", "messages a minute"
            ),
        ),
        "No message was dropped, refused, expired or dead-lettered in the time that the broker keeps records of.",
        folded=True,
    )


def _flow(rows: Mapping[str, Rows]) -> Section:
    moves = rows["throughput"]
    return Section(
        "Coming and going",
        "Messages a minute that came to each queue (solid), and that left it in whatever way (dotted or hatched). "
        "Where more come than go, a queue grows.",
        moves,
        {
            "minute": "minute",
            "vhost": "virtual host",
            "queue": "queue",
            "messages_in": "came",
            "messages_out": "went",
            "body_bytes_in": "body bytes in",
            "body_bytes_out": "body bytes out",
        },
        _chart(
            moves,
            lambda found: lines_over_time(
                found, "minute", {"messages_in": "came", "messages_out": "went"}, queue_text, "messages a minute"
            ),
        ),
        "Nothing came or went.",
        folded=True,
    )


def _waits(rows: Mapping[str, Rows]) -> Section:
    return Section(
        "How long messages waited until they were done",
        "Of the messages that consumers acknowledged: half waited less than what is drawn solid, 99 of 100 less than "
        "what is dotted or hatched. Where it rises, consumers fall behind.",
        rows["latency"],
        {
            "minute": "minute",
            "vhost": "virtual host",
            "queue": "queue",
            "messages": "messages",
            "p50_ms": "half within, ms",
            "p90_ms": "90 % within, ms",
            "p99_ms": "99 % within, ms",
            "max_ms": "longest, ms",
        },
        _chart(
            rows["latency"],
            lambda found: lines_over_time(
                found, "minute", {"p50_ms": "half within", "p99_ms": "99 % within"}, queue_text, "milliseconds"
            ),
        ),
        "No message was acknowledged.",
        folded=True,
    )


def _rest(rows: Mapping[str, Rows]) -> list[Section]:
    return [
        Section(
            "What a length limit would have done",
            "The last 24 hours played again: had the queue been allowed this many messages, how many would it have "
            "dropped? The smallest limit that drops none is the room that the queue needs. What a limit has dropped or "
            "refused in that time counts as if it had come and stayed.",
            rows["capacity"],
            {
                "vhost": "virtual host",
                "queue": "queue",
                "max_length": "limit",
                "messages_in": "messages that came",
                "dropped": "would be dropped",
                "dropped_percent": "that is %",
            },
            _chart(
                rows["capacity"],
                lambda found: curves(
                    found, "max_length", "dropped_percent", queue_text, ("limit, messages", "% of the messages dropped")
                ),
            ),
            "Nothing came in that time.",
            folded=True,
        ),
        Section(
            "Dead letters",
            "Messages that wait in a queue because another queue rejected, expired or dropped them.",
            rows["deadletters"],
            {
                "vhost": "virtual host",
                "queue": "wait in",
                "origin_queue": "came from",
                "reason": "because",
                "messages": "messages",
                "deaths": "times dead-lettered, at most",
                "oldest_at": "oldest since",
            },
            nothing="No dead letter waits.",
        ),
        Section(
            "Duplicates",
            "Messages that wait in the same queue with the same message id, or with the very same body: a publisher "
            "may be repeating itself.",
            rows["duplicates"],
            {
                "vhost": "virtual host",
                "queue": "queue",
                "same": "same",
                "key": "id or checksum",
                "messages": "messages",
                "first_at": "first",
                "last_at": "last",
            },
            nothing="No message waits twice.",
            folded=True,
        ),
    ]


def _chart(rows: Rows, draw: Any) -> str:
    return str(draw(rows)) if rows else ""
