"""Declares and deletes exchanges, and binds them to queues and other exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from leveret.broker.core.exchanges import amqp_types
from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.types import check_exchange_type
from leveret.broker.core.queues.declaration_checks import check_not_locked
from leveret.broker.core.vhosts.due_messages import replay_history
from leveret.broker.core.vhosts.topology import strip_line_ends
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.protocol.field_table import FieldTable, as_text, find


def declare(
    principal: Principal,
    name: str,
    type_name: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: FieldTable,
) -> None:
    """Declare an exchange.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406); see check_exchange_type.
    """
    name = strip_line_ends(name)
    vhost = principal.vhost
    check_exchange_type(type_name)
    amqp_types.refuse_default(name)
    principal.check("configure", "exchange", name)
    if name not in vhost.topology.exchanges and not name.startswith("amq."):
        _check_alternate(principal, name, arguments)
    vhost.declare_exchange(name, type_name, durable, auto_delete, internal, arguments)


def _check_alternate(principal: Principal, name: str, arguments: FieldTable) -> None:
    """Require the permissions for an alternate exchange: read on the new exchange, write on the alternate one."""
    alternate = find(arguments, "alternate-exchange")
    if alternate is not None and alternate.kind == "S":
        principal.check("read", "exchange", name)
        principal.check("write", "exchange", as_text(alternate))


def check_exists(principal: Principal, name: str) -> None:
    """Refuse an exchange that does not exist, or on which the principal has no permission (passive declaration).

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404).
    """
    name = strip_line_ends(name)
    topology = principal.vhost.topology
    amqp_types.refuse_default(name)
    principal.check_any("exchange", name)
    topology.exchange(name)


def delete(principal: Principal, name: str, if_unused: bool) -> None:
    """Delete an exchange and its bindings; an unknown name is accepted. It may be one that could not be restored.

    Args:
        if_unused: Refuse an exchange that is the source of a binding.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406).
    """
    vhost = principal.vhost
    vhost.topology.refuse_deletion(name)
    principal.check("configure", "exchange", name)
    if not vhost.unrestored.delete("exchange", name):
        vhost.topology.delete_exchange(name, if_unused)


# -- bindings -------------------------------------------------------------------------------------------


class Ends(NamedTuple):
    """The ends of a binding, by name.

    Args:
        to_queue: Whether the destination is a queue; if not, it is an exchange.
    """

    source: str
    destination: str
    to_queue: bool


class Bound(NamedTuple):
    """A binding that was asked for.

    Attributes:
        binding: The binding.
        history: Steps, to be run by the caller, that give a new binding what its source remembers.
    """

    binding: Binding
    history: Iterator[None]


def bind(
    principal: Principal, ends: Ends, routing_key: str, arguments: FieldTable, owner: object | None = None
) -> Bound:
    """Create a binding; an existing one is accepted.

    Args:
        owner: The connection, which may use its exclusive queues; None over HTTP.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
    """
    vhost = principal.vhost
    _check_binding(principal, ends, routing_key)
    source = vhost.topology.exchange(ends.source)
    destination = find_destination(vhost, ends, owner)
    return add_binding(vhost, source, destination, routing_key, arguments)


def add_binding(
    vhost: VirtualHost, source: Exchange, destination: Destination, routing_key: str, arguments: FieldTable
) -> Bound:
    """Bind a destination without a check of permissions.

    Raises:
        ChannelFault: See Topology.bind.
    """
    binding = Binding(source, destination, routing_key, arguments)
    if not vhost.topology.bind(source, destination, routing_key, arguments):
        return Bound(binding, iter(()))
    return Bound(binding, replay_history(vhost.topology, binding))


def unbind(
    principal: Principal, ends: Ends, routing_key: str, arguments: FieldTable, owner: object | None = None
) -> None:
    """Delete a binding; an unknown one is accepted.

    Args:
        owner: The connection; None over HTTP.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405).
    """
    vhost = principal.vhost
    _check_binding(principal, ends, routing_key)
    source = vhost.topology.exchanges.get(ends.source)
    queue = vhost.queues.get(ends.destination) if ends.to_queue else None
    destination = queue if ends.to_queue else vhost.topology.exchanges.get(ends.destination)
    if source is None or destination is None:
        return
    # As in RabbitMQ, an exclusive queue is locked only for existing bindings.
    if queue is not None and Binding(source, queue, routing_key, arguments).identity in source.bindings:
        check_not_locked(queue, owner)
    vhost.topology.unbind(source, destination, routing_key, arguments)


def find_destination(vhost: VirtualHost, ends: Ends, owner: object | None = None) -> Destination:
    """Find the destination of a binding.

    Raises:
        ChannelFault: NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    return vhost.queue(ends.destination, owner) if ends.to_queue else vhost.topology.exchange(ends.destination)


def refuse_default(ends: Ends) -> None:
    """Refuse bindings from and to the default exchange.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    if not ends.to_queue:
        amqp_types.refuse_default(ends.destination)
    amqp_types.refuse_default(ends.source)


def _check_binding(principal: Principal, ends: Ends, routing_key: str) -> None:
    """Require write on the destination, read on the source, and the topic permission; in RabbitMQ's order."""
    if not ends.to_queue:
        amqp_types.refuse_default(ends.destination)
    principal.check("write", "queue" if ends.to_queue else "exchange", ends.destination)
    amqp_types.refuse_default(ends.source)
    principal.check("read", "exchange", ends.source)
    principal.check_topic("read", ends.source, routing_key)
