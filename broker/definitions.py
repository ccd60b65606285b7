"""Definitions at start: the defaults, then what the configuration names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.auth.accounts import Accounts
from broker.auth.definitions import load as load_accounts
from broker.config.errors import DefinitionsError
from broker.config.options import Settings
from broker.core.broker import Broker
from broker.core.definitions import load_policies, load_topology, load_vhosts
from policies.pcre import InvalidPattern


def load_definitions(settings: Settings, broker: Broker, accounts: Accounts) -> None:
    """Make the default virtual host and user, then load the definitions that the configuration names.

    Raises:
        DefinitionsError: A definition is wrong; the text names section, entry and what would be right.
    """
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
