"""Methods of class exchange."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.names import strip_line_ends
from leveret.broker.operations import bindings, exchanges
from leveret.broker.operations.bindings import Ends
from leveret.broker.session.channel import Channel
from leveret.broker.session.history import give_history
from leveret.protocol.field_table import FieldTable
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
    principal = channel.host.principal
    if passive:
        exchanges.check_exists(principal, name)
    else:
        exchanges.declare(principal, name, type_name, durable, auto_delete, internal, arguments)
    if not nowait:
        channel.send(_DECLARE_OK)


def delete(channel: Channel, ticket: int, name: str, if_unused: bool, nowait: bool) -> None:
    """Delete an exchange and its bindings; an unknown name is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406) with if-unused if it is in use.
    """
    exchanges.delete(channel.host.principal, strip_line_ends(name), if_unused)
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
        Unfinished: The binding gets a long history.
    """
    give_history(
        channel, bindings.bind(channel.host.principal, _read_ends(source, destination), routing_key, arguments).history
    )
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
    bindings.unbind(channel.host.principal, _read_ends(source, destination), routing_key, arguments)
    if not nowait:
        channel.send(_UNBIND_OK)


def _read_ends(source: str, destination: str) -> Ends:
    return Ends(strip_line_ends(source), strip_line_ends(destination), to_queue=False)


METHODS: Final = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.bind": bind,
    "exchange.unbind": unbind,
}
