"""The parts of the report: what each says in plain words, out of the results of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from leveret.storage.analytics.charts import SERIES_MAX, bars_over_time, curves, horizontal_bars, lines_over_time
from leveret.storage.analytics.findings import queue_text, reason_text
from leveret.storage.analytics.report_page import Section, bytes_text, duration_text
from leveret.storage.analytics.result_output import Rows

_BARS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Grain:
    """The time span that a report counts by.

    Attributes:
        name: As JobOptions.grain has it.
        per: As one says it of a rate.
        length: How long it is.
    """

    name: str
    per: str
    length: timedelta


_GRAINS: Final = (
    (timedelta(days=1), Grain("minute", "a minute", timedelta(minutes=1))),
    (timedelta(days=60), Grain("hour", "an hour", timedelta(hours=1))),
    (timedelta.max, Grain("day", "a day", timedelta(days=1))),
)


def grain_for(span: timedelta) -> Grain:
    """What to count by, so that a chart has no more columns than one can see.

    Args:
        span: From the first to the last of what is shown.
    """
    return next(grain for longest, grain in _GRAINS if span <= longest)


def sections(rows: Mapping[str, Rows], moment: datetime, grain: Grain) -> list[Section]:
    """All parts, in order.

    Args:
        rows: Results by name.
        moment: Of when they tell.
        grain: What they were counted by.
    """
    return [*_now(rows, moment), _losses(rows, grain), _flow(rows, grain), _waits(rows, grain), *_rest(rows)]


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
            "A queue whose oldest message grows older and older is not being drained." + _drawn(queues, "longest"),
            queues,
            {
                "vhost": "virtual host",
                "queue": "queue",
                "messages": "messages",
                "size": "bodies",
                "disk": "on disk",
                "age": "oldest waits for",
            },
            horizontal_bars(queues[:_BARS_MAX], queue_text, "messages", "messages waiting") if queues else "",
            "There is no queue.",
            folded=len(queues) > _BARS_MAX,
        ),
        Section(
            "What kind of messages wait",
            "The same messages by the routing key they were published with: which kind of message piles up?"
            + _drawn(rows["backlog"], "most frequent"),
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


def _losses(rows: Mapping[str, Rows], grain: Grain) -> Section:
    losses = [{**row, "queue": queue_text(row), "why": reason_text(row["reason"])} for row in rows["overflow"]]
    return Section(
        "What was dropped, and why",
        "Messages that left a queue without having been consumed, or never got in: because the queue was longer than "
        "its limit, or full so that the publisher was turned away, because nobody fetched them in time, or because a "
        "consumer rejected them. What was dead-lettered is not lost: it was kept elsewhere, in a dead-letter queue, "
        "unless no queue took it, as is said then.",
        losses,
        {
            "minute": grain.name,
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
                found,
                "minute",
                "messages",
                lambda row: f"{row['queue']}: {row['why']}",
                f"messages {grain.per}",
                grain.length,
            ),
        ),
        "No message was dropped, refused, expired or dead-lettered in the time that the broker keeps records of.",
        folded=True,
    )


def _flow(rows: Mapping[str, Rows], grain: Grain) -> Section:
    moves = rows["throughput"]
    return Section(
        "Coming and going",
        f"Messages {grain.per} that came to each queue (solid), and that left it in whatever way (dotted or hatched). "
        "Where more come than go, a queue grows.",
        moves,
        {
            "minute": grain.name,
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
                found,
                "minute",
                {"messages_in": "came", "messages_out": "went"},
                queue_text,
                f"messages {grain.per}",
                grain.length,
                sums=True,
            ),
        ),
        "Nothing came or went.",
        folded=True,
    )


def _waits(rows: Mapping[str, Rows], grain: Grain) -> Section:
    return Section(
        "How long messages waited until they were done",
        "Of the messages that consumers acknowledged: half waited less than what is drawn solid, 99 of 100 less than "
        "what is dotted or hatched. Where it rises, consumers fall behind." + _lines(rows["latency"]),
        rows["latency"],
        {
            "minute": grain.name,
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
                found,
                "minute",
                {"p50_ms": "half within", "p99_ms": "99 % within"},
                queue_text,
                "milliseconds",
                grain.length,
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
            "refused in that time counts as if it had come and stayed." + _lines(rows["capacity"]),
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


def _drawn(rows: Rows, which: str) -> str:
    return f" The {_BARS_MAX} {which} are drawn." if len(rows) > _BARS_MAX else ""


def _lines(rows: Rows) -> str:
    return f" {SERIES_MAX} queues are drawn, those with the highest values." if _too_many(rows) else ""


def _too_many(rows: Rows) -> bool:
    return len({queue_text(row) for row in rows}) > SERIES_MAX


def _chart(rows: Rows, draw: Any) -> str:
    return str(draw(rows)) if rows else ""
