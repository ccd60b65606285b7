"""One job, and its JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from leveret.broker.operations.jobs.options import JobOptions, read_move_options, read_options, read_replay_options
from leveret.broker.operations.jobs.plans import Counts
from leveret.storage.stores.stream_store import FIRST_NUMBER

#: What a job does.
Kind: TypeAlias = Literal["return", "move", "replay"]

#: States of a job.
RUNNING: Final = "running"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"

#: Reads the options of a job from JSON, by kind.
READERS: Final = {"return": read_options, "move": read_move_options, "replay": read_replay_options}


def new_counts() -> Counts:
    """Return counts of nothing."""
    return Counts(0, 0, Counter(), Counter())


@dataclass(slots=True, eq=False)
class Job:
    """A job that returns dead letters, moves messages, or replays a stream.

    Args:
        job_id: Its ID.
        kind: What it does.
        vhost: Name of the virtual host.
        queue: Name of the queue.
        qid: Number of the queue on disk; None if it is in memory.
        user: Name of the user with whose permissions it works.
        document: The options as JSON.
        options: The same, read.
        ends: See ReturnWork; of a replay, the number after the last message, as level 0.
        created: When it was created, in microseconds since 1970.
        state: RUNNING, COMPLETED, CANCELLED or FAILED.
        finished: When it ended, in microseconds since 1970; 0 before.
        error: Why it has failed, or why it waits; "" otherwise.
        counts: What it has done.
        number: Number of the next message of a replay: what was sent of those before it is on disk. 0 for other jobs.
        begin: Number of the first message of a replay; 0 for other jobs.
    """

    job_id: str
    kind: Kind
    vhost: str
    queue: str
    qid: int | None
    user: str
    document: Mapping[str, Any]
    options: JobOptions
    ends: Mapping[int, int]
    created: int
    state: str = RUNNING
    finished: int = 0
    error: str = ""
    counts: Counts = field(default_factory=new_counts)
    number: int = 0
    begin: int = 0

    def shown(self) -> dict[str, Any]:
        """Return what users see of it."""
        numbers = (self.begin, self.number, self.ends.get(0, 0)) if self.kind == "replay" else ()
        offsets = [number - FIRST_NUMBER for number in numbers]
        return {
            "id": self.job_id,
            "kind": self.kind,
            "vhost": self.vhost,
            "queue": self.queue,
            "user": self.user,
            "state": self.state,
            "created": self.created // 1000,
            "finished": self.finished // 1000 or None,
            "error": self.error or None,
            "options": dict(self.document),
            **dict(zip(("first_offset", "next_offset", "end_offset"), offsets, strict=False)),
            **counts_document(self.counts),
        }

    def stored(self) -> dict[str, Any]:
        """Return what restored() needs."""
        return {
            **self.shown(),
            "created": self.created,
            "finished": self.finished,
            "qid": self.qid,
            "ends": [[level, end] for level, end in self.ends.items()],
            "number": self.number,
            "begin": self.begin,
        }


def restored(document: Mapping[str, Any]) -> Job:
    """Return a job as it was stored.

    Raises:
        ValueError, KeyError, TypeError: It has another form.
    """
    counts = Counts(
        int(document["scanned"]),
        int(document["returned"]),
        Counter({(each["problem"], each["target"]): int(each["count"]) for each in document["left"]}),
        Counter({(each["target"], each["reason"]): int(each["count"]) for each in document["by_origin"]}),
    )
    return Job(
        document["id"],
        document["kind"],
        document["vhost"],
        document["queue"],
        document["qid"],
        document["user"],
        document["options"],
        READERS[document["kind"]](document["options"]),
        {int(level): int(end) for level, end in document["ends"]},
        int(document["created"]),
        document["state"],
        int(document["finished"]),
        document["error"] or "",
        counts,
        # Jobs of earlier versions have neither.
        int(document.get("number", 0)),
        int(document.get("begin", 0)),
    )


def counts_document(counts: Counts) -> dict[str, Any]:
    """Return what was done as JSON, the largest numbers first."""
    return {
        "scanned": counts.scanned,
        "returned": counts.returned,
        "left_count": counts.left.total(),
        "left": [{"problem": problem, "target": to, "count": n} for (problem, to), n in counts.left.most_common()],
        "by_origin": [
            {"target": to, "reason": reason, "count": n} for (to, reason), n in counts.by_origin.most_common()
        ],
    }
