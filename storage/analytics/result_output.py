"""Results of jobs as text for people and programs, on stdout or in files."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame

#: Rows by column name.
Rows: TypeAlias = Sequence[Mapping[str, Any]]

SUFFIXES: Final = {"table": ".txt", "json": ".json", "csv": ".csv", "parquet": ".parquet", "html": ".html"}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Compute a data frame; times have their zone."""
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def as_table(columns: Sequence[str], rows: Rows) -> str:
    """Aligned columns with a head; numbers stand at the right."""
    cells = [[_text(row[name]) for name in columns] for row in rows]
    widths = [max([len(name), *(len(line[at]) for line in cells)]) for at, name in enumerate(columns)]
    right = [bool(rows) and isinstance(rows[0][name], int | float) for name in columns]

    def line(texts: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if at_right else text.ljust(width)
            for text, width, at_right in zip(texts, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(columns), line(["-" * width for width in widths]), *map(line, cells)]) + "\n"


def as_json_lines(columns: Sequence[str], rows: Rows) -> str:
    """One JSON object a row."""
    lines = (json.dumps({name: _plain(row[name]) for name in columns}, ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def as_csv(columns: Sequence[str], rows: Rows) -> str:
    """As in RFC 4180, with a head."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text(row[name]) for name in columns] for row in rows)
    return target.getvalue()


def as_html_table(columns: Sequence[str], rows: Rows) -> str:
    """A table element."""
    numbers = {name for name in columns if rows and _is_number(rows[0][name])}
    head = "".join(f"<th{' class=number' if name in numbers else ''}>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_html_cell(row[name]) for name in columns) + "</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def as_html_page(columns: Sequence[str], rows: Rows) -> str:
    """A page with a table."""
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Leveret</title>\n{as_html_table(columns, rows)}'
    )


FORMATS: Final[dict[str, Callable[[Sequence[str], Rows], str]]] = {
    "table": as_table,
    "json": as_json_lines,
    "csv": as_csv,
    "html": as_html_page,
}


def write_results(results: Mapping[str, DataFrame], form: str, directory: str) -> list[str]:
    """Write each result to a file of its name; Parquet is written by Spark, as a directory.

    Returns:
        The paths.
    """
    os.makedirs(directory, exist_ok=True)
    paths: list[str] = []
    for name, frame in results.items():
        path = os.path.join(directory, name + SUFFIXES[form])
        if form == "parquet":
            frame.write.mode("overwrite").parquet(path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(FORMATS[form](frame.columns, rows_of(frame)))
        paths.append(path)
    return paths


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        # A map comes as a list of pairs.
        pairs = all(isinstance(each, tuple) and len(each) == 2 for each in value)
        return {name: _plain(each) for name, each in value} if value and pairs else [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _text(value: Any) -> str:
    found = _plain(value)
    if found is None:
        return ""
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _html_cell(value: Any) -> str:
    if not _is_number(value):
        return f"<td>{html.escape(_text(value))}</td>"
    return f'<td class="number">{value:,}</td>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
