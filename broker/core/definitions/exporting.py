"""Exports virtual hosts and their contents as a RabbitMQ definitions document.

Source: https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leveret.broker.core.broker import Broker
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.json_values import table_to_json
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.policies.value_checks import VHOST_LIMITS


def export_vhosts(broker: Broker) -> list[dict[str, Any]]:
    """Return the section vhosts. RabbitMQ 3.10 writes names only, and reads the rest in ``metadata``."""
    return [_vhost(vhost) for vhost in broker.vhosts.values()]


def export_global_parameters(broker: Broker) -> list[dict[str, Any]]:
    """Return the section global_parameters."""
    return [{"name": name, "value": value} for name, value in sorted(broker.global_parameters.values.items())]


def export_parameters(broker: Broker, vhost: VirtualHost) -> list[dict[str, Any]]:
    """Return entries of the section parameters: operator policies, limits and those of other components."""
    entries: list[dict[str, Any]] = [
        {"value": policy.value, "vhost": vhost.name, "component": "operator_policy", "name": policy.name}
        for policy in vhost.policies.operator_policies.values()
    ]
    if vhost.has_limits:
        limits: dict[str, int] | list[int] = vhost_limits(vhost) or []
        entries.append({"value": limits, "vhost": vhost.name, "component": "vhost-limits", "name": "limits"})
    for (vhost_name, component, name), value in broker.parameters.values.items():
        if vhost_name == vhost.name:
            entries.append({"value": value, "vhost": vhost_name, "component": component, "name": name})
    return entries


def export_policies(vhost: VirtualHost) -> list[dict[str, Any]]:
    """Return entries of the section policies."""
    return [describe_policy(vhost.name, policy) for policy in vhost.policies.policies.values()]


def export_queues(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section queues, without exclusive queues."""
    for queue in list(vhost.queues.values()):
        if queue.owner is None:
            yield _queue(vhost, queue)


def export_exchanges(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section exchanges, without predeclared ones."""
    for exchange in list(vhost.topology.exchanges.values()):
        if exchange.name and not exchange.name.startswith("amq."):
            yield _exchange(vhost, exchange)


def export_bindings(vhost: VirtualHost) -> Iterator[dict[str, Any]]:
    """Yield entries of the section bindings, without implicit ones and those of exclusive queues."""
    for exchange in list(vhost.topology.exchanges.values()):
        for binding in list(exchange.bindings.values()):
            destination = binding.destination
            if isinstance(destination, Exchange) or destination.owner is None:
                yield _binding(vhost, binding)


def vhost_limits(vhost: VirtualHost) -> dict[str, int]:
    """Return the limits that are set on a virtual host, including negative ones."""
    values = dict(zip(VHOST_LIMITS, (vhost.max_connections, vhost.max_queues), strict=True))
    return {name: value for name, value in values.items() if value is not None}


def describe_policy(vhost_name: str, policy: Policy) -> dict[str, Any]:
    """Return a policy in the form of the HTTP API."""
    return {
        "vhost": vhost_name,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }


def for_vhost(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the sections that belong to virtual hosts, with all entries assigned to one virtual host."""
    sections = ("parameters", "policies", "queues", "exchanges", "bindings")
    return {
        section: [{**entry, "vhost": name} if isinstance(entry, Mapping) else entry for entry in entries]
        for section in sections
        if isinstance(entries := document.get(section), list)
    }


def _vhost(vhost: VirtualHost) -> dict[str, Any]:
    metadata = vhost.metadata
    described: dict[str, Any] = {"name": vhost.name}
    if metadata.description or metadata.tags or metadata.default_queue_type:
        values: dict[str, Any] = {"description": metadata.description, "tags": list(metadata.tags)}
        if metadata.default_queue_type:
            values["default_queue_type"] = metadata.default_queue_type
        described |= {**values, "metadata": values}
    return described


def _queue(vhost: VirtualHost, queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue.queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": table_to_json(queue.arguments),
    }


def _exchange(vhost: VirtualHost, exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": table_to_json(exchange.arguments),
    }


def _binding(vhost: VirtualHost, binding: Binding) -> dict[str, Any]:
    identity = binding.identity
    return {
        "source": identity.source,
        "vhost": vhost.name,
        "destination": identity.destination,
        "destination_type": identity.destination_type,
        "routing_key": binding.routing_key,
        "arguments": table_to_json(binding.arguments),
    }
