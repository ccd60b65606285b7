"""`set_policy --dry-run`: reports the effect of a policy without setting it. RabbitMQ has no such option."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import CommandContext, ResultRows
from leveret.broker.management.cli.faults import failed
from leveret.broker.management.cli.node_info import product_and_version
from leveret.broker.management.cli.runtime_parameters import put

_PRODUCT: Final = "Leveret"
_COLUMNS: Final = ("name", "type", "in_force", "changes", "messages_ready", "would_drop", "rival")


def dry_run(context: CommandContext, resource: str, body: dict[str, Any]) -> ResultRows:
    """Request a dry run of a policy.

    Args:
        context: context of the command; the first argument is the policy's name.
        resource: API resource: policies or operator-policies.
        body: the policy.

    Raises:
        CommandFault: the broker is not Leveret, or refuses the policy.
    """
    name, _ = product_and_version(context.api.get("overview", columns="node,product_name"))
    if name != _PRODUCT:
        # RabbitMQ would ignore the parameter and set the policy.
        raise failed(f"the broker does not support dry runs of policies: it is {name}, not {_PRODUCT}")
    answer = put(context, (resource, context.vhost, context.arguments[0]), body, dry_run=True)
    rows = [_row(each) for each in answer["queues"]]
    return ResultRows(_COLUMNS, rows, streamed=True, json=answer, footer=_summary(answer))


def _row(queue: dict[str, Any]) -> dict[str, Any]:
    return {
        **queue,
        "changes": ", ".join(
            f"{key}: {display(change['from'])} -> {display(change['to'])}" for key, change in queue["changes"].items()
        ),
        "would_drop": _amount(queue["would_drop"]) if queue["would_drop"]["messages"] else "nothing",
    }


def display(value: Any) -> str:
    """Return the value of a setting as text."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _amount(drop: dict[str, Any]) -> str:
    about = "about " if drop["estimated"] else ""
    return f"{about}{pluralized(drop['messages'], 'message')} ({pluralized(drop['bytes'], 'byte')})"


def pluralized(number: int, noun: str) -> str:
    """Return a number and its noun, such as `2 queues`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summary(answer: dict[str, Any]) -> str:
    drop = answer["would_drop"]
    dropped = _amount(drop) if drop["messages"] else "nothing"
    lines = [
        f"{pluralized(answer['matching'], 'queue')} would match; in force on {answer['in_force']};"
        f" would drop {dropped} immediately. Nothing has been changed.",
        *(
            f"There is no exchange '{name}' for dead letters: they would be lost."
            for name in answer["missing_exchanges"]
        ),
        *(
            f"Of the dead letters, {each['arriving']} would go to queue '{each['queue']}', which then drops or refuses"
            f" {pluralized(each['leaving'], 'message')}, and {each['lost']} of these would be lost."
            for each in answer["dead_letters"]
            if each["leaving"]
        ),
    ]
    if drop["lost"]:
        about = "about " if drop["lost_estimated"] or drop["estimated"] else ""
        lines.append(f"In all {about}{pluralized(drop['lost'], 'message')} would be lost for good.")
    return "\n".join(lines)
