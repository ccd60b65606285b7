"""The commands return_messages, list_jobs, cancel_job and resume_job. RabbitMQ has no such commands."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, selected_columns, to_rows, with_columns
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import (
    INTERRUPTED,
    ApiFault,
    CommandFault,
    RequestTimeout,
    Unreachable,
    bad_argument,
    failed,
)
from leveret.broker.management.cli.filters import FILTER_HELP, MATCH_HELP, read_filter_options, read_value
from leveret.broker.management.cli.progress import ProgressLine
from leveret.broker.management.cli.terms import compact_json

#: Seconds between two looks at a job.
_POLL: Final = 0.2
#: Seconds for which the broker may be away, for example for a restart.
_AWAY: Final = 60.0
#: What is said about a job while it runs, and at its end.
_WORDS: Final = {"return": ("Returning", "Returned"), "move": ("Moving", "Moved"), "replay": ("Replaying", "Replayed")}
_VIA: Final = ("queue", "exchange")
_DEATHS: Final = ("first", "last")


def _check(context: CommandContext) -> None:
    for option, values in (("via", _VIA), ("death", _DEATHS)):
        if context.text(option, values[0]) not in values:
            raise bad_argument(f"--{option} must be {' or '.join(values)}")
    for option in ("rate", "limit"):
        if context.integer(option, 1) < 1:
            raise bad_argument(f"--{option} must be 1 or more")
    _options(context)


def _options(context: CommandContext) -> dict[str, Any]:
    """Return the options of the job."""
    added = {}
    for line in context.text("set-header").splitlines():
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise bad_argument(f"--set-header takes <name>=<value>, not {line}")
        added[name] = read_value(value)
    return {
        "filter": read_filter_options(context),
        "via": context.text("via", "queue"),
        "death": context.text("death", "first"),
        "rate": context.options.get("rate"),
        "limit": context.options.get("limit"),
        "remove_death": context.flag("remove-death"),
        "remove_headers": context.text("remove-header").splitlines() or None,
        "set_headers": added or None,
    }


def _return(context: CommandContext) -> Result:
    (queue,) = context.arguments
    return run_job(context, queue, "return-messages", "return", _options(context))


def run_job(context: CommandContext, queue: str, resource: str, verb: str, options: dict[str, Any]) -> Result:
    """Begin a job, and wait until it has ended, unless --detach is given; with --dry-run, only count.

    Args:
        context: The command.
        queue: Name of the queue.
        resource: Last part of the path of the resource.
        verb: What is done to the messages, for example ``return``.
        options: Options of the job.
    """
    dry_run = context.flag("dry-run")
    try:
        body = {**options, "dry_run": dry_run}
        found = context.api.post("queues", context.vhost, queue, resource, body=body)
    except ApiFault as fault:
        raise to_fault(fault, resource) from fault
    if dry_run:
        return Outcome(f"Would {verb} {report(found)}", found)
    if context.flag("detach"):
        return Outcome(f"Job {found['id']} has begun", found)
    return ended_job(wait_for_job(context, found))


def wait_for_job(context: CommandContext, job: dict[str, Any]) -> dict[str, Any]:
    """Wait until a job has ended, and show its progress; return its last state."""
    silent = context.flag("silent") or context.flag("quiet")
    away = 0.0
    try:
        with ProgressLine(_WORDS[job["kind"]][0], _total(context, job), silent=silent) as progress:
            while job["state"] == "running":
                time.sleep(_POLL)
                try:
                    job = context.api.get("jobs", context.vhost, job["id"])
                    away = 0.0
                except (Unreachable, RequestTimeout):
                    away += _POLL
                    if away > _AWAY:
                        raise
                progress.update(_done(job), job["error"] or "")
    except KeyboardInterrupt:
        text = f"job {job['id']} goes on; see leveretctl list_jobs, or stop it with leveretctl cancel_job {job['id']}"
        raise CommandFault(INTERRUPTED, text, json={"id": job["id"], "result": "running"}) from None
    return job


def _total(context: CommandContext, job: dict[str, Any]) -> int:
    """Return how many messages a job looks at."""
    if job["kind"] == "replay":
        return int(job["end_offset"]) - int(job["first_offset"])
    queue = context.api.find("queues", context.vhost, job["queue"], columns="messages_ready") or {}
    return int(job["returned"]) + int(queue.get("messages_ready", 0))


def _done(job: dict[str, Any]) -> int:
    return int(job["next_offset"]) - int(job["first_offset"]) if job["kind"] == "replay" else int(job["returned"])


def ended_job(job: dict[str, Any]) -> Outcome:
    """Return the result of a job that has ended.

    Raises:
        CommandFault: It has failed, or has left messages where they are (exit status 69).
    """
    done = _WORDS[job["kind"]][1]
    text = f"Job {job['id']} is {job['state']}{': ' + job['error'] if job['error'] else ''}. {done} {report(job)}"
    if job["state"] != "completed" or job["left_count"]:
        raise failed(text, json={**job, "result": "error"})
    return Outcome(text, {**job, "result": "ok"})


def report(found: dict[str, Any]) -> str:
    """Return what a job has done, or would do."""
    lines = [f"{found['returned']} messages, left {found['left_count']}"]
    lines += [f"  {each['count']} to {each['target']}, {each['reason']}" for each in found["by_origin"]]
    lines += [
        f"  {each['count']} left: {each['problem']}{' (' + each['target'] + ')' if each['target'] else ''}"
        for each in found["left"]
    ]
    return "\n".join(lines)


def to_fault(fault: ApiFault, resource: str, before: str = "") -> CommandFault:
    """Return the fault for a refused request.

    Args:
        fault: The refusal.
        resource: Last part of the path of the resource.
        before: What is added to the reason: how much was done before.
    """
    if fault.status == 405 or (fault.not_found and fault.error == "Object Not Found"):
        return failed(f"the broker does not support {resource.replace('-', '_')}: it is not Leveret")
    return failed(f"{fault.reason}{before}")


COLUMNS: Final[dict[str, Column]] = {
    **fields("id", "kind", "queue", "state", "returned"),
    "left": field("left_count"),
    **fields("scanned", "user", "created", "finished", "error", "first_offset", "next_offset", "end_offset"),
    "options": field("options", compact_json),
}
DEFAULT: Final = ("id", "queue", "state", "returned", "left", "error")


def _list(context: CommandContext) -> ResultRows:
    found = context.api.find("jobs", context.vhost) or []
    return to_rows(COLUMNS, selected_columns(context.arguments, DEFAULT), found)


def _cancel(context: CommandContext) -> Result:
    try:
        context.api.delete("jobs", context.vhost, context.arguments[0])
    except ApiFault as fault:
        raise _job_fault(context, fault) from fault
    return ok_result(context)


def _resume(context: CommandContext) -> Result:
    try:
        context.api.post("jobs", context.vhost, context.arguments[0], "resume")
    except ApiFault as fault:
        raise _job_fault(context, fault) from fault
    return ok_result(context)


def _job_fault(context: CommandContext, fault: ApiFault) -> CommandFault:
    text = f"no job '{context.arguments[0]}' in vhost '{context.vhost}'" if fault.not_found else fault.reason
    return failed(text)


COMMANDS: Final = (
    Command(
        name="return_messages",
        section="Queues",
        summary="Returns dead letters to where they come from; a crash loses none",
        usage=(
            "<queue> [--vhost <vhost>] [--via queue|exchange] [--death first|last] [--filter <condition>]"
            " [--match all|any] [--rate <number>] [--limit <number>] [--remove-death] [--remove-header <name>]"
            " [--set-header <name>=<value>] [--detach] [--dry-run] [--timeout <timeout>]"
        ),
        run=_return,
        min_arguments=1,
        max_arguments=1,
        options=(
            *("via", "death", "filter", "match", "rate", "limit", "remove-death", "remove-header", "set-header"),
            "detach",
        ),
        timeout=None,
        supports_dry_run=True,
        banner=lambda context: f"Returning dead letters of '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        check=_check,
        explanations=(
            ("<queue>", "the dead-letter queue; messages that arrive after the start are left alone"),
            (
                "--via queue|exchange",
                "queue (default): each message goes to the queue where it was dead-lettered. exchange: it is published"
                " to its exchange with its routing keys, and every bound queue gets it again",
            ),
            ("--death first|last", "whether that is where it was dead-lettered first (default) or last"),
            FILTER_HELP,
            MATCH_HELP,
            ("--rate <number>", "maximum number of messages per second"),
            ("--limit <number>", "maximum number of messages"),
            ("--remove-death", "remove the header x-death and those that begin with x-first-death- and x-last-death-"),
            ("--remove-header <name>", "remove a header; may be repeated"),
            ("--set-header <name>=<value>", "set a header; may be repeated"),
            ("--detach", "do not wait for the end of the job. Ctrl-C also leaves it running"),
            ("--dry-run", "count by origin and reason, and return nothing"),
        ),
    ),
    with_columns(
        COLUMNS,
        Command(
            name="list_jobs",
            section="Queues",
            summary="Lists the jobs of return_messages, move_messages and replay, the newest first",
            usage="[--vhost <vhost>] [--no-table-headers] [<column> ...] [--timeout <timeout>]",
            run=_list,
            options=("table-headers",),
            banner=lambda context: f"Listing jobs in vhost {context.vhost} ...",
        ),
    ),
    Command(
        name="cancel_job",
        section="Queues",
        summary="Cancels a running or paused job, or removes one that has ended from the list",
        usage="<id> [--vhost <vhost>] [--timeout <timeout>]",
        run=_cancel,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f"Cancelling job {context.arguments[0]} in vhost {context.vhost} ...",
        explanations=(("<id>", "the job's ID, as list_jobs shows it"),),
    ),
    Command(
        name="resume_job",
        section="Queues",
        summary="Continues a job that is paused, because the broker ended badly three times in a row while it ran",
        usage="<id> [--vhost <vhost>] [--timeout <timeout>]",
        run=_resume,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f"Resuming job {context.arguments[0]} in vhost {context.vhost} ...",
        explanations=(("<id>", "the job's ID, as list_jobs shows it"),),
    ),
)
