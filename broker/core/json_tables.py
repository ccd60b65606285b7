"""Field tables as JSON, and JSON as field tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.field_table import FieldTable, FieldValue, longstr


def table_from_json(arguments: Mapping[str, Any]) -> FieldTable:
    """Arguments written as JSON, typed as RabbitMQ types them: integers are long, fractions double."""
    return tuple((key, _field(value)) for key, value in arguments.items())


def table_to_json(table: FieldTable) -> dict[str, Any]:
    """A table as a JSON object; where a key stands twice, the last one is shown."""
    return {key: _value(value) for key, value in table}


def _field(value: Any) -> FieldValue:
    if isinstance(value, bool):
        return FieldValue("t", value)
    if isinstance(value, int):
        return FieldValue("l", value)
    if isinstance(value, float):
        return FieldValue("d", value)
    if isinstance(value, str):
        return longstr(value)
    if isinstance(value, Mapping):
        return FieldValue("F", table_from_json(value))
    if isinstance(value, list):
        return FieldValue("A", tuple(map(_field, value)))
    return FieldValue("V", None)


def _value(field: FieldValue) -> Any:
    if field.kind == "F":
        return table_to_json(field.value)
    if field.kind == "A":
        return [_value(element) for element in field.value]
    if field.kind == "D":
        scale, unscaled = field.value
        return unscaled / 10**scale
    return field.value.decode("utf-8", "replace") if isinstance(field.value, bytes) else field.value
