"""Commands for topic permissions."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.permission_errors import check_pattern, check_user_and_vhost, no_such_user

SECTION: Final = "Access Control"
_RIGHTS: Final = ("exchange", "write", "read")


def _list(context: CommandContext) -> ResultRows:
    found = context.api.find("vhosts", context.vhost, "topic-permissions")
    if found is None:
        raise no_such_vhost(context.vhost)
    return ResultRows(("user", *_RIGHTS), found)


def _list_of_user(context: CommandContext) -> ResultRows:
    (user,) = context.arguments
    found = context.api.find("users", user, "topic-permissions")
    if found is None:
        raise no_such_user(user)
    return ResultRows(("vhost", *_RIGHTS), found, headed=False)


def _set(context: CommandContext) -> Result:
    user, exchange, write, read = context.arguments
    body = {"exchange": exchange, "write": write, "read": read}
    try:
        context.api.put("topic-permissions", context.vhost, user, body=body)
    except ApiFault as fault:
        check_pattern(fault)
        check_user_and_vhost(context, user, context.vhost)
        raise
    return ok_result(context)


def _clear(context: CommandContext) -> Result:
    user, *exchange = context.arguments
    try:
        context.api.delete("topic-permissions", context.vhost, user, *exchange)
    except ApiFault as fault:
        check_user_and_vhost(context, user, context.vhost)
        if not fault.not_found:
            raise
    return ok_result(context)


def _clear_banner(context: CommandContext) -> str:
    user, *exchange = context.arguments
    where = f' on "{exchange[0]}"' if exchange else ""
    return f'Clearing topic permissions{where} for user "{user}" in vhost "{context.vhost}" ...'


COMMANDS: Final = (
    Command(
        name="list_topic_permissions",
        section=SECTION,
        summary="Lists topic permissions in a virtual host",
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=_list,
        options=("table-headers",),
        banner=lambda context: f'Listing topic permissions for vhost "{context.vhost}" ...',
    ),
    Command(
        name="list_user_topic_permissions",
        section=SECTION,
        summary="Lists user topic permissions",
        usage="[--no-table-headers] <username> [--timeout <timeout>]",
        run=_list_of_user,
        min_arguments=1,
        max_arguments=1,
        options=("table-headers",),
        banner=lambda context: f'Listing topic permissions for user "{context.arguments[0]}" ...',
        explanations=(("<username>", "the user's name"),),
    ),
    Command(
        name="set_topic_permissions",
        section=SECTION,
        summary="Sets user topic permissions for an exchange",
        usage="[--vhost <vhost>] <username> <exchange> <write> <read>",
        run=_set,
        min_arguments=4,
        max_arguments=4,
        banner=lambda context: (
            f'Setting topic permissions on "{context.arguments[1]}" for user "{context.arguments[0]}"'
            f' in vhost "{context.vhost}" ...'
        ),
        explanations=(
            ("<username>", "the user's name"),
            ("<exchange>", "topic exchange that the permissions apply to"),
            ("<write>", "pattern of the routing keys that the user may publish with"),
            ("<read>", "pattern of the routing keys that the user may bind with"),
        ),
    ),
    Command(
        name="clear_topic_permissions",
        section=SECTION,
        summary="Clears user topic permissions for a vhost or exchange",
        usage="[--vhost <vhost>] <username> [<exchange>]",
        run=_clear,
        min_arguments=1,
        max_arguments=2,
        banner=_clear_banner,
        explanations=(("<username>", "the user's name"), ("<exchange>", "topic exchange; default: all")),
    ),
)
