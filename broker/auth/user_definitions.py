"""Imports and exports users and permissions in RabbitMQ's definitions format.

Source: https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts, UnknownUser, User, UserLimits
from leveret.broker.auth.passwords import (
    MD5,
    REFUSED_PASSWORD,
    SHA256,
    InvalidHash,
    PasswordRules,
    RefusedPassword,
    choose_hash,
)
from leveret.broker.config.config_errors import DefinitionsError
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.permissions import Permissions, TopicPermissions

#: Releases of RabbitMQ that exported hashes without naming the algorithm, and used MD5.
_MD5_RELEASES: Final = ("1.", "2.", "3.0.", "3.1.", "3.2.", "3.3.", "3.4.", "3.5.")


def load(accounts: Accounts, document: Mapping[str, Any], vhosts: Container[str] | None = None) -> None:
    """Load the sections users, permissions and topic_permissions of a document; other sections are ignored.

    A user that exists gets the document's password, tags and limits, and keeps its permissions.

    Args:
        accounts: Receives the users and permissions.
        document: A definitions document as RabbitMQ exports it.
        vhosts: Names of existing virtual hosts; None allows any name.
    Raises:
        DefinitionsError: An entry is malformed, or names a missing user or virtual host. Entries before it are loaded.
    """
    for section, load_one in _loaders(accounts, _default_algorithm(document), vhosts):
        for entry in _entries(document, section):
            load_one(entry)


def restore(accounts: Accounts, document: Mapping[str, Any], vhosts: Container[str] | None) -> list[str]:
    """Load a document made by dump(), skipping invalid entries; dump_all() includes them unchanged.

    Args:
        accounts: Receives the users and permissions.
        document: As dump() makes it.
        vhosts: Names of existing virtual hosts; None allows any name.
    Returns:
        An error text of one line for each invalid entry.
    """
    refusals: list[str] = []
    for section, load_one in _loaders(accounts, SHA256, vhosts):
        entries = document.get(section)
        for entry in entries if isinstance(entries, list) else ():
            try:
                if not isinstance(entry, Mapping):
                    raise DefinitionsError(f"{section}: an entry is not an object")
                load_one(entry)
            except (DefinitionsError, ValueError, TypeError, KeyError) as error:
                refusals.append(" ".join(str(error).split()))
                if isinstance(entry, Mapping):
                    accounts.unrestored.append((section, dict(entry)))
    return refusals


def _loaders(
    accounts: Accounts, algorithm: str, vhosts: Container[str] | None
) -> tuple[tuple[str, Callable[[Mapping[str, Any]], None]], ...]:
    """Return the sections in the order in which they depend on each other, each with what loads an entry."""
    return (
        ("users", lambda entry: _load_user(accounts, entry, algorithm, vhosts)),
        ("permissions", lambda entry: _set_permissions(accounts, "permissions", entry, vhosts)),
        ("topic_permissions", lambda entry: _set_topic_permissions(accounts, entry, vhosts)),
    )


def _default_algorithm(document: Mapping[str, Any]) -> str:
    release = document.get("rabbitmq_version") or document.get("rabbit_version") or ""
    return MD5 if str(release).startswith(_MD5_RELEASES) else SHA256


# -- users ------------------------------------------------------------------------------------------------


def _load_user(accounts: Accounts, entry: Mapping[str, Any], algorithm: str, vhosts: Container[str] | None) -> None:
    name = _text(entry, "name", "users", "a user")
    what = f"users: '{name}'"
    is_new = name not in accounts.users
    password_hash, algorithm = _password(entry, what, algorithm, accounts.password_rules)
    accounts.put_user(User(name, password_hash, algorithm, _tags(entry, what), _limits(entry, what, accounts)))
    if is_new:
        # Permissions inside a user's entry apply to new users only.
        for vhost, granted in _mapping(entry, "permissions", what).items():
            if not isinstance(granted, Mapping):
                raise DefinitionsError(f"{what}: permissions in vhost '{vhost}' must be an object")
            _set_permissions(accounts, what, {**granted, "user": name, "vhost": vhost}, vhosts)


def _password(entry: Mapping[str, Any], what: str, default: str, rules: PasswordRules) -> tuple[str, str]:
    """Return the password hash of a user ("" for none) and its algorithm."""
    password, password_hash = entry.get("password"), entry.get("password_hash")
    for key, value in (("password", password), ("password_hash", password_hash)):
        if value is not None and not isinstance(value, str):
            raise DefinitionsError(f"{what}: '{key}' must be a string")
    if password is not None and password_hash is not None:
        text = f"{what}: give either 'password' or 'password_hash', not both"
        raise DefinitionsError(text, "both_password_and_password_hash_are_provided")
    try:
        return choose_hash(password, password_hash, str(entry.get("hashing_algorithm") or default), rules)
    except InvalidHash as invalid:
        raise DefinitionsError(f"{what}: 'password_hash': {invalid}", ["not_base64", password_hash]) from None
    except RefusedPassword as refused:
        raise DefinitionsError(f"{what}: 'password': {refused}", REFUSED_PASSWORD) from None


def _tags(entry: Mapping[str, Any], what: str) -> tuple[str, ...]:
    try:
        return read_tags(entry.get("tags", ()))
    except ValueError as wrong:
        raise DefinitionsError(f"{what}: 'tags' {wrong}") from None


def read_tags(tags: object) -> tuple[str, ...]:
    """Return the tags of a user, given as a list or as one string with commas.

    Raises:
        ValueError: They are neither; the text says what they must be.
    """
    if isinstance(tags, str):
        tags = tags.split(",")
    if not isinstance(tags, list | tuple) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError("must be a list of strings, or one string with commas")
    return tuple(tag.strip() for tag in tags if tag.strip())


def _limits(entry: Mapping[str, Any], what: str, accounts: Accounts) -> UserLimits:
    """Return the limits of a user. An existing user's object is updated, so that they apply to its connections."""
    read: dict[str, int] = {}
    for key, value in _mapping(entry, "limits", what).items():
        if key not in ("max-connections", "max-channels"):
            raise DefinitionsError(f"{what}: limit '{key}' must be max-connections or max-channels")
        if not isinstance(value, int) or isinstance(value, bool):
            raise DefinitionsError(f"{what}: limit '{key}' must be an integer, is {value!r}")
        read[key] = value
    user = accounts.users.get(entry["name"])
    limits = UserLimits() if user is None else user.limits
    limits.max_connections = read.get("max-connections")
    limits.max_channels = read.get("max-channels")
    return limits


# -- permissions ------------------------------------------------------------------------------------------


def _set_permissions(accounts: Accounts, section: str, entry: Mapping[str, Any], vhosts: Container[str] | None) -> None:
    user, vhost = _user_and_vhost(entry, section, vhosts)
    what = f"{section}: user '{user}' in vhost '{vhost}'"
    patterns = [_pattern(entry, kind, what) for kind in ("configure", "write", "read")]
    _set(what, lambda: accounts.set_permissions(user, vhost, *patterns))


def _set_topic_permissions(accounts: Accounts, entry: Mapping[str, Any], vhosts: Container[str] | None) -> None:
    user, vhost = _user_and_vhost(entry, "topic_permissions", vhosts)
    what = f"topic_permissions: user '{user}' in vhost '{vhost}'"
    exchange = _text(entry, "exchange", "topic_permissions", "an entry")
    patterns = [_pattern(entry, kind, what) for kind in ("write", "read")]
    _set(
        f"{what}, exchange '{exchange}'",
        lambda: accounts.set_topic_permissions(user, vhost, exchange, *patterns),
    )


def _set(what: str, change: Callable[[], None]) -> None:
    try:
        change()
    except UnknownUser as unknown:
        raise DefinitionsError(f"{what}: {unknown}", ["no_such_user", unknown.args[0]]) from None
    except InvalidPattern as wrong:
        raise DefinitionsError(f"{what}: {wrong}", wrong.as_json()) from None


def _user_and_vhost(entry: Mapping[str, Any], section: str, vhosts: Container[str] | None) -> tuple[str, str]:
    user = _text(entry, "user", section, "an entry")
    vhost = _text(entry, "vhost", section, f"the entry of user '{user}'")
    if vhosts is not None and vhost not in vhosts:
        raise DefinitionsError(f"{section}: user '{user}': there is no vhost '{vhost}'", ["no_such_vhost", vhost])
    return user, vhost


def _pattern(entry: Mapping[str, Any], key: str, what: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise DefinitionsError(f"{what}: '{key}' must be a string, a regular expression")
    return value


# -- validation of entries -------------------------------------------------------------------------------


def _entries(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    entries = document.get(section) or ()
    if not isinstance(entries, list | tuple):
        raise DefinitionsError(f"{section}: must be a list, is {type(entries).__name__}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise DefinitionsError(f"{section}: every entry must be an object, not {type(entry).__name__}")
        yield entry


def _text(entry: Mapping[str, Any], key: str, section: str, what: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        # The text does not contain the whole entry, which may contain a password.
        raise DefinitionsError(f"{section}: {what} must have '{key}', a string, has only {sorted(entry)}")
    return value


def _mapping(entry: Mapping[str, Any], key: str, what: str) -> Mapping[str, Any]:
    value = entry.get(key) or {}
    if not isinstance(value, Mapping):
        raise DefinitionsError(f"{what}: '{key}' must be an object")
    return value


# -- exporting --------------------------------------------------------------------------------------------


def dump(accounts: Accounts) -> dict[str, Any]:
    """Return all users and permissions as a definitions document for load()."""
    return {
        "users": [dump_user(user) for user in accounts.users.values()],
        "permissions": [dump_permissions(*key, granted) for key, granted in accounts.all_permissions.items()],
        "topic_permissions": [
            dump_topic_permissions(*key, granted) for key, granted in accounts.all_topic_permissions.items()
        ],
    }


def dump_all(accounts: Accounts) -> dict[str, Any]:
    """Like dump(), with the entries that restore() skipped, unless they have been replaced since."""
    document = dump(accounts)
    for section, entry in accounts.unrestored:
        identity = _identity(entry)
        if all(_identity(each) != identity for each in document[section]):
            document[section].append(entry)
    return document


def _identity(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in ("name", "user", "vhost", "exchange"))


def dump_user(user: User) -> dict[str, Any]:
    """Return one user in the form of definitions and the HTTP API."""
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "limits": user.limits.document(),
    }


def dump_permissions(user: str, vhost: str, granted: Permissions) -> dict[str, str]:
    """Return the permissions of a user in a virtual host in the form of definitions and the HTTP API."""
    return {
        "user": user,
        "vhost": vhost,
        "configure": granted.configure,
        "write": granted.write,
        "read": granted.read,
    }


def dump_topic_permissions(user: str, vhost: str, exchange: str, granted: TopicPermissions) -> dict[str, str]:
    """Return the permissions of a user on a topic exchange in the form of definitions and the HTTP API."""
    return {"user": user, "vhost": vhost, "exchange": exchange, "write": granted.write, "read": granted.read}
