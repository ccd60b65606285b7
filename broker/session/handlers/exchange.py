"""Methods of class exchange."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.names import strip_line_ends
from leveret.broker.session.channel import Channel
from leveret.protocol.faults import access_refused
from leveret.protocol.field_table import FieldTable, as_text, find
from leveret.protocol.methods import INDEX

_DECLARE_OK: Final = INDEX["exchange.declare-ok"]
_DELETE_OK: Final = INDEX["exchange.delete-ok"]
_BIND_OK: Final = INDEX["exchange.bind-ok"]
_UNBIND_OK: Final = INDEX["exchange.unbind-ok"]


def declare(
    channel: Channel,
    ticket: int,
    name: str,
    type_name: str,
    passive: bool,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Declare an exchange, or with passive=true check whether it exists.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    name = strip_line_ends(name)
    topology = channel.vhost.topology
    if passive:
        topology.refuse_default(name)
        channel.host.authorization.check_any("exchange", name)
        topology.exchange(name)
    else:
        topology.check_exchange_type(type_name)
        topology.refuse_default(name)
        channel.host.authorization.check("configure", "exchange", name)
        _check_alternate_permissions(channel, name, arguments)
        channel.vhost.declare_exchange(name, type_name, durable, auto_delete, internal, arguments)
    if not nowait:
        channel.send(_DECLARE_OK)


def _check_alternate_permissions(channel: Channel, name: str, arguments: FieldTable) -> None:
    """Check the permissions for an alternate exchange: read on the new exchange, write on the alternate one."""
    alternate = find(arguments, "alternate-exchange")
    is_new = name not in channel.vhost.topology.exchanges and not name.startswith("amq.")
    if is_new and alternate is not None and alternate.kind == "S":
        channel.host.authorization.check("read", "exchange", name)
        channel.host.authorization.check("write", "exchange", as_text(alternate))


def delete(channel: Channel, ticket: int, name: str, if_unused: bool, nowait: bool) -> None:
    """Delete an exchange and its bindings; an unknown name is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406) with if-unused if it is in use.
    """
    name = strip_line_ends(name)
    topology = channel.vhost.topology
    topology.refuse_default(name)
    if name.startswith("amq."):
        raise access_refused(f"deletion of system exchange '{name}' in vhost '{channel.vhost.name}' not allowed")
    channel.host.authorization.check("configure", "exchange", name)
    if not channel.vhost.unrestored.delete("exchange", name):
        topology.delete_exchange(name, if_unused)
    if not nowait:
        channel.send(_DELETE_OK)


def bind(
    channel: Channel,
    ticket: int,
    destination: str,
    source: str,
    routing_key: str,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Bind an exchange to another one.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    destination, source = _check_ends(channel, destination, source, routing_key)
    topology = channel.vhost.topology
    topology.bind(topology.exchange(source), topology.exchange(destination), routing_key, arguments)
    if not nowait:
        channel.send(_BIND_OK)


def unbind(
    channel: Channel,
    ticket: int,
    destination: str,
    source: str,
    routing_key: str,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Delete a binding between exchanges; an unknown binding is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    destination, source = _check_ends(channel, destination, source, routing_key)
    topology = channel.vhost.topology
    ends = topology.exchanges.get(source), topology.exchanges.get(destination)
    if ends[0] is not None and ends[1] is not None:
        topology.unbind(ends[0], ends[1], routing_key, arguments)
    if not nowait:
        channel.send(_UNBIND_OK)


def _check_ends(channel: Channel, destination: str, source: str, routing_key: str) -> tuple[str, str]:
    """Check both names and their permissions; return the names without line ends."""
    destination, source = strip_line_ends(destination), strip_line_ends(source)
    topology, authorization = channel.vhost.topology, channel.host.authorization
    topology.refuse_default(destination)
    authorization.check("write", "exchange", destination)
    topology.refuse_default(source)
    authorization.check("read", "exchange", source)
    authorization.check_topic_binding(source, routing_key)
    return destination, source


METHODS: Final = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.bind": bind,
    "exchange.unbind": unbind,
}
