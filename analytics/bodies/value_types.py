"""Types of values as text, in Spark's DDL, and as Arrow types."""

from __future__ import annotations

import os
from typing import Any, Final

import pyarrow as pa

from leveret.analytics.bodies.sql_types import SqlType, quoted, read_type
from leveret.analytics.errors import OptionError
from leveret.analytics.options import BodySchema


def schema_text(schema: BodySchema | None) -> str | None:
    """Return the schema of bodies as the option bodySchema; None for none.

    Raises:
        OptionError: Spark lacks a type of the Arrow schema.
    """
    if isinstance(schema, pa.Schema):
        return type_ddl(pa.struct(list(schema)))
    if isinstance(schema, pa.DataType):
        return type_ddl(schema)
    return None if schema is None else os.fspath(schema)


#: The times that Spark has: of the years 1 to 9999, in microseconds since 1970.
TIMES: Final = range(-62_135_596_800_000_000, 253_402_300_800_000_000)
_PLAIN: Final[dict[str, Any]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
#: Arrow types that Spark has not, by the one that takes their place.
_WIDER: Final = {pa.large_string(): "string", pa.large_binary(): "binary"}


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type for a type in Spark's DDL; see read_type()."""
    return _arrow(read_type(text))


def _arrow(kind: SqlType) -> pa.DataType:
    parts = [_arrow(each) for each in kind.parts]
    if kind.name == "struct":
        return pa.struct(list(zip(kind.fields, parts, strict=True)))
    if kind.name == "array":
        return pa.list_(parts[0])
    if kind.name == "map":
        return pa.map_(*parts)
    return pa.decimal128(*kind.sizes) if kind.name == "decimal" else _PLAIN[kind.name]


def type_ddl(kind: pa.DataType) -> str:
    """Return an Arrow type in Spark's DDL.

    Raises:
        OptionError: Spark has no such type.
    """
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{quoted(each.name)}: {type_ddl(each.type)}' for each in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"array<{type_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_ddl(kind.key_type)}, {type_ddl(kind.item_type)}>"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if kind in _WIDER:
        return _WIDER[kind]
    for name, each in _PLAIN.items():
        if each == kind:
            return name
    raise OptionError(
        f"Spark has no type for Arrow's {kind}; the types are {', '.join(_PLAIN)}, decimal, array, map, struct"
    )
