"""Creates and deletes bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from leveret.broker.core.exchanges import default
from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.queues.declaration import check_not_locked
from leveret.broker.core.vhosts.due_messages import replay_history
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.protocol.field_table import FieldTable


class Ends(NamedTuple):
    """The ends of a binding, by name.

    Args:
        source: Name of the source exchange.
        destination: Name of the destination.
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
        principal: Who asks.
        ends: The ends.
        routing_key: The routing key or pattern.
        arguments: The arguments as received.
        owner: The connection, which may use its exclusive queues; None over HTTP.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
    """
    vhost = principal.vhost
    _check(principal, ends, routing_key)
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
        principal: Who asks.
        ends: The ends.
        routing_key: The routing key or pattern.
        arguments: The arguments in any order.
        owner: The connection; None over HTTP.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405).
    """
    vhost = principal.vhost
    _check(principal, ends, routing_key)
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
        default.refuse_default(ends.destination)
    default.refuse_default(ends.source)


def _check(principal: Principal, ends: Ends, routing_key: str) -> None:
    """Require write on the destination, read on the source, and the topic permission; in RabbitMQ's order."""
    if not ends.to_queue:
        default.refuse_default(ends.destination)
    principal.check("write", "queue" if ends.to_queue else "exchange", ends.destination)
    default.refuse_default(ends.source)
    principal.check("read", "exchange", ends.source)
    principal.check_topic("read", ends.source, routing_key)
