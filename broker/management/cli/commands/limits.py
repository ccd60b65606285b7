"""Commands for the limits of virtual hosts, which are stored as runtime parameters, and of users."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import CommandFault, failed, no_such_vhost
from leveret.broker.management.cli.permission_errors import no_such_user
from leveret.broker.management.cli.runtime_parameters import clear, parse_object, put
from leveret.broker.management.cli.terms import compact_json

USER_LIMITS: Final = ("max-connections", "max-channels")
_COMPONENT: Final = "vhost-limits"
_NAME: Final = "limits"


def _list_vhost_limits(context: CommandContext) -> Result:
    if context.flag("global"):
        found = context.api.get("vhost-limits")
        return ResultRows(
            ("vhost", "limits"), [{"vhost": each["vhost"], "limits": compact_json(each["value"])} for each in found]
        )
    found = context.api.find("vhost-limits", context.vhost)
    if found is None:
        raise no_such_vhost(context.vhost)
    if not found:
        return ResultRows(("vhost", "limits"), [])
    limits = compact_json(found[0]["value"])
    return Outcome(limits, {"node": context.node, "result": "ok", "value": limits} if context.json else None)


def _set_vhost_limits(context: CommandContext) -> Result:
    limits = parse_object(context.arguments[0], "limits definition")
    put(context, ("parameters", _COMPONENT, context.vhost, _NAME), {"value": limits})
    return ok_result(context)


def _clear_vhost_limits(context: CommandContext) -> Result:
    clear(context, ("parameters", _COMPONENT, context.vhost, _NAME))
    return ok_result(context)


def _list_vhost_limits_banner(context: CommandContext) -> str:
    if context.flag("global"):
        return "Listing limits for all vhosts ..."
    return f'Listing limits for vhost "{context.vhost}" ...'


def _list_user_limits(context: CommandContext) -> Result:
    if context.flag("global"):
        found = context.api.get("user-limits")
        return ResultRows(
            ("user", "limits"), [{"user": each["user"], "limits": compact_json(each["value"])} for each in found]
        )
    user = _user(context)
    found = context.api.find("user-limits", user)
    if found is None:
        raise no_such_user(user)
    limits = compact_json(found[0]["value"]) if found else "{}"
    return Outcome(limits, {"message": limits})


def _user(context: CommandContext) -> str:
    return context.text("user", "guest")


def _set_user_limits(context: CommandContext) -> Result:
    user, text = context.arguments
    limits = parse_object(text, "limits definition")
    _check_user_limits(limits)
    if context.api.find("users", user) is None:
        raise no_such_user(user)
    for name, value in limits.items():
        context.api.put("user-limits", user, name, body={"value": value})
    return ok_result(context)


def _check_user_limits(limits: dict[str, Any]) -> None:
    """Check all limits before the first one is set, because the API sets them one by one."""
    unknown = {name: value for name, value in limits.items() if name not in USER_LIMITS}
    if unknown:
        raise failed(f"Unrecognised terms {compact_json(unknown)} in user-limits")
    for name, value in limits.items():
        fault = _value_fault(name, value)
        if fault is not None:
            raise fault


def _value_fault(name: str, value: Any) -> CommandFault | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return None
    return failed(f"{name} should be a number, actually was {compact_json(value)}")


def _clear_user_limits(context: CommandContext) -> Result:
    user, limit = context.arguments
    if context.api.find("users", user) is None:
        raise no_such_user(user)
    for name in USER_LIMITS:
        if limit in ("all", name):
            context.api.delete("user-limits", user, name)
    return ok_result(context)


def _clear_user_limits_banner(context: CommandContext) -> str:
    user, limit = context.arguments
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    return f'Clearing {what} for user "{user}" ...'


def _list_user_limits_banner(context: CommandContext) -> str:
    if context.flag("global"):
        return "Listing limits for all users ..."
    return f'Listing limits for user "{_user(context)}" ...'


COMMANDS: Final = (
    Command(
        name="list_vhost_limits",
        section="Virtual hosts",
        summary="Displays configured virtual host limits",
        usage="[--vhost <vhost>] [--global] [--no-table-headers]",
        run=_list_vhost_limits,
        options=("global", "table-headers"),
        banner=_list_vhost_limits_banner,
        explanations=(("--global", "list the limits of all virtual hosts"),),
    ),
    Command(
        name="set_vhost_limits",
        section="Virtual hosts",
        summary="Sets virtual host limits",
        usage="[--vhost <vhost>] <definition>",
        run=_set_vhost_limits,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Setting vhost limits to "{context.arguments[0]}" for vhost "{context.vhost}" ...',
        explanations=(("<definition>", 'JSON object with "max-connections", "max-queues" or both; -1 means no limit'),),
    ),
    Command(
        name="clear_vhost_limits",
        section="Virtual hosts",
        summary="Clears virtual host limits",
        usage="[--vhost <vhost>]",
        run=_clear_vhost_limits,
        banner=lambda context: f'Clearing vhost "{context.vhost}" limits ...',
    ),
    Command(
        name="list_user_limits",
        section="Users",
        summary="Displays configured user limits",
        usage="[--user <username>] [--global]",
        run=_list_user_limits,
        options=("global", "user"),
        banner=_list_user_limits_banner,
        explanations=(
            ("--user <username>", "user to show; default guest"),
            ("--global", "list limits for all the users"),
        ),
    ),
    Command(
        name="set_user_limits",
        section="Users",
        summary="Sets user limits",
        usage="<username> <definition>",
        run=_set_user_limits,
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
        section="Users",
        summary="Clears user connection/channel limits",
        usage="<username> <limit_type> | all",
        run=_clear_user_limits,
        min_arguments=2,
        max_arguments=2,
        banner=_clear_user_limits_banner,
        explanations=(("<username>", "the user's name"), ("<limit_type>", "max-connections, max-channels or all")),
    ),
)
