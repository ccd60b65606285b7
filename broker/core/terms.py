"""Converts field values to Erlang terms, which RabbitMQ compares and prints.

A term consists of Python values for which ``==`` is Erlang's ``==``: numbers by value, strings as bytes, atoms
(``true``, ``false``, ``undefined``) as str, Erlang's lists and tuples as tuples. The type of a value is not part of
its term, but the types of the values inside an array or a table are.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from leveret.protocol.erlang_terms import format_binary, format_float, format_list, format_tuple
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
