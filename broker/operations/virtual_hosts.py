"""Creates, changes and deletes virtual hosts, their policies, limits and shovels, and closes connections with them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from leveret.broker.auth.accounts import Accounts, User
from leveret.broker.core.broker import Broker
from leveret.broker.core.json_values import check_nesting
from leveret.broker.core.queues.traits import DEFAULT_RELEASE
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy, PolicyError
from leveret.policies.shovel import COMPONENT as SHOVEL
from leveret.policies.shovel import InvalidShovel, read_shovel
from leveret.policies.value_checks import VHOST_LIMITS, limits_error
from leveret.protocol.faults import ConnectionFault, ReplyCode


def put_vhost(broker: Broker, accounts: Accounts, creator: User, name: str, metadata: VirtualHostMetadata) -> None:
    """Create a virtual host, in which its creator has all permissions, or change its metadata."""
    existed = name in broker.vhosts
    broker.put_vhost(name, metadata)
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
    # Told in RabbitMQ's order.
    accounts.forget_vhost(vhost.name)
    broker.delete_vhost(vhost.name)
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


class InvalidLimits(ValueError):
    """Limits have an unknown name, or a value that is not a number."""


def set_limits(broker: Broker, vhost: VirtualHost, limits: Mapping[str, Any]) -> None:
    """Replace the limits of a virtual host. Nothing is told of equal ones, as in RabbitMQ.

    Args:
        broker: The broker, which records them.
        limits: The limits by name. A negative number, or a missing name, means no limit.
    Raises:
        InvalidLimits: A limit is refused; the text is RabbitMQ's.
    """
    refusal = limits_error(limits, VHOST_LIMITS, "limits")
    if refusal is not None:
        raise InvalidLimits(refusal)
    before = vhost.has_limits, vhost.max_connections, vhost.max_queues
    vhost.set_limits(limits.get("max-connections"), limits.get("max-queues"))
    if before != (vhost.has_limits, vhost.max_connections, vhost.max_queues):
        broker.save_vhost(vhost)
        broker.tell_limits(vhost.name, limits)


def clear_limits(broker: Broker, vhost: VirtualHost) -> None:
    """Remove the limits of a virtual host."""
    vhost.clear_limits()
    broker.save_vhost(vhost)
    broker.tell_limits(vhost.name, None)


def takes_unlimited(vhost: VirtualHost) -> bool:
    """Return whether a policy may have a delivery-limit of -1: where new quorum queues follow RabbitMQ 4."""
    return vhost.quorum_release != DEFAULT_RELEASE


def set_policy(vhost: VirtualHost, policy: Policy, operator: bool) -> tuple[bool, Iterator[None]]:
    """Set a policy. One of the name that could not be restored is replaced.

    Args:
        operator: Whether it is an operator policy.
    Returns:
        Whether it is new, and the steps, one per queue or exchange.
    """
    vhost.unrestored.delete(_kind(operator), policy.name)
    return vhost.policies.set_in_steps(policy, operator)


def clear_policy(vhost: VirtualHost, name: str, operator: bool) -> Iterator[None] | None:
    """Clear a policy, which may be one that could not be restored.

    Args:
        operator: Whether it is an operator policy.
    Returns:
        The steps, one per queue or exchange; None if the policy does not exist.
    """
    was_unrestored = vhost.unrestored.delete(_kind(operator), name)
    steps = vhost.policies.clear_in_steps(name, operator)
    return iter(()) if steps is None and was_unrestored else steps


def _kind(operator: bool) -> str:
    return "operator_policy" if operator else "policy"


def set_shovel(
    broker: Broker, vhost: VirtualHost, name: str, value: Any, refuses: Callable[[str], str] = lambda vhost_name: ""
) -> bool:
    """Set the parameter of a shovel, which starts; return whether it is new.

    Args:
        value: What it does; see policies/shovel.py.
        refuses: Returns why the user may not let it use a virtual host of this broker; "" if the user may.
    Raises:
        InvalidShovel: The value is refused.
    """
    try:
        check_nesting(value)
    except ValueError as deep:
        raise InvalidShovel(f"{name}: {deep}\n") from None
    shovel = read_shovel(name, value)
    local = [uri.vhost for end in (shovel.destination, shovel.source) for uri in end.uris if uri.is_local]
    refusals = [refusal for vhost_name in local if (refusal := refuses(vhost_name))]
    if refusals:
        raise InvalidShovel("".join(f"{each}\n" for each in refusals))
    return broker.parameters.set(vhost.name, SHOVEL, name, value)


def policy_error_text(error: PolicyError, operator: bool) -> str:
    """Return the error text of an invalid policy. RabbitMQ escapes it, except for operator policies."""
    return str(error) if operator else escape_markup(str(error))


def escape_markup(text: str) -> str:
    """Escape ``<`` and ``>``, as RabbitMQ does in texts about parameters."""
    return text.replace("<", "&lt;").replace(">", "&gt;")
