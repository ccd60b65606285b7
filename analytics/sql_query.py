"""Answers one SQL statement with DuckDB, as a process of its own: what it may use and read is limited.

The request is a line of JSON on stdin; the result goes to stdout. The process ends when stdin does. Nothing but the
tables can be read: DuckDB opens no files, loads no extensions and finds no Python variables, and its configuration
cannot be changed by the statement (https://duckdb.org/docs/operations_manual/securing_duckdb/overview). Rows of queues
that the user may not read are left out before DuckDB sees any, so no condition of a statement is evaluated on them.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import math
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from leveret.analytics.columns import ARCHIVED_TABLES, OF_RULE
from leveret.analytics.dataset import LeveretDataset, dataset_of
from leveret.analytics.errors import AnalyticsError, DamagedRecordError
from leveret.analytics.selection import Selection
from leveret.analytics.tables.body_rules import rules_of
from leveret.analytics.tables.table_query import query_of
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.readers.reader_file import matches
from leveret.storage.snapshots.snapshot import SnapshotError

#: Exit statuses: the statement is wrong or may not be run, and the tables cannot be read.
WRONG_STATEMENT: Final = 2
FAILED: Final = 1
#: Tables of the archive, together with what waits now, begin with this.
ARCHIVED: Final = "archived_"
#: Tables whose rows are of queues and exchanges. A new table has to be put here, or its rows have to be guarded.
_OF_QUEUES: Final = ("messages", "delayed", "events", "queues", "segments")
_AUDIT: Final = "audit"
_BATCH_ROWS: Final = 1000
#: Maximum bytes of the rows of a result as JSON, which pages show; those after them are left out.
_JSON_BYTES: Final = 32 << 20
#: What Python and Arrow may need besides what DuckDB takes, in bytes.
_MORE_BYTES: Final = 256 << 20
_THREADS: Final = 2
#: Bodies as text and as JSON, null if they are not; DuckDB's own functions fail then.
_MACROS: Final = (
    "create macro as_text(body) as try(decode(body))",
    "create macro as_json(body) as try_cast(try(decode(body)) as json)",
)


class StatementError(Exception):
    """The statement is wrong, may not be run, or needs too much; the text is for its author."""


@dataclass(frozen=True)
class Request:
    """What to answer.

    Attributes:
        statement: The SQL text.
        data_dir: The data directory.
        archive: Path or URL of the archive; empty for none.
        readable: Names of the queues that may be read, by virtual host; null in place of names for all of it.
        has_audit: Whether there are the tables `audit` and `archived_audit`, which are not of queues.
        form: `json`, `csv` or `parquet`.
        rows: Maximum number of rows.
        memory: Maximum bytes that DuckDB uses.
    """

    statement: str
    data_dir: str
    archive: str
    readable: Mapping[str, list[str] | None]
    has_audit: bool
    form: str
    rows: int
    memory: int


def main() -> int:
    """Answer the request on stdin.

    Returns:
        The exit status: 0 for success, otherwise WRONG_STATEMENT or FAILED with a line on stderr.
    """
    # Stdout has the result alone; what is logged of damaged records and the like goes to the broker's log.
    logging.basicConfig(format="warning: %(message)s")
    request = Request(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        with duckdb.connect(":memory:", config=_configuration(request.memory)) as database:
            _limit_memory(request.memory)
            answer(database, request, sys.stdout.buffer)
    except (StatementError, duckdb.Error) as error:
        return _fail(WRONG_STATEMENT, _one_line(error))
    except (MemoryError, pa.ArrowMemoryError):
        return _fail(WRONG_STATEMENT, _needs_more(request.memory))
    except (AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError, pa.ArrowException) as error:
        return _fail(FAILED, str(error))
    except BrokenPipeError:
        return _fail(FAILED, "the result is not read any more")
    return 0


def answer(database: duckdb.DuckDBPyConnection, request: Request, output: BinaryIO) -> None:
    """Write the result of a statement.

    Raises:
        StatementError, duckdb.Error: The statement is wrong, or may not be run.
        AnalyticsError, DataDirectoryError, SnapshotError, DamagedRecordError: A table cannot be read.
    """
    _check_statement(database, request.statement)
    tables = [_open(name, request) for name in _tables_in(database, request)]
    try:
        for name, table in tables:
            database.register(name, table)
        for macro in _MACROS:
            database.execute(macro)
        database.execute("set lock_configuration = true")
        result = database.sql(request.statement)
        # A statement without a result, which no SELECT is.
        if result is None:
            raise StatementError("the statement has no result")
        columns = [{"name": name, "type": str(kind)} for name, kind in zip(result.columns, result.types, strict=True)]
        reader = result.to_arrow_reader(_BATCH_ROWS)
        _FORMS[request.form](_Rows(reader, request.rows), columns, output)
        output.flush()
    except duckdb.OutOfMemoryException as error:
        raise StatementError(_needs_more(request.memory)) from error
    finally:
        for _, table in tables:
            table.close()


def _check_statement(database: duckdb.DuckDBPyConnection, text: str) -> None:
    statements = database.extract_statements(text)
    if len(statements) != 1:
        raise StatementError(f"write one statement, not {len(statements)}")
    kind = statements[0].type
    if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise StatementError(f"only SELECT can be run here, and this is {kind.name}")


def _tables_in(database: duckdb.DuckDBPyConnection, request: Request) -> Iterator[str]:
    """Yield the tables that a statement names; the others are not opened."""
    of_rules = [OF_RULE + name for name in _rules(request)]
    known = {
        *_OF_QUEUES,
        *of_rules,
        _AUDIT,
        *(ARCHIVED + table for table in [*ARCHIVED_TABLES, *of_rules] if request.archive),
    }
    if not request.has_audit:
        known -= {_AUDIT, ARCHIVED + _AUDIT}
    try:
        named = database.get_table_names(request.statement)
    except duckdb.Error:
        # EXPLAIN, for example.
        named = {name for name in known if name in request.statement.lower()}
    yield from sorted(known & {name.lower() for name in named})


def _rules(request: Request) -> list[str]:
    """Return the names of the rules for bodies, without those of virtual hosts that the user may not enter."""
    return [
        rule.name
        for rule in rules_of(request.data_dir)
        if any(matches(vhost, rule.vhost) for vhost in request.readable)
    ]


def _open(name: str, request: Request) -> tuple[str, LeveretDataset]:
    is_archived = name.startswith(ARCHIVED)
    locations = [request.archive, request.data_dir] if is_archived else [request.data_dir]
    table = name.removeprefix(ARCHIVED)
    rule = table.removeprefix(OF_RULE) if table.startswith(OF_RULE) else None
    given = {} if rule is None else {"bodies": rule}
    query = query_of(locations, table if rule is None else "messages", given)
    options = query.options
    selection = Selection(limits=options.batch_limits)
    # Who may read the audit log may read all of it: its lines are not of queues.
    if options.table != _AUDIT:
        readable = request.readable.items()
        selection.readable = {vhost: None if names is None else frozenset(names) for vhost, names in readable}
    return name, dataset_of(query, selection, reads_ahead=False)


def _configuration(memory: int) -> dict[str, Any]:
    return {
        "enable_external_access": False,
        "autoload_known_extensions": False,
        "autoinstall_known_extensions": False,
        "allow_community_extensions": False,
        "python_enable_replacements": False,
        "allow_persistent_secrets": False,
        # Nothing is written to disk either.
        "temp_directory": "",
        "memory_limit": f"{memory // 1024}KiB",
        "threads": _THREADS,
    }


def _limit_memory(memory: int) -> None:
    """Let allocations beyond the limit fail here, and let others have memory and CPU first."""
    with open("/proc/self/status", encoding="ascii") as file:
        used = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + memory + _MORE_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    os.nice(10)


def _end_with_stdin() -> None:
    """End the process when the broker has ended, or does not want the result any more."""
    # Without the lock of sys.stdin, which the interpreter needs at its end.
    while os.read(0, 4096):
        pass
    os._exit(FAILED)


def _needs_more(memory: int) -> str:
    return f"the statement needs more than {memory >> 20} MiB (sql.memory_limit); select fewer rows or columns"


def _one_line(error: Exception) -> str:
    """Return what is wrong, without DuckDB's drawing of the place."""
    return str(error).partition("\n\n")[0].replace("\n", " ")


def _fail(status: int, text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return status


# -- results -----------------------------------------------------------------------------------------------------------


class _Rows:
    """The rows of a result, up to a limit.

    Attributes:
        schema: Their columns.
        is_cut: Whether there are more, known after the last one.
    """

    def __init__(self, reader: pa.RecordBatchReader, limit: int) -> None:
        self._reader = reader
        self._left = limit
        self.schema = reader.schema
        self.is_cut = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            if batch.num_rows > self._left:
                self.is_cut = True
                batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
            if batch.num_rows:
                yield batch
            if self.is_cut:
                return

    def lists(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row's values, as JSON can say them."""
        for batch in self.batches():
            columns = [[_plain(value) for value in column.to_pylist()] for column in batch.columns]
            yield from zip(*columns, strict=True)


def _write_json(rows: _Rows, columns: list[dict[str, str]], output: BinaryIO) -> None:
    lists = rows.lists()
    # What is wrong with a statement is often found with its first row.
    line = next(lists, None)
    output.write(f'{{"columns":{json.dumps(columns)},"rows":['.encode())
    written, comma = 0, b""
    while line is not None:
        text = json.dumps(line, separators=(",", ":")).encode()
        if written + len(text) > _JSON_BYTES:
            rows.is_cut = True
            break
        output.write(comma + text)
        written, comma = written + len(text), b","
        line = next(lists, None)
    output.write(f'],"truncated":{json.dumps(rows.is_cut)}}}\n'.encode())


def _write_csv(rows: _Rows, columns: list[dict[str, str]], output: BinaryIO) -> None:
    lists = rows.lists()
    line = next(lists, None)
    text = io.TextIOWrapper(output, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([each["name"] for each in columns])
    while line is not None:
        writer.writerow([json.dumps(value) if isinstance(value, dict | list | bool) else value for value in line])
        line = next(lists, None)
    text.detach()


def _write_parquet(rows: _Rows, columns: list[dict[str, str]], output: BinaryIO) -> None:
    try:
        # Before anything is written: not all types can be.
        pq.write_table(rows.schema.empty_table(), io.BytesIO())
    except pa.ArrowNotImplementedError as error:
        raise StatementError(f"the result cannot be written as Parquet: {error}; cast the column to varchar") from error
    batches = rows.batches()
    first = next(batches, None)
    with pq.ParquetWriter(pa.PythonFile(output, "w"), rows.schema) as writer:
        while first is not None:
            writer.write_batch(first)
            first = next(batches, None)


_FORMS: Final[dict[str, Callable[[_Rows, list[dict[str, str]], BinaryIO], None]]] = {
    "json": _write_json,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; bytes as text, or as base64 if they are not UTF-8."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        # The entries of a map are pairs.
        if value and all(isinstance(each, tuple) for each in value):
            return {str(name): _plain(each) for name, each in value}
        return [_plain(each) for each in value]
    return str(value)


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    # Of a statement with a limit DuckDB's threads may still read a table: as the interpreter ends, they would abort the
    # process, and a result that is complete would count as a failure.
    os._exit(ended)
