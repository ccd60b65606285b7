"""Commands for users."""

from __future__ import annotations

import getpass
import sys
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows, ok_result
from leveret.broker.management.cli.faults import (
    DATA,
    NO_USER,
    SOFTWARE,
    UNAVAILABLE,
    ApiFault,
    CommandFault,
    bad_argument,
    failed,
)
from leveret.broker.management.cli.permission_errors import no_such_user

SECTION: Final = "Users"
_ADDED: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts!"
    " See 'leveretctl help set_permissions' to learn more."
)
# Parts of the API's reasons for refusing a user whose password is correct.
_AUTHENTICATED_REASONS: Final = ("management user", "localhost")


def _json(context: CommandContext, message: str) -> Any:
    # The node's name costs a request, which only this format needs.
    return {"message": message, "node": context.node, "result": "error"} if context.json else None


def _list(context: CommandContext) -> ResultRows:
    found = context.api.get("users")
    return ResultRows(("user", "tags"), [{"user": each["name"], "tags": _tags(each)} for each in found])


def _tags(user: dict[str, Any]) -> list[str]:
    tags = user.get("tags") or []
    return [tag for tag in tags.split(",") if tag] if isinstance(tags, str) else tags


def _password(context: CommandContext, status: int = DATA) -> str:
    """Return the password from the command line, or read it from standard input as rabbitmqctl does.

    Raises:
        CommandFault: standard input is empty (exit status `status`).
    """
    if len(context.arguments) > 1:
        return context.arguments[1]
    if context.stdin.isatty():
        return getpass.getpass("Password: ")
    quiet = context.flag("quiet") or context.flag("silent") or context.json
    if not quiet:
        sys.stdout.write("Password: \n")
    line = context.stdin.readline()
    if not line:
        raise failed("Password is not provided via argument or stdin", status)
    return line.rstrip("\r\n")


def _check_name(context: CommandContext) -> None:
    if not context.arguments[0]:
        raise bad_argument("user cannot be an empty string")


def _add(context: CommandContext) -> Result:
    name = context.arguments[0]
    password = _password(context)
    if context.api.find("users", name) is not None:
        json = _json(context, f"User {name} already exists")
        raise failed(f'User "{name}" already exists', SOFTWARE, json=json, json_status=UNAVAILABLE)
    context.api.put("users", name, body={"tags": "", **_password_fields(password)})
    return Outcome(_ADDED, {"message": _ADDED, "node": context.node, "status": "ok"} if context.json else None)


def _password_fields(password: str) -> dict[str, str]:
    # An empty password means that password login is disabled.
    return {"password": password} if password else {"password_hash": ""}


def _delete(context: CommandContext) -> Result:
    (name,) = context.arguments
    try:
        context.api.delete("users", name)
    except ApiFault as fault:
        if fault.not_found:
            raise _missing(context, name) from fault
        raise
    return ok_result(context)


def _missing(context: CommandContext, name: str) -> CommandFault:
    json = _json(context, f"User {name} does not exist")
    return failed(f'User "{name}" does not exist', NO_USER, json=json, json_status=UNAVAILABLE)


def _change(context: CommandContext, **changes: Any) -> Result:
    """Change some properties of a user. The API replaces all of them, so the others are sent back unchanged."""
    name = context.arguments[0]
    found = context.api.find("users", name)
    if found is None:
        raise _missing(context, name)
    body: dict[str, Any] = {"tags": ",".join(_tags(found))}
    if "password" not in changes:
        body["password_hash"] = found.get("password_hash", "")
        if found.get("hashing_algorithm"):
            body["hashing_algorithm"] = found["hashing_algorithm"]
    context.api.put("users", name, body={**body, **changes})
    return ok_result(context)


def _change_password(context: CommandContext) -> Result:
    return _change(context, **_password_fields(_password(context, SOFTWARE)))


def _clear_password(context: CommandContext) -> Result:
    if context.api.find("users", context.arguments[0]) is None:
        raise no_such_user(context.arguments[0])
    return _change(context, password_hash="")


def _authenticate(context: CommandContext) -> Result:
    name = context.arguments[0]
    password = _password(context, SOFTWARE)
    login = context.api.as_user(name, password)
    try:
        login.get("whoami")
    except ApiFault as fault:
        if fault.status != 401:
            raise
        if not any(word in fault.reason for word in _AUTHENTICATED_REASONS):
            why = "- invalid credentials" if password else "attempted to log in with a blank password"
            raise failed(f"Error: failed to authenticate user \"{name}\"\nuser '{name}' {why}", DATA) from fault
    finally:
        login.close()
    return Outcome("Success", {"message": "Success"})


_NAME: Final = ("<username>", "the user's name")
COMMANDS: Final = (
    Command(
        name="list_users",
        section=SECTION,
        summary="List user names and tags",
        usage="[--no-table-headers] [--timeout <timeout>]",
        run=_list,
        options=("table-headers",),
        banner=lambda context: "Listing users ...",
    ),
    Command(
        name="add_user",
        section=SECTION,
        summary="Creates a user, without permissions for any virtual host",
        usage="<username> <password>",
        run=_add,
        min_arguments=1,
        max_arguments=2,
        check=_check_name,
        banner=lambda context: f'Adding user "{context.arguments[0]}" ...',
        explanations=(_NAME, ("<password>", "read from standard input if omitted; an empty password disables login")),
    ),
    Command(
        name="delete_user",
        section=SECTION,
        summary="Removes a user and closes the user's connections",
        usage="<username>",
        run=_delete,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Deleting user "{context.arguments[0]}" ...',
        explanations=(_NAME,),
    ),
    Command(
        name="change_password",
        section=SECTION,
        summary="Changes the user password",
        usage="<username> <password>",
        run=_change_password,
        min_arguments=1,
        max_arguments=2,
        banner=lambda context: f'Changing password for user "{context.arguments[0]}" ...',
        explanations=(_NAME, ("<password>", "new password; read from standard input if omitted")),
    ),
    Command(
        name="clear_password",
        section=SECTION,
        summary="Disables password login for a user",
        usage="<username>",
        run=_clear_password,
        min_arguments=1,
        max_arguments=1,
        banner=lambda context: f'Clearing password for user "{context.arguments[0]}" ...',
        explanations=(_NAME,),
    ),
    Command(
        name="authenticate_user",
        section=SECTION,
        summary="Attempts to authenticate a user. Exits with a non-zero code if authentication fails.",
        usage="<username> <password>",
        run=_authenticate,
        min_arguments=1,
        max_arguments=2,
        banner=lambda context: f'Authenticating user "{context.arguments[0]}" ...',
        explanations=(_NAME, ("<password>", "read from standard input if omitted")),
    ),
    Command(
        name="set_user_tags",
        section=SECTION,
        summary="Sets user tags",
        usage="<username> <tag> [...]",
        run=lambda context: _change(context, tags=",".join(context.arguments[1:])),
        min_arguments=1,
        max_arguments=None,
        banner=lambda context: (
            f'Setting tags for user "{context.arguments[0]}" to [{", ".join(context.arguments[1:])}] ...'
        ),
        explanations=(_NAME, ("<tags>", "one tag per argument; they replace the existing tags")),
    ),
)
