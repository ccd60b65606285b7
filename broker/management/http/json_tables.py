"""Field tables as JSON."""

from __future__ import annotations

from typing import Any

from protocol.field_table import FieldTable, FieldValue


def table_to_json(table: FieldTable) -> dict[str, Any]:
    """A table as a JSON object; where a key stands twice, the last one is shown."""
    return {key: _value(value) for key, value in table}


def _value(field: FieldValue) -> Any:
    if field.kind == "F":
        return table_to_json(field.value)
    if field.kind == "A":
        return [_value(element) for element in field.value]
    if field.kind == "D":
        scale, unscaled = field.value
        return unscaled / 10**scale
    return field.value.decode("utf-8", "replace") if isinstance(field.value, bytes) else field.value
