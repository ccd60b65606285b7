"""Values of the API as Erlang terms, so that scripts that parse rabbitmqctl's output work.

JSON does not keep the AMQP integer type of an argument. Integers are shown as `long`, the type that RabbitMQ gives
to integers received over HTTP.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from leveret.protocol.erlang_terms import (
    format_atom,
    format_list,
    format_number,
    format_string,
    format_tuple,
    format_unicode,
)

_ARROW: Final = " -> "


class Arguments(dict[str, Any]):
    """AMQP table, such as the arguments of a queue or the properties of a client."""


class Identifier(str):
    """Identifier that takes the place of RabbitMQ's process identifier.

    It is opaque, has no spaces, and is accepted by close_connection.
    """

    __slots__ = ()


def connection_identifier(name: str) -> Identifier:
    """Return the identifier of a connection: `<127.0.0.1:39330->127.0.0.1:5672>`."""
    return Identifier(f"<{name.replace(_ARROW, '->')}>")


def channel_identifier(name: str) -> Identifier:
    """Return the identifier of a channel. Its name is the connection's name and a number in parentheses."""
    connection, _, number = name.rpartition(" (")
    return Identifier(f"<{connection.replace(_ARROW, '->')}.{number.rstrip(')')}>")


def queue_identifier(node: str, vhost: str, name: str) -> Identifier:
    """Return the identifier of a queue. It depends only on the node, the virtual host and the name."""
    return Identifier(f"<{node}.{zlib.crc32(vhost.encode())}.{zlib.crc32(name.encode())}.0>")


def connection_name(identifier: str) -> str | None:
    """Return the name of a connection from its identifier or name, None if the text is neither."""
    if identifier.startswith("<") and identifier.endswith(">"):
        return identifier[1:-1].replace("->", _ARROW)
    return identifier if _ARROW in identifier else None


def compact_json(value: Any) -> str:
    """Return JSON without whitespace and with sorted keys, as in lists of policies and limits."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def untyped(value: Any) -> str:
    """Return a value of an AMQP table without its type: `[{"x-max-length",7}]`.

    An empty string is `[]`, because an Erlang string is the list of its characters.
    """
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return format_number(value)
    if isinstance(value, dict):
        return format_list(format_tuple(format_string(key), untyped(each)) for key, each in value.items())
    if isinstance(value, list):
        return format_list(map(untyped, value))
    return format_string(str(value)) if value else "[]"


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
        return format_list(table_entries(value))
    if isinstance(value, list):
        return format_list(format_tuple(type_name(each), typed(each)) for each in value)
    if isinstance(value, str):
        return format_unicode(value)
    return untyped(value)


def table_entries(table: dict[str, Any]) -> list[str]:
    """Return the entries of an AMQP table as triples of name, type and value."""
    return [format_tuple(format_unicode(key), type_name(value), typed(value)) for key, value in table.items()]


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
        return format_unicode(value)
    if isinstance(value, tuple):
        return format_tuple(*map(term, value))
    if isinstance(value, list):
        return format_list(map(term, value))
    if isinstance(value, dict):
        return format_list(format_tuple(format_atom(key), term(each)) for key, each in value.items())
    return untyped(value)
