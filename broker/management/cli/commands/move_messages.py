"""The command move_messages, for example to empty a dead-letter queue. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.commands.jobs import ended_job, wait_for_job
from leveret.broker.management.cli.faults import ApiFault, CommandFault, bad_argument, failed
from leveret.broker.management.cli.filters import FILTER_HELP, read_conditions
from leveret.broker.management.cli.progress import ProgressLine

# Messages per request: small enough to show progress, large enough to make the cost of a request negligible.
_BATCH: Final = 5_000


def _check(context: CommandContext) -> None:
    limit = context.options.get("limit")
    if limit is not None and int(limit) < 1:
        raise bad_argument("--limit must be 1 or more")
    if context.integer("rate", 1) < 1:
        raise bad_argument("--rate must be 1 or more")
    read_conditions(context.text("filter"))


def _move(context: CommandContext) -> Result:
    source, target = context.arguments
    conditions = read_conditions(context.text("filter"))
    found = context.api.find("queues", context.vhost, source, columns="name,messages_ready")
    if found is None:
        raise _missing(context, source)
    if "rate" in context.options or context.flag("detach"):
        return _begin_job(context, conditions)
    total = int(found.get("messages_ready", 0))
    if "limit" in context.options:
        total = min(total, context.integer("limit", 0))
    silent = context.flag("silent") or context.flag("quiet") or bool(conditions)
    with ProgressLine("Moving", total, silent=silent) as progress:
        moved, answer = _move_all(context, total, conditions, progress)
    return _report(moved, {**answer, "reason": _reason(context, moved, answer)}, target)


def _begin_job(context: CommandContext, conditions: dict[str, Any]) -> Result:
    """Let a job of the broker move the messages."""
    source, target = context.arguments
    limit, rate = context.options.get("limit"), context.options.get("rate")
    body = {"to": target, "filter": conditions or None, "limit": limit, "rate": rate, "job": True}
    try:
        job = context.api.post("queues", context.vhost, source, "move-messages", body=body)
    except ApiFault as fault:
        raise _to_fault(context, fault, 0) from fault
    if context.flag("detach"):
        return Outcome(f"Job {job['id']} has begun", job)
    return ended_job(wait_for_job(context, job))


def _move_all(
    context: CommandContext, total: int, conditions: dict[str, Any], progress: ProgressLine
) -> tuple[int, dict[str, Any]]:
    """Move messages and return their number and the last response.

    Without conditions messages are moved in batches, which show progress. With conditions one request moves all,
    because each request scans the whole queue.
    """
    source, target = context.arguments
    moved = 0
    answer: dict[str, Any] = {"complete": True, "reason": "the source has no more messages", "scanned": 0}
    scanned = 0
    while moved < total or not (total or moved):
        limit = total - moved if conditions else min(_BATCH, total - moved)
        body = {"to": target, "filter": conditions or None, "limit": max(1, limit)}
        try:
            answer = context.api.post("queues", context.vhost, source, "move-messages", body=body)
        except ApiFault as fault:
            raise _to_fault(context, fault, moved) from fault
        moved += answer["moved"]
        scanned += answer["scanned"]
        progress.update(moved)
        if conditions or not answer["moved"] or not answer["complete"]:
            break
    return moved, {**answer, "scanned": scanned}


def _missing(context: CommandContext, name: str) -> CommandFault:
    return failed(f"no queue '{name}' in vhost '{context.vhost}'")


def _to_fault(context: CommandContext, fault: ApiFault, moved: int) -> CommandFault:
    if fault.status == 405 or (fault.not_found and fault.error == "Object Not Found"):
        reason = "the broker does not support move_messages: it is not Leveret"
    else:
        reason = fault.reason
    before = f" (after {moved} messages)" if moved else ""
    return failed(f"{reason}{before}")


def _reason(context: CommandContext, moved: int, answer: dict[str, Any]) -> str:
    """Return why the move ended. The reason of a complete batch would only be the batch's own limit."""
    if not answer["complete"]:
        return str(answer["reason"])
    limited = "limit" in context.options and moved >= context.integer("limit", 0)
    return "the limit is reached" if limited else "the source has no more messages"


def _report(moved: int, answer: dict[str, Any], target: str) -> Outcome:
    text = f"Moved {moved} messages to queue '{target}': {answer['reason']}"
    json = {**answer, "moved": moved, "result": "ok" if answer["complete"] else "error"}
    if not answer["complete"]:
        # Some messages have been moved, but not all that were requested.
        raise failed(text, json=json)
    return Outcome(text, json)


def _banner(context: CommandContext) -> str:
    source, target = context.arguments
    which = f" matching {' and '.join(context.text('filter').splitlines())}" if "filter" in context.options else ""
    most = f"at most {context.integer('limit', 0)} " if "limit" in context.options else ""
    return f"Moving {most}messages{which} from queue '{source}' to queue '{target}' in vhost '{context.vhost}' ..."


COMMANDS: Final = (
    Command(
        name="move_messages",
        section="Queues",
        summary="Moves ready messages from one queue to another, oldest first; a crash loses none",
        usage=(
            "[--vhost <vhost>] <from queue> <to queue> [--limit <number>] [--filter <condition>] [--rate <number>]"
            " [--detach] [--timeout <timeout>]"
        ),
        run=_move,
        min_arguments=2,
        max_arguments=2,
        options=("limit", "filter", "rate", "detach"),
        timeout=None,
        banner=_banner,
        check=_check,
        explanations=(
            ("<from queue>", "source queue"),
            ("<to queue>", "target queue in the same virtual host; the move ends when it is full"),
            ("--limit <number>", "maximum number of messages; default: all that are ready at the start"),
            FILTER_HELP,
            ("--rate <number>", "maximum number of messages per second; a job of the broker moves them, see list_jobs"),
            ("--detach", "let a job of the broker move them, and do not wait for its end"),
        ),
    ),
)
