"""Field values as Erlang terms, which RabbitMQ compares and prints, and the equivalence of declarations.

A term consists of Python values for which ``==`` is Erlang's ``==``: numbers by value, strings as bytes, atoms
(``true``, ``false``, ``undefined``) as str, Erlang's lists and tuples as tuples. The type of a value is not part of
its term, but the types of the values inside an array or a table are.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from leveret.protocol.erlang_terms import format_binary, format_float, format_list, format_tuple
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import FLOAT_KINDS, TYPE_NAMES, FieldTable, FieldValue, as_text, fold_value

Term: TypeAlias = "int | float | bytes | str | tuple[Term, ...]"

_SIGN_BIT: Final = 1 << 63


#: Delimiters of a nested table or array in a flat term.
_BEGIN: Final = "("
_END: Final = ")"


def to_term(field: FieldValue) -> Term:
    """Convert a field value to a hashable term that compares as in Erlang.

    The term of a nested table or array is one flat tuple, so that comparing terms needs no deep stack.
    """
    return fold_value(field, _single_term, _table_term, _array_term)[1]


def table_to_term(table: FieldTable) -> tuple[Term, ...]:
    """Convert a table to a term: key, type name and value of each entry, in the table's order."""
    term = to_term(FieldValue("F", table))
    assert isinstance(term, tuple)
    return term


def format_value(field: FieldValue) -> str:
    """Format a value as Erlang's ``~p`` prints its term, but always on one line."""
    return fold_value(field, _format_single, _format_table, _format_array)[1]


def display_value(field: FieldValue) -> str:
    """Format a value as RabbitMQ shows it in texts: strings without quotes, anything else as ``~p``."""
    return as_text(field) if field.kind in "Sx" else format_value(field)


def _single_term(field: FieldValue) -> tuple[str, Term]:
    """Return the type name and the term of a single value."""
    kind, value = field
    term: Term = value
    if kind == "t":
        term = "true" if value else "false"
    elif kind == "V":
        term = "undefined"
    elif kind == "L":
        term = _signed(value)
    # Numbers, strings and decimals need no conversion.
    return TYPE_NAMES[kind], term


def _table_term(entries: list[tuple[str, tuple[str, Term]]]) -> tuple[str, Term]:
    flat: list[Term] = []
    for key, (name, term) in entries:
        flat.append(key)
        _add(flat, name, term)
    return TYPE_NAMES["F"], tuple(flat)


def _array_term(values: list[tuple[str, Term]]) -> tuple[str, Term]:
    flat: list[Term] = []
    for name, term in values:
        _add(flat, name, term)
    return TYPE_NAMES["A"], tuple(flat)


def _add(flat: list[Term], name: str, term: Term) -> None:
    flat.append(name)
    if name in (TYPE_NAMES["F"], TYPE_NAMES["A"]):
        assert isinstance(term, tuple)
        flat += (_BEGIN, *term, _END)
    else:
        flat.append(term)


def _format_single(field: FieldValue) -> tuple[str, str]:
    """Return the type name and the text of a single value."""
    kind, value = field
    if kind in FLOAT_KINDS:
        text = format_float(value)
    elif kind in "Sx":
        text = format_binary(value)
    elif kind == "D":
        text = format_tuple(str(value[0]), str(value[1]))
    else:
        text = str(_single_term(field)[1])
    return TYPE_NAMES[kind], text


def _format_table(entries: list[tuple[str, tuple[str, str]]]) -> tuple[str, str]:
    shown = [
        format_tuple(format_binary(key.encode("utf-8", "surrogateescape")), name, text) for key, (name, text) in entries
    ]
    return TYPE_NAMES["F"], format_list(shown)


def _format_array(values: list[tuple[str, str]]) -> tuple[str, str]:
    return TYPE_NAMES["A"], format_list(format_tuple(name, text) for name, text in values)


def _signed(number: int) -> int:
    """Convert an unsigned 64-bit number to signed, because RabbitMQ reads type L as signed."""
    return number - 2 * _SIGN_BIT if number >= _SIGN_BIT else number


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
