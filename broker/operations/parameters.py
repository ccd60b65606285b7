"""Runtime parameters of a virtual host: its policies, its limits and its shovels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from leveret.broker.core.broker import Broker
from leveret.broker.core.json_values.tables import check_nesting
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy, PolicyError
from leveret.policies.shovel import COMPONENT as SHOVEL
from leveret.policies.shovel import InvalidShovel, read_shovel
from leveret.policies.values import VHOST_LIMITS, limits_error


class InvalidLimits(ValueError):
    """Limits have an unknown name, or a value that is not a number."""


def set_limits(broker: Broker, vhost: VirtualHost, limits: Mapping[str, Any]) -> None:
    """Replace the limits of a virtual host.

    Args:
        broker: The broker, which records them.
        limits: The limits by name. A negative number, or a missing name, means no limit.
    Raises:
        InvalidLimits: A limit is refused; the text is RabbitMQ's.
    """
    refusal = limits_error(limits, VHOST_LIMITS, "limits")
    if refusal is not None:
        raise InvalidLimits(refusal)
    vhost.set_limits(limits.get("max-connections"), limits.get("max-queues"))
    broker.save_vhost(vhost)


def clear_limits(broker: Broker, vhost: VirtualHost) -> None:
    """Remove the limits of a virtual host."""
    vhost.clear_limits()
    broker.save_vhost(vhost)


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
