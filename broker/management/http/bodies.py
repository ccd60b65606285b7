"""What request bodies hold: keys that have to be there, values of the types that RabbitMQ takes."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from leveret.broker.core.json_tables import table_from_json
from leveret.broker.core.json_text import refuse_deep
from leveret.broker.management.http.answers import encode
from leveret.broker.management.http.errors import bad_request
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable

#: From here on Erlang prints a list on several lines.
_LINE: Final = 80
_DIGITS_MAX: Final = 1000
_NEXT_LINE: Final = "\n "
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WHITE_SPACE: Final = str.maketrans("", "", " \t\r\n")


class IntegerTooLong(ValueError):
    """An integer of more digits than are read."""


def require_keys(document: Mapping[str, Any], *keys: str) -> None:
    """Refuse a body that lacks keys.

    Raises:
        HTTPBadRequest: It does; the text names all of them, in the order given.
    """
    lacking = [f"{{key_missing,{key}}}" for key in keys if key not in document]
    if lacking:
        text = ",".join(lacking)
        raise bad_request(f"[{text if len(text) + 2 <= _LINE else text.replace(',{', ',' + _NEXT_LINE + '{')}]")


def read_flag(document: Mapping[str, Any], key: str) -> bool:
    """A boolean, also one written as a string; false where it is missing.

    Raises:
        HTTPBadRequest: It is something else.
    """
    value = document.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def parse_integer(text: str) -> int:
    """An integer as Erlang reads it: sign and digits, no white space, no underscores.

    Raises:
        IntegerTooLong: It has so many digits that reading it takes long; no number of ours has.
        ValueError: It is something else.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an integer")
    if len(text) > _DIGITS_MAX:
        raise IntegerTooLong(f"an integer of {len(text)} digits")
    return int(text)


def read_integer(value: Any) -> int:
    """An integer, also one written as a string.

    Raises:
        HTTPBadRequest: It is something else.
    """
    if isinstance(value, str):
        try:
            return parse_integer(value)
        except ValueError:
            raise bad_request(["not_integer", value]) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(["not_integer", value])
    return int(value)


def read_text(document: Mapping[str, Any], key: str) -> str:
    """A string that has to be there.

    Raises:
        HTTPBadRequest: It is something else.
    """
    value = document.get(key)
    if not isinstance(value, str):
        raise bad_request(["not_string", key])
    return value


def read_as_text(value: Any) -> str:
    """A value where RabbitMQ takes any that is not made of others for a string: null is ``null``, 1 is ``1``.

    Raises:
        HTTPBadRequest: It is a list or an object.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping):
        raise bad_request(["not_string", value])
    return encode(value)


def read_base64(text: Any) -> bytes:
    """What a text in base 64 stands for; white space in it does not matter.

    Raises:
        HTTPBadRequest: It is not text, or not in base 64.
    """
    try:
        return base64.b64decode(text.translate(_WHITE_SPACE), validate=True)
    except (AttributeError, ValueError):
        raise bad_request(["not_base64", text]) from None


def read_arguments(document: Mapping[str, Any]) -> FieldTable:
    """The field ``arguments``; an empty list is an empty table, as some clients have it.

    Raises:
        HTTPBadRequest: It is not an object, or has values that no field table has.
    """
    return read_table(document.get("arguments") or {}, "arguments")


def read_table(value: Any, what: str) -> FieldTable:
    """A field table out of a JSON object.

    Raises:
        HTTPBadRequest: It is not an object, or has values that no field table has.
    """
    if not isinstance(value, Mapping):
        raise bad_request(f"{what} must be an object")
    check_depth(value)
    _check_values(value)
    return table_from_json(value)


def check_depth(value: Any) -> None:
    """Refuse a value with more objects and lists inside of each other than field tables may have.

    Raises:
        HTTPBadRequest: It is nested too deep.
    """
    try:
        refuse_deep(value)
    except ValueError as deep:
        raise bad_request(str(deep)) from None


def _check_values(value: Any) -> None:
    if value is None:
        raise bad_request("null_not_allowed")
    if isinstance(value, int) and not -INT64_END <= value < INT64_END:
        raise bad_request(f"the integer {value} is out of range")
    if isinstance(value, Mapping):
        for key, element in value.items():
            if len(key.encode("utf-8", "surrogateescape")) > SHORTSTR_MAX:
                raise bad_request(f"the key '{key[:32]}…' is too long")
            _check_values(element)
    elif isinstance(value, list):
        for element in value:
            _check_values(element)


def check_length(name: str, what: str = "name") -> str:
    """Return a name or routing key, if AMQP can carry it.

    Args:
        name: The name.
        what: What the refusal calls it.
    Raises:
        HTTPBadRequest: It has more than 255 bytes.
    """
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > SHORTSTR_MAX:
        raise bad_request(f"{what} should be less than 255 bytes, actually was {size}\n")
    return name
