"""Results of jobs as tables, JSON, CSV and HTML, the condition --fail-if on them, and the progress on stderr."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import os
import sys
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite, isnan
from types import TracebackType
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from leveret.analytics.errors import AnalyticsError

#: Rows by column name.
Rows: TypeAlias = Sequence[Mapping[str, Any]]
SUFFIXES: Final = {"table": ".txt", "json": ".json", "csv": ".csv", "parquet": ".parquet", "html": ".html"}


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Compute a data frame; times are in UTC, independent of the session's time zone.

    Raises:
        AnalyticsError: Two columns have the same name, or a value cannot be converted to Python.
    """
    twice = [name for name, count in Counter(frame.columns).items() if count > 1]
    if twice:
        raise AnalyticsError(f"more than one column is called '{twice[0]}'; name them with AS")
    try:
        table = frame.toArrow()
    except ValueError as error:
        raise AnalyticsError(f"a column cannot be shown: {error}; cast it to string") from error
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            table = table.set_column(at, field.name, table.column(at).cast(pa.timestamp("us", tz="UTC")))
    try:
        found: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="lossy")
    except (ValueError, OverflowError) as error:
        raise AnalyticsError(f"a value cannot be shown: {error}; cast it to string") from error
    return found


def as_table(columns: Sequence[str], rows: Rows) -> str:
    """Return a text table with a header; numbers are right-aligned."""
    names = [_visible(name) for name in columns]
    cells = [[_visible(_text(row[name])) for name in columns] for row in rows]
    widths = [max([_width(name), *(_width(line[at]) for line in cells)]) for at, name in enumerate(names)]
    right = [all(_is_number(row[name]) or row[name] is None for row in rows) and bool(rows) for name in columns]

    def line(texts: Sequence[str]) -> str:
        spaces = (" " * (width - _width(text)) for text, width in zip(texts, widths, strict=True))
        padded = (
            space + text if at_right else text + space
            for text, space, at_right in zip(texts, spaces, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), line(["-" * width for width in widths]), *map(line, cells)]) + "\n"


def as_json_lines(columns: Sequence[str], rows: Rows) -> str:
    """Return one JSON object per line."""
    lines = (_json({name: _plain(row[name]) for name in columns}) for row in rows)
    return "".join(f"{line}\n" for line in lines)


def as_csv(columns: Sequence[str], rows: Rows) -> str:
    """Return CSV as in RFC 4180, with a header and LF line ends."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_text(row[name]) for name in columns] for row in rows)
    return target.getvalue()


def as_html_table(columns: Sequence[str], rows: Rows) -> str:
    """Return an HTML table element."""
    numbers = {name for name in columns if rows and _is_number(rows[0][name])}
    head = "".join(f"<th{' class=number' if name in numbers else ''}>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_html_cell(row[name]) for name in columns) + "</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def as_html_page(columns: Sequence[str], rows: Rows) -> str:
    """Return an HTML page with a table."""
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
    """Write each result to a file with its name; Spark writes Parquet as a directory.

    Args:
        directory: Output directory; created if missing.
    Returns:
        The paths of the files.
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
        # A timestamp without a zone (timestamp_ntz) is written without one.
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        # Maps are lists of pairs if their keys are not strings.
        pairs = all(isinstance(each, tuple) and len(each) == 2 for each in value)
        return {name: _plain(each) for name, each in value} if value and pairs else [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name if isinstance(name, str) else _text(name): _plain(each) for name, each in value.items()}
    if isinstance(value, float) and not isfinite(value):
        # JSON has no such numbers.
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, str | int | float | bool | Decimal | None) else str(value)


def _json(value: Any) -> str:
    """Return a value of _plain() as JSON; a decimal is a number with all its digits, which no float has."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {_json(value[name])}" for name in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    found = _plain(value)
    if found is None:
        return ""
    return found if isinstance(found, str) else _json(found)


def _html_cell(value: Any) -> str:
    if not _is_number(value):
        return f"<td>{html.escape(_text(value))}</td>"
    return f'<td class="number">{value:,}</td>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _visible(text: str) -> str:
    """Return a text with control characters escaped, so that it stays on one line of a terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else repr(letter)[1:-1]
        for letter in text
    )


def _width(text: str) -> int:
    """Return the width of a text in terminal columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(letter) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


#: Rows that are shown.
_SHOWN: Final = 20


class ConditionError(AnalyticsError):
    """A condition cannot be evaluated; the text has the reason."""


def rows_that_fulfil(frame: DataFrame, condition: str) -> DataFrame:
    """Return the rows of a result that fulfil a condition, without computing them.

    Args:
        condition: A condition in SQL over its columns.
    Raises:
        ConditionError: It is not a condition over these columns.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as error:
        reason = next(line for line in str(error).splitlines() if line)
        columns = ", ".join(frame.columns)
        raise ConditionError(f"--fail-if '{condition}': {reason} The columns are {columns}.") from error


def failure_text(found: DataFrame, condition: str) -> str:
    """Compute rows that fulfil a condition, and say which they are.

    Returns:
        How many there are, and a table of the first ones; "" if there are none.
    """
    count = found.count()
    if not count:
        return ""
    rows = f"{count} row{'' if count == 1 else 's'}"
    more = f"and {count - _SHOWN} more\n" if count > _SHOWN else ""
    return f"{rows} with {condition}\n{as_table(found.columns, rows_of(found.limit(_SHOWN)))}{more}"


_PERIOD: Final = 0.5


class SparkProgress:
    """Context manager that shows how many tasks of the active stages are done.

    On a terminal it updates one line; elsewhere it writes one line at the start and one at the end.
    """

    def __init__(self, spark: SparkSession, title: str) -> None:
        self._spark = spark
        self._title = title
        self._ended = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> SparkProgress:
        if not sys.stderr.isatty():
            sys.stderr.write(f"{self._title} …\n")
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            sys.stderr.write("\r\x1b[K")
        how = "failed after" if error is not None else "done in"
        sys.stderr.write(f"{self._title}: {how} {time.monotonic() - self._started:.1f} s\n")

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            try:
                text = self._state()
            except (PySparkException, AttributeError, ConnectionError):
                # Spark Connect has no status tracker.
                text = "working"
            sys.stderr.write(f"\r\x1b[K{self._title}: {text}, {time.monotonic() - self._started:.0f} s")
            sys.stderr.flush()

    def _state(self) -> str:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        return f"{done} of {total} tasks" if total else "planning"
