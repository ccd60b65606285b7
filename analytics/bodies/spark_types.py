"""Types of Spark as text, which bodies are read into."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from leveret.analytics.bodies.value_types import parse_type, quoted, type_ddl


def ddl_of_spark(kind: DataType) -> str:
    """Return a type in Spark's DDL, as value_types.py writes it.

    Raises:
        OptionError: Bodies cannot be read into such a type.
    """
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(each.name)}: {ddl_of_spark(each.dataType)}' for each in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{ddl_of_spark(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{ddl_of_spark(kind.keyType)}, {ddl_of_spark(kind.valueType)}>"
    return type_ddl(parse_type(kind.simpleString()))
