"""How the columns show header tables, value by value."""

from __future__ import annotations

import json
from typing import Any

from leveret.analytics.rows.header_columns import TypedValue, untyped


def as_text(value: TypedValue) -> str | None:
    found = untyped(value)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)


def as_json(table: dict[str, TypedValue]) -> str:
    """Return a table as JSON; each value is an object with `type` and `value`."""
    return json.dumps({name: _typed(value) for name, value in table.items()}, ensure_ascii=False)


def _typed(value: TypedValue) -> dict[str, Any]:
    inner = value.value
    if value.kind == "table":
        inner = {name: _typed(each) for name, each in inner.items()}
    elif value.kind == "array":
        inner = [_typed(each) for each in inner]
    return {"type": value.kind, "value": inner}
