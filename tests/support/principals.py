"""Principals with chosen permissions."""

from __future__ import annotations

from collections.abc import Collection

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal


def new_principal(
    vhost: VirtualHost,
    configure: str = ".*",
    write: str = ".*",
    read: str = ".*",
    name: str = "guest",
    tags: Collection[str] = (),
    accounts: Accounts | None = None,
) -> Principal:
    """Return a new user with permissions in a virtual host."""
    accounts = accounts or Accounts()
    user = accounts.add_user(name, "", tags)
    accounts.set_permissions(name, vhost.name, configure, write, read)
    return Principal(accounts, user, vhost)
