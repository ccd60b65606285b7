"""Commands for permissions."""

from __future__ import annotations

from typing import Final

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import no_such_vhost
from leveret.broker.management.cli.permission_errors import check_pattern, check_user_and_vhost, no_such_user

SECTION: Final = "Access Control"
_RIGHTS: Final = ("configure", "write", "read")


def _list(context: CommandContext) -> ResultRows:
    found = context.api.find("vhosts", context.vhost, "permissions")
    if found is None:
        raise no_such_vhost(context.vhost)
    return ResultRows(("user", *_RIGHTS), found)


def _list_of_user(context: CommandContext) -> ResultRows:
    (user,) = context.arguments
    found = context.api.find("users", user, "permissions")
    if found is None:
        raise no_such_user(user)
    return ResultRows(("vhost", *_RIGHTS), found)


def _set(context: CommandContext) -> Result:
    user, configure, write, read = context.arguments
    body = {"configure": configure, "write": write, "read": read}
    try:
        context.api.put("permissions", context.vhost, user, body=body)
    except ApiFault as fault:
        check_pattern(fault)
        check_user_and_vhost(context, user, context.vhost)
        raise
    return ok_result(context)


def _clear(context: CommandContext) -> Result:
    (user,) = context.arguments
    try:
        context.api.delete("permissions", context.vhost, user)
    except ApiFault as fault:
        # Clearing permissions that do not exist succeeds if the user and the virtual host exist.
        check_user_and_vhost(context, user, context.vhost)
        if not fault.not_found:
            raise
    return ok_result(context)


COMMANDS: Final = (
    Command(
        name="list_permissions",
        section=SECTION,
        summary="Lists user permissions in a virtual host",
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=_list,
        options=("table-headers",),
        banner=lambda context: f'Listing permissions for vhost "{context.vhost}" ...',
    ),
    Command(
        name="list_user_permissions",
        section=SECTION,
        summary="Lists permissions of a user across all virtual hosts",
        usage="[--no-table-headers] <username> [--timeout <timeout>]",
        run=_list_of_user,
        min_arguments=1,
        max_arguments=1,
        options=("table-headers",),
        banner=lambda context: f'Listing permissions for user "{context.arguments[0]}" ...',
        explanations=(("<username>", "the user's name"),),
    ),
    Command(
        name="set_permissions",
        section=SECTION,
        summary="Sets user permissions for a vhost",
        usage="[--vhost <vhost>] <username> <conf> <write> <read>",
        run=_set,
        min_arguments=4,
        max_arguments=4,
        banner=lambda context: f'Setting permissions for user "{context.arguments[0]}" in vhost "{context.vhost}" ...',
        explanations=(
            ("<username>", "the user's name"),
            ("<conf>", "pattern of the names that the user may declare and delete"),
            ("<write>", "pattern of the names that the user may publish to"),
            ("<read>", "pattern of the names that the user may consume from"),
        ),
    ),
    Command(
        name="clear_permissions",
        section=SECTION,
        summary="Revokes user permissions for a vhost",
        usage="[--vhost <vhost>] <username>",
        run=_clear,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Clearing permissions for user "{context.arguments[0]}" in vhost "{context.vhost}" ...',
        explanations=(("<username>", "the user's name"),),
    ),
)
