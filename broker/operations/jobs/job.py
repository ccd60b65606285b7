"""One job, and its JSON."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from leveret.broker.auth.accounts import User
from leveret.broker.auth.backends.chain import NAME as INTERNAL
from leveret.broker.operations.jobs.job_options import (
    NO_OPTIONS,
    JobOptions,
    read_move_options,
    read_options,
    read_replay_options,
    read_restore_options,
)
from leveret.broker.operations.jobs.plans import Counts
from leveret.storage.stores.stream_store import FIRST_NUMBER

#: What a job does.
Kind: TypeAlias = Literal["return", "move", "replay", "restore"]

#: States of a job.
RUNNING: Final = "running"
PAUSED: Final = "paused"
COMPLETED: Final = "completed"
CANCELLED: Final = "cancelled"
FAILED: Final = "failed"
STATES: Final = (RUNNING, PAUSED, COMPLETED, CANCELLED, FAILED)

#: Reads the options of a job from JSON, by kind.
READERS: Final = {
    "return": read_options,
    "move": read_move_options,
    "replay": read_replay_options,
    "restore": read_restore_options,
}


@dataclass(slots=True, eq=False)
class Job:
    """A job that returns dead letters, moves messages, replays a stream, or restores a queue.

    Args:
        kind: What it does.
        qid: Number of the queue on disk; None if it is in memory.
        user: Name of the user with whose permissions it works.
        options: The same, read.
        ends: See ReturnWork; of a replay, the number after the last message, as level 0; of a restore, the number of
            messages, once that is known.
        created: When it was created, in microseconds since 1970.
        state: RUNNING, PAUSED, COMPLETED, CANCELLED or FAILED.
        finished: When it ended, in microseconds since 1970; 0 before.
        error: Why it has failed, or why it waits or is paused; "" otherwise.
        counts: What it has done.
        number: Number of the next message of a replay: what was sent of those before it is on disk. Of a restore, how
            many messages are. 0 for other jobs.
        begin: Number of the first message of a replay; 0 for other jobs.
        bad_ends: How often in a row the broker has ended without a stop while it ran.
        ended: If a request waits for it, done at its end; None for a job that is kept.
        host: Address from which the user has begun it; "" if it is unknown.
        backend: The entry of `auth_backends` that knows the user.
        login: The user, if another server knows it; None for users of the broker, and after a restart.
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
    counts: Counts = field(default_factory=Counts)
    number: int = 0
    begin: int = 0
    bad_ends: int = 0
    ended: Future[None] | None = None
    host: str = ""
    backend: str = INTERNAL
    login: User | None = None

    def shown(self, in_full: bool = True) -> dict[str, Any]:
        """Return what users see of it.

        Args:
            in_full: Whether they may see what it says about messages: filter, names of headers, routing keys.
        """
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
            "error": (self.error or None) if in_full else None,
            "options": dict(self.document) if in_full else {},
            **({"total": self.ends.get(0)} if self.kind == "restore" else {}),
            **dict(zip(("first_offset", "next_offset", "end_offset"), offsets, strict=False)),
            **counts_document(self.counts),
            **({} if in_full else {"left": [], "by_origin": []}),
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
            "bad_ends": self.bad_ends,
            "host": self.host,
            **({} if self.backend == INTERNAL else {"backend": self.backend}),
        }

    def event(self) -> dict[str, Any]:
        """Return the fields of events about it."""
        fields = {"name": self.job_id, "kind": self.kind, "vhost": self.vhost, "queue": self.queue}
        fields |= {"to": self.options.to} if self.options.to else {}
        ended = {"state": self.state, "error": self.error or None, "message_count": self.counts.returned}
        return {**fields, **(ended if self.finished else {})}


def restored(document: Mapping[str, Any]) -> Job:
    """Return a job as it was stored.

    Raises:
        ValueError: It has another form; the text says what is wrong.
    """
    try:
        return _restored(document)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"it has another form: {error!r}") from None


def _restored(document: Mapping[str, Any]) -> Job:
    kind, qid = document["kind"], document["qid"]
    texts = {name: _text(document[name]) for name in ("id", "kind", "vhost", "queue", "user", "state")}
    if kind not in READERS or texts["state"] not in STATES:
        raise ValueError(f"there is no kind '{kind}', or no state '{texts['state']}'")
    counts = Counts(_number(document["scanned"]), _number(document["returned"]))
    for each in document["left"]:
        counts.miss(_text(each["problem"]), _number(each["count"]), _text(each["target"]))
    for each in document["by_origin"]:
        counts.count_origin(_text(each["target"]), _text(each["reason"]), _number(each["count"]))
    job = Job(
        texts["id"],
        kind,
        texts["vhost"],
        texts["queue"],
        None if qid is None else _number(qid),
        texts["user"],
        {**document["options"]},
        NO_OPTIONS,
        {_number(level): _number(end) for level, end in document["ends"]},
        _number(document["created"]),
        texts["state"],
        _number(document["finished"]),
        "" if document["error"] is None else _text(document["error"]),
        counts,
        # Jobs of earlier versions have none of these.
        _number(document.get("number", 0)),
        _number(document.get("begin", 0)),
        _number(document.get("bad_ends", 0)),
        host=_text(document.get("host", "")),
        backend=_text(document.get("backend", INTERNAL)),
    )
    if kind == "replay" and 0 not in job.ends:
        raise ValueError("a replay has no end")
    try:
        job.options = READERS[job.kind](job.document)
    except ValueError as error:
        # An earlier version has taken them.
        if job.state in (RUNNING, PAUSED):
            job.state, job.error = FAILED, str(error)
    return job


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is not a text")
    return value


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r:.40} is not a number")
    return value


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
