"""What stands out in the results of the jobs, in sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from leveret.storage.analytics.report_page import duration_text
from leveret.storage.analytics.result_output import Rows

#: What to call the kinds of events that are a loss.
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
    "transient_dropped": "gone (not persistent)",
    "purged": "purged",
}
_DEAD_LETTERED: Final = "+dead_letter"
#: More sentences of a kind than this are not read.
_SENTENCES_MAX: Final = 3


def reason_text(reason: str) -> str:
    """A reason as the job `overflow` names it, in words."""
    kind = reason.removesuffix(_DEAD_LETTERED)
    text = _REASONS.get(kind, kind.replace("_", " "))
    return f"{text}, dead-lettered" if kind != reason else text


def queue_text(row: Mapping[str, Any]) -> str:
    """A queue's name; with its virtual host where that is not the usual one."""
    if row["queue"] is None:
        return "(no queue)" if str(row.get("reason", "")).startswith("unroutable") else "(deleted queue)"
    return str(row["queue"]) if row["vhost"] == "/" else f"{row['vhost']}: {row['queue']}"


def findings(rows: Mapping[str, Rows], moment: datetime) -> list[str]:
    """What to read before everything else.

    Args:
        rows: Results by name, as the job `report` has them.
        moment: Of when they tell.
    """
    return [*_losses(rows), *_growth(rows), *_oldest(rows, moment), *_dead_letters(rows)]


def _losses(rows: Mapping[str, Rows]) -> list[str]:
    lost: dict[tuple[str, str], int] = {}
    came: dict[str, int] = {}
    for row in rows["overflow"]:
        key = queue_text(row), str(row["reason"])
        lost[key] = lost.get(key, 0) + row["messages"]
    for row in rows["throughput"]:
        came[queue_text(row)] = came.get(queue_text(row), 0) + row["messages_in"]
    found: list[str] = []
    for (queue, reason), count in sorted(lost.items(), key=lambda item: -item[1])[:_SENTENCES_MAX]:
        # Those that were refused never came.
        total = came.get(queue, 0) + (count if reason.startswith("refused") else 0)
        share = f", {100 * count / total:.0f} % of what it was sent" if total >= count else ""
        found.append(f"{queue}: {count:,} messages were {reason_text(reason)}{share}.")
    return found


def _growth(rows: Mapping[str, Rows]) -> list[str]:
    """Queues to which far more came than went, in all that is known."""
    moves: dict[str, list[int]] = {}
    for row in rows["throughput"]:
        sums = moves.setdefault(queue_text(row), [0, 0])
        sums[0] += row["messages_in"]
        sums[1] += row["messages_out"]
    growing = [(came - went, queue, went) for queue, (came, went) in moves.items() if came > 2 * went]
    return [
        f"{queue}: {more:,} more messages came than went"
        + ("; nothing has left it so far." if not went else "; it is hardly being drained.")
        for more, queue, went in sorted(growing, reverse=True)[:_SENTENCES_MAX]
        if more >= 1000
    ]


def _oldest(rows: Mapping[str, Rows], moment: datetime) -> list[str]:
    waiting = [row for row in rows["queues"] if row["oldest_at"] is not None]
    if not waiting:
        return ["Nothing waits."]
    row = min(waiting, key=lambda each: each["oldest_at"])
    age = duration_text((moment - row["oldest_at"]).total_seconds())
    return [f"{queue_text(row)}: has the oldest message, which has waited for {age}."]


def _dead_letters(rows: Mapping[str, Rows]) -> list[str]:
    return [
        f"{queue_text(row)}: {row['messages']:,} dead letters wait, from {row['origin_queue']}"
        + (f" ({reason_text(row['reason'])})." if row["reason"] else ".")
        for row in rows["deadletters"][:_SENTENCES_MAX]
    ]
