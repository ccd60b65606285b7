"""Commands for policies and operator policies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.runtime_parameters import clear, parse_object, put
from leveret.broker.management.cli.terms import compact_json

SECTION: Final = "Policies"
COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


class PolicyKind(NamedTuple):
    """Kind of policy: user or operator policy.

    Args:
        resource: name of the API resource.
        word: part of the commands' names.
        title: name in banners.
        listed: plural in the banner of the list command.
    """

    resource: str
    word: str
    title: str
    listed: str


POLICIES: Final = PolicyKind("policies", "policy", "policy", "policies")
OPERATOR_POLICIES: Final = PolicyKind(
    "operator-policies", "operator_policy", "operator policy", "operator policy overrides"
)


def _list(context: CommandContext, kind: PolicyKind) -> ResultRows:
    found = context.api.find(kind.resource, context.vhost)
    if found is None:
        raise no_such_vhost(context.vhost)
    found.sort(key=lambda policy: (policy["priority"], policy["name"]))
    return ResultRows(COLUMNS, [{**policy, "definition": compact_json(policy["definition"])} for policy in found])


def _body(context: CommandContext) -> dict[str, Any]:
    _, pattern, definition = context.arguments
    return {
        "pattern": pattern,
        "definition": parse_object(definition, "policy definition"),
        "priority": context.integer("priority", 0),
        "apply-to": context.text("apply-to", "all"),
    }


def _set(context: CommandContext, kind: PolicyKind) -> Result:
    body = _body(context)
    if context.flag("dry-run"):
        from leveret.broker.management.cli.dry_run import dry_run

        return dry_run(context, kind.resource, body)
    put(context, (kind.resource, context.vhost, context.arguments[0]), body)
    notice = context.api.notice
    if not notice:
        return ok_result(context)
    text = f'{kind.title.capitalize()} "{context.arguments[0]}": {notice}'
    return Outcome(text, {"node": context.node, "result": "ok", "message": text} if context.json else None)


def _clear(context: CommandContext, kind: PolicyKind) -> Result:
    clear(context, (kind.resource, context.vhost, context.arguments[0]))
    return ok_result(context)


def _set_banner(context: CommandContext, kind: PolicyKind) -> str:
    name, pattern, definition = context.arguments
    title = kind.title if kind is POLICIES else f"{kind.title} override"
    verb = "Dry run of" if context.flag("dry-run") else "Setting"
    return (
        f'{verb} {title} "{name}" for pattern "{pattern}" to "{definition}"'
        f' with priority "{context.integer("priority", 0)}" for vhost "{context.vhost}" ...'
    )


def _list_command(kind: PolicyKind, summary: str) -> Command:
    return Command(
        name=f"list_{kind.resource.replace('-', '_')}",
        section=SECTION,
        summary=summary,
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=lambda context: _list(context, kind),
        options=("table-headers",),
        banner=lambda context: f'Listing {kind.listed} for vhost "{context.vhost}" ...',
    )


def _set_command(kind: PolicyKind, summary: str) -> Command:
    return Command(
        name=f"set_{kind.word}",
        section=SECTION,
        summary=summary,
        usage=(
            "[--vhost <vhost>] [--priority <priority>] [--apply-to <apply-to>] [--dry-run]"
            " <name> <pattern> <definition>"
        ),
        run=lambda context: _set(context, kind),
        min_arguments=3,
        max_arguments=3,
        options=("priority", "apply-to"),
        supports_dry_run=True,
        banner=lambda context: _set_banner(context, kind),
        explanations=(
            ("<name>", "the policy's name; an existing policy with this name is replaced"),
            ("<pattern>", "regular expression; matches names that contain a match, unless it has anchors"),
            ("<definition>", 'JSON object, for example {"max-length":1000,"overflow":"reject-publish"}'),
            (
                "--priority <priority>",
                "of several matching policies, the one with the highest priority applies; default 0",
            ),
            (
                "--apply-to <queues | classic_queues | quorum_queues | streams | exchanges | all>",
                "kinds of objects that the policy applies to; default all",
            ),
            ("--dry-run", "show which queues would change and what they would drop, without setting the policy"),
        ),
    )


def _clear_command(kind: PolicyKind, summary: str) -> Command:
    return Command(
        name=f"clear_{kind.word}",
        section=SECTION,
        summary=summary,
        usage="[--vhost <vhost>] <name>",
        run=lambda context: _clear(context, kind),
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Clearing {kind.title} "{context.arguments[0]}" on vhost "{context.vhost}" ...',
        explanations=(("<name>", "the policy's name"),),
    )


COMMANDS: Final = (
    _list_command(POLICIES, "Lists all policies in a virtual host"),
    _list_command(OPERATOR_POLICIES, "Lists operator policy overrides for a virtual host"),
    _set_command(POLICIES, "Sets or updates a policy"),
    _set_command(OPERATOR_POLICIES, "Sets an operator policy, which bounds what user policies may set"),
    _clear_command(POLICIES, "Clears (removes) a policy"),
    _clear_command(OPERATOR_POLICIES, "Clears an operator policy"),
)
