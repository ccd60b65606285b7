"""Prints values as Erlang terms, so that scripts that parse rabbitmqctl's output work.

JSON does not keep the AMQP integer type of an argument. Integers are shown as `long`, the type that RabbitMQ gives
to integers received over HTTP.
"""

from __future__ import annotations

import json
from typing import Any, Final

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\b": "\\b"}
_ESCAPES_MORE: Final = {"\f": "\\f", "\x1b": "\\e", "\x7f": "\\d"}
_TRANSLATION: Final = str.maketrans(_ESCAPES | _ESCAPES_MORE)
_ATOM_TRANSLATION: Final = _TRANSLATION | {ord('"'): '"', ord("'"): "\\'"}
# An atom needs no quotes if it is a lowercase letter followed by letters, digits, `_` and `@`.
_ATOM_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@")


class Arguments(dict[str, Any]):
    """AMQP table, such as the arguments of a queue or the properties of a client."""


class Identifier(str):
    """Identifier that takes the place of RabbitMQ's process identifier."""

    __slots__ = ()


def compact_json(value: Any) -> str:
    """Return JSON without whitespace and with sorted keys, as in lists of policies and limits."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def quoted(text: str) -> str:
    """Return a string in quotes."""
    return f'"{text.translate(_TRANSLATION)}"'


def atom(text: str) -> str:
    """Return a name as an atom."""
    if text[:1].isascii() and text[:1].islower() and _ATOM_LETTERS.issuperset(text):
        return text
    return "'" + text.translate(_ATOM_TRANSLATION) + "'"


def number(value: float) -> str:
    """Return a number. Erlang needs a decimal point before an exponent, as in 1.0e20."""
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(power)}"


def untyped(value: Any) -> str:
    """Return a value of an AMQP table without its type: `[{"x-max-length",7}]`.

    An empty string is `[]`, because an Erlang string is the list of its characters.
    """
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, dict):
        return f"[{','.join(f'{{{quoted(key)},{untyped(each)}}}' for key, each in value.items())}]"
    if isinstance(value, list):
        return f"[{','.join(untyped(each) for each in value)}]"
    return quoted(str(value)) if value else "[]"


def binary(text: str) -> str:
    """Return a string as a binary. One that is not ASCII is marked as UTF-8."""
    if not text:
        return "<<>>"
    return f"<<{quoted(text)}{'' if text.isascii() else '/utf8'}>>"


def type_name(value: Any) -> str:
    """Return the name of the AMQP type of a table value."""
    if value is None:
        return "void"
    for python, name in ((bool, "bool"), (int, "long"), (float, "double"), (dict, "table"), (list, "array")):
        if isinstance(value, python):
            return name
    return "longstr"


def typed(value: Any) -> str:
    """Return a value of an AMQP table with the types of nested values."""
    if isinstance(value, dict):
        return f"[{','.join(table_entries(value))}]"
    if isinstance(value, list):
        return f"[{','.join(f'{{{type_name(each)},{typed(each)}}}' for each in value)}]"
    if isinstance(value, str):
        return binary(value)
    return untyped(value)


def table_entries(table: dict[str, Any]) -> list[str]:
    """Return the entries of an AMQP table as triples of name, type and value."""
    return [f"{{{binary(key)},{type_name(value)},{typed(value)}}}" for key, value in table.items()]


def json_triples(value: Any) -> Any:
    """Return a value of an AMQP table in rabbitmqctl's JSON form: `[["x-max-length","long",7]]`."""
    if isinstance(value, dict):
        return [[key, type_name(each), json_triples(each)] for key, each in value.items()]
    if isinstance(value, list):
        return [[type_name(each), json_triples(each)] for each in value]
    return "undefined" if value is None else value


def term(value: Any) -> str:
    """Return a column's value as an Erlang term."""
    if value is None:
        return "''"
    if isinstance(value, Identifier):
        return str(value)
    if isinstance(value, Arguments):
        return typed(value)
    if isinstance(value, str):
        return binary(value)
    if isinstance(value, tuple):
        return f"{{{','.join(term(each) for each in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(term(each) for each in value)}]"
    if isinstance(value, dict):
        return f"[{','.join(f'{{{atom(key)},{term(each)}}}' for key, each in value.items())}]"
    return untyped(value)
