"""The command explain_queue: effective settings of a queue and their sources. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows
from leveret.broker.management.cli.dry_run import pluralized
from leveret.broker.management.cli.faults import ApiFault, CommandFault, failed

_COLUMNS: Final = ("key", "argument", "policy", "operator_policy", "in_force", "source", "reason")


def _explain(context: CommandContext) -> Result:
    (name,) = context.arguments
    try:
        found = context.api.get("queues", context.vhost, name, "explain")
    except ApiFault as fault:
        raise _to_fault(context, name, fault) from fault
    return ResultRows(_COLUMNS, found["settings"], streamed=True, json=found, footer="\n".join(_notes(found)))


def _to_fault(context: CommandContext, name: str, fault: ApiFault) -> CommandFault:
    if not fault.not_found:
        return failed(fault.reason)
    if context.api.find("queues", context.vhost, name, columns="name") is None:
        return failed(f"no queue '{name}' in vhost '{context.vhost}'")
    return failed("the broker does not support explain_queue: it is not Leveret")


def _notes(found: dict[str, Any]) -> list[str]:
    return [
        _policy("policy", found["policy"]),
        _policy("operator policy", found["operator_policy"]),
        *(f"skipped: {each['kind']} '{each['name']}', {each['reason']}" for each in found["passed_over"]),
        *_missing(found.get("missing_exchange")),
        *_fill(found["fill"]),
    ]


def _missing(exchange: str | None) -> list[str]:
    if exchange is None:
        return []
    return [f"dead letters: lost, because there is no exchange '{exchange}', which is the dead-letter-exchange"]


def _policy(kind: str, policy: dict[str, Any] | None) -> str:
    if policy is None:
        return f"{kind}: none"
    return f"{kind}: '{policy['name']}', pattern '{policy['pattern']}', priority {policy['priority']}"


def _fill(fill: dict[str, Any]) -> list[str]:
    messages, body_bytes = fill["messages_counted"], fill["message_bytes_counted"]
    label = "ready and unacknowledged" if fill["length_counts"] == "all" else "ready"
    notes = [
        _usage_line(label, pluralized(messages, "message"), fill["max_length"], fill["messages_percent"]),
        _usage_line("bodies", pluralized(body_bytes, "byte"), fill["max_length_bytes"], fill["bytes_percent"]),
    ]
    if fill["at_limit"]:
        notes.append(f"at the limit: {fill['at_limit']} ({fill['overflow']})")
    return notes


def _usage_line(label: str, amount: str, limit: int | None, percent: float | None) -> str:
    if limit is None:
        return f"{label}: {amount}, no limit"
    return f"{label}: {amount} of {limit} ({percent:g}%)"


COMMANDS: Final = (
    Command(
        name="explain_queue",
        section="Queues",
        summary="Shows the effective settings of a queue, their sources, and how full the queue is",
        usage="[--vhost <vhost>] <queue> [--timeout <timeout>]",
        run=_explain,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f"Explaining queue '{context.arguments[0]}' in vhost '{context.vhost}' ...",
        explanations=(("<queue>", "the queue's name"),),
    ),
)
