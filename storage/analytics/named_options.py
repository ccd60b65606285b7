"""The options of the data source as arguments of Python functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

from leveret.storage.analytics.columns import TABLES
from leveret.storage.analytics.errors import OptionError

#: A time: ISO 8601 or a datetime, in UTC unless it has a time zone; or seconds since 1970.
Time: TypeAlias = str | int | float | datetime


def named_options(path: str | os.PathLike[str], table: str, **given: Time | None) -> dict[str, str]:
    """Return the options of the data source for arguments.

    Args:
        path: The data directory, or the URI of a copy.
        table: Name of the table.
        given: The other options by name, such as `first_seq`; None for those that are not set.
    """
    named = {name.replace("_", ""): value for name, value in given.items() if value is not None}
    return {"path": os.fspath(path), "table": table} | {
        name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in named.items()
    }


def chosen_columns(table: str, columns: Sequence[str] | None) -> list[str]:
    """Return the names of the columns to read.

    Args:
        table: Name of a table that exists.
        columns: Names of columns; None for all.
    Raises:
        OptionError: There are none, they are not a list, or the table has no such column.
    """
    known = TABLES[table]
    if isinstance(columns, str):
        raise OptionError(f"columns is a list of names: columns=['{columns}']")
    chosen = list(known) if columns is None else list(columns)
    if not chosen:
        raise OptionError(f"name at least one column of table {table}: {', '.join(known)}")
    for name in chosen:
        if name not in known:
            raise OptionError(f"table {table} has no column '{name}'; its columns are {', '.join(known)}")
    return chosen
