"""Declares and deletes exchanges."""

from __future__ import annotations

from leveret.broker.core.exchanges.default import refuse_default
from leveret.broker.core.exchanges.registry import check_exchange_type
from leveret.broker.core.names import strip_line_ends
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

    Args:
        principal: Who asks.
        name: The name as received.
        type_name: The exchange type.
        durable: The durable bit.
        auto_delete: The auto-delete bit.
        internal: The internal bit.
        arguments: The arguments as received.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406); see check_exchange_type.
    """
    name = strip_line_ends(name)
    vhost = principal.vhost
    check_exchange_type(type_name)
    refuse_default(name)
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
    refuse_default(name)
    principal.check_any("exchange", name)
    topology.exchange(name)


def delete(principal: Principal, name: str, if_unused: bool) -> None:
    """Delete an exchange and its bindings; an unknown name is accepted. It may be one that could not be restored.

    Args:
        principal: Who asks.
        name: Name of the exchange.
        if_unused: Refuse an exchange that is the source of a binding.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406).
    """
    vhost = principal.vhost
    vhost.topology.refuse_deletion(name)
    principal.check("configure", "exchange", name)
    if not vhost.unrestored.delete("exchange", name):
        vhost.topology.delete_exchange(name, if_unused)
