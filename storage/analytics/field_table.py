"""Header tables: AMQP field tables as text and as JSON that keeps the types."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, NamedTuple

from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, FieldValue, MalformedTable
from leveret.protocol.field_table import decode_table as decode


class TypedValue(NamedTuple):
    """A value of a field table.

    Attributes:
        kind: Its type by the name that AMQP 0-9-1 clients know it by, such as `int64` or `longstr`.
        value: Tables as dict of TypedValue, arrays as list of TypedValue.
    """

    kind: str
    value: Any


_KINDS: Final = {
    "t": "bool", "b": "int8", "B": "uint8", "s": "int16", "u": "uint16", "I": "int32", "i": "uint32", "l": "int64",
    "L": "int64", "f": "float", "d": "double", "D": "decimal", "S": "longstr", "x": "binary", "T": "timestamp",
    "A": "array", "F": "table", "V": "void",
}  # fmt: skip


def decode_table(octets: bytes) -> dict[str, TypedValue] | None:
    """Decode a field table.

    Args:
        octets: What follows its length.
    Returns:
        None if it is malformed. If a name occurs twice, the first value counts.
    """
    try:
        return _table(decode(octets, MAX_STORED_DEPTH))
    except MalformedTable:
        return None


def plain(value: TypedValue) -> Any:
    """Return a value without its type, as JSON has it; bytes that are not text are base64."""
    if value.kind == "table":
        return {name: plain(each) for name, each in value.value.items()}
    if value.kind == "array":
        return [plain(each) for each in value.value]
    return value.value


def as_text(value: TypedValue) -> str | None:
    """Return a value as one text; None for void."""
    found = plain(value)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)


def as_json(table: dict[str, TypedValue]) -> str:
    """Return a table as JSON: each value is an object of `type` and `value`."""
    return json.dumps({name: _typed(value) for name, value in table.items()}, ensure_ascii=False)


def _typed(value: TypedValue) -> dict[str, Any]:
    inner = value.value
    if value.kind == "table":
        inner = {name: _typed(each) for name, each in inner.items()}
    elif value.kind == "array":
        inner = [_typed(each) for each in inner]
    return {"type": value.kind, "value": inner}


def _table(table: FieldTable) -> dict[str, TypedValue]:
    found: dict[str, TypedValue] = {}
    for key, value in table:
        # Surrogates stand for bytes that are not UTF-8; Spark has no use for them.
        name = key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if name not in found:
            found[name] = _value(value)
    return found


def _value(field: FieldValue) -> TypedValue:
    kind, value = field
    if kind == "F":
        value = _table(value)
    elif kind == "A":
        value = [_value(each) for each in value]
    elif kind == "D":
        scale, unscaled = value
        # The specification has it signed, RabbitMQ reads it unsigned.
        value = (unscaled - (1 << 32) if unscaled >> 31 else unscaled) / 10**scale
    elif kind == "S":
        try:
            return TypedValue("longstr", value.decode("utf-8"))
        except UnicodeDecodeError:
            return TypedValue("binary", base64.b64encode(value).decode())
    elif kind == "x":
        value = base64.b64encode(value).decode()
    return TypedValue(_KINDS[kind], value)
