"""Sections of the report, made from the results of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from leveret.analytics.columns import BROKER
from leveret.analytics.results.report_page import (
    SERIES_MAX,
    Section,
    bars_over_time,
    bytes_text,
    curves,
    duration_text,
    horizontal_bars,
    lines_over_time,
)
from leveret.analytics.results.result_output import Rows

#: Descriptions of the event kinds that lose messages.
_REASONS: Final = {
    "maxlen": "dropped (queue too long)",
    "maxlen_bytes": "dropped (too many bytes)",
    "refused": "refused (queue full)",
    "expired": "expired",
    "reject": "rejected",
    "delivery_limit": "delivered too often",
    "unroutable": "sent where no queue was",
    "lost": "lost (file damaged)",
    "dead_letter_lost": "dead-lettered to where no queue took them",
    "purged": "purged",
}
_DEAD_LETTERED: Final = "+dead_letter"
#: Messages that are not lost, because their publishers know that they are in no queue.
TOLD: Final = "+told"
#: Maximum number of sentences of each kind.
_SENTENCES_MAX: Final = 3


def reason_text(reason: str) -> str:
    """Return the description of a reason of the job `overflow`."""
    kind = reason.removesuffix(_DEAD_LETTERED).removesuffix(TOLD)
    text = _REASONS.get(kind, kind.replace("_", " "))
    if kind == reason:
        return text
    return f"{text}, the publisher was told" if reason.endswith(TOLD) else f"{text}, dead-lettered"


def queue_text(row: Mapping[str, Any]) -> str:
    """Return a queue's name; after that of the broker, if there is one, and the virtual host, unless that is `/`."""
    if row["queue"] is None:
        name = "(no queue)" if str(row.get("reason", "")).startswith("unroutable") else "(deleted queue)"
    else:
        name = str(row["queue"]) if row["vhost"] == "/" else f"{row['vhost']}: {row['queue']}"
    return name if row.get(BROKER) is None else f"{row[BROKER]}: {name}"


def findings(rows: Mapping[str, Rows], moment: datetime, archived: bool = False) -> list[str]:
    """Return the most notable results as sentences.

    Args:
        rows: Results by name, as the job `report` makes them.
        archived: Whether the dead letters are all that have come, not those that wait.
    """
    oldest = _oldest(rows, moment) if "queues" in rows else []
    return [
        *_found_losses(rows),
        *_growth(rows),
        *oldest,
        *_found_letters(rows, "have come" if archived else "waiting"),
    ]


def _found_losses(rows: Mapping[str, Rows]) -> list[str]:
    lost: dict[tuple[str, str], int] = {}
    arrived: dict[str, int] = {}
    for row in rows["overflow"]:
        key = queue_text(row), str(row["reason"])
        lost[key] = lost.get(key, 0) + row["messages"]
    for row in rows["throughput"]:
        arrived[queue_text(row)] = arrived.get(queue_text(row), 0) + row["messages_in"]
    found: list[str] = []
    for (queue, reason), count in sorted(lost.items(), key=lambda item: -item[1])[:_SENTENCES_MAX]:
        # Refused messages are not counted as arrivals.
        total = arrived.get(queue, 0) + (count if reason.startswith("refused") else 0)
        share = f", {100 * count / total:.0f} % of the messages sent to it" if total >= count else ""
        found.append(f"{queue}: {count:,} messages were {reason_text(reason)}{share}.")
    return found


def _growth(rows: Mapping[str, Rows]) -> list[str]:
    """Report queues with more than twice as many arrivals as departures."""
    moves: dict[str, list[int]] = {}
    for row in rows["throughput"]:
        sums = moves.setdefault(queue_text(row), [0, 0])
        sums[0] += row["messages_in"]
        sums[1] += row["messages_out"]
    growing = [(count_in - out, queue, out) for queue, (count_in, out) in moves.items() if count_in > 2 * out]
    return [
        f"{queue}: {more:,} more messages arrived than left"
        + ("; no message has left it so far." if not out else "; consumers do not keep up.")
        for more, queue, out in sorted(growing, reverse=True)[:_SENTENCES_MAX]
        if more >= 1000
    ]


def _oldest(rows: Mapping[str, Rows], moment: datetime) -> list[str]:
    waiting = [row for row in rows["queues"] if row["oldest_at"] is not None]
    if not waiting:
        return ["No message is waiting."]
    row = min(waiting, key=lambda each: each["oldest_at"])
    age = duration_text((moment - row["oldest_at"]).total_seconds())
    return [f"{queue_text(row)}: has the oldest message, waiting for {age}."]


def _found_letters(rows: Mapping[str, Rows], what: str) -> list[str]:
    return [
        f"{queue_text(row)}: {row['messages']:,} dead letters {what}, from {row['origin_queue']}"
        + (f" ({reason_text(row['reason'])})." if row["reason"] else ".")
        for row in rows["deadletters"][:_SENTENCES_MAX]
    ]


#: More bars than this are added up.
_BARS_MAX: Final = 20
#: Most points that the charts over time are made of, before small queues are added up.
_POINTS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Grain:
    """Time span by which a report groups its results.

    Attributes:
        name: Value of JobOptions.grain.
        per: Text for rates, such as `a minute`.
        length: Length of the time span.
    """

    name: str
    per: str
    length: timedelta


_GRAINS: Final = (
    (timedelta(days=1), Grain("minute", "a minute", timedelta(minutes=1))),
    (timedelta(days=60), Grain("hour", "an hour", timedelta(hours=1))),
    (timedelta.max, Grain("day", "a day", timedelta(days=1))),
)


def grain_for(span: timedelta, queues: int = 1) -> Grain:
    """Return the grain that gives a chart a readable number of columns, and not too many points to read."""
    return next(
        grain
        for longest, grain in _GRAINS
        if span <= longest and (span / grain.length * queues <= _POINTS_MAX or longest == timedelta.max)
    )


def sections(rows: Mapping[str, Rows], moment: datetime, grain: Grain, archived: bool = False) -> list[Section]:
    """Return all sections, in order; tables have a column with the broker if rows have one.

    Args:
        rows: Results by name; those about what waits may be missing.
        archived: Whether dead letters and duplicates are among all messages that have come, not those that wait.
    """
    found = [
        *(_current_state(rows, moment) if "queues" in rows else []),
        _losses(rows, grain),
        _throughput(rows, grain),
        _latency(rows, grain),
        _capacity(rows),
        *(_of_all_messages(rows) if archived else _of_waiting_messages(rows)),
    ]
    return [_with_broker(each) for each in found]


def _with_broker(section: Section) -> Section:
    if "queue" not in section.labels or BROKER not in next(iter(section.rows), {}):
        return section
    return replace(section, labels={BROKER: "broker", **section.labels})


def _current_state(rows: Mapping[str, Rows], moment: datetime) -> list[Section]:
    queues = [
        {
            **row,
            "size": bytes_text(row["body_bytes"]),
            "disk": bytes_text(row["file_bytes"]),
            "age": duration_text((moment - row["oldest_at"]).total_seconds()) if row["oldest_at"] else "",
        }
        for row in sorted(rows["queues"], key=lambda row: -row["messages"])
    ]
    drawn, others = queues[:_BARS_MAX], queues[_BARS_MAX:]
    keys = rows["backlog"][:_BARS_MAX]
    sizes: dict[int, dict[str, Any]] = {}
    for row in rows["sizes"]:
        bucket = sizes.setdefault(row["from_bytes"], {**row, "messages": 0})
        bucket["messages"] += row["messages"]
    histogram = [sizes[start] for start in sorted(sizes)]
    return [
        Section(
            "Queues now",
            "The messages that wait in each queue, their size, and the age of the oldest one. If that age keeps "
            "growing, the queue is not being consumed." + _drawn(queues, "longest, and all others together"),
            queues,
            {
                "vhost": "virtual host",
                "queue": "queue",
                "messages": "messages",
                "size": "bodies",
                "disk": "on disk",
                "age": "age of the oldest",
            },
            horizontal_bars(drawn, queue_text, others) if queues else "",
            "There is no queue.",
            folded=len(queues) > _BARS_MAX,
        ),
        Section(
            "Waiting messages by routing key",
            "The same messages by the routing key that they were published with."
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
            horizontal_bars(keys, lambda row: f"{queue_text(row)} · {row['routing_key']}"),
            "No message is waiting.",
            folded=True,
        ),
        Section(
            "Sizes of waiting messages",
            "Waiting messages by the size of their bodies. A few very large messages can fill a disk.",
            histogram,
            {"from_bytes": "from bytes", "to_bytes": "to bytes", "messages": "messages"},
            horizontal_bars(
                histogram,
                lambda row: f"{bytes_text(row['from_bytes'])} – {bytes_text(row['to_bytes'])}",
            ),
            "No message is waiting.",
            folded=True,
        ),
    ]


def _losses(rows: Mapping[str, Rows], grain: Grain) -> Section:
    losses = [{**row, "queue": queue_text(row), "why": reason_text(row["reason"])} for row in rows["overflow"]]
    return Section(
        "What was dropped, and why",
        "Messages that left a queue without being acknowledged, or were not accepted: the queue exceeded its length "
        "limit, it was full and refused the publisher, the messages expired, or a consumer rejected them. "
        "Dead-lettered messages are not lost, unless they could not be routed to a dead-letter queue; that is a "
        "separate reason. Nor are messages that were refused or returned if their publisher was told.",
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
                "messages",
                lambda row: f"{row['queue']}: {row['why']}",
                f"messages {grain.per}",
                grain.length,
            ),
        ),
        "No message was dropped, refused, expired or dead-lettered in the time that the broker keeps records of.",
        folded=True,
    )


def _throughput(rows: Mapping[str, Rows], grain: Grain) -> Section:
    moves = rows["throughput"]
    return Section(
        "Arrivals and departures",
        f"Messages {grain.per} that arrived in each queue (solid) and that left it for any reason (dotted or hatched). "
        "A queue grows while more messages arrive than leave.",
        moves,
        {
            "minute": grain.name,
            "vhost": "virtual host",
            "queue": "queue",
            "messages_in": "arrived",
            "messages_out": "left",
            "body_bytes_in": "body bytes in",
            "body_bytes_out": "body bytes out",
        },
        _chart(
            moves,
            lambda found: lines_over_time(
                found,
                {"messages_in": "arrived", "messages_out": "left"},
                queue_text,
                f"messages {grain.per}",
                grain.length,
                sums=True,
            ),
        ),
        "No message arrived or left.",
        folded=True,
    )


def _latency(rows: Mapping[str, Rows], grain: Grain) -> Section:
    return Section(
        "How long messages waited until they were acknowledged",
        "The time from publishing to acknowledgement: the median (solid) and the 99th percentile (dotted or hatched). "
        "If it rises, consumers fall behind." + _lines(rows["latency"]),
        rows["latency"],
        {
            "minute": grain.name,
            "vhost": "virtual host",
            "queue": "queue",
            "messages": "messages",
            "p50_ms": "median, ms",
            "p90_ms": "90 % within, ms",
            "p99_ms": "99 % within, ms",
            "max_ms": "maximum, ms",
        },
        _chart(
            rows["latency"],
            lambda found: lines_over_time(
                found,
                {"p50_ms": "median", "p99_ms": "99 % within"},
                queue_text,
                "milliseconds",
                grain.length,
            ),
        ),
        "No message was acknowledged.",
        folded=True,
    )


def _capacity(rows: Mapping[str, Rows]) -> Section:
    return Section(
        "What a length limit would have done",
        "The last 24 hours replayed with different length limits: how many messages each limit would have "
        "dropped. The smallest limit that drops none is the capacity that the queue needs. Messages that an "
        "actual limit dropped or refused in that time count as arrived and waiting." + _lines(rows["capacity"]),
        rows["capacity"],
        {
            "vhost": "virtual host",
            "queue": "queue",
            "max_length": "limit",
            "messages_in": "messages that arrived",
            "dropped": "would be dropped",
            "dropped_percent": "dropped, %",
        },
        _chart(
            rows["capacity"],
            lambda found: curves(
                found, "max_length", "dropped_percent", queue_text, ("limit, messages", "% of the messages dropped")
            ),
        ),
        "No message arrived in that time.",
        folded=True,
    )


def _of_waiting_messages(rows: Mapping[str, Rows]) -> list[Section]:
    return [
        _dead_letters(
            rows,
            "Messages that wait in a queue because another queue rejected, expired or dropped them.",
            "No dead letter is waiting.",
        ),
        _duplicates(
            rows,
            "Messages that wait in the same queue with the same message id or the same body: a publisher may be "
            "sending messages twice.",
            "No duplicates are waiting.",
        ),
    ]


def _of_all_messages(rows: Mapping[str, Rows]) -> list[Section]:
    return [
        _dead_letters(
            rows,
            "All messages that have come into a queue because another queue rejected, expired or dropped them, also "
            "those that do not wait any more.",
            "No dead letter has come.",
        ),
        _duplicates(
            rows,
            "Messages that have come into the same queue with the same message id or the same body, also those that do "
            "not wait any more: a publisher may be sending messages twice.",
            "No duplicates have come.",
        ),
    ]


def _dead_letters(rows: Mapping[str, Rows], text: str, nothing: str) -> Section:
    return Section(
        "Dead letters",
        text,
        rows["deadletters"],
        {
            "vhost": "virtual host",
            "queue": "queue",
            "origin_queue": "from queue",
            "reason": "reason",
            "messages": "messages",
            "deaths": "times dead-lettered, at most",
            "oldest_at": "oldest since",
        },
        nothing=nothing,
    )


def _duplicates(rows: Mapping[str, Rows], text: str, nothing: str) -> Section:
    return Section(
        "Duplicates",
        text,
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
        nothing=nothing,
        folded=True,
    )


def _drawn(rows: Rows, which: str) -> str:
    return f" The chart shows the {_BARS_MAX} {which}." if len(rows) > _BARS_MAX else ""


def _lines(rows: Rows) -> str:
    return f" The chart shows the {SERIES_MAX} queues with the highest values." if _too_many(rows) else ""


def _too_many(rows: Rows) -> bool:
    return len({queue_text(row) for row in rows}) > SERIES_MAX


def _chart(rows: Rows, draw: Any) -> str:
    return str(draw(rows)) if rows else ""
