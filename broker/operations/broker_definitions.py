"""Definitions of the whole broker: storage in the data directory, import and export."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from leveret.broker.auth.accounts import Accounts, UnknownUser, User
from leveret.broker.auth.passwords import (
    GENERATE,
    PasswordRules,
    RefusedPassword,
    hash_password,
    new_password,
    read_refused,
)
from leveret.broker.auth.user_definitions import dump as dump_accounts
from leveret.broker.auth.user_definitions import dump_all
from leveret.broker.auth.user_definitions import load as load_accounts
from leveret.broker.auth.user_definitions import restore as restore_accounts
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.config.options import MIN_PASSWORD_LENGTH, PASSWORD_REGEXP, CredentialValidator, Settings
from leveret.broker.core import definitions as export
from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions import restore as restore_broker
from leveret.broker.core.json_values import parse_json
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.body_rules import check_imported, check_static_rules
from leveret.broker.operations.importing import (
    find_left_out,
    load_components,
    load_global_parameters,
    load_vhosts,
    policy_steps,
    topology_steps,
)
from leveret.broker.version import RABBITMQ_VERSION, VERSION
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern
from leveret.policies.shovel import InvalidShovel, read_shovel
from leveret.storage.definitions_database import DefinitionsDatabase, Key

#: Key of the digest of the file that was imported last.
_IMPORT: Final = "import"
#: Characters of a line of the log with what is left out.
_LEFT_OUT_LOGGED: Final = 10_000
#: JSON names of Python types.
_JSON_TYPES: Final[Mapping[type, str]] = {
    list: "list", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null",
}  # fmt: skip


log = logging.getLogger("leveret.definitions")


class DefinitionsKeeper:
    """Stores definitions in the data directory, and restores them.

    Args:
        database: Database of definitions in the data directory.
        broker: Broker whose virtual hosts and contents are stored.
        accounts: Users and permissions to store.
        call_soon_threadsafe: Schedules a function on the thread of the event loop.
    """

    def __init__(
        self,
        database: DefinitionsDatabase,
        broker: Broker,
        accounts: Accounts,
        call_soon_threadsafe: Callable[[Callable[[], None]], object],
    ) -> None:
        self._database = database
        broker.gate.attach(database, call_soon_threadsafe, broker.turn.end_later)
        self._broker = broker
        self._accounts = accounts
        self._saved = -1
        accounts.on_change = self._note_accounts
        #: Digest of the file that load_definitions() imported last; "" for none.
        self.imported = ""

    def restore(self) -> bool:
        """Load stored definitions, and store all changes from now on.

        Returns:
            Whether a start has stored accounts before: one whose configuration was refused may have stored less.
        """
        has_accounts = bool([*self._database.rows("accounts")])
        if not self._database.is_empty():
            restore_broker(self._broker, self._database)
            for _, document in self.stored("accounts"):
                for refusal in restore_accounts(self._accounts, document, self._broker.vhosts):
                    log.error("could not be restored: %s; it stays on disk unchanged", refusal)
            self._saved = self._accounts.generation
            for _, last_import in self.stored(_IMPORT):
                self.imported = str(last_import.get("digest", ""))
        self._broker.record_to(self._broker.gate)
        self._broker.global_parameters.ensure_cluster_id()
        return has_accounts

    def stored(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Yield the stored definitions of a kind; damaged ones are logged and skipped."""
        for row in self._database.rows(kind):
            try:
                yield row.read()
            except ValueError as error:
                log.error("%s could not be restored: %s", kind, error)

    def record_import(self, digest: str) -> None:
        """Store the digest that load_definitions() has returned, for the next start."""
        if digest and digest != self.imported:
            self.imported = digest
            self._broker.gate.put(_IMPORT, (), {"digest": digest})

    def save(self) -> None:
        """Start to write all changes."""
        self._record_accounts()
        self._broker.gate.write()

    def save_now(self) -> None:
        """Write all changes, and wait until they are written.

        Raises:
            sqlite3.Error: They cannot be written.
        """
        self._record_accounts()
        self._broker.gate.write_now()

    def _note_accounts(self) -> None:
        """Record the accounts at the end of the turn, once for all changes."""
        self._broker.gate.before_write(self._record_accounts)

    def _record_accounts(self) -> None:
        if self._saved != self._accounts.generation:
            self._broker.gate.put("accounts", (), dump_all(self._accounts))
            self._saved = self._accounts.generation

    def close(self) -> None:
        """Write all changes and close the database.

        Raises:
            sqlite3.Error: They cannot be written; the database is closed anyway.
        """
        try:
            self._record_accounts()
            self._broker.gate.close()
        finally:
            self._database.close()

    def abandon(self) -> None:
        """Close the database without what is not committed, as the death of the process does."""
        self._broker.gate.abandon()
        self._database.abandon()


#: Is called with an error of the configured definitions, and raises it unless the others are to be checked, too.
Refuse: TypeAlias = "Callable[[DefinitionsError], None]"


def raise_refusal(error: DefinitionsError) -> None:
    """Raise an error: the usual Refuse."""
    raise error


def load_definitions(
    settings: Settings,
    broker: Broker,
    accounts: Accounts,
    is_new: bool,
    imported: str = "",
    refuse: Refuse = raise_refusal,
) -> str:
    """Load the definitions that the configuration names.

    Args:
        broker: Broker to add virtual hosts and their contents to.
        accounts: Accounts to add users and permissions to.
        is_new: Whether the data directory was empty. Then the default virtual host and the default user are created,
            unless the file contains vhosts or users, as in RabbitMQ.
        imported: Digest of the file that was imported last; "" for none.
        refuse: Is called with each error.
    Returns:
        Digest of the file; "" without one.
    Raises:
        DefinitionsError: A definition is invalid; the text names file, section, entry and what is valid.
    """
    accounts.password_rules = _password_rules(settings.credential_validator, refuse)
    path, digest = settings.load_definitions, ""
    document: Mapping[str, Any] = {}
    with _refusals("load_definitions", refuse):
        digest, document = ("", {}) if path is None else _read_document(path)
    if is_new:
        has_users = any(objects_of(document, "users"))
        if not has_users or not any(objects_of(document, "vhosts")):
            broker.add_vhost(settings.default_vhost)
        if not has_users:
            _add_default_user(settings, accounts, refuse)
    if not (settings.skip_unchanged_definitions and digest == imported):
        with _refusals("load_definitions", refuse):
            try:
                import_definitions(document, broker, accounts, str(path))
            except DefinitionsError as error:
                raise DefinitionsError(f"{path}: {error}", error.reason) from error
    with _refusals("definitions", refuse):
        import_definitions(settings.definitions, broker, accounts, "the option definitions")
    with _refusals("policies", refuse):
        policies = [{"vhost": settings.default_vhost, **policy} for policy in settings.policies]
        import_definitions({"policies": policies}, broker, accounts, "the option policies")
    with _refusals("bodies", refuse):
        check_static_rules(settings.bodies)
    for name, value in settings.shovels.items():
        with _refusals("shovels", refuse):
            try:
                read_shovel(name, value)
            except InvalidShovel as invalid:
                raise DefinitionsError(f"shovels: '{name}': {'; '.join(str(invalid).splitlines())}") from None
    return digest


@contextmanager
def _refusals(option: str, refuse: Refuse, *invalid: type[Exception]) -> Iterator[None]:
    """Say of errors in a block that they are of an option; further classes of errors become DefinitionsError."""
    try:
        yield
    except DefinitionsError as error:
        error.option = option
        refuse(error)
    except invalid as error:
        refusal = DefinitionsError(f"{option}: {error}")
        refusal.option = option
        refuse(refusal)


def _password_rules(options: CredentialValidator, refuse: Refuse) -> PasswordRules:
    backend = options.validation_backend
    min_length = options.min_length if backend in (None, MIN_PASSWORD_LENGTH) else 0
    pattern: Pattern | None = None
    refused: frozenset[str] = frozenset()
    if options.regexp and backend in (None, PASSWORD_REGEXP):
        with _refusals("credential_validator.regexp", refuse, InvalidPattern):
            pattern = Pattern(options.regexp)
    if options.refused_passwords is not None:
        with _refusals("credential_validator.refused_passwords", refuse):
            try:
                refused = read_refused(options.refused_passwords)
            except OSError as error:
                text = f"credential_validator.refused_passwords: {options.refused_passwords}: {error.strerror}"
                raise DefinitionsError(text) from None
    return PasswordRules(min_length, pattern, refused)


def _add_default_user(settings: Settings, accounts: Accounts, refuse: Refuse) -> None:
    name, password = settings.default_user, settings.default_pass
    if password == GENERATE:
        password = new_password(accounts.password_rules)
        accounts.put_user(User(name, hash_password(password), tags=settings.default_user_tags))
        # Before the user is stored, so that there is none whose password nobody has seen; at any log_level.
        log.critical("default_pass: user '%s' has the password %s which is not shown again", name, password)
    else:
        with _refusals("default_pass", refuse):
            try:
                accounts.add_user(name, password, settings.default_user_tags)
            except RefusedPassword as refused:
                raise DefinitionsError(f"default_pass: {refused}; give another, or {GENERATE}") from None
    patterns = settings.default_permissions
    given = {name: getattr(patterns, name) for name in ("configure", "write", "read")}
    for name, pattern in given.items():
        with _refusals(f"default_permissions.{name}", refuse, InvalidPattern):
            Pattern(pattern)
    with suppress(InvalidPattern, UnknownUser):
        accounts.set_permissions(settings.default_user, settings.default_vhost, **given)


def import_definitions(document: Mapping[str, Any], broker: Broker, accounts: Accounts, source: str) -> None:
    """Import a definitions document in one call; see import_steps(). What is left out is logged.

    Args:
        document: Document as RabbitMQ exports it; unknown sections are skipped.
        broker: Broker to add virtual hosts and their contents to.
        accounts: Accounts to add users and permissions to.
        source: Where it comes from, for the log.
    Raises:
        DefinitionsError: An entry is invalid; the entries before it stay imported.
    """
    left_out: list[str] = []
    check_imported(document)
    for _ in import_steps(document, broker, accounts, left_out):
        pass
    log_left_out(left_out, source)


def log_left_out(left_out: Sequence[str], source: str) -> None:
    """Log what an import has left out; nothing if that is nothing.

    Args:
        left_out: Texts from import_steps().
        source: Where the document comes from.
    """
    if left_out:
        log.warning("left out of %s: %s", source, name_left_out(left_out, _LEFT_OUT_LOGGED))


def name_left_out(left_out: Sequence[str], length: int) -> str:
    """Return what an import has left out as one text.

    Args:
        left_out: Texts from import_steps(), at least one.
        length: Number of characters after which the rest is only counted.
    """
    ends = accumulate(len(text) + 2 for text in left_out)
    count = sum(end <= length for end in ends) or 1
    more = len(left_out) - count
    return "; ".join([*left_out[:count], *([f"and {more} more"] if more else [])])


def import_steps(
    document: Mapping[str, Any], broker: Broker, accounts: Accounts, left_out: list[str]
) -> Iterator[None]:
    """Import a definitions document in small steps. Existing definitions stay.

    Args:
        document: Document as RabbitMQ exports it; unknown sections are skipped. check_imported() has checked it.
        broker: Broker to add virtual hosts and their contents to.
        accounts: Accounts to add users and permissions to.
        left_out: What is left out is added, one text for each; see importing.py.
    Raises:
        DefinitionsError: An entry is invalid; the entries before it stay imported.
    """
    left_out += find_left_out(document)
    load_vhosts(broker, document)
    load_accounts(accounts, document, broker.vhosts)
    yield
    load_global_parameters(broker, document)
    yield from policy_steps(broker, document, left_out)
    yield from topology_steps(broker, document, left_out)
    load_components(broker, document)


def export_steps(broker: Broker, accounts: Accounts) -> Iterator[tuple[str, Any]]:
    """Export the definitions of the whole broker in parts.

    Yields:
        A key of the document with its value; for a section that may be long, the key with an iterator of its entries.
    """
    vhosts = list(broker.vhosts.values())
    account_sections = dump_accounts(accounts)
    yield "rabbit_version", RABBITMQ_VERSION
    yield "rabbitmq_version", RABBITMQ_VERSION
    yield "product_name", "Leveret"
    yield "product_version", VERSION
    yield "users", account_sections["users"]
    yield "vhosts", export.export_vhosts(broker)
    yield "permissions", account_sections["permissions"]
    yield "topic_permissions", account_sections["topic_permissions"]
    yield "parameters", [entry for vhost in vhosts for entry in export.export_parameters(broker, vhost)]
    yield "global_parameters", export.export_global_parameters(broker)
    yield "policies", [entry for vhost in vhosts for entry in export.export_policies(vhost)]
    yield "queues", chain.from_iterable(map(export.export_queues, vhosts))
    yield "exchanges", chain.from_iterable(map(export.export_exchanges, vhosts))
    yield "bindings", chain.from_iterable(map(export.export_bindings, vhosts))


def vhost_export_steps(broker: Broker, vhost: VirtualHost) -> Iterator[tuple[str, Any]]:
    """Export the definitions of one virtual host in parts; see export_steps().

    As in RabbitMQ 3.10, only parameters and policies contain the name of the virtual host.
    """
    yield "rabbit_version", RABBITMQ_VERSION
    yield "parameters", export.export_parameters(broker, vhost)
    yield "policies", export.export_policies(vhost)
    yield "queues", map(_without_vhost, export.export_queues(vhost))
    yield "exchanges", map(_without_vhost, export.export_exchanges(vhost))
    yield "bindings", map(_without_vhost, export.export_bindings(vhost))


def _without_vhost(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "vhost"}


def require_tags(document: Mapping[str, Any]) -> None:
    """Refuse users without tags, as RabbitMQ does. The configuration may omit them.

    Raises:
        DefinitionsError: A user has no tags.
    """
    for user in objects_of(document, "users"):
        if "tags" not in user:
            raise DefinitionsError(f"users: '{user.get('name')}' has no tags", "tags_not_present")


def objects_of(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    """Return the entries of a section; malformed ones are skipped."""
    entries = document.get(section)
    return (entry for entry in (entries if isinstance(entries, list) else ()) if isinstance(entry, Mapping))


def _read_document(path: Path) -> tuple[str, Mapping[str, Any]]:
    """Return digest and document of a file."""
    try:
        octets = path.read_bytes()
        document = parse_json(octets)
    except OSError as error:
        raise DefinitionsError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise DefinitionsError(f"{path}:{error.lineno}:{error.colno}: is not JSON: {error.msg}") from error
    except ValueError as error:
        raise DefinitionsError(f"{path}: is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DefinitionsError(
            f"{path}: must be a JSON object, as RabbitMQ exports it, not a {_JSON_TYPES[type(document)]}"
        )
    return hashlib.sha256(octets).hexdigest(), document
