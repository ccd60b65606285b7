"""Principals with chosen permissions."""

from __future__ import annotations

from collections.abc import Collection

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.vhost import VirtualHost
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
    """Return a new user with permissions in a virtual host.

    Args:
        vhost: The virtual host.
        configure: Pattern of the names of queues and exchanges that it may configure.
        write: The same for write.
        read: The same for read.
        name: Name of the user.
        tags: Tags of the user.
        accounts: Where the user is added; None for accounts of its own.
    """
    accounts = accounts or Accounts()
    user = accounts.add_user(name, "", tags)
    accounts.set_permissions(name, vhost.name, configure, write, read)
    return Principal(accounts, user, vhost)
