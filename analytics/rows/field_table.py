"""Converts AMQP field tables to text and to JSON that keeps the types."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any, Final, NamedTuple

from leveret.protocol.field_table import MAX_STORED_DEPTH, FieldTable, FieldValue, MalformedTable
from leveret.protocol.field_table import decode_table as decode
from leveret.storage.directory.queue_names import valid_name


class TypedValue(NamedTuple):
    """A value of a field table.

    Attributes:
        kind: Name of the type as AMQP 0-9-1 clients use it, such as `int64` or `longstr`.
        value: The value; a dict of TypedValue for a table, a list of TypedValue for an array, text for a decimal.
    """

    kind: str
    value: Any


#: Names of the types, by letter.
KINDS: Final = {
    "t": "bool", "b": "int8", "B": "uint8", "s": "int16", "u": "uint16", "I": "int32", "i": "uint32", "l": "int64",
    "L": "int64", "f": "float", "d": "double", "D": "decimal", "S": "longstr", "x": "binary", "T": "timestamp",
    "A": "array", "F": "table", "V": "void",
}  # fmt: skip


def decode_table(octets: bytes) -> dict[str, TypedValue] | None:
    """Decode a field table.

    Args:
        octets: The table without its length prefix.
    Returns:
        The values by name; None if the table is malformed. If a name occurs twice, the first value is used.
    """
    try:
        return _table(decode(octets, MAX_STORED_DEPTH))
    except MalformedTable:
        return None


def untyped(value: TypedValue) -> Any:
    """Return a value without type names, ready for JSON; bytes that are not UTF-8 are base64."""
    if value.kind == "table":
        return {name: untyped(each) for name, each in value.value.items()}
    if value.kind == "array":
        return [untyped(each) for each in value.value]
    return value.value


def as_text(value: TypedValue) -> str | None:
    """Return a value as a string; None for void."""
    found = untyped(value)
    if found is None or isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False)


def as_json(table: dict[str, TypedValue]) -> str:
    """Return a table as JSON; each value is an object with `type` and `value`."""
    return json.dumps({name: _typed(value) for name, value in table.items()}, ensure_ascii=False)


def json_of(value: TypedValue) -> str:
    """Return a value as as_json() has it in its table, without its type."""
    return json.dumps(_typed(value)["value"], ensure_ascii=False)


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
        # Surrogates represent bytes that are not UTF-8; Spark strings cannot contain them.
        name = valid_name(key)
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
        # Decimals are signed by the specification; RabbitMQ reads them as unsigned.
        signed = unscaled - (1 << 32) if unscaled >> 31 else unscaled
        # As text: a float cannot have all of its digits.
        value = f"{Decimal(signed).scaleb(-scale):f}"
    elif kind == "S":
        try:
            return TypedValue("longstr", value.decode("utf-8"))
        except UnicodeDecodeError:
            return TypedValue("binary", base64.b64encode(value).decode())
    elif kind == "x":
        value = base64.b64encode(value).decode()
    return TypedValue(KINDS[kind], value)
