"""Commands for users and permissions."""

from __future__ import annotations

import getpass
import sys
from typing import Any, Final

from leveret.broker.management.cli.command import CommandContext, Outcome, Result, ResultRows, command, ok_result
from leveret.broker.management.cli.command_errors import (
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
from leveret.broker.management.cli.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.management.cli.selectable_columns import list_rows, table_columns
from leveret.broker.management.fields import PERMISSION, TOPIC_PERMISSION, USER

_SECTION: Final = "Users"
_ACCESS: Final = "Access Control"
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


def _check_user_and_vhost(context: CommandContext, user: str, vhost: str) -> None:
    """Check that a user and a virtual host exist."""
    for fault in (_vhost_fault(context, vhost), _user_fault(context, user)):
        if fault is not None:
            raise fault


def _user_fault(context: CommandContext, user: str) -> CommandFault | None:
    """Return the fault for a user that does not exist, None if the user exists."""
    if context.api.find("users", user) is not None:
        return None
    message = f"User {user} does not exist"
    return failed(message, NO_USER, json=_json(context, message), json_status=UNAVAILABLE)


def _vhost_fault(context: CommandContext, vhost: str) -> CommandFault | None:
    """Return the fault for a virtual host that does not exist, None if it exists."""
    if context.api.find("vhosts", vhost) is not None:
        return None
    message = f"Virtual host {vhost} does not exist"
    return failed(message, json=_json(context, message))


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


@command("list_users", _SECTION, "List user names and tags", (HEADERS, TIMEOUT), banner="Listing users ...")
def _list(context: CommandContext) -> ResultRows:
    return list_rows(_USERS, context.api.get("users"))


def _password(context: CommandContext, status: int = DATA) -> str:
    """Return the password from the command line, or read it from standard input as rabbitmqctl does.

    Raises:
        CommandFault: standard input is empty (exit status `status`).
    """
    if len(context.arguments) > 1:
        return context.arguments[1]
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
    "add_user",
    _SECTION,
    "Creates a user, without permissions for any virtual host",
    (_USER, Argument("<password>", "read from standard input if omitted; an empty password disables login", least=0)),
    banner='Adding user "{0}" ...',
    check=_check_name,
)
def _add(context: CommandContext) -> Result:
    name = context.arguments[0]
    password = _password(context)
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


@command(
    "delete_user",
    _SECTION,
    "Removes a user and closes the user's connections",
    (_USER,),
    banner='Deleting user "{0}" ...',
)
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
    body: dict[str, Any] = {"tags": ",".join(_USERS["tags"].read(found) or ())}
    if "password" not in changes:
        body["password_hash"] = found.get("password_hash", "")
        if found.get("hashing_algorithm"):
            body["hashing_algorithm"] = found["hashing_algorithm"]
    _put(context, name, {**body, **changes})
    return ok_result(context)


@command(
    "change_password",
    _SECTION,
    "Changes the user password",
    (_USER, Argument("<password>", "new password; read from standard input if omitted", least=0)),
    banner='Changing password for user "{0}" ...',
)
def _change_password(context: CommandContext) -> Result:
    return _change(context, **_password_fields(_password(context, SOFTWARE)))


@command(
    "clear_password",
    _SECTION,
    "Disables password login for a user",
    (_USER,),
    banner='Clearing password for user "{0}" ...',
)
def _clear_password(context: CommandContext) -> Result:
    if context.api.find("users", context.arguments[0]) is None:
        raise no_such_user(context.arguments[0])
    return _change(context, password_hash="")


@command(
    "authenticate_user",
    _SECTION,
    "Attempts to authenticate a user. Exits with a non-zero code if authentication fails.",
    (_USER, Argument("<password>", "read from standard input if omitted", least=0)),
    banner='Authenticating user "{0}" ...',
)
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


def _set_tags_banner(context: CommandContext) -> str:
    user, *tags = context.arguments
    return f'Setting tags for user "{user}" to [{", ".join(tags)}] ...'


@command(
    "set_user_tags",
    _SECTION,
    "Sets user tags",
    (_USER, Argument("<tag> [...]", "one tag per argument; they replace the existing tags", "<tags>", least=0)),
    banner=_set_tags_banner,
)
def _set_tags(context: CommandContext) -> Result:
    return _change(context, tags=",".join(context.arguments[1:]))


# Resource of the API -> the columns of its list.
_RIGHTS: Final = {"permissions": table_columns(PERMISSION), "topic-permissions": table_columns(TOPIC_PERMISSION)}


def _rights(resource: str) -> tuple[str, ...]:
    """Return the names of a resource's patterns, and of the exchange of topic permissions."""
    return tuple(_RIGHTS[resource])[2:]


@command(
    "list_permissions",
    _ACCESS,
    "Lists user permissions in a virtual host",
    (VHOST, HEADERS, TIMEOUT),
    banner='Listing permissions for vhost "{context.vhost}" ...',
    resource="permissions",
)
@command(
    "list_topic_permissions",
    _ACCESS,
    "Lists topic permissions in a virtual host",
    (VHOST, HEADERS, TIMEOUT),
    banner='Listing topic permissions for vhost "{context.vhost}" ...',
    resource="topic-permissions",
)
def _list_permissions(context: CommandContext, resource: str) -> ResultRows:
    found = context.api.find("vhosts", context.vhost, resource)
    if found is None:
        raise no_such_vhost(context.vhost)
    return list_rows(_RIGHTS[resource], found, "user", *_rights(resource))


@command(
    "list_user_permissions",
    _ACCESS,
    "Lists permissions of a user across all virtual hosts",
    (HEADERS, _USER, TIMEOUT),
    banner='Listing permissions for user "{0}" ...',
    resource="permissions",
)
@command(
    "list_user_topic_permissions",
    _ACCESS,
    "Lists user topic permissions",
    (HEADERS, _USER, TIMEOUT),
    banner='Listing topic permissions for user "{0}" ...',
    resource="topic-permissions",
    headed=False,
)
def _list_of_user(context: CommandContext, resource: str, headed: bool = True) -> ResultRows:
    (user,) = context.arguments
    found = context.api.find("users", user, resource)
    if found is None:
        raise no_such_user(user)
    return list_rows(_RIGHTS[resource], found, "vhost", *_rights(resource))._replace(headed=headed)


@command(
    "set_permissions",
    _ACCESS,
    "Sets user permissions for a vhost",
    (
        VHOST,
        _USER,
        Argument("<conf>", "pattern of the names that the user may declare and delete"),
        Argument("<write>", "pattern of the names that the user may publish to"),
        Argument("<read>", "pattern of the names that the user may consume from"),
    ),
    banner='Setting permissions for user "{0}" in vhost "{context.vhost}" ...',
    resource="permissions",
)
@command(
    "set_topic_permissions",
    _ACCESS,
    "Sets user topic permissions for an exchange",
    (
        VHOST,
        _USER,
        Argument("<exchange>", "topic exchange that the permissions apply to"),
        Argument("<write>", "pattern of the routing keys that the user may publish with"),
        Argument("<read>", "pattern of the routing keys that the user may bind with"),
    ),
    banner='Setting topic permissions on "{1}" for user "{0}" in vhost "{context.vhost}" ...',
    resource="topic-permissions",
)
def _set(context: CommandContext, resource: str) -> Result:
    user, *values = context.arguments
    try:
        context.api.put(resource, context.vhost, user, body=dict(zip(_rights(resource), values, strict=True)))
    except ApiFault as fault:
        _check_pattern(fault)
        _check_user_and_vhost(context, user, context.vhost)
        raise
    return ok_result(context)


def _clear_topic_banner(context: CommandContext) -> str:
    user, *exchange = context.arguments
    where = f' on "{exchange[0]}"' if exchange else ""
    return f'Clearing topic permissions{where} for user "{user}" in vhost "{context.vhost}" ...'


@command(
    "clear_permissions",
    _ACCESS,
    "Revokes user permissions for a vhost",
    (VHOST, _USER),
    banner='Clearing permissions for user "{0}" in vhost "{context.vhost}" ...',
    resource="permissions",
)
@command(
    "clear_topic_permissions",
    _ACCESS,
    "Clears user topic permissions for a vhost or exchange",
    (VHOST, _USER, Argument("[<exchange>]", "topic exchange; default: all", "<exchange>")),
    banner=_clear_topic_banner,
    resource="topic-permissions",
)
def _clear(context: CommandContext, resource: str) -> Result:
    user, *exchange = context.arguments
    try:
        context.api.delete(resource, context.vhost, user, *exchange)
    except ApiFault as fault:
        # Clearing permissions that do not exist succeeds if the user and the virtual host exist.
        _check_user_and_vhost(context, user, context.vhost)
        if not fault.not_found:
            raise
    return ok_result(context)


@command(
    "explain_access",
    _ACCESS,
    "Shows which authentication backend decides what a user may do, and why",
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
def _explain(context: CommandContext) -> Result:
    (name,) = context.arguments
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
