"""Command for SQL statements over what waits and what has come. RabbitMQ has no such command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Result, ResultRows, command
from leveret.broker.leveretctl.command_errors import DATA, bad_argument, failed
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, Argument, option

#: Forms of files, by the ends of their names.
_FORMS: Final = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_TEXTS: Final = (str, int, float)


def _check(context: CommandContext) -> None:
    output = context.text("output")
    if output and Path(output).suffix not in _FORMS:
        raise bad_argument(f"--output is a file whose name ends with {', '.join(_FORMS)}")
    if context.integer("limit", 1) < 1:
        raise bad_argument("--limit must be at least 1")


@command(
    (
        HEADERS,
        Argument("[statement]", "the statement; default: what stands on the standard input"),
        option(
            "limit", "how many rows at most; default: 1000, in files .csv and .parquet as many as the broker allows"
        ),
        option("output", "writes the result to a file .csv, .json or .parquet", line="[--output <file>]"),
        TIMEOUT,
    ),
    check=_check,
    of_leveret="SQL",
    timeout=3600,
)
def sql(context: CommandContext, statement: str | None = None) -> Result | None:
    """Runs a SELECT over messages, delayed, events, queues and segments, those of queues that the user may read."""
    output = context.text("output")
    form = _FORMS[Path(output).suffix] if output else "json"
    request: dict[str, Any] = {"statement": context.stdin.read() if statement is None else statement, "format": form}
    if "limit" in context.options:
        request["rows"] = context.integer("limit", 1)
    found = context.api.raw("POST", ("sql",), body=request)
    if output:
        try:
            Path(output).write_bytes(found)
        except OSError as error:
            raise failed(f"Could not write to {output}: {error.strerror}", DATA) from error
        return None
    return _rows(json.loads(found))


def _rows(found: dict[str, Any]) -> ResultRows:
    # Two columns may have one name.
    names = list[str]()
    for each in found["columns"]:
        names.append(each["name"] if each["name"] not in names else f"{each['name']} ({len(names) + 1})")
    rows = [dict(zip(names, map(_shown, row), strict=True)) for row in found["rows"]]
    footer = f"There are more than {len(rows)} rows; --limit shows more of them" if found["truncated"] else ""
    return ResultRows(tuple(names), rows, footer=footer)


def _shown(value: Any) -> Any:
    """Return a value of a table: lists and objects as JSON."""
    return value if value is None or isinstance(value, _TEXTS) else json.dumps(value)
