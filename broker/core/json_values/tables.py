"""JSON of the HTTP API: field tables as values and back, and texts that are parsed strictly."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import MAX_DEPTH, FieldTable, FieldValue, fold_value, longstr


def table_from_json(arguments: Mapping[str, Any]) -> FieldTable:
    """Convert JSON to a field table with RabbitMQ's types: integers become long, fractions double.

    Raises:
        ValueError: A value has no field type, or the nesting is too deep.
    """
    # This also protects the stack.
    check_nesting(arguments)
    return _table(arguments)


def _table(arguments: Mapping[str, Any]) -> FieldTable:
    return tuple((_name(key), _field(value)) for key, value in arguments.items())


def table_to_json(table: FieldTable) -> dict[str, Any]:
    """Convert a field table to a JSON object; of duplicate keys the last one is shown."""
    return {key: fold_value(value, _single, _object, _list) for key, value in table}


def _name(key: str) -> str:
    if len(key.encode()) > SHORTSTR_MAX:
        raise ValueError(f"'{key[:32]}…' has more than {SHORTSTR_MAX} bytes")
    return key


def _field(value: Any) -> FieldValue:
    if isinstance(value, bool):
        return FieldValue("t", value)
    if isinstance(value, int):
        if not -INT64_END <= value < INT64_END:
            raise ValueError(f"{value} is too large, it takes more than 64 bits")
        return FieldValue("l", value)
    if isinstance(value, float):
        return FieldValue("d", value)
    if isinstance(value, str):
        return longstr(value)
    if isinstance(value, Mapping):
        return FieldValue("F", _table(value))
    if isinstance(value, list):
        return FieldValue("A", tuple(map(_field, value)))
    if value is not None:
        # From YAML, for example a date.
        raise ValueError(f"{value!r} is not a JSON value")
    return FieldValue("V", None)


def _single(field: FieldValue) -> Any:
    if field.kind == "D":
        scale, unscaled = field.value
        return unscaled / 10**scale
    if field.kind == "V":
        # As in RabbitMQ, which does not read null back.
        return "undefined"
    return _text(field.value) if isinstance(field.value, bytes) else field.value


def _object(entries: list[tuple[str, Any]]) -> Any:
    return dict(entries)


def _list(values: list[Any]) -> Any:
    return values


def _text(octets: bytes) -> str:
    try:
        return octets.decode("utf-8")
    except UnicodeDecodeError:
        return f"Not UTF-8, base64 is: {base64.b64encode(octets).decode('ascii')}"


#: Values in a table sent as JSON. A table in an AMQP frame of 131,072 bytes has fewer.
VALUES_MAX: Final = 65_536
#: Begins the escape of a surrogate, which may be unpaired.
SURROGATES: Final = re.compile(r"\\u[dD]")


def parse_json(octets: bytes) -> Any:
    """Parse a JSON text. As in RabbitMQ, what is not UTF-8 in its strings becomes U+FFFD.

    Args:
        octets: The text in UTF-8; a byte order mark may be in front.
    Raises:
        ValueError: It is not JSON, or it contains NaN or infinite numbers.
    """
    text = decode_json(octets)
    try:
        value = decoder.decode(text)
        return replace_surrogates(value) if SURROGATES.search(text) else value
    except RecursionError:
        raise ValueError("nested too deep") from None


def decode_json(octets: bytes) -> str:
    """Decode a JSON text without its byte order mark."""
    return octets.decode("utf-8-sig", "replace")


def replace_surrogates(value: Any) -> Any:
    """Return a value with U+FFFD for unpaired surrogates, which come from escapes.

    Raises:
        RecursionError: It is nested too deep.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return decoder.decode(replace_surrogates(json.dumps(value, ensure_ascii=False)))


def check_nesting(value: Any) -> None:
    """Refuse a value that is nested deeper, or contains more values, than a field table may.

    Args:
        value: A JSON value; an outermost object or list does not count.
    Raises:
        ValueError: It is nested too deep, or has too many values.
    """
    level: list[Any] = [value] if isinstance(value, Mapping | list) else []
    count = depth = 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested too deep, {MAX_DEPTH} levels are allowed")
        count += sum(map(len, level))
        if count > VALUES_MAX:
            raise ValueError(f"too many values, {VALUES_MAX} are allowed")
        inner = [element for each in level for element in (each.values() if isinstance(each, Mapping) else each)]
        level = [each for each in inner if isinstance(each, Mapping | list)]
        depth += 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large")
    return number


#: A JSON decoder that refuses NaN and infinite numbers.
decoder: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
