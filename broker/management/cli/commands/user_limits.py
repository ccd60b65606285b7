"""Commands for user limits."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import CommandFault, failed
from leveret.broker.management.cli.json_arguments import parse_object
from leveret.broker.management.cli.permission_errors import no_such_user
from leveret.broker.management.cli.terms import compact_json, typed
from leveret.protocol.erlang_terms import format_list, format_tuple, format_unicode

SECTION: Final = "Users"
LIMITS: Final = ("max-connections", "max-channels")
_COLUMNS: Final = ("user", "limits")


def _list(context: CommandContext) -> Result:
    if context.flag("global"):
        found = context.api.get("user-limits")
        return ResultRows(_COLUMNS, [{"user": each["user"], "limits": compact_json(each["value"])} for each in found])
    user = _user(context)
    found = context.api.find("user-limits", user)
    if found is None:
        raise no_such_user(user)
    limits = compact_json(found[0]["value"]) if found else "{}"
    return Outcome(limits, {"message": limits})


def _user(context: CommandContext) -> str:
    return context.text("user", "guest")


def _set(context: CommandContext) -> Result:
    user, text = context.arguments
    limits = parse_object(text, "limits definition")
    _check(limits)
    if context.api.find("users", user) is None:
        raise no_such_user(user)
    for name, value in limits.items():
        context.api.put("user-limits", user, name, body={"value": value})
    return ok_result(context)


def _check(limits: dict[str, Any]) -> None:
    """Check all limits before the first one is set, because the API sets them one by one."""
    unknown = [format_tuple(format_unicode(name), typed(value)) for name, value in limits.items() if name not in LIMITS]
    if unknown:
        raise failed(f"Unrecognised terms {format_list(unknown)} in user-limits")
    for name, value in limits.items():
        fault = _value_fault(name, value)
        if fault is not None:
            raise fault


def _value_fault(name: str, value: Any) -> CommandFault | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return failed(f"{name} should be a number, actually was {typed(value)}")


def _clear(context: CommandContext) -> Result:
    user, limit = context.arguments
    if context.api.find("users", user) is None:
        raise no_such_user(user)
    for name in LIMITS:
        if limit in ("all", name):
            context.api.delete("user-limits", user, name)
    return ok_result(context)


def _clear_banner(context: CommandContext) -> str:
    user, limit = context.arguments
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    return f'Clearing {what} for user "{user}" ...'


def _list_banner(context: CommandContext) -> str:
    if context.flag("global"):
        return "Listing limits for all users ..."
    return f'Listing limits for user "{_user(context)}" ...'


COMMANDS: Final = (
    Command(
        name="list_user_limits",
        section=SECTION,
        summary="Displays configured user limits",
        usage="[--user <username>] [--global]",
        run=_list,
        options=("global", "user"),
        banner=_list_banner,
        explanations=(
            ("--user <username>", "user to show; default guest"),
            ("--global", "list limits for all the users"),
        ),
    ),
    Command(
        name="set_user_limits",
        section=SECTION,
        summary="Sets user limits",
        usage="<username> <definition>",
        run=_set,
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: f'Setting user limits to "{context.arguments[1]}" for user "{context.arguments[0]}" ...',
        explanations=(
            ("<username>", "the user's name"),
            ("<definition>", 'JSON object with "max-connections", "max-channels" or both; -1 means no limit'),
        ),
    ),
    Command(
        name="clear_user_limits",
        section=SECTION,
        summary="Clears user connection/channel limits",
        usage="<username> <limit_type> | all",
        run=_clear,
        min_arguments=2,
        max_arguments=2,
        banner=_clear_banner,
        explanations=(("<username>", "the user's name"), ("<limit_type>", "max-connections, max-channels or all")),
    ),
)
