"""Definitions at start: the defaults, then what the configuration names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.auth.accounts import Accounts
from broker.auth.definitions import dump as dump_accounts
from broker.auth.definitions import load as load_accounts
from broker.config.errors import DefinitionsError
from broker.config.options import Settings
from broker.core.broker import Broker
from broker.core.definitions import load_policies, load_topology, load_vhosts
from broker.core.definitions import restore as restore_broker
from policies.pcre import InvalidPattern
from storage.definitions import DefinitionsDatabase


class DefinitionsKeeper:
    """Keeps definitions in a data directory.

    Args:
        database: Where they are kept.
        broker: Has the virtual hosts and what is in them.
        accounts: Has the users and permissions.
    """

    def __init__(self, database: DefinitionsDatabase, broker: Broker, accounts: Accounts) -> None:
        self._database = database
        self._broker = broker
        self._accounts = accounts
        self._saved = -1

    def restore(self) -> bool:
        """Load what is kept, and keep all changes from now on; return whether anything was there."""
        found = not self._database.is_empty()
        if found:
            restore_broker(self._broker, self._database)
            for _, document in self._database.load("accounts"):
                load_accounts(self._accounts, document, self._broker.vhosts)
            self._saved = self._accounts.generation
        self._broker.record_to(self._database)
        return found

    def save(self) -> None:
        """Make all changes durable."""
        if self._saved != self._accounts.generation:
            self._saved = self._accounts.generation
            self._database.put("accounts", (), dump_accounts(self._accounts))
        self._database.commit()

    def close(self) -> None:
        """Make all changes durable and close the database."""
        self.save()
        self._database.close()


def load_definitions(settings: Settings, broker: Broker, accounts: Accounts, is_new: bool) -> None:
    """Load the definitions that the configuration names.

    Args:
        settings: The configuration.
        broker: Gets virtual hosts and what is in them.
        accounts: Gets users and permissions.
        is_new: The data directory was empty: make the default virtual host and user first.
    Raises:
        DefinitionsError: A definition is wrong; the text names section, entry and what would be right.
    """
    if is_new:
        broker.add_vhost(settings.default_vhost)
        _add_default_user(settings, accounts)
    if settings.load_definitions is not None:
        import_definitions(_read(settings.load_definitions), broker, accounts)
    if settings.definitions:
        import_definitions(settings.definitions, broker, accounts)
    if settings.policies:
        load_policies(
            broker, {"policies": [{"vhost": settings.default_vhost, **policy} for policy in settings.policies]}
        )


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
    """Add what a definitions document holds to what is there.

    Raises:
        DefinitionsError: An entry is wrong; those before it stay.
    """
    load_vhosts(broker, document)
    load_accounts(accounts, document, broker.vhosts)
    load_policies(broker, document)
    load_topology(broker, document)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise DefinitionsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DefinitionsError(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise DefinitionsError(f"{path} must hold a JSON object")
    return document
