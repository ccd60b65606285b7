"""Commands about policies and operator policies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows, done
from leveret.broker.management.cli.documents import mapping
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.runtime_parameters import clear, put
from leveret.broker.management.cli.terms import compact_json

SECTION: Final = "Policies"
COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")


class PolicyKind(NamedTuple):
    """Policies or operator policies.

    Args:
        resource: of the API.
        word: in the names of the commands.
        title: in banners.
        listed: what they are called in lists.
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
        "definition": mapping(definition, "policy definition"),
        "priority": context.integer("priority", 0),
        "apply-to": context.text("apply-to", "all"),
    }


def _set(context: CommandContext, kind: PolicyKind) -> Result:
    body = _body(context)
    if context.flag("dry-run"):
        from leveret.broker.management.cli.dry_run import dry_run

        return dry_run(context, kind.resource, body)
    put(context, (kind.resource, context.vhost, context.arguments[0]), body)
    return done(context)


def _clear(context: CommandContext, kind: PolicyKind) -> Result:
    clear(context, (kind.resource, context.vhost, context.arguments[0]))
    return done(context)


def _setting(context: CommandContext, kind: PolicyKind) -> str:
    name, pattern, definition = context.arguments
    title = kind.title if kind is POLICIES else f"{kind.title} override"
    verb = "Rehearsing" if context.flag("dry-run") else "Setting"
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
        least=3,
        most=3,
        options=("priority", "apply-to"),
        supports_dry_run=True,
        banner=lambda context: _setting(context, kind),
        explanations=(
            ("<name>", "the policy's name; one of that name is replaced"),
            ("<pattern>", "regular expression, searched in the names of queues and exchanges"),
            ("<definition>", 'JSON object, as {"max-length":1000,"overflow":"reject-publish"}'),
            ("--priority <priority>", "of several policies that match, the highest applies; default 0"),
            (
                "--apply-to <queues | classic_queues | quorum_queues | streams | exchanges | all>",
                "what it may apply to; default all",
            ),
            ("--dry-run", "tell which queues it would change and what they would lose, and change nothing"),
        ),
    )


def _clear_command(kind: PolicyKind, summary: str) -> Command:
    return Command(
        name=f"clear_{kind.word}",
        section=SECTION,
        summary=summary,
        usage="[--vhost <vhost>] <name>",
        run=lambda context: _clear(context, kind),
        least=1,
        most=1,
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
