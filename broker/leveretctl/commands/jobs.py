"""Commands for jobs of the broker, which return, move and restore messages, and for backups to restore from.

RabbitMQ has no such commands.
"""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command, selected_columns
from leveret.broker.leveretctl.command_errors import (
    INTERRUPTED,
    ApiFault,
    CommandFault,
    NoAnswer,
    bad_argument,
    failed,
    refused,
)
from leveret.broker.leveretctl.command_line import HEADERS, OPTIONS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.commands.messages import FILTER, MATCH, read_conditions, read_filter_options
from leveret.broker.leveretctl.commands.queues import parse_pairs
from leveret.broker.leveretctl.printing import ProgressLine
from leveret.broker.leveretctl.selectable_columns import list_objects, table_columns, to_rows
from leveret.broker.management.fields import BACKUP, JOB

#: Seconds between two looks at a job.
_POLL: Final = 0.2
#: Seconds for which the broker may be away, for example for a restart.
_AWAY: Final = 60.0
#: What is said about a job while it runs, and at its end.
_WORDS: Final = {
    "return": ("Returning", "Returned"),
    "move": ("Moving", "Moved"),
    "replay": ("Replaying", "Replayed"),
    "restore": ("Restoring", "Restored"),
}
_ID: Final = Argument("<id>", "the job's ID, as list_jobs shows it")
RATE: Final = option("rate", "maximum number of messages per second")
LIMIT: Final = option("limit", "maximum number of messages")
DETACH: Final = option("detach", "do not wait for the end of the job. Ctrl-C also leaves it running")


def check_positive(context: CommandContext, *names: str) -> None:
    """Check that options are 1 or more if they are given.

    Raises:
        UsageFault: one is less.
    """
    for name in names:
        if context.integer(name, 1) < 1:
            raise bad_argument(f"--{name} must be 1 or more")


def _check_return(context: CommandContext) -> None:
    for name in ("via", "death"):
        values = OPTIONS[name].choices
        if context.text(name, values[0]) not in values:
            raise bad_argument(f"--{name} must be {' or '.join(values)}")
    check_positive(context, "rate", "limit")
    _options(context)


def _options(context: CommandContext) -> dict[str, Any]:
    """Return the options of the job."""
    return {
        "filter": read_filter_options(context),
        "via": context.text("via", "queue"),
        "death": context.text("death", "first"),
        "rate": context.options.get("rate"),
        "limit": context.options.get("limit"),
        "remove_death": context.flag("remove-death"),
        "remove_headers": context.text("remove-header").splitlines() or None,
        "set_headers": parse_pairs(context, "set-header") or None,
    }


@command(
    (
        Argument("<queue>", "the dead-letter queue; messages that arrive after the start are left alone"),
        VHOST,
        option(
            "via",
            "queue (default): each message goes to the queue where it was dead-lettered. exchange: it is published"
            " to its exchange with its routing keys, and every bound queue gets it again",
        ),
        option("death", "whether that is where it was dead-lettered first (default) or last"),
        FILTER,
        MATCH,
        RATE,
        LIMIT,
        option("remove-death", "remove the header x-death and those that begin with x-first-death- and x-last-death-"),
        option("remove-header", "remove a header; may be repeated"),
        option("set-header", "set a header; may be repeated"),
        DETACH,
        option("dry-run", "count by origin and reason, and return nothing"),
        TIMEOUT,
    ),
    banner="Returning dead letters of '{0}' in vhost '{context.vhost}' ...",
    check=_check_return,
    timeout=None,
)
def return_messages(context: CommandContext, queue: str) -> Result:
    """Returns dead letters to where they come from; a crash loses none."""
    return run_job(context, queue, "return-messages", "return", _options(context))


def run_job(context: CommandContext, queue: str, resource: str, verb: str, options: dict[str, Any]) -> Result:
    """Begin a job, and wait until it has ended, unless --detach is given; with --dry-run, only count.

    Args:
        resource: Last part of the path of the resource.
        verb: What is done to the messages, for example ``return``.

    Raises:
        CommandFault: It is refused, or has failed, or has left messages where they are (exit status 69).
    """
    dry_run = context.flag("dry-run")
    try:
        body = {**options, "dry_run": dry_run}
        found = context.api.post("queues", context.vhost, queue, resource, body=body)
    except ApiFault as fault:
        raise refused(fault, resource.replace("-", "_")) from fault
    if dry_run:
        return Outcome(f"Would {verb} {_report(found)}", found)
    return _follow(context, found)


def _follow(context: CommandContext, job: dict[str, Any]) -> Outcome:
    """Wait until a job has ended, unless --detach is given, and show its progress."""
    if context.flag("detach"):
        return Outcome(f"Job {job['id']} has begun", job)
    away = 0.0
    try:
        with ProgressLine(_WORDS[job["kind"]][0], _total(context, job), silent=context.silent) as progress:
            while job["state"] == "running":
                time.sleep(_POLL)
                try:
                    job = context.api.get("jobs", context.vhost, job["id"])
                    away = 0.0
                except NoAnswer:
                    away += _POLL
                    if away > _AWAY:
                        raise
                progress.update(_done(job), job["error"] or "")
    except KeyboardInterrupt:
        text = f"job {job['id']} goes on; see leveretctl list_jobs, or stop it with leveretctl cancel_job {job['id']}"
        raise CommandFault(INTERRUPTED, text, json={"id": job["id"], "result": "running"}) from None
    done = _WORDS[job["kind"]][1]
    text = f"Job {job['id']} is {job['state']}{': ' + job['error'] if job['error'] else ''}. {done} {_report(job)}"
    if job["state"] != "completed" or job["left_count"]:
        raise failed(text, json={**job, "result": "error"})
    return Outcome(text, {**job, "result": "ok"})


def _total(context: CommandContext, job: dict[str, Any]) -> int:
    """Return how many messages a job looks at."""
    if job["kind"] == "replay":
        return int(job["end_offset"]) - int(job["first_offset"])
    if job["kind"] == "restore":
        # Known once the backup has been read.
        return int(job["total"] or 0)
    queue = context.api.find("queues", context.vhost, job["queue"], columns="messages_ready") or {}
    return int(job["returned"]) + int(queue.get("messages_ready", 0))


def _done(job: dict[str, Any]) -> int:
    return int(job["next_offset"]) - int(job["first_offset"]) if job["kind"] == "replay" else int(job["returned"])


def _report(found: dict[str, Any]) -> str:
    """Return what a job has done, or would do."""
    lines = [f"{found['returned']} messages, left {found['left_count']}"]
    lines += [f"  {each['count']} to {each['target']}, {each['reason']}" for each in found["by_origin"]]
    lines += [
        f"  {each['count']} left: {each['problem']}{' (' + each['target'] + ')' if each['target'] else ''}"
        for each in found["left"]
    ]
    return "\n".join(lines)


_JOBS: Final = table_columns(JOB)


@command(
    (VHOST, HEADERS, Argument("[<column> ...]", columns=_JOBS), TIMEOUT),
    banner="Listing jobs in vhost {context.vhost} ...",
)
def list_jobs(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists the jobs of return_messages, move_messages, replay and restore_queue, the newest first."""
    default = ("id", "queue", "state", "returned", "left", "error")
    return list_objects(context, _JOBS, wanted, default, "jobs", context.vhost)


_NO_JOB: Final = "no job '{0}' in vhost '{context.vhost}'"


@command((_ID, VHOST, TIMEOUT), banner="Cancelling job {0} in vhost {context.vhost} ...", not_found=_NO_JOB)
def cancel_job(context: CommandContext, job: str) -> None:
    """Cancels a running or paused job, or removes one that has ended from the list."""
    context.api.delete("jobs", context.vhost, job)


@command((_ID, VHOST, TIMEOUT), banner="Resuming job {0} in vhost {context.vhost} ...", not_found=_NO_JOB)
def resume_job(context: CommandContext, job: str) -> None:
    """Continues a job that is paused, because the broker ended badly three times in a row while it ran."""
    context.api.post("jobs", context.vhost, job, "resume")


# Messages per request: small enough to show progress, large enough to make the cost of a request negligible.
_BATCH: Final = 5_000


def _check_move(context: CommandContext) -> None:
    check_positive(context, "limit", "rate")
    read_conditions(context.text("filter"))


def _move_banner(context: CommandContext, source: str, target: str) -> str:
    which = f" matching {' and '.join(context.text('filter').splitlines())}" if "filter" in context.options else ""
    most = f"at most {context.integer('limit', 0)} " if "limit" in context.options else ""
    return f"Moving {most}messages{which} from queue '{source}' to queue '{target}' in vhost '{context.vhost}' ..."


@command(
    (
        VHOST,
        Argument("<from queue>", "source queue"),
        Argument("<to queue>", "target queue in the same virtual host; the move ends when it is full"),
        option("limit", "maximum number of messages; default: all that are ready at the start"),
        FILTER,
        option("rate", "maximum number of messages per second; a job of the broker moves them, see list_jobs"),
        option("detach", "let a job of the broker move them, and do not wait for its end"),
        TIMEOUT,
    ),
    banner=_move_banner,
    check=_check_move,
    timeout=None,
)
def move_messages(context: CommandContext, source: str, target: str) -> Result:
    """Moves ready messages from one queue to another, oldest first; a crash loses none."""
    conditions = read_conditions(context.text("filter"))
    missing = failed(f"no queue '{source}' in vhost '{context.vhost}'")
    found = context.require(missing, "queues", context.vhost, source, columns="name,messages_ready")
    if "rate" in context.options or context.flag("detach"):
        return _begin_job(context, conditions)
    total = int(found.get("messages_ready", 0))
    if "limit" in context.options:
        total = min(total, context.integer("limit", 0))
    with ProgressLine("Moving", total, silent=context.silent or bool(conditions)) as progress:
        moved, answer = _move_all(context, total, conditions, progress)
    reason = str(answer["reason"])
    if answer["complete"]:
        # The reason of a complete batch would only be the batch's own limit.
        limited = "limit" in context.options and moved >= context.integer("limit", 0)
        reason = "the limit is reached" if limited else "the source has no more messages"
    text = f"Moved {moved} messages to queue '{target}': {reason}"
    json = {**answer, "reason": reason, "moved": moved, "result": "ok" if answer["complete"] else "error"}
    if not answer["complete"]:
        # Some messages have been moved, but not all that were requested.
        raise failed(text, json=json)
    return Outcome(text, json)


def _begin_job(context: CommandContext, conditions: dict[str, Any]) -> Result:
    """Let a job of the broker move the messages."""
    source, target = context.arguments
    limit, rate = context.options.get("limit"), context.options.get("rate")
    body = {"to": target, "filter": conditions or None, "limit": limit, "rate": rate, "job": True}
    try:
        job = context.api.post("queues", context.vhost, source, "move-messages", body=body)
    except ApiFault as fault:
        raise refused(fault, "move_messages") from fault
    return _follow(context, job)


def _move_all(
    context: CommandContext, total: int, conditions: dict[str, Any], progress: ProgressLine
) -> tuple[int, dict[str, Any]]:
    """Move messages and return their number and the last response.

    Without conditions messages are moved in batches, which show progress. With conditions one request moves all,
    because each request scans the whole queue.
    """
    source, target = context.arguments
    moved = scanned = 0
    answer: dict[str, Any] = {"complete": True, "reason": "the source has no more messages"}
    while moved < total or not (total or moved):
        limit = total - moved if conditions else min(_BATCH, total - moved)
        body = {"to": target, "filter": conditions or None, "limit": max(1, limit)}
        try:
            answer = context.api.post("queues", context.vhost, source, "move-messages", body=body)
        except ApiFault as fault:
            raise refused(fault, "move_messages", f" (after {moved} messages)" if moved else "") from fault
        moved += answer["moved"]
        scanned += answer["scanned"]
        progress.update(moved)
        if conditions or not answer["moved"] or not answer["complete"]:
            break
    return moved, {**answer, "scanned": scanned}


_BACKUPS: Final = table_columns(BACKUP)


@command(
    (HEADERS, Argument("[<column> ...]", columns=_BACKUPS), TIMEOUT),
    banner="Listing backups ...",
    of_leveret="commands for backups",
)
def list_backups(context: CommandContext, *columns: str) -> ResultRows:
    """Lists the whole backups that the broker takes, the newest first: moment, size, and up to when each restores."""
    names = selected_columns(columns, tuple(_BACKUPS))
    found = context.api.get("backups")
    if found["url"] is None:
        raise failed("the broker takes no backups: backup.url is not set")
    return to_rows(_BACKUPS, names, found["backups"])


def _check_restore(context: CommandContext) -> None:
    if "at" not in context.options:
        raise bad_argument("--at is needed: a moment that list_backups shows, or any between two")
    check_positive(context, "rate", "limit")


@command(
    (
        Argument("<queue>", "the queue as it was called at that moment"),
        option("at", "the moment, such as 2026-01-31T14:04:50Z"),
        option("into-queue", "the queue that gets the messages: NAME.restored by default; declared if there is none"),
        VHOST,
        RATE,
        LIMIT,
        DETACH,
        option("dry-run", "count its messages, and restore nothing"),
        TIMEOUT,
    ),
    banner="Restoring queue '{0}' in vhost '{context.vhost}' ...",
    check=_check_restore,
    timeout=None,
)
def restore_queue(context: CommandContext, queue: str) -> Result:
    """Restores a queue, which may be gone, from the broker's backups, into another one; a crash loses none."""
    options = {key: context.options.get(key) for key in ("at", "rate", "limit")}
    options["into"] = context.options.get("into-queue")
    return run_job(context, queue, "restore", "restore", options)
