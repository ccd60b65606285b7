"""Converts field tables to JSON and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from leveret.broker.core.json_values.text import check_nesting
from leveret.protocol.constants import INT64_END, SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable, FieldValue, fold_value, longstr


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
