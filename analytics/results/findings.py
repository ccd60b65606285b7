"""Summarizes notable results of the jobs in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from leveret.analytics.archive.archived_columns import BROKER
from leveret.analytics.results.report_page import duration_text
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
        moment: Time that the results describe.
        archived: Whether the dead letters are all that have come, not those that wait.
    """
    oldest = _oldest(rows, moment) if "queues" in rows else []
    return [*_losses(rows), *_growth(rows), *oldest, *_dead_letters(rows, "have come" if archived else "waiting")]


def _losses(rows: Mapping[str, Rows]) -> list[str]:
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


def _dead_letters(rows: Mapping[str, Rows], what: str) -> list[str]:
    return [
        f"{queue_text(row)}: {row['messages']:,} dead letters {what}, from {row['origin_queue']}"
        + (f" ({reason_text(row['reason'])})." if row["reason"] else ".")
        for row in rows["deadletters"][:_SENTENCES_MAX]
    ]
