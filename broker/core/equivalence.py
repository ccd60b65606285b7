"""Whether a declaration asks for what exists already, and what is said when it does not.

The same rules and texts serve queues and exchanges.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from leveret.broker.core.terms import display_value, to_term
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldValue

Kind: TypeAlias = Literal["queue", "exchange"]

_NONE: Final = "none"


def check_equal(
    kind: Kind, name: str, vhost: str, key: str, received: FieldValue | None, current: FieldValue | None
) -> None:
    """Refuse an argument that differs from the current one.

    Integers are equal whatever their width, and so are strings and byte arrays; an integer never equals a float
    or a string.

    Args:
        kind: What is declared.
        name: Its name.
        vhost: Name of its virtual host.
        key: Name of the argument.
        received: Its value in the declaration; None if it is absent.
        current: Its value as declared first; None if it was absent.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    if received is None or current is None:
        if received is not current:
            _refuse(kind, name, vhost, key, _describe(received), _describe(current))
        return
    received_term, current_term = to_term(received), to_term(current)
    # Python's 10 == 10.0 is not meant here.
    if type(received_term) is not type(current_term) or received_term != current_term:
        _refuse(kind, name, vhost, key, _show(received), _show(current))


def check_flag(kind: Kind, name: str, vhost: str, key: str, received: bool, current: bool) -> None:
    """Refuse a flag (durable, auto_delete, internal) that differs from the current one.

    Args:
        kind: What is declared.
        name: Its name.
        vhost: Name of its virtual host.
        key: Name of the flag.
        received: The flag in the declaration.
        current: The flag as declared first.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    check_name(kind, name, vhost, key, str(received).lower(), str(current).lower())


def check_name(kind: Kind, name: str, vhost: str, key: str, received: str, current: str) -> None:
    """Refuse a name, such as that of an exchange's type, that differs from the current one.

    Args:
        kind: What is declared.
        name: Its name.
        vhost: Name of its virtual host.
        key: What is compared.
        received: The name in the declaration.
        current: The name as declared first.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    if received != current:
        _refuse(kind, name, vhost, key, f"'{received}'", f"'{current}'")


def _refuse(kind: Kind, name: str, vhost: str, key: str, received: str, current: str) -> None:
    raise precondition_failed(
        f"inequivalent arg '{key}' for {kind} '{name}' in vhost '{vhost}': received {received} but current is {current}"
    )


def _describe(field: FieldValue | None) -> str:
    """One side where the other one has no such argument."""
    return _NONE if field is None else f"the value '{display_value(field)}' of type '{TYPE_NAMES[field.kind]}'"


def _show(field: FieldValue) -> str:
    """One side where both have the argument. RabbitMQ takes a void value for none there."""
    return _NONE if field.kind == "V" else f"'{display_value(field)}'"
