"""What has become of published rows: files of those that were not taken, and counts for the session."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from leveret.analytics.data_files import file_system

#: Rows, and bytes of them, that are collected before they are written.
_ROWS: Final = 10_000
_BYTES: Final = 8 << 20
#: Readers leave out files whose names begin like this.
_HIDDEN: Final = "."
#: Names of the columns that are added.
KIND: Final = "failure"
REASON: Final = "failure_reason"


class FailedRows:
    """The rows of one task that were not taken. Its file is visible after publish_file().

    Args:
        location: Path or URI of the directory; None to write nothing.
    """

    def __init__(self, location: str | None) -> None:
        self._location = location
        #: Each row as a batch, what became of it, and the reason.
        self._rows: list[tuple[pa.RecordBatch, str, str]] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._sink: Any = None
        self._name = ""

    def add(self, batch: pa.RecordBatch, row: int, kind: str, reason: str) -> None:
        """Add a row.

        Args:
            kind: `refused`, `unroutable` or `invalid`.
        """
        if self._location is not None:
            # A copy: a slice would keep the whole batch.
            copy = batch.take(pa.array([row], pa.int64()))
            self._rows.append((copy, kind, reason))
            self._bytes += copy.nbytes
            if len(self._rows) >= _ROWS or self._bytes >= _BYTES:
                self._write()

    def close(self) -> str:
        """Write what is left; return the name of the file, or "" if there is none."""
        if self._rows:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._sink.close()
        return self._name

    def discard(self) -> None:
        """Remove the file: the task has failed."""
        self._rows.clear()
        name = self.close()
        if name and self._location is not None:
            remove_file(self._location, name)

    def _write(self) -> None:
        assert self._location is not None
        table = pa.Table.from_batches([copy for copy, _, _ in self._rows]).combine_chunks()
        table = table.append_column(KIND, pa.array([kind for _, kind, _ in self._rows], pa.string()))
        table = table.append_column(REASON, pa.array([reason for _, _, reason in self._rows], pa.string()))
        self._rows.clear()
        self._bytes = 0
        if self._writer is None:
            system, path = file_system(self._location)
            system.create_dir(path, recursive=True)
            self._name = f"part-{uuid.uuid4().hex}.parquet"
            self._sink = system.open_output_stream(f"{path}/{_HIDDEN}{self._name}")
            self._writer = pq.ParquetWriter(self._sink, table.schema)
        self._writer.write_table(table)


def publish_file(location: str, name: str) -> None:
    """Give a file its visible name."""
    system, path = file_system(location)
    system.move(f"{path}/{_HIDDEN}{name}", f"{path}/{name}")


def remove_file(location: str, name: str) -> None:
    """Remove a file that was not made visible."""
    system, path = file_system(location)
    hidden = f"{path}/{_HIDDEN}{name}"
    if system.get_file_info(hidden).type == fs.FileType.File:
        system.delete_file(hidden)


#: Directory of the notes of sinks, in that of a session.
NOTES: Final = "sink"
_SUM: Final = "written.json"


class Written(NamedTuple):
    """What the queries of a session have published.

    Attributes:
        rows: Rows that they had; those of a query that failed because of rows that were not taken count, too.
        refused: Of these, rows that a queue has refused.
        unroutable: Rows for which no queue was bound.
        invalid: Rows that do not make a message: a value does not fit into its property or header.
        warnings: Why rows may have been published more than once.
    """

    rows: int = 0
    refused: int = 0
    unroutable: int = 0
    invalid: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def confirmed(self) -> int:
        """Rows that were confirmed; an exchange that drops a duplicate confirms it, too."""
        return self.rows - self.refused - self.unroutable - self.invalid


def add_written(session: str, rows: int, failures: Mapping[str, int], warnings: Iterable[str]) -> None:
    """Add what a query, or a batch of a streaming query, has published.

    Args:
        warnings: Why rows may have been published more than once.
    """
    if not session:
        return
    os.makedirs(os.path.join(session, NOTES), exist_ok=True)
    lock = os.open(os.path.join(session, NOTES), os.O_RDONLY)
    try:
        # Queries that run at the same time add in processes of their own.
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_written(session)
        after = Written(
            before.rows + rows,
            before.refused + failures.get("refused", 0),
            before.unroutable + failures.get("unroutable", 0),
            before.invalid + failures.get("invalid", 0),
            tuple(dict.fromkeys([*before.warnings, *warnings])),
        )
        save_note(session, _SUM, after._asdict())
    finally:
        os.close(lock)


def read_written(session: str) -> Written:
    """Return what has been added in a session."""
    found = load_note(session, _SUM)
    return Written() if found is None else Written(**{**found, "warnings": tuple(found["warnings"])})


def load_note(session: str, name: str) -> Any:
    """Return the value of a note of a session; None without a note, or without a session."""
    if not session:
        return None
    try:
        with open(os.path.join(session, NOTES, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def save_note(session: str, name: str, value: object) -> None:
    """Save a note of a session as JSON; who reads it sees the old one or the new one."""
    if session:
        path = os.path.join(session, NOTES, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{uuid4().hex}", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(file.name, path)
