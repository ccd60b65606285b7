"""Commands for virtual hosts, and for the limits of virtual hosts and users."""

from __future__ import annotations

from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    DATA,
    SOFTWARE,
    CommandFault,
    failed,
    no_such_user,
    no_such_vhost,
)
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.commands.definitions import clear, parse_object, put
from leveret.broker.leveretctl.printing import compact_json
from leveret.broker.leveretctl.selectable_columns import list_objects, list_rows, table_columns
from leveret.broker.management import fields

_VHOSTS: Final = table_columns(fields.VHOST)
_VHOST_LIMITS: Final = table_columns(fields.VHOST_LIMIT)
_QUEUE_TYPES: Final = ("classic", "quorum", "stream")


@command((HEADERS, Argument("[<column> ...]", columns=_VHOSTS), TIMEOUT), banner="Listing vhosts ...")
def list_vhosts(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists virtual hosts."""
    return list_objects(context, _VHOSTS, wanted, ("name",), "vhosts")._replace(streamed=False)


@command(
    (
        Argument("<vhost>", "name of the virtual host; the user who creates it gets all permissions in it"),
        option("description", "description of the virtual host"),
        option("tags", "tags separated by commas"),
        option("default-queue-type", "type of queues that are declared without one"),
    ),
    line='<vhost> [--description <description> --tags "<tag1>,<tag2>,<...>"'
    " --default-queue-type <quorum|classic|stream>]",
    banner='Adding vhost "{0}" ...',
)
def add_vhost(context: CommandContext, name: str) -> None:
    """Creates a virtual host."""
    queue_type = context.text("default-queue-type")
    if queue_type and queue_type not in _QUEUE_TYPES:
        raise failed("invalid_queue_type")
    # An existing virtual host is not changed.
    if context.api.find("vhosts", name) is None:
        body: dict[str, Any] = {"description": context.text("description"), "tags": context.text("tags")}
        if queue_type:
            body["default_queue_type"] = queue_type
        context.api.put("vhosts", name, body=body)


@command(
    (Argument("<vhost>", "name of the virtual host; everything in it is deleted"),), banner='Deleting vhost "{0}" ...'
)
def delete_vhost(context: CommandContext, name: str) -> None:
    """Deletes a virtual host."""
    context.require(no_such_vhost(name), "vhosts", name)
    context.api.delete("vhosts", name)


def _change(context: CommandContext, name: str, missing: CommandFault, **changes: Any) -> None:
    """Change some properties of a virtual host. The API replaces all of them, so the others are sent back unchanged."""
    found = context.require(missing, "vhosts", name)
    kept: dict[str, Any] = {"description": found.get("description", ""), "tags": ",".join(found.get("tags") or ())}
    if found.get("default_queue_type", "undefined") in _QUEUE_TYPES:
        kept["default_queue_type"] = found["default_queue_type"]
    context.api.put("vhosts", name, body={**kept, **changes})


@command(
    (
        Argument("<vhost>", "name of the virtual host"),
        Argument("<tag> [...]", "one tag per argument; they replace the existing tags", "<tags>", least=0),
    ),
    banner=lambda _, vhost, *tags: f'Setting tags for virtual host "{vhost}" to [{", ".join(tags)}] ...',
)
def set_vhost_tags(context: CommandContext, name: str, *tags: str) -> None:
    """Sets virtual host tags."""
    _change(context, name, failed(f'Virtual host "{name}" does not exist', DATA), tags=",".join(tags))


@command((VHOST,), banner='Starting tracing for vhost "{context.vhost}" ...')
def trace_on(context: CommandContext) -> Result:
    """Also publishes every message of a virtual host to amq.rabbitmq.trace."""
    return _trace(context, tracing=True)


@command((VHOST,), banner='Stopping tracing for vhost "{context.vhost}" ...')
def trace_off(context: CommandContext) -> Result:
    """Stops tracing a virtual host."""
    return _trace(context, tracing=False)


def _trace(context: CommandContext, *, tracing: bool) -> Result:
    _change(context, context.vhost, no_such_vhost(context.vhost), tracing=tracing)
    text = f"Trace {'enabled' if tracing else 'disabled'} for vhost {context.vhost}"
    return Outcome(text, {"message": text})


@command((VHOST, TIMEOUT), banner="Trying to restart vhost '{context.vhost}' on node '{context.node}' ...")
def restart_vhost(context: CommandContext) -> Result:
    """Restarts the queues of a virtual host that failed."""
    if context.api.find("vhosts", context.vhost) is None:
        text = f"Failed to start vhost '{context.vhost}' on node '{context.node}': no such virtual host"
        raise failed(text, SOFTWARE)
    context.api.post("vhosts", context.vhost, "start", context.node)
    text = f"Vhost '{context.vhost}' is already running on node '{context.node}'"
    return Outcome(text, {"message": text})


_USER_LIMITS: Final = ("max-connections", "max-channels")


def _list_vhost_limits_banner(context: CommandContext) -> str:
    which = "all vhosts" if context.flag("global") else f'vhost "{context.vhost}"'
    return f"Listing limits for {which} ..."


@command((VHOST, option("global", "list the limits of all virtual hosts"), HEADERS), banner=_list_vhost_limits_banner)
def list_vhost_limits(context: CommandContext) -> Result:
    """Displays configured virtual host limits."""
    if context.flag("global"):
        return list_rows(_VHOST_LIMITS, context.api.get("vhost-limits"))
    found = context.require(no_such_vhost(context.vhost), "vhost-limits", context.vhost)
    if not found:
        return list_rows(_VHOST_LIMITS, [])
    limits = compact_json(found[0]["value"])
    return Outcome(limits, {"node": context.node, "result": "ok", "value": limits} if context.json else None)


def _limits_path(context: CommandContext) -> tuple[str, ...]:
    return "parameters", "vhost-limits", context.vhost, "limits"


@command(
    (VHOST, Argument("<definition>", 'JSON object with "max-connections", "max-queues" or both; -1 means no limit')),
    banner='Setting vhost limits to "{0}" for vhost "{context.vhost}" ...',
)
def set_vhost_limits(context: CommandContext, definition: str) -> None:
    """Sets virtual host limits."""
    put(context, _limits_path(context), {"value": parse_object(definition, "limits definition")})


@command((VHOST,), banner='Clearing vhost "{context.vhost}" limits ...')
def clear_vhost_limits(context: CommandContext) -> None:
    """Clears virtual host limits."""
    clear(context, _limits_path(context))


def _user(context: CommandContext) -> str:
    return context.text("user", "guest")


def _list_user_limits_banner(context: CommandContext) -> str:
    which = "all users" if context.flag("global") else f'user "{_user(context)}"'
    return f"Listing limits for {which} ..."


@command(
    (option("user", "user to show; default guest"), option("global", "list limits for all the users")),
    banner=_list_user_limits_banner,
)
def list_user_limits(context: CommandContext) -> Result:
    """Displays configured user limits."""
    if context.flag("global"):
        return list_rows(table_columns(fields.USER_LIMIT), context.api.get("user-limits"))
    user = _user(context)
    found = context.require(no_such_user(user), "user-limits", user)
    limits = compact_json(found[0]["value"]) if found else "{}"
    return Outcome(limits, {"message": limits})


@command(
    (
        Argument("<username>", "the user's name"),
        Argument("<definition>", 'JSON object with "max-connections", "max-channels" or both; -1 means no limit'),
    ),
    banner='Setting user limits to "{1}" for user "{0}" ...',
)
def set_user_limits(context: CommandContext, user: str, text: str) -> None:
    """Sets user limits."""
    limits = parse_object(text, "limits definition")
    _check_user_limits(limits)
    context.require(no_such_user(user), "users", user)
    for name, value in limits.items():
        context.api.put("user-limits", user, name, body={"value": value})


def _check_user_limits(limits: dict[str, Any]) -> None:
    """Check all limits before the first one is set, because the API sets them one by one."""
    unknown = {name: value for name, value in limits.items() if name not in _USER_LIMITS}
    if unknown:
        raise failed(f"Unrecognised terms {compact_json(unknown)} in user-limits")
    for name, value in limits.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise failed(f"{name} should be a number, actually was {compact_json(value)}")


def _clear_user_limits_banner(context: CommandContext, user: str, limit: str) -> str:
    what = "all limits" if limit == "all" else f'"{limit}" limit'
    return f'Clearing {what} for user "{user}" ...'


@command(
    (
        Argument("<username>", "the user's name"),
        Argument("<limit_type> | all", "max-connections, max-channels or all", "<limit_type>"),
    ),
    banner=_clear_user_limits_banner,
)
def clear_user_limits(context: CommandContext, user: str, limit: str) -> None:
    """Clears user connection/channel limits."""
    context.require(no_such_user(user), "users", user)
    for name in _USER_LIMITS:
        if limit in ("all", name):
            context.api.delete("user-limits", user, name)
