"""Who or what a permission command means does not exist: the API does not say which of the two."""

from __future__ import annotations

from broker.management.cli.command import Context
from broker.management.cli.faults import NO_USER, UNAVAILABLE, CommandFault, failed


def check_subjects(context: Context, user: str, vhost: str) -> None:
    """Check that a user and a virtual host exist.

    Raises:
        CommandFault: one of them does not; 67 for the user, 69 for the virtual host.
    """
    for fault in (missing_vhost(context, vhost), missing_user(context, user)):
        if fault is not None:
            raise fault


def missing_user(context: Context, user: str) -> CommandFault | None:
    """Return the fault of a user that does not exist, None if there is one."""
    if context.api.find("users", user) is not None:
        return None
    message = f"User {user} does not exist"
    json = {"message": message, "node": context.node, "result": "error"} if context.json else None
    return failed(message, NO_USER, json=json, json_status=UNAVAILABLE)


def missing_vhost(context: Context, vhost: str) -> CommandFault | None:
    """Return the fault of a virtual host that does not exist, None if there is one."""
    if context.api.find("vhosts", vhost) is not None:
        return None
    return failed(f"Virtual host {vhost} does not exist")


def no_such_listed_user(user: str) -> CommandFault:
    """Return the fault of commands that list what belongs to a user, in the words of rabbitmqctl."""
    return failed(f'{{:no_such_user, "{user}"}}')
