"""Definitions on disk: what there is besides messages, in one SQLite database.

Changes are collected and committed together, once per turn of the event loop and before anyone is told that
they are done. SQLite runs in WAL mode with synchronous=FULL: what is committed survives a loss of power.

SQLite does not checksum what it stores, so each row has a CRC-32 and the number of rows and the sum of their CRCs are
kept beside them: a database that is damaged is not believed. It is not replaced by a copy either, as then what was
declared since would be gone without a word; a copy is made at each start, and the error says how to use it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from zlib import crc32

#: What identifies a definition of its kind, for example virtual host and name.
Key: TypeAlias = tuple[str, ...]

#: New values by kind and key, both as they are stored; None removes a definition.
Changes: TypeAlias = dict[tuple[str, str], str | None]

#: How long to wait for another process that has the database locked, in seconds.
_BUSY_SECONDS: Final = 1.0

_SCHEMA: Final = """
create table if not exists definitions (
    kind text not null,
    key text not null,
    value text not null,
    crc integer not null,
    primary key (kind, key)
) without rowid;
create table if not exists summary (id integer primary key check (id = 0), rows integer not null, sum integer not null);
insert or ignore into summary select 0, count(*), coalesce(sum(crc), 0) from definitions;
"""


class DefinitionsDamagedError(Exception):
    """The database cannot be believed; the text says why and what to do, in one line."""


class DefinitionsVersionError(Exception):
    """A newer version has written the database; the text says what to do, in one line."""


class Row(NamedTuple):
    """A definition as it is stored.

    Args:
        kind: As in Journal.put().
        key: JSON.
        value: JSON.
    """

    kind: str
    key: str
    value: str

    def read_key(self) -> Key:
        """What identifies it.

        Raises:
            ValueError: It is no list of strings.
        """
        key = json.loads(self.key)
        if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
            raise ValueError("its key is no list of strings")
        return tuple(key)

    def read(self) -> tuple[Key, dict[str, Any]]:
        """What identifies it, and what it says.

        Raises:
            ValueError: It cannot be read.
        """
        value = json.loads(self.value)
        if not isinstance(value, dict):
            raise ValueError("it is no JSON object")
        return self.read_key(), value


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


#: Takes the row of a kind and key out of the summary, if there is one.
_UNCOUNT: Final = """
update summary set rows = rows - 1, sum = sum - found.crc
from (select crc from definitions where kind = ? and key = ?) as found
"""
#: What SQLite says when it is not its own limits, or the disk, that it complains of.
_DAMAGE: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}
)


#: Bytes that a database has at least.
_SMALLEST: Final = 512


class DefinitionsDatabase:
    """The definitions of one data directory. It implements Journal.

    Args:
        path: The database file; made if it is not there.
    Raises:
        DefinitionsDamagedError: It is damaged.
        DefinitionsVersionError: A newer version has written it.
        sqlite3.Error: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changes: Changes = {}
        #: A write has failed: see _reopen().
        self._is_doubtful = False
        size = path.stat().st_size if path.exists() else 0
        if 0 < size < _SMALLEST or (not size and _copy_of(path).exists()):
            # SQLite would take it for a new one.
            raise DefinitionsDamagedError(self._advice("nothing is left of it"))
        _make(path)
        try:
            self._database = self._connect()
        except (sqlite3.Error, ValueError) as error:
            if _is_damage(error):
                raise DefinitionsDamagedError(self._advice(error)) from error
            raise
        try:
            self._migrate()
            self._database.executescript(_SCHEMA)
            self._check()
        except (sqlite3.Error, DefinitionsDamagedError, DefinitionsVersionError, ValueError) as error:
            self._database.close()
            if isinstance(error, DefinitionsVersionError):
                raise
            if _is_damage(error):
                raise DefinitionsDamagedError(self._advice(error)) from error
            raise
        self._copy()

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        """Write a definition with the next commit."""
        self._changes[kind, json.dumps(key)] = json.dumps(value)

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition with the next commit."""
        self._changes[kind, json.dumps(key)] = None

    @property
    def has_changes(self) -> bool:
        """Whether something has changed since the last take()."""
        return bool(self._changes)

    def take(self) -> Changes:
        """What has changed since the last time, to be written; whoever takes it writes it or puts it back."""
        taken, self._changes = self._changes, {}
        return taken

    def put_back(self, changes: Changes) -> None:
        """Have changes taken once more that could not be written; those made since replace them."""
        self._changes = changes | self._changes

    def commit(self) -> None:
        """Make all changes since the last commit durable.

        Raises:
            sqlite3.Error: They cannot be written; they are kept for the next commit.
        """
        changes = self.take()
        try:
            self.write(changes)
        except BaseException:
            self.put_back(changes)
            raise

    def write(self, changes: Changes) -> None:
        """Make changes durable. It may run in another thread than all else, one at a time.

        Args:
            changes: What take() has returned.
        Raises:
            sqlite3.Error: They cannot be written.
            DefinitionsDamagedError: What is in the file after an earlier failure is not what was written.
        """
        if not changes:
            return
        if self._is_doubtful:
            self._reopen()
        put = [
            (kind, key, value, _crc(kind, key, value)) for (kind, key), value in changes.items() if value is not None
        ]
        replaced = [*changes]
        self._database.execute("begin immediate")
        try:
            self._database.executemany(_UNCOUNT, replaced)
            self._database.executemany("delete from definitions where kind = ? and key = ?", replaced)
            self._database.executemany("insert into definitions values (?, ?, ?, ?)", put)
            count = len(put), sum(crc for *_, crc in put)
            self._database.execute("update summary set rows = rows + ?, sum = sum + ?", count)
            self._database.execute("commit")
        except sqlite3.Error:
            # What a failed write or sync has left on the disk is not known: nothing may be built upon it.
            self._is_doubtful = True
            # Where there is no room, SQLite may have done that by itself.
            if self._database.in_transaction:
                self._database.execute("rollback")
            raise

    def _reopen(self) -> None:
        """Have all that is in the file written once more after a failure, and look whether it is whole.

        The system may take pages for written whose write has failed, so that a second sync would prove nothing.
        """
        self._database.close()
        self._database = self._connect()
        busy, *_ = self._database.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise sqlite3.OperationalError("database is locked")
        self._check()
        self._is_doubtful = False

    def _connect(self) -> sqlite3.Connection:
        # One thread at a time uses it.
        database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        # What cannot be decoded does not have its checksum either.
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = full")
        except BaseException:
            database.close()
            raise
        return database

    def load(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Return all committed definitions of a kind, by key.

        Raises:
            ValueError: One cannot be read.
        """
        return (row.read() for row in self.rows(kind))

    def rows(self, kind: str) -> Iterator[Row]:
        """Return all committed definitions of a kind by key, to be read one by one."""
        rows = self._database.execute("select key, value from definitions where kind = ? order by key", (kind,))
        return (Row(kind, key, value) for key, value in rows.fetchall())

    def is_empty(self) -> bool:
        """Return whether nothing has ever been committed."""
        return self._database.execute("select 1 from definitions limit 1").fetchone() is None

    def close(self) -> None:
        """Commit and close."""
        self.commit()
        self._database.close()

    def _migrate(self) -> None:
        """Bring an older schema to the current one, in one transaction; a copy of the old database is made first.

        Raises:
            DefinitionsVersionError: It is a newer one.
            sqlite3.Error: It cannot be done; nothing has changed.
        """
        (version,) = self._database.execute("pragma user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise DefinitionsVersionError(
                f"{self._path} was written by a newer version of Leveret (schema {version}, this one knows"
                f" {_SCHEMA_VERSION}); use that version or another data directory"
            )
        is_new = self._database.execute("select 1 from sqlite_schema limit 1").fetchone() is None
        if version == _SCHEMA_VERSION:
            return
        if not is_new:
            self._back_up(version)
        self._database.create_function("crc_of", 3, _crc, deterministic=True)
        self._database.execute("begin immediate")
        try:
            for step in () if is_new else _STEPS[version:]:
                step(self._database)
            self._database.execute(f"pragma user_version = {_SCHEMA_VERSION}")
            self._database.execute("commit")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("rollback")
            raise

    def _back_up(self, version: int) -> None:
        """Copy the database as it is, unless there is such a copy."""
        backup = self._path.with_suffix(f".schema-{version}{self._path.suffix}")
        if not backup.exists():
            draft = backup.with_suffix(".tmp")
            draft.unlink(missing_ok=True)
            _make(draft)
            self._database.execute("vacuum into ?", (str(draft),))
            _put_in_place(draft, backup)

    def _check(self) -> None:
        """Read all of it once.

        Raises:
            DefinitionsDamagedError: Something in it is not as it was written.
            sqlite3.Error: The same, or it cannot be read.
        """
        (found,) = self._database.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise DefinitionsDamagedError(str(found).splitlines()[-1])
        count = total = 0
        for kind, key, value, crc in self._database.execute("select kind, key, value, crc from definitions"):
            if crc != _crc(kind, key, value):
                raise DefinitionsDamagedError(f"{kind} {key} is not as it was written")
            count += 1
            total += crc
        if self._database.execute("select rows, sum from summary").fetchone() != (count, total):
            raise DefinitionsDamagedError("definitions are missing")

    def _copy(self) -> None:
        """Make a copy of what is known to be whole, in place of the one before."""
        draft = self._path.with_suffix(".copy.tmp")
        try:
            draft.unlink(missing_ok=True)
            _make(draft)
            self._database.execute("vacuum into ?", (str(draft),))
            _put_in_place(draft, _copy_of(self._path))
        except (OSError, sqlite3.Error):
            # No room, as a rule. The copy before this one stays.
            draft.unlink(missing_ok=True)

    def _advice(self, error: object) -> str:
        """What is wrong, and what to do, in one line."""
        path, copy = self._path, _copy_of(self._path)
        why = " ".join(str(error).split())
        instead = "use another data directory"
        if copy.exists():
            instead = (
                f"move it and {path.name}-wal away and rename {copy.name}, its copy from the last start, to {path.name}"
                " (queues declared since then are lost with their messages)"
            )
        return f"{path} is damaged ({why}); restore it from a backup, or {instead}"


def _add_checksums(database: sqlite3.Connection) -> None:
    """To schema 1: each row has a checksum. The first databases had no version either."""
    columns = [name for _, name, *_ in database.execute("pragma table_info(definitions)")]
    if columns and "crc" not in columns:
        database.execute("alter table definitions add column crc integer not null default 0")
        database.execute("update definitions set crc = crc_of(kind, key, value)")


#: What brings a database from the schema of its index to the next one.
_STEPS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (_add_checksums,)
_SCHEMA_VERSION: Final = len(_STEPS)


def _make(path: Path) -> None:
    """Make an empty database that nobody else may read: there are hashes of passwords in it. SQLite keeps its mode."""
    path.touch(mode=0o600)


def _put_in_place(draft: Path, path: Path) -> None:
    """Replace a file by another one, which SQLite has made and may not have synced."""
    _sync(draft)
    draft.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_of(path: Path) -> Path:
    return path.with_suffix(".copy" + path.suffix)


def _crc(kind: object, key: object, value: object) -> int:
    return crc32(f"{kind}\0{key}\0{value}".encode("utf-8", "surrogatepass"))


def _is_damage(error: Exception) -> bool:
    """Return whether it is the file's contents that are wrong, and not that it cannot be read now."""
    return not isinstance(error, sqlite3.Error) or (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGE
