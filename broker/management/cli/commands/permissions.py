"""Commands for permissions and topic permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.management.cli.command import Command, CommandContext, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import ApiFault, no_such_vhost
from leveret.broker.management.cli.permission_errors import check_pattern, check_user_and_vhost, no_such_user

SECTION: Final = "Access Control"
# Resource of the API -> its patterns. Topic permissions apply to one exchange.
_RIGHTS: Final = {
    "permissions": ("configure", "write", "read"),
    "topic-permissions": ("exchange", "write", "read"),
}


def _list(resource: str) -> Callable[[CommandContext], ResultRows]:
    def run(context: CommandContext) -> ResultRows:
        found = context.api.find("vhosts", context.vhost, resource)
        if found is None:
            raise no_such_vhost(context.vhost)
        return ResultRows(("user", *_RIGHTS[resource]), found)

    return run


def _list_of_user(resource: str, headed: bool = True) -> Callable[[CommandContext], ResultRows]:
    def run(context: CommandContext) -> ResultRows:
        (user,) = context.arguments
        found = context.api.find("users", user, resource)
        if found is None:
            raise no_such_user(user)
        return ResultRows(("vhost", *_RIGHTS[resource]), found, headed=headed)

    return run


def _set(resource: str) -> Callable[[CommandContext], Result]:
    def run(context: CommandContext) -> Result:
        user, *values = context.arguments
        try:
            context.api.put(resource, context.vhost, user, body=dict(zip(_RIGHTS[resource], values, strict=True)))
        except ApiFault as fault:
            check_pattern(fault)
            check_user_and_vhost(context, user, context.vhost)
            raise
        return ok_result(context)

    return run


def _clear(resource: str) -> Callable[[CommandContext], Result]:
    def run(context: CommandContext) -> Result:
        user, *exchange = context.arguments
        try:
            context.api.delete(resource, context.vhost, user, *exchange)
        except ApiFault as fault:
            # Clearing permissions that do not exist succeeds if the user and the virtual host exist.
            check_user_and_vhost(context, user, context.vhost)
            if not fault.not_found:
                raise
        return ok_result(context)

    return run


def _clear_banner(context: CommandContext) -> str:
    user, *exchange = context.arguments
    where = f' on "{exchange[0]}"' if exchange else ""
    return f'Clearing topic permissions{where} for user "{user}" in vhost "{context.vhost}" ...'


COMMANDS: Final = (
    Command(
        name="list_permissions",
        section=SECTION,
        summary="Lists user permissions in a virtual host",
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=_list("permissions"),
        options=("table-headers",),
        banner=lambda context: f'Listing permissions for vhost "{context.vhost}" ...',
    ),
    Command(
        name="list_user_permissions",
        section=SECTION,
        summary="Lists permissions of a user across all virtual hosts",
        usage="[--no-table-headers] <username> [--timeout <timeout>]",
        run=_list_of_user("permissions"),
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
        run=_set("permissions"),
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
        run=_clear("permissions"),
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Clearing permissions for user "{context.arguments[0]}" in vhost "{context.vhost}" ...',
        explanations=(("<username>", "the user's name"),),
    ),
    Command(
        name="list_topic_permissions",
        section=SECTION,
        summary="Lists topic permissions in a virtual host",
        usage="[--vhost <vhost>] [--no-table-headers] [--timeout <timeout>]",
        run=_list("topic-permissions"),
        options=("table-headers",),
        banner=lambda context: f'Listing topic permissions for vhost "{context.vhost}" ...',
    ),
    Command(
        name="list_user_topic_permissions",
        section=SECTION,
        summary="Lists user topic permissions",
        usage="[--no-table-headers] <username> [--timeout <timeout>]",
        run=_list_of_user("topic-permissions", headed=False),
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
        run=_set("topic-permissions"),
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
        run=_clear("topic-permissions"),
        min_arguments=1,
        max_arguments=2,
        banner=_clear_banner,
        explanations=(("<username>", "the user's name"), ("<exchange>", "topic exchange; default: all")),
    ),
)
