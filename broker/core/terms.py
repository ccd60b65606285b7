"""Field values as RabbitMQ sees them: as Erlang terms, which it compares and prints.

A term is made of Python values for which ``==`` is Erlang's ``==``: numbers by value, strings as bytes, atoms
(``true``, ``false``, ``undefined``) as str, Erlang's lists and tuples as tuples. The type of a value is no part of
its term, but the types of the values inside an array or a table are.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from protocol.erlang_terms import format_binary, format_float
from protocol.field_table import FLOAT_KINDS, TYPE_NAMES, FieldTable, FieldValue, as_text

Term: TypeAlias = "int | float | bytes | str | tuple[Term, ...]"

_SIGN_BIT: Final = 1 << 63


def to_term(field: FieldValue) -> Term:
    """The term of a value: hashable, and equal to other terms as in Erlang."""
    kind, value = field
    if kind == "t":
        return "true" if value else "false"
    if kind == "V":
        return "undefined"
    if kind == "L":
        return _signed(value)
    if kind == "A":
        return tuple([(TYPE_NAMES[item.kind], to_term(item)) for item in value])
    if kind == "F":
        return table_to_term(value)
    # Numbers, strings and decimals are their own terms.
    term: Term = value
    return term


def table_to_term(table: FieldTable) -> tuple[Term, ...]:
    """The term of a table: triples of key, type name and value, in the table's order."""
    return tuple([(key, TYPE_NAMES[field.kind], to_term(field)) for key, field in table])


def format_value(field: FieldValue) -> str:
    """A value as Erlang's ``~p`` prints its term, on one line however long it is."""
    kind, value = field
    if kind in FLOAT_KINDS:
        return format_float(value)
    if kind in "Sx":
        return format_binary(value)
    if kind == "D":
        return f"{{{value[0]},{value[1]}}}"
    if kind == "A":
        items = [f"{{{TYPE_NAMES[item.kind]},{format_value(item)}}}" for item in value]
        return f"[{','.join(items)}]"
    if kind == "F":
        return f"[{','.join([_format_entry(key, entry) for key, entry in value])}]"
    return str(to_term(field))


def display_value(field: FieldValue) -> str:
    """A value as RabbitMQ shows it alone in a text: strings bare, anything else as ``~p``."""
    return as_text(field) if field.kind in "Sx" else format_value(field)


def _format_entry(key: str, field: FieldValue) -> str:
    shown = format_binary(key.encode("utf-8", "surrogateescape"))
    return f"{{{shown},{TYPE_NAMES[field.kind]},{format_value(field)}}}"


def _signed(number: int) -> int:
    """RabbitMQ reads the letter L as a signed number."""
    return number - 2 * _SIGN_BIT if number >= _SIGN_BIT else number
