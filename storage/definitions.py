"""Definitions on disk: what there is besides messages, in one SQLite database.

Changes are collected and committed together, once per turn of the event loop and before anyone is told that
they are done. SQLite runs in WAL mode with synchronous=FULL: what is committed survives a loss of power.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

#: What identifies a definition of its kind, for example virtual host and name.
Key: TypeAlias = tuple[str, ...]

_SCHEMA: Final = """
create table if not exists definitions (
    kind text not null,
    key text not null,
    value text not null,
    primary key (kind, key)
) without rowid
"""


class Journal(Protocol):
    """Where changes of definitions are written."""

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write a definition, in place of the one with its key.

        Args:
            kind: For example ``queue``.
            key: Identifies it among those of its kind.
            value: What JSON can hold.
        """

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition, if it is there."""


class NoJournal:
    """A journal that forgets: for brokers that keep nothing, and while definitions are loaded."""

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write nothing."""

    def delete(self, kind: str, key: Key) -> None:
        """Remove nothing."""


class DefinitionsDatabase:
    """The definitions of one data directory. It implements Journal.

    Args:
        path: The database file; made if it is not there.
    Raises:
        sqlite3.Error: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._changes: dict[tuple[str, str], str | None] = {}
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        self._database.execute(_SCHEMA)

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write a definition with the next commit."""
        self._changes[kind, json.dumps(key)] = json.dumps(value)

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition with the next commit."""
        self._changes[kind, json.dumps(key)] = None

    def commit(self) -> None:
        """Make all changes since the last commit durable.

        Raises:
            sqlite3.Error: They cannot be written; they are kept for the next commit.
        """
        if not self._changes:
            return
        put = [(kind, key, value) for (kind, key), value in self._changes.items() if value is not None]
        deleted = [change for change, value in self._changes.items() if value is None]
        self._database.execute("begin immediate")
        try:
            self._database.executemany("delete from definitions where kind = ? and key = ?", deleted)
            self._database.executemany("insert or replace into definitions values (?, ?, ?)", put)
            self._database.execute("commit")
        except sqlite3.Error:
            self._database.execute("rollback")
            raise
        self._changes.clear()

    def load(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """All committed definitions of a kind, by key."""
        rows = self._database.execute("select key, value from definitions where kind = ? order by key", (kind,))
        for key, value in rows.fetchall():
            yield tuple(json.loads(key)), json.loads(value)

    def is_empty(self) -> bool:
        """Whether nothing has ever been committed."""
        return self._database.execute("select 1 from definitions limit 1").fetchone() is None

    def close(self) -> None:
        """Commit and close."""
        self.commit()
        self._database.close()
