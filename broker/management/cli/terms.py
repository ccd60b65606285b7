"""Values as Erlang prints them, for those who read rabbitmqctl's output with patterns.

JSON has lost which of AMQP's integer types an argument had; whole numbers are called `long`, which is what RabbitMQ
makes of those that come over HTTP.
"""

from __future__ import annotations

import json
from typing import Any, Final

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\b": "\\b"}
_ESCAPES_MORE: Final = {"\f": "\\f", "\x1b": "\\e", "\x7f": "\\d"}
_TRANSLATION: Final = str.maketrans(_ESCAPES | _ESCAPES_MORE)
_ATOM_TRANSLATION: Final = _TRANSLATION | {ord('"'): '"', ord("'"): "\\'"}
# Atoms need quotes unless they are a small letter and then letters, digits, `_` and `@`.
_ATOM_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@")


class Arguments(dict[str, Any]):
    """An AMQP table: the arguments of a queue, or a client's properties."""


class Identifier(str):
    """What RabbitMQ has a process identifier for."""

    __slots__ = ()


def compact_json(value: Any) -> str:
    """Return JSON without white space, keys in order, as policies and limits are listed."""
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
    """Return a number; Erlang writes exponents with a point, as in 1.0e20."""
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    if not exponent:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(power)}"


def plain(value: Any) -> str:
    """Return a value of an AMQP table without its type: `[{"x-max-length",7}]`.

    An empty string is `[]`: to Erlang it is the list of its characters, and rabbitmqctl shows it so.
    """
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, dict):
        return f"[{','.join(f'{{{quoted(key)},{plain(each)}}}' for key, each in value.items())}]"
    if isinstance(value, list):
        return f"[{','.join(plain(each) for each in value)}]"
    return quoted(str(value)) if value else "[]"


def binary(text: str) -> str:
    """Return a string as a binary; one that is not ASCII is marked as UTF-8, which is what its bytes are."""
    if not text:
        return "<<>>"
    return f"<<{quoted(text)}{'' if text.isascii() else '/utf8'}>>"


def kind(value: Any) -> str:
    """Return the name of a table value's type."""
    if value is None:
        return "void"
    for python, name in ((bool, "bool"), (int, "long"), (float, "double"), (dict, "table"), (list, "array")):
        if isinstance(value, python):
            return name
    return "longstr"


def typed(value: Any) -> str:
    """Return a value of an AMQP table with the types of what is in it."""
    if isinstance(value, dict):
        return f"[{','.join(entries(value))}]"
    if isinstance(value, list):
        return f"[{','.join(f'{{{kind(each)},{typed(each)}}}' for each in value)}]"
    if isinstance(value, str):
        return binary(value)
    return plain(value)


def entries(table: dict[str, Any]) -> list[str]:
    """Return the entries of an AMQP table as triples of name, type and value."""
    return [f"{{{binary(key)},{kind(value)},{typed(value)}}}" for key, value in table.items()]


def triples(value: Any) -> Any:
    """Return a value of an AMQP table as rabbitmqctl puts it into JSON: `[["x-max-length","long",7]]`."""
    if isinstance(value, dict):
        return [[key, kind(each), triples(each)] for key, each in value.items()]
    if isinstance(value, list):
        return [[kind(each), triples(each)] for each in value]
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
    return plain(value)
