"""Files of an archive with what bodies say: their columns, and types that become wider.

The table of the rule `orders` is `bodies_orders`. It has the columns of `messages`, `value` and `value_error`; `body`
is null where `value` has all of it. Its columns have no numbers: other programs know them by their names.
"""

from __future__ import annotations

import io
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.bodies.value_types import type_ddl
from leveret.analytics.columns import ARCHIVED_TABLES, TIME_COLUMNS, VALUE, VALUE_ERROR, layout_of

#: Integers and fractions, each after those that fit into it.
_WIDER: Final = ((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


class UnfitTypeError(Exception):
    """A table cannot take values of a type; the text says which field."""


def time_column(table: str) -> str:
    """Return the column with the time by which the files of a table are divided."""
    return TIME_COLUMNS[layout_of(table)]


def typed_schema(kind: pa.DataType) -> pa.Schema:
    """Return the schema of a table whose values are of a type."""
    types = ARCHIVED_TABLES["messages"]
    return schema_of({**types, VALUE: "string", VALUE_ERROR: "string"}, [*types, VALUE, VALUE_ERROR], kind)


def merged_type(known: pa.DataType, found: pa.DataType, where: str = VALUE) -> pa.DataType:
    """Return the type that has the values of two.

    Args:
        known: The type of a table: its fields stay, in their order.
        found: The type of what comes: further fields are added.
        where: The field, for error texts.
    Raises:
        UnfitTypeError: There is no such type.
    """
    if known == found:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        others = {field.name: field.type for field in found}
        fields = {
            field.name: merged_type(field.type, others.get(field.name, field.type), f"{where}.{field.name}")
            for field in known
        }
        return pa.struct(list((fields | {name: kind for name, kind in others.items() if name not in fields}).items()))
    if pa.types.is_list(known) and pa.types.is_list(found):
        return pa.list_(merged_type(known.value_type, found.value_type, f"{where}[]"))
    if pa.types.is_map(known) and pa.types.is_map(found) and known.key_type == found.key_type:
        return pa.map_(known.key_type, merged_type(known.item_type, found.item_type, f"{where}[]"))
    for kinds in _WIDER:
        if known in kinds and found in kinds:
            return kinds[max(kinds.index(known), kinds.index(found))]
    if pa.types.is_decimal128(known) and pa.types.is_decimal128(found) and known.scale == found.scale:
        return known if known.precision > found.precision else found
    raise UnfitTypeError(f"{where} was {type_ddl(known)}, and is {type_ddl(found)}")


def leaf_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns that a Parquet file of a schema has, as options of its writer name them."""
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink)
    found = pq.ParquetFile(sink).schema
    return [found.column(number).path for number in range(len(found))]
