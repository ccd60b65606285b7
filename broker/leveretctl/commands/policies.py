"""Commands for policies, and explain_queue, which shows what they do to a queue."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import failed, no_such_vhost
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.commands.definitions import clear, parse_object, put
from leveret.broker.leveretctl.commands.node import product_and_version
from leveret.broker.leveretctl.selectable_columns import list_rows, table_columns
from leveret.broker.management.fields import POLICY

_COLUMNS: Final = table_columns(POLICY)
_DRY_RUN_COLUMNS: Final = ("name", "type", "in_force", "changes", "messages_ready", "would_drop", "rival")
_EXPLAIN_COLUMNS: Final = ("key", "argument", "policy", "operator_policy", "in_force", "source", "reason")
_PRODUCT: Final = "Leveret"
# Resources of the API.
_POLICIES: Final = "policies"
_OPERATOR_POLICIES: Final = "operator-policies"
_TITLES: Final = {_POLICIES: "Policy", _OPERATOR_POLICIES: "Operator policy"}
_NAME: Final = Argument("<name>", "the policy's name")


def _list(context: CommandContext, resource: str) -> ResultRows:
    found = context.require(no_such_vhost(context.vhost), resource, context.vhost)
    return list_rows(_COLUMNS, sorted(found, key=lambda policy: (policy["priority"], policy["name"])))


@command((VHOST, HEADERS, TIMEOUT), banner='Listing policies for vhost "{context.vhost}" ...')
def list_policies(context: CommandContext) -> ResultRows:
    """Lists all policies in a virtual host."""
    return _list(context, _POLICIES)


@command((VHOST, HEADERS, TIMEOUT), banner='Listing operator policy overrides for vhost "{context.vhost}" ...')
def list_operator_policies(context: CommandContext) -> ResultRows:
    """Lists operator policy overrides for a virtual host."""
    return _list(context, _OPERATOR_POLICIES)


_SET_PARTS: Final = (
    Argument("<name>", "the policy's name; an existing policy with this name is replaced"),
    Argument("<pattern>", "regular expression; matches names that contain a match, unless it has anchors"),
    Argument("<definition>", 'JSON object, for example {"max-length":1000,"overflow":"reject-publish"}'),
    option("priority", "of several matching policies, the one with the highest priority applies; default 0"),
    option(
        "apply-to",
        "kinds of objects that the policy applies to; default all",
        shown="--apply-to <queues | classic_queues | quorum_queues | streams | exchanges | all>",
        values=("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"),
    ),
    option("dry-run", "show which queues would change and what they would drop, without setting the policy"),
)
_SET_LINE: Final = (
    "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] [--dry-run] <name> <pattern> <definition>"
)


def _set_banner(title: str, context: CommandContext, name: str, pattern: str, definition: str) -> str:
    verb = "Dry run of" if context.flag("dry-run") else "Setting"
    return (
        f'{verb} {title} "{name}" for pattern "{pattern}" to "{definition}"'
        f' with priority "{context.integer("priority", 0)}" for vhost "{context.vhost}" ...'
    )


@command(_SET_PARTS, line=_SET_LINE, banner=partial(_set_banner, "policy"))
def set_policy(context: CommandContext, name: str, pattern: str, definition: str) -> Result | None:
    """Sets or updates a policy."""
    return _set(context, _POLICIES, name, pattern, definition)


@command(_SET_PARTS, line=_SET_LINE, banner=partial(_set_banner, "operator policy override"))
def set_operator_policy(context: CommandContext, name: str, pattern: str, definition: str) -> Result | None:
    """Sets an operator policy, which bounds what user policies may set."""
    return _set(context, _OPERATOR_POLICIES, name, pattern, definition)


def _set(context: CommandContext, resource: str, name: str, pattern: str, definition: str) -> Result | None:
    path = resource, context.vhost, name
    body = {
        "pattern": pattern,
        "definition": parse_object(definition, "policy definition"),
        "priority": context.integer("priority", 0),
        "apply-to": context.text("apply-to", "all"),
    }
    if context.flag("dry-run"):
        return _dry_run(context, path, body)
    put(context, path, body)
    if not context.api.notice:
        return None
    text = f'{_TITLES[resource]} "{name}": {context.api.notice}'
    return Outcome(text, {"node": context.node, "result": "ok", "message": text} if context.json else None)


@command((VHOST, _NAME), banner='Clearing policy "{0}" on vhost "{context.vhost}" ...')
def clear_policy(context: CommandContext, name: str) -> None:
    """Clears (removes) a policy."""
    clear(context, (_POLICIES, context.vhost, name))


@command((VHOST, _NAME), banner='Clearing operator policy "{0}" on vhost "{context.vhost}" ...')
def clear_operator_policy(context: CommandContext, name: str) -> None:
    """Clears an operator policy."""
    clear(context, (_OPERATOR_POLICIES, context.vhost, name))


def _dry_run(context: CommandContext, path: tuple[str, ...], body: dict[str, Any]) -> ResultRows:
    """Request a dry run of a policy."""
    name, _ = product_and_version(context.api.get("overview", columns="node,product_name"))
    if name != _PRODUCT:
        # RabbitMQ would ignore the parameter and set the policy.
        raise failed(f"the broker does not support dry runs of policies: it is {name}, not {_PRODUCT}")
    answer = put(context, path, body, dry_run=True)
    rows = [_row(each) for each in answer["queues"]]
    return ResultRows(_DRY_RUN_COLUMNS, rows, streamed=True, json=answer, footer=_summary(answer))


def _row(queue: dict[str, Any]) -> dict[str, Any]:
    return {
        **queue,
        "changes": ", ".join(
            f"{key}: {_display(change['from'])} -> {_display(change['to'])}" for key, change in queue["changes"].items()
        ),
        "would_drop": _amount(queue["would_drop"]) if queue["would_drop"]["messages"] else "nothing",
    }


def _display(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _amount(drop: dict[str, Any]) -> str:
    about = "about " if drop["estimated"] else ""
    return f"{about}{_pluralized(drop['messages'], 'message')} ({_pluralized(drop['bytes'], 'byte')})"


def _pluralized(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _summary(answer: dict[str, Any]) -> str:
    drop = answer["would_drop"]
    dropped = _amount(drop) if drop["messages"] else "nothing"
    lines = [
        f"{_pluralized(answer['matching'], 'queue')} would match; in force on {answer['in_force']};"
        f" would drop {dropped} immediately. Nothing has been changed.",
        *(
            f"There is no exchange '{name}' for dead letters: they would be lost."
            for name in answer["missing_exchanges"]
        ),
        *(
            f"Of the dead letters, {each['arriving']} would go to queue '{each['queue']}', which then drops or refuses"
            f" {_pluralized(each['leaving'], 'message')}, and {each['lost']} of these would be lost."
            for each in answer["dead_letters"]
            if each["leaving"]
        ),
    ]
    if drop["lost"]:
        about = "about " if drop["lost_estimated"] or drop["estimated"] else ""
        lines.append(f"In all {about}{_pluralized(drop['lost'], 'message')} would be lost for good.")
    return "\n".join(lines)


def _not_explained(context: CommandContext, queue: str) -> str:
    if context.api.find("queues", context.vhost, queue, columns="name") is None:
        return f"no queue '{queue}' in vhost '{context.vhost}'"
    return "the broker does not support explain_queue: it is not Leveret"


@command(
    (VHOST, Argument("<queue>", "the queue's name"), TIMEOUT),
    banner="Explaining queue '{0}' in vhost '{context.vhost}' ...",
    not_found=_not_explained,
)
def explain_queue(context: CommandContext, name: str) -> Result:
    """Shows the effective settings of a queue, their sources, and how full the queue is."""
    found = context.api.get("queues", context.vhost, name, "explain")
    return ResultRows(_EXPLAIN_COLUMNS, found["settings"], streamed=True, json=found, footer="\n".join(_notes(found)))


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
        _usage_line(label, _pluralized(messages, "message"), fill["max_length"], fill["messages_percent"]),
        _usage_line("bodies", _pluralized(body_bytes, "byte"), fill["max_length_bytes"], fill["bytes_percent"]),
    ]
    if fill["at_limit"]:
        notes.append(f"at the limit: {fill['at_limit']} ({fill['overflow']})")
    return notes


def _usage_line(label: str, amount: str, limit: int | None, percent: float | None) -> str:
    if limit is None:
        return f"{label}: {amount}, no limit"
    return f"{label}: {amount} of {limit} ({percent:g}%)"
