"""Checks whether a declaration is equivalent to an existing queue or exchange."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from leveret.broker.core.terms import display_value, to_term
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldValue

ResourceKind: TypeAlias = Literal["queue", "exchange"]

_NONE: Final = "none"


def check_equal(
    kind: ResourceKind, name: str, vhost: str, key: str, received: FieldValue | None, current: FieldValue | None
) -> None:
    """Refuse an argument that differs from the current one.

    Integers are equal whatever their width, and so are strings and byte arrays; an integer never equals a float
    or a string.

    Args:
        kind: ``queue`` or ``exchange``.
        name: Name of the queue or exchange.
        vhost: Name of its virtual host.
        key: Name of the argument.
        received: Value in this declaration; None if absent.
        current: Value in the first declaration; None if absent.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    if received is None or current is None:
        if received is not current:
            _refuse(kind, name, vhost, key, _describe(received), _describe(current))
        return
    received_term, current_term = to_term(received), to_term(current)
    # In Python 10 == 10.0, but not here.
    if type(received_term) is not type(current_term) or received_term != current_term:
        _refuse(kind, name, vhost, key, _show(received), _show(current))


def check_flag(kind: ResourceKind, name: str, vhost: str, key: str, received: bool, current: bool) -> None:
    """Refuse a flag (durable, auto_delete, internal) that differs from the current one.

    Args:
        kind: ``queue`` or ``exchange``.
        name: Name of the queue or exchange.
        vhost: Name of its virtual host.
        key: Name of the flag.
        received: The flag in this declaration.
        current: The flag in the first declaration.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    check_name(kind, name, vhost, key, str(received).lower(), str(current).lower())


def check_name(kind: ResourceKind, name: str, vhost: str, key: str, received: str, current: str) -> None:
    """Refuse a name, such as an exchange type, that differs from the current one.

    Args:
        kind: ``queue`` or ``exchange``.
        name: Name of the queue or exchange.
        vhost: Name of its virtual host.
        key: Name of the property, for example ``type``.
        received: The name in this declaration.
        current: The name in the first declaration.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    if received != current:
        _refuse(kind, name, vhost, key, f"'{received}'", f"'{current}'")


def _refuse(kind: ResourceKind, name: str, vhost: str, key: str, received: str, current: str) -> None:
    raise precondition_failed(
        f"inequivalent arg '{key}' for {kind} '{name}' in vhost '{vhost}': received {received} but current is {current}"
    )


def _describe(field: FieldValue | None) -> str:
    """Format one value when the other one is absent."""
    return _NONE if field is None else f"the value '{display_value(field)}' of type '{TYPE_NAMES[field.kind]}'"


def _show(field: FieldValue) -> str:
    """Format one value when both are present. RabbitMQ shows a void value as none."""
    return _NONE if field.kind == "V" else f"'{display_value(field)}'"
