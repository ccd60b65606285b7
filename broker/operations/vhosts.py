"""Creates, changes and deletes virtual hosts, and closes the connections of what is deleted."""

from __future__ import annotations

from collections.abc import Generator

from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.users import User
from leveret.broker.core.broker import Broker
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.faults import ConnectionFault, ReplyCode


def put_vhost(broker: Broker, accounts: Accounts, creator: User, name: str, metadata: VirtualHostMetadata) -> None:
    """Create a virtual host, in which its creator has all permissions, or change its metadata."""
    existed = name in broker.vhosts
    broker.set_metadata(broker.add_vhost(name), metadata)
    if not existed:
        grant_to_creator(accounts, creator, name)


def delete_vhost(broker: Broker, accounts: Accounts, vhost: VirtualHost) -> Generator[None, None, bool]:
    """Delete a virtual host with all its objects and permissions, one queue per step, and close its connections.

    Returns:
        Whether it still existed at the end.
    """
    reason = f"vhost '{vhost.name}' is deleted"
    close_connections(broker, reason, vhost=vhost.name)
    for queue in list(vhost.queues.values()):
        vhost.delete_queue(queue)
        yield
    if broker.vhosts.get(vhost.name) is not vhost:
        return False
    # Clients may have connected meanwhile.
    close_connections(broker, reason, vhost=vhost.name)
    broker.delete_vhost(vhost.name)
    accounts.forget_vhost(vhost.name)
    return True


def delete_user(broker: Broker, accounts: Accounts, name: str) -> bool:
    """Delete a user and close its connections; return whether it existed."""
    if name not in accounts.users:
        return False
    accounts.delete_user(name)
    close_connections(broker, f"user '{name}' is deleted", user=name)
    return True


def close_connections(broker: Broker, reason: str, user: str | None = None, vhost: str | None = None) -> None:
    """Close connections because their user or virtual host was deleted.

    Args:
        reason: The text of connection.close.
        user: Close the connections of this user; None for any.
        vhost: Close the connections to this virtual host; None for any.
    """
    for connection in list(broker.connections):
        if user in (None, connection.username) and vhost in (None, connection.vhost_name):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))


def grant_to_creator(accounts: Accounts, user: User, vhost_name: str) -> None:
    """Give all permissions in a new virtual host to its creator, unless it has some already.

    Args:
        accounts: Users and permissions.
        user: The creator; nothing happens if it has been deleted.
    """
    if user.name in accounts.users and accounts.permissions(user.name, vhost_name) is None:
        accounts.set_permissions(user.name, vhost_name, ".*", ".*", ".*")
