"""Notes what a session has published, for `Session.written`: Spark ends queries in processes of their own."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import uuid4

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
        session: Directory of the session; "" for none.
        rows: Rows that it had.
        failures: Rows that were not taken, by kind.
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
    """Return what has been added in a session.

    Args:
        session: Its directory.
    """
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
