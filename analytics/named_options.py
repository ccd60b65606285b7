"""The options of the data source as arguments of Python functions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import pyarrow as pa

from leveret.analytics.bodies.body_options import VALUE_COLUMNS
from leveret.analytics.bodies.value_types import type_ddl
from leveret.analytics.columns import TABLES
from leveret.analytics.errors import OptionError
from leveret.analytics.options import names_text

#: A time: ISO 8601 or a datetime, in UTC unless it has a time zone; or seconds since 1970.
Time: TypeAlias = str | int | float | datetime
#: A name, a pattern, or a list of these.
Names: TypeAlias = str | Sequence[str]
#: The schema of bodies: for JSON in Spark's DDL or as an Arrow schema or type; for others a path, or the text.
BodySchema: TypeAlias = "str | os.PathLike[str] | pa.Schema | pa.DataType"
_NAMES: Final = ("vhost", "queue")
_TEXTS: Final = ("mode", "snapshot", "bodies", "body_schema", "body_message")
_NUMBERS: Final = ("first_seq", "last_seq", "limit", "body_sample")


def named_options(path: str | os.PathLike[str], table: str, **given: Time | Names | None) -> dict[str, str]:
    """Return the options of the data source for arguments.

    Args:
        path: The data directory, or the URI of a copy.
        table: Name of the table.
        given: The other options by name, such as `first_seq`; None for those that are not set.
    Raises:
        OptionError: One is of a wrong type.
    """
    named = {name: value for name, value in given.items() if value is not None}
    return {"path": os.fspath(path), "table": table} | {
        name.replace("_", ""): _text(name, value) for name, value in named.items()
    }


def _text(name: str, value: object) -> str:
    """Return an argument as the value of its option.

    Raises:
        OptionError: It is of a type that the option does not take.
    """
    if name in _NAMES:
        if isinstance(value, str):
            return value
        names = list(value) if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping) else []
        if not names or not all(isinstance(each, str) for each in names):
            raise OptionError(f"{name} is a name, a pattern, or a list of these, not {value!r}")
        return names_text(names)
    if name in _TEXTS and not isinstance(value, str):
        raise OptionError(f"{name} is a text, not {value!r}")
    if isinstance(value, bool | bytes) or (isinstance(value, Iterable) and not isinstance(value, str)):
        what = "a whole number" if name in _NUMBERS else "a time, or what else the option takes"
        raise OptionError(f"{name} is {what}, not {value!r}")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def locations_in(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return one path or several as a list.

    Raises:
        OptionError: There are none.
    """
    found = [os.fspath(each) for each in ([path] if isinstance(path, str | os.PathLike) else path)]
    if not found:
        raise OptionError("name an archive or a data directory")
    return found


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


def chosen_columns(table: str, columns: Sequence[str] | None, types: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the columns to read.

    Args:
        table: Name of a table that exists.
        columns: Names of columns; None for all.
        types: The columns of the table, if it is an archived one or has values of bodies.
    Raises:
        OptionError: There are none, they are not a list, or the table has no such column.
    """
    known = TABLES[table] if types is None else types
    if isinstance(columns, str):
        raise OptionError(f"columns is a list of names: columns=['{columns}']")
    chosen = list(known) if columns is None else list(columns)
    if not chosen:
        raise OptionError(f"name at least one column of table {table}: {', '.join(known)}")
    for name in chosen:
        if name not in known:
            if name in VALUE_COLUMNS:
                raise OptionError(f"column '{name}' needs bodies='json', 'avro' or 'protobuf', of messages or delayed")
            raise OptionError(f"table {table} has no column '{name}'; its columns are {', '.join(known)}")
    return chosen
