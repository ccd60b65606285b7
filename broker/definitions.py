"""Definitions as a whole: kept in a data directory, read at start, imported and exported."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.definitions import dump as dump_accounts
from leveret.broker.auth.definitions import dump_all
from leveret.broker.auth.definitions import load as load_accounts
from leveret.broker.auth.definitions import restore as restore_accounts
from leveret.broker.config.errors import DefinitionsError
from leveret.broker.config.options import Settings
from leveret.broker.core import export
from leveret.broker.core.broker import Broker
from leveret.broker.core.definitions import (
    COMPONENTS,
    load_global_parameters,
    load_policies,
    load_vhosts,
    policy_steps,
    topology_steps,
)
from leveret.broker.core.json_text import parse_json
from leveret.broker.core.restoring import restore as restore_broker
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.version import RABBITMQ_VERSION, VERSION
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.storage.definitions import DefinitionsDatabase, Key

#: Under which the digest of the file that was imported last is kept.
_IMPORT: Final = "import"
#: What JSON calls the types of Python.
_KINDS: Final[Mapping[type, str]] = {
    list: "list", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null",
}  # fmt: skip


log = logging.getLogger("leveret.definitions")


class DefinitionsKeeper:
    """Keeps definitions in a data directory.

    Args:
        database: Where they are kept.
        broker: Has the virtual hosts and what is in them.
        accounts: Has the users and permissions.
        call_soon_threadsafe: Hands a function to the thread of the event loop.
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
        #: What load_definitions() returned when it last imported the file.
        self.imported = ""

    def restore(self) -> bool:
        """Load what is kept, and keep all changes from now on; return whether anything was there."""
        found = not self._database.is_empty()
        if found:
            restore_broker(self._broker, self._database)
            for _, document in self._read("accounts"):
                for refusal in restore_accounts(self._accounts, document, self._broker.vhosts):
                    log.error("could not be restored: %s; it stays on disk as it is", refusal)
            self._saved = self._accounts.generation
            for _, noted in self._read(_IMPORT):
                self.imported = str(noted.get("digest", ""))
        self._broker.record_to(self._broker.gate)
        self._broker.global_parameters.ensure_cluster_id()
        return found

    def _read(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        for row in self._database.rows(kind):
            try:
                yield row.read()
            except ValueError as error:
                log.error("%s could not be restored: %s", kind, error)

    def note_import(self, digest: str) -> None:
        """Keep what load_definitions() has returned for the next start."""
        if digest and digest != self.imported:
            self.imported = digest
            self._broker.gate.put(_IMPORT, (), {"digest": digest})

    def save(self) -> None:
        """Have all changes written."""
        self._note_accounts()
        self._broker.gate.write()

    def save_now(self) -> None:
        """Write all changes, and wait for that.

        Raises:
            sqlite3.Error: They cannot be written.
        """
        self._note_accounts()
        self._broker.gate.write_now()

    def _note_accounts(self) -> None:
        if self._saved != self._accounts.generation:
            self._broker.gate.put("accounts", (), dump_all(self._accounts))
            self._saved = self._accounts.generation

    def close(self) -> None:
        """Write all changes and close the database.

        Raises:
            sqlite3.Error: They cannot be written; the database is closed all the same.
        """
        try:
            self._note_accounts()
            self._broker.gate.close()
        finally:
            self._database.close()


def load_definitions(settings: Settings, broker: Broker, accounts: Accounts, is_new: bool, imported: str = "") -> str:
    """Load the definitions that the configuration names.

    Args:
        settings: The configuration.
        broker: Gets virtual hosts and what is in them.
        accounts: Gets users and permissions.
        is_new: The data directory was empty: make the default virtual host first, and the default user, unless the
            file has vhosts or users of its own, as RabbitMQ does.
        imported: What this has returned for the file that was imported last; "" for none.
    Returns:
        A digest of the file; "" without one.
    Raises:
        DefinitionsError: A definition is wrong; the text names file, section, entry and what would be right.
    """
    path = settings.load_definitions
    digest, document = ("", {}) if path is None else _read(path)
    if is_new:
        has_users = any(_objects(document, "users"))
        if not has_users or not any(_objects(document, "vhosts")):
            broker.add_vhost(settings.default_vhost)
        if not has_users:
            _add_default_user(settings, accounts)
    if path is not None and not (settings.skip_unchanged_definitions and digest == imported):
        try:
            import_definitions(document, broker, accounts)
        except DefinitionsError as error:
            raise DefinitionsError(f"{path}: {error}", error.reason) from error
    if settings.definitions:
        import_definitions(settings.definitions, broker, accounts)
    if settings.policies:
        load_policies(
            broker, {"policies": [{"vhost": settings.default_vhost, **policy} for policy in settings.policies]}
        )
    return digest


def _add_default_user(settings: Settings, accounts: Accounts) -> None:
    accounts.add_user(settings.default_user, settings.default_pass, settings.default_user_tags)
    patterns = settings.default_permissions
    try:
        accounts.set_permissions(
            settings.default_user, settings.default_vhost, patterns.configure, patterns.write, patterns.read
        )
    except InvalidPattern as error:
        raise DefinitionsError(f"default_permissions: {error}") from None


def import_definitions(document: Mapping[str, Any], broker: Broker, accounts: Accounts) -> None:
    """Add what a definitions document holds to what is there, at once; see import_steps().

    Parameters of components that Leveret does not have, for example shovels, are skipped.

    Raises:
        DefinitionsError: An entry is wrong; those before it stay.
    """
    for _ in import_steps(document, broker, accounts):
        pass


def import_steps(
    document: Mapping[str, Any], broker: Broker, accounts: Accounts, is_strict: bool = False
) -> Iterator[None]:
    """Add what a definitions document holds to what is there, a little with each step.

    Args:
        document: As RabbitMQ exports it; sections that are not known are skipped.
        broker: Gets virtual hosts and what is in them.
        accounts: Gets users and permissions.
        is_strict: Refuse and pass over what RabbitMQ refuses and passes over, other than for files, of which more can
            be taken and less should be lost.
    Raises:
        DefinitionsError: An entry is wrong; those before it stay.
    """
    if is_strict:
        _check_strictly(document)
    load_vhosts(broker, document)
    load_accounts(accounts, document, broker.vhosts)
    yield
    load_global_parameters(broker, document)
    yield from policy_steps(broker, document)
    yield from topology_steps(broker, document, skip_dangling_bindings=is_strict)


def export_steps(broker: Broker, accounts: Accounts) -> Iterator[tuple[str, Any]]:
    """The definitions document of the whole broker, piece by piece.

    Yields:
        A key of the document with its value; or, for a section that may be long, the key and an iterator of entries.
    """
    vhosts = list(broker.vhosts.values())
    people = dump_accounts(accounts)
    yield "rabbit_version", RABBITMQ_VERSION
    yield "rabbitmq_version", RABBITMQ_VERSION
    yield "product_name", "Leveret"
    yield "product_version", VERSION
    yield "users", people["users"]
    yield "vhosts", export.export_vhosts(broker)
    yield "permissions", people["permissions"]
    yield "topic_permissions", people["topic_permissions"]
    yield "parameters", [entry for vhost in vhosts for entry in export.export_parameters(vhost)]
    yield "global_parameters", export.export_global_parameters(broker)
    yield "policies", [entry for vhost in vhosts for entry in export.export_policies(vhost)]
    yield "queues", chain.from_iterable(map(export.export_queues, vhosts))
    yield "exchanges", chain.from_iterable(map(export.export_exchanges, vhosts))
    yield "bindings", chain.from_iterable(map(export.export_bindings, vhosts))


def vhost_export_steps(vhost: VirtualHost) -> Iterator[tuple[str, Any]]:
    """The definitions document of one virtual host, piece by piece, as in export_steps().

    As in RabbitMQ 3.10 parameters and policies say where they were, the others do not.
    """
    yield "rabbit_version", RABBITMQ_VERSION
    yield "parameters", export.export_parameters(vhost)
    yield "policies", export.export_policies(vhost)
    yield "queues", map(_without_vhost, export.export_queues(vhost))
    yield "exchanges", map(_without_vhost, export.export_exchanges(vhost))
    yield "bindings", map(_without_vhost, export.export_bindings(vhost))


def _without_vhost(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "vhost"}


def _check_strictly(document: Mapping[str, Any]) -> None:
    """Refuse what RabbitMQ refuses, though it could be skipped."""
    for user in _objects(document, "users"):
        if "tags" not in user:
            raise DefinitionsError(f"users: '{user.get('name')}' has no tags", "tags_not_present")
    for entry in _objects(document, "parameters"):
        component = entry.get("component")
        if component not in COMPONENTS:
            text = f"component {component} not found"
            where = f"{entry.get('vhost')}/{component}/{entry.get('name')}"
            raise DefinitionsError(f"parameters: {text}", f"Validation failed\n\n{text}\n ({where})")


def _objects(document: Mapping[str, Any], section: str) -> Iterator[Mapping[str, Any]]:
    entries = document.get(section)
    return (entry for entry in (entries if isinstance(entries, list) else ()) if isinstance(entry, Mapping))


def _read(path: Path) -> tuple[str, Mapping[str, Any]]:
    """A digest of the file, and the document in it."""
    try:
        octets = path.read_bytes()
        document = parse_json(octets)
    except OSError as error:
        raise DefinitionsError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise DefinitionsError(f"{path}:{error.lineno}:{error.colno}: is no JSON: {error.msg}") from error
    except ValueError as error:
        raise DefinitionsError(f"{path}: is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise DefinitionsError(
            f"{path}: must hold a JSON object, such as RabbitMQ exports, not a {_KINDS[type(document)]}"
        )
    return hashlib.sha256(octets).hexdigest(), document
