"""move_messages: for working off a dead-letter queue. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result
from leveret.broker.management.cli.conditions import read_conditions
from leveret.broker.management.cli.faults import CommandFault, bad_argument, failed
from leveret.broker.management.cli.progress import ProgressLine

# Moved by one request: often enough for a bar that moves, seldom enough to cost nothing.
_BATCH: Final = 5_000


def _check(context: CommandContext) -> None:
    limit = context.options.get("limit")
    if limit is not None and int(limit) < 1:
        raise bad_argument("--limit must be 1 or more")
    read_conditions(context.text("filter"))


def _move(context: CommandContext) -> Result:
    source, target = context.arguments
    wanted = read_conditions(context.text("filter"))
    found = context.api.find("queues", context.vhost, source, columns="name,messages_ready")
    if found is None:
        raise _missing(context, source)
    total = int(found.get("messages_ready", 0))
    if "limit" in context.options:
        total = min(total, context.integer("limit", 0))
    silent = context.flag("silent") or context.flag("quiet") or bool(wanted)
    with ProgressLine("Moving", total, silent=silent) as progress:
        moved, answer = _move_all(context, total, wanted, progress)
    return _report(moved, {**answer, "reason": _reason(context, moved, answer)}, target)


def _move_all(
    context: CommandContext, total: int, wanted: dict[str, Any], progress: ProgressLine
) -> tuple[int, dict[str, Any]]:
    """Move in batches, so that there is something to show; with conditions at once, as each batch looks at all."""
    source, target = context.arguments
    moved = 0
    answer: dict[str, Any] = {"complete": True, "reason": "the source has no more messages", "scanned": 0}
    scanned = 0
    while moved < total or not (total or moved):
        limit = total - moved if wanted else min(_BATCH, total - moved)
        body = {"to": target, "filter": wanted or None, "limit": max(1, limit)}
        try:
            answer = context.api.post("queues", context.vhost, source, "move-messages", body=body)
        except ApiFault as fault:
            raise _refused(context, fault, moved) from fault
        moved += answer["moved"]
        scanned += answer["scanned"]
        progress.at(moved)
        if wanted or not answer["moved"] or not answer["complete"]:
            break
    return moved, {**answer, "scanned": scanned}


def _missing(context: CommandContext, name: str) -> CommandFault:
    return failed(f"no queue '{name}' in vhost '{context.vhost}'")


def _refused(context: CommandContext, fault: ApiFault, moved: int) -> CommandFault:
    if fault.status == 405 or (fault.missing and fault.error == "Object Not Found"):
        reason = "the broker cannot move messages: it is not Leveret"
    else:
        reason = fault.reason
    before = f" (after {moved} messages)" if moved else ""
    return failed(f"{reason}{before}")


def _reason(context: CommandContext, moved: int, answer: dict[str, Any]) -> str:
    """Say why the move ended; a batch that was moved whole says only that its own limit is reached."""
    if not answer["complete"]:
        return str(answer["reason"])
    limited = "limit" in context.options and moved >= context.integer("limit", 0)
    return "the limit is reached" if limited else "the source has no more messages"


def _report(moved: int, answer: dict[str, Any], target: str) -> Outcome:
    text = f"Moved {moved} messages to queue '{target}': {answer['reason']}"
    json = {**answer, "moved": moved, "result": "ok" if answer["complete"] else "error"}
    if not answer["complete"]:
        # What is there has been moved, but not all that was asked for.
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
        summary="Moves ready messages from one queue to another, oldest first; none is lost, whatever crashes",
        usage="[--vhost <vhost>] <from> <to> [--limit <number>] [--filter <condition>] [--timeout <timeout>]",
        run=_move,
        least=2,
        most=2,
        options=("limit", "filter"),
        timeout=None,
        banner=_banner,
        check=_check,
        explanations=(
            ("<from>", "queue to take from"),
            ("<to>", "queue to put into, in the same virtual host; the move ends when it is full"),
            ("--limit <number>", "how many at most; default: all that are there now"),
            (
                "--filter <condition>",
                "routing_key=<pattern>, exchange=<pattern>, queue=<name>, reason=<why it was dead-lettered>,"
                " header.<name>=<value>, or a JSON object of them; several have to hold all",
            ),
        ),
    ),
)
