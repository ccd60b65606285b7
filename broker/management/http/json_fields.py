"""Fields of JSON bodies: required keys, and values of the types that RabbitMQ accepts.

For others, the functions raise HTTPBadRequest with RabbitMQ's text.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from leveret.broker.core.json_values import check_nesting, table_from_json
from leveret.broker.management.http.error_responses import bad_request
from leveret.broker.management.http.responses import encode
from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable

#: Longer lists are printed on several lines by Erlang.
_LINE_WIDTH: Final = 80
_DIGITS_MAX: Final = 1000
_NEXT_LINE: Final = "\n "
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_WHITE_SPACE: Final = str.maketrans("", "", " \t\r\n")
#: Patterns up to this many characters are compiled in one or two milliseconds.
_SHORT: Final = 200


class IntegerTooLong(ValueError):
    """Raised for an integer with too many digits."""


def require_keys(document: Mapping[str, Any], *keys: str) -> None:
    """Refuse a body without the required keys. The text names all that are missing, in the order of the arguments."""
    lacking = [f"{{key_missing,{key}}}" for key in keys if key not in document]
    if lacking:
        text = ",".join(lacking)
        raise bad_request(f"[{text if len(text) + 2 <= _LINE_WIDTH else text.replace(',{', ',' + _NEXT_LINE + '{')}]")


def read_flag(document: Mapping[str, Any], key: str) -> bool:
    """Return a boolean of a body. It may be a string; a missing one is false."""
    value = document.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def parse_integer(text: str) -> int:
    """Return an integer in Erlang's syntax: sign and digits, no white space, no underscores.

    Raises:
        IntegerTooLong: It has more than 1000 digits, which take long to read.
        ValueError: It is not an integer.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not an integer")
    if len(text) > _DIGITS_MAX:
        raise IntegerTooLong(f"an integer of {len(text)} digits")
    return int(text)


def read_integer(value: Any) -> int:
    """Return an integer, which may be a string."""
    if isinstance(value, str):
        try:
            return parse_integer(value)
        except ValueError:
            raise bad_request(["not_integer", value]) from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(["not_integer", value])
    return int(value)


def read_text(document: Mapping[str, Any], key: str) -> str:
    """Return a required string of a body."""
    value = document.get(key)
    if not isinstance(value, str):
        raise bad_request(["not_string", key])
    return value


def read_as_text(value: Any) -> str:
    """Return a scalar as a string, where RabbitMQ accepts any scalar: null is ``null``, 1 is ``1``."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | Mapping):
        raise bad_request(["not_string", value])
    return encode(value)


def read_base64(text: Any) -> bytes:
    """Decode base64; white space is ignored."""
    try:
        return base64.b64decode(text.translate(_WHITE_SPACE), validate=True)
    except (AttributeError, ValueError):
        raise bad_request(["not_base64", text]) from None


def read_arguments(document: Mapping[str, Any]) -> FieldTable:
    """Return the field ``arguments``. An empty list is an empty table, because some clients send one."""
    return read_table(document.get("arguments") or {}, "arguments")


def read_table(value: Any, what: str) -> FieldTable:
    """Return a JSON object as a field table."""
    if not isinstance(value, Mapping):
        raise bad_request(f"{what} must be an object")
    check_depth(value)
    _check_values(value)
    return table_from_json(value)


def check_depth(value: Any) -> None:
    """Refuse a value that is nested deeper than field tables may be."""
    try:
        check_nesting(value)
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
    """Return a name or routing key if it fits into a short string, which has up to 255 bytes."""
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > SHORTSTR_MAX:
        raise bad_request(f"{what} should be less than 255 bytes, actually was {size}\n")
    return name


async def compile_in_thread(source: object) -> None:
    """Compile a long pattern in a thread, which takes up to half a second. The next ``Pattern`` of it is cached.

    Args:
        source: The pattern. An invalid one is reported when it is used.
    """
    if isinstance(source, str) and len(source) > _SHORT:
        with suppress(InvalidPattern):
            await asyncio.to_thread(Pattern, source)
