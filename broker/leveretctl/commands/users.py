"""Commands for users and permissions."""

from __future__ import annotations

import getpass
import sys
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import (
    DATA,
    NO_USER,
    SOFTWARE,
    UNAVAILABLE,
    ApiFault,
    CommandFault,
    bad_argument,
    failed,
    no_such_user,
    no_such_vhost,
)
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.selectable_columns import list_rows, table_columns
from leveret.broker.management.fields import PERMISSION, TOPIC_PERMISSION, USER

_USERS: Final = table_columns(USER)
_USER: Final = Argument("<username>", "the user's name")
_ADDED: Final = (
    "Done. Don't forget to grant the user permissions to some virtual hosts!"
    " See 'leveretctl help set_permissions' to learn more."
)
# Parts of the API's reasons for refusing a user whose password is correct.
_AUTHENTICATED_REASONS: Final = ("management user", "localhost")
#: The API's reason for a password against the rules of the broker.
_REFUSED_PASSWORD: Final = "credential_validation_failed"


def _json(context: CommandContext, message: str) -> dict[str, str] | None:
    # The node's name costs a request, which only this format needs.
    return {"message": message, "node": context.node, "result": "error"} if context.json else None


def _check_user_and_vhost(context: CommandContext, user: str) -> None:
    """Check that a user and a virtual host exist."""
    if context.api.find("vhosts", context.vhost) is None:
        message = f"Virtual host {context.vhost} does not exist"
        raise failed(message, json=_json(context, message))
    if context.api.find("users", user) is None:
        message = f"User {user} does not exist"
        raise failed(message, NO_USER, json=_json(context, message), json_status=UNAVAILABLE)


def _check_pattern(fault: ApiFault) -> None:
    """Check whether the API refused an invalid pattern.

    Raises:
        CommandFault: the pattern is invalid (exit status 69); has the pattern, the error and its position.
    """
    match fault.details:
        case ["invalid_regexp", pattern, [list() as why, int() as position]]:
            shown = f"'{_characters(pattern)}'" if isinstance(pattern, list) else f'"{pattern}"'
            raise failed(f"{{:invalid_regexp, {shown}, {{'{_characters(why)}', {position}}}}}") from fault


def _characters(codes: list[int]) -> str:
    """Return the text of an Erlang string, which is a list of character codes."""
    return "".join(map(chr, codes))


@command((HEADERS, TIMEOUT), banner="Listing users ...")
def list_users(context: CommandContext) -> ResultRows:
    """List user names and tags."""
    return list_rows(_USERS, context.api.get("users"))


def _password(context: CommandContext, given: str | None, status: int = DATA) -> str:
    """Return the given password, or read it from standard input as rabbitmqctl does.

    Raises:
        CommandFault: standard input is empty (exit status `status`).
    """
    if given is not None:
        return given
    if context.stdin.isatty():
        return getpass.getpass("Password: ")
    if not (context.silent or context.json):
        sys.stdout.write("Password: \n")
    line = context.stdin.readline()
    if not line:
        raise failed("Password is not provided via argument or stdin", status)
    return line.rstrip("\r\n")


def _check_name(context: CommandContext) -> None:
    if not context.arguments[0]:
        raise bad_argument("user cannot be an empty string")


@command(
    (_USER, Argument("<password>", "read from standard input if omitted; an empty password disables login", least=0)),
    banner='Adding user "{0}" ...',
    check=_check_name,
)
def add_user(context: CommandContext, name: str, given: str | None = None) -> Result:
    """Creates a user, without permissions for any virtual host."""
    password = _password(context, given)
    if context.api.find("users", name) is not None:
        json = _json(context, f"User {name} already exists")
        raise failed(f'User "{name}" already exists', SOFTWARE, json=json, json_status=UNAVAILABLE)
    _put(context, name, {"tags": "", **_password_fields(password)})
    return Outcome(_ADDED, {"message": _ADDED, "node": context.node, "status": "ok"} if context.json else None)


def _put(context: CommandContext, name: str, body: dict[str, Any]) -> None:
    try:
        context.api.put("users", name, body=body)
    except ApiFault as fault:
        if fault.reason != _REFUSED_PASSWORD:
            raise
        raise failed(fault.detail or "the password is against the rules of the broker") from fault


def _password_fields(password: str) -> dict[str, str]:
    # An empty password means that password login is disabled.
    return {"password": password} if password else {"password_hash": ""}


@command((_USER,), banner='Deleting user "{0}" ...')
def delete_user(context: CommandContext, name: str) -> None:
    """Removes a user and closes the user's connections."""
    try:
        context.api.delete("users", name)
    except ApiFault as fault:
        if fault.not_found:
            raise _missing(context, name) from fault
        raise


def _missing(context: CommandContext, name: str) -> CommandFault:
    json = _json(context, f"User {name} does not exist")
    return failed(f'User "{name}" does not exist', NO_USER, json=json, json_status=UNAVAILABLE)


def _change(context: CommandContext, name: str, **changes: Any) -> None:
    """Change some properties of a user. The API replaces all of them, so the others are sent back unchanged."""
    found = context.api.find("users", name)
    if found is None:
        raise _missing(context, name)
    body: dict[str, Any] = {"tags": ",".join(_USERS["tags"].read(found) or ())}
    if "password" not in changes:
        body["password_hash"] = found.get("password_hash", "")
        if found.get("hashing_algorithm"):
            body["hashing_algorithm"] = found["hashing_algorithm"]
    _put(context, name, {**body, **changes})


@command(
    (_USER, Argument("<password>", "new password; read from standard input if omitted", least=0)),
    banner='Changing password for user "{0}" ...',
)
def change_password(context: CommandContext, name: str, given: str | None = None) -> None:
    """Changes the user password."""
    _change(context, name, **_password_fields(_password(context, given, SOFTWARE)))


@command((_USER,), banner='Clearing password for user "{0}" ...')
def clear_password(context: CommandContext, name: str) -> None:
    """Disables password login for a user."""
    context.require(no_such_user(name), "users", name)
    _change(context, name, password_hash="")


@command(
    (_USER, Argument("<password>", "read from standard input if omitted", least=0)),
    name="authenticate_user",
    summary="Attempts to authenticate a user. Exits with a non-zero code if authentication fails.",
    banner='Authenticating user "{0}" ...',
)
def _authenticate(context: CommandContext, name: str, given: str | None = None) -> Result:
    password = _password(context, given, SOFTWARE)
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


@command(
    (_USER, Argument("<tag> [...]", "one tag per argument; they replace the existing tags", "<tags>", least=0)),
    banner=lambda _, user, *tags: f'Setting tags for user "{user}" to [{", ".join(tags)}] ...',
)
def set_user_tags(context: CommandContext, name: str, *tags: str) -> None:
    """Sets user tags."""
    _change(context, name, tags=",".join(tags))


# Resource of the API -> the columns of its list.
_RIGHTS: Final = {"permissions": table_columns(PERMISSION), "topic-permissions": table_columns(TOPIC_PERMISSION)}


def _rights(resource: str) -> tuple[str, ...]:
    """Return the names of a resource's patterns, and of the exchange of topic permissions."""
    return tuple(_RIGHTS[resource])[2:]


def _list_in_vhost(context: CommandContext, resource: str) -> ResultRows:
    found = context.require(no_such_vhost(context.vhost), "vhosts", context.vhost, resource)
    return list_rows(_RIGHTS[resource], found, "user", *_rights(resource))


@command((VHOST, HEADERS, TIMEOUT), banner='Listing permissions for vhost "{context.vhost}" ...')
def list_permissions(context: CommandContext) -> ResultRows:
    """Lists user permissions in a virtual host."""
    return _list_in_vhost(context, "permissions")


@command((VHOST, HEADERS, TIMEOUT), banner='Listing topic permissions for vhost "{context.vhost}" ...')
def list_topic_permissions(context: CommandContext) -> ResultRows:
    """Lists topic permissions in a virtual host."""
    return _list_in_vhost(context, "topic-permissions")


def _list_of_user(context: CommandContext, user: str, resource: str) -> ResultRows:
    found = context.require(no_such_user(user), "users", user, resource)
    return list_rows(_RIGHTS[resource], found, "vhost", *_rights(resource))


@command((HEADERS, _USER, TIMEOUT), banner='Listing permissions for user "{0}" ...')
def list_user_permissions(context: CommandContext, user: str) -> ResultRows:
    """Lists permissions of a user across all virtual hosts."""
    return _list_of_user(context, user, "permissions")


@command((HEADERS, _USER, TIMEOUT), banner='Listing topic permissions for user "{0}" ...')
def list_user_topic_permissions(context: CommandContext, user: str) -> ResultRows:
    """Lists user topic permissions."""
    return _list_of_user(context, user, "topic-permissions")._replace(headed=False)


def _set(context: CommandContext, resource: str, user: str, *values: str) -> None:
    try:
        context.api.put(resource, context.vhost, user, body=dict(zip(_rights(resource), values, strict=True)))
    except ApiFault as fault:
        _check_pattern(fault)
        _check_user_and_vhost(context, user)
        raise


@command(
    (
        VHOST,
        _USER,
        Argument("<conf>", "pattern of the names that the user may declare and delete"),
        Argument("<write>", "pattern of the names that the user may publish to"),
        Argument("<read>", "pattern of the names that the user may consume from"),
    ),
    banner='Setting permissions for user "{0}" in vhost "{context.vhost}" ...',
)
def set_permissions(context: CommandContext, user: str, *patterns: str) -> None:
    """Sets user permissions for a vhost."""
    _set(context, "permissions", user, *patterns)


@command(
    (
        VHOST,
        _USER,
        Argument("<exchange>", "topic exchange that the permissions apply to"),
        Argument("<write>", "pattern of the routing keys that the user may publish with"),
        Argument("<read>", "pattern of the routing keys that the user may bind with"),
    ),
    banner='Setting topic permissions on "{1}" for user "{0}" in vhost "{context.vhost}" ...',
)
def set_topic_permissions(context: CommandContext, user: str, *patterns: str) -> None:
    """Sets user topic permissions for an exchange."""
    _set(context, "topic-permissions", user, *patterns)


def _clear(context: CommandContext, resource: str, user: str, *exchange: str) -> None:
    try:
        context.api.delete(resource, context.vhost, user, *exchange)
    except ApiFault as fault:
        # Clearing permissions that do not exist succeeds if the user and the virtual host exist.
        _check_user_and_vhost(context, user)
        if not fault.not_found:
            raise


@command((VHOST, _USER), banner='Clearing permissions for user "{0}" in vhost "{context.vhost}" ...')
def clear_permissions(context: CommandContext, user: str) -> None:
    """Revokes user permissions for a vhost."""
    _clear(context, "permissions", user)


def _clear_topic_banner(context: CommandContext, user: str, *exchange: str) -> str:
    where = f' on "{exchange[0]}"' if exchange else ""
    return f'Clearing topic permissions{where} for user "{user}" in vhost "{context.vhost}" ...'


@command(
    (VHOST, _USER, Argument("[<exchange>]", "topic exchange; default: all", "<exchange>")), banner=_clear_topic_banner
)
def clear_topic_permissions(context: CommandContext, user: str, *exchange: str) -> None:
    """Clears user topic permissions for a vhost or exchange."""
    _clear(context, "topic-permissions", user, *exchange)


@command(
    (
        VHOST,
        _USER,
        option("resource", "queue or exchange; without it only access to the virtual host is explained"),
        option("operation", "permission on it; by default configure"),
        option("routing-key", "routing key on a topic exchange, with which the user publishes (write) or binds (read)"),
        TIMEOUT,
    ),
    banner="Explaining access of user '{0}' in vhost '{context.vhost}' ...",
)
def explain_access(context: CommandContext, name: str) -> Result:
    """Shows which authentication backend decides what a user may do, and why."""
    wanted = context.options.get("resource"), context.options.get("operation")
    key = context.options.get("routing-key")
    operation = wanted[1] or ("configure" if wanted[0] else None)
    try:
        found = context.api.get(
            "users", name, "access", vhost=context.vhost, resource=wanted[0], operation=operation, routing_key=key
        )
    except ApiFault as fault:
        if not fault.not_found:
            raise bad_argument(fault.detail or fault.reason) from fault
        raise no_such_vhost(context.vhost) from fault
    said = [f"{each['backend']}: {_said(each)}, {each['reason']}" for each in found["backends"]]
    what = f"{operation} {wanted[0]}" if wanted[0] else "use"
    what += "" if key is None else f" with routing key '{key}'"
    result = f"User '{name}' may {'' if found['allowed'] else 'not '}{what} in vhost '{context.vhost}'"
    by = f", as {found['decided_by']} says" if found["decided_by"] else ": no backend knows it"
    return Outcome("\n".join([result + by, *said]), found)


def _said(backend: dict[str, Any]) -> str:
    if not backend["known"]:
        return "does not know the user"
    return "allows it" if backend["allowed"] else "refuses it"
