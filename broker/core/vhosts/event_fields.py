"""The fields of events about objects of a virtual host, named as in RabbitMQ's events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leveret.broker.core.events import named
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.policies.policy import Policy
from leveret.protocol.erlang_terms import format_atom, format_list, format_text
from leveret.storage.url_secrets import mask_url

#: How RabbitMQ's events name the types of queues; they do not name classic ones.
_TYPES: Final = {"quorum": "rabbit_quorum_queue", "stream": "rabbit_stream_queue"}


def queue_fields(queue: Queue) -> dict[str, Any]:
    """Return the fields of ``queue.created``."""
    fields: dict[str, Any] = {
        **named(queue.vhost_name, queue.name),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
        "exclusive": queue.owner is not None,
    }
    if queue.queue_type in _TYPES:
        return {**fields, "type": _TYPES[queue.queue_type]}
    return {**fields, "owner_pid": getattr(queue.owner, "name", "")}


def counted_fields(queue: Queue, messages: int) -> dict[str, Any]:
    """Return the fields of ``queue.deleted``, and of events about messages of a queue, such as ``queue.purged``.

    Args:
        messages: Number of messages, which RabbitMQ does not tell.
    """
    return {**named(queue.vhost_name, queue.name), "message_count": messages, **exclusive(queue)}


def exclusive(queue: object) -> dict[str, Any]:
    """Return the field of an event that only concerns a queue of one connection."""
    return {"exclusive": True} if isinstance(queue, Queue) and queue.owner is not None else {}


def exchange_fields(exchange: Exchange) -> dict[str, Any]:
    """Return the fields of ``exchange.created``."""
    return {
        **named(exchange.vhost_name, exchange.name),
        "type": exchange.type_name,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
        "policy": "" if exchange.policy is None else exchange.policy.name,
    }


def binding_fields(vhost_name: str, binding: Binding) -> dict[str, Any]:
    """Return the fields of ``binding.created`` and ``binding.deleted``."""
    identity = binding.identity
    return {
        "source_name": identity.source,
        "source_kind": "exchange",
        "destination_name": identity.destination,
        "destination_kind": identity.destination_type,
        "routing_key": identity.routing_key,
        "arguments": binding.arguments,
        "vhost": vhost_name,
        **exclusive(binding.destination),
    }


def policy_fields(vhost_name: str, policy: Policy) -> dict[str, Any]:
    """Return the fields of ``policy.set``."""
    return {**named(vhost_name, policy.name), **policy.value}


def parameter_fields(vhost_name: str, component: str, name: str, *value: Any) -> dict[str, Any]:
    """Return the fields of ``parameter.set`` and ``parameter.cleared``; the value only if there is one."""
    fields = {"vhost": vhost_name, "component": component, "name": name}
    return {**fields, "value": without_passwords(value[0])} if value else fields


def without_passwords(value: Any) -> Any:
    """Return a JSON value with what is secret in its URLs masked."""
    if isinstance(value, str):
        return mask_url(value) if "://" in value else value
    if isinstance(value, Mapping):
        return {key: without_passwords(each) for key, each in value.items()}
    return [without_passwords(each) for each in value] if isinstance(value, list) else value


def operator_policy_parameter(vhost_name: str, policy: Policy) -> dict[str, Any]:
    """Return the fields of ``parameter.set`` for an operator policy, which RabbitMQ keeps as a parameter."""
    return parameter_fields(vhost_name, "operator_policy", policy.name, policy.value)


def vhost_fields(vhost_name: str, metadata: VirtualHostMetadata, node: str) -> dict[str, Any]:
    """Return the fields of ``vhost.created`` and ``vhost.updated``."""
    shown = {"description": metadata.description, "tags": list(metadata.tags)}
    return {
        "name": vhost_name,
        **shown,
        "tracing": metadata.tracing,
        "default_queue_type": metadata.default_queue_type or "undefined",
        "metadata": _metadata_term(metadata),
        "cluster_state": {node: "running"},
    }


def _metadata_term(metadata: VirtualHostMetadata) -> str:
    """Return a map as Erlang prints it; tags are atoms there."""
    description, tags = format_text(metadata.description), format_list(map(format_atom, metadata.tags))
    return f"#{{description => {description},tags => {tags}}}"


def vhost_limits_fields(vhost_name: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``vhost.limits.set``; RabbitMQ does not tell the virtual host."""
    return {"name": "limits", "vhost": vhost_name, **limits}
