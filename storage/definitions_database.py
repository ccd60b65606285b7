"""Definitions (all persistent state except messages) in one SQLite database.

Changes are collected and committed together once per turn of the event loop, before clients get their replies.
SQLite runs in WAL mode with synchronous=FULL: committed changes survive a power failure.

SQLite has no checksums, so each row has a CRC-32, and a summary has the number of rows and the sum of their CRCs. A
damaged database is refused. It is not replaced by the copy made at each start, because later declarations would be
lost silently; the error message says how to use the copy.
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

#: Identifies a definition among those of its kind, for example virtual host and name.
Key: TypeAlias = tuple[str, ...]

#: New values by kind and key, as stored; None removes a definition.
Changes: TypeAlias = dict[tuple[str, str], str | None]

#: Seconds to wait for another process that has locked the database.
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
    """The database is damaged; the message says why and what to do, in one line."""


class DefinitionsVersionError(Exception):
    """The database was written by a newer version; the message says what to do, in one line."""


class Row(NamedTuple):
    """A definition as stored.

    Args:
        kind: As in Journal.put().
        key: JSON.
        value: JSON.
    """

    kind: str
    key: str
    value: str

    def read_key(self) -> Key:
        """Return the decoded key.

        Raises:
            ValueError: It is not a list of strings.
        """
        key = json.loads(self.key)
        if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
            raise ValueError("its key is not a list of strings")
        return tuple(key)

    def read(self) -> tuple[Key, dict[str, Any]]:
        """Return the decoded key and value.

        Raises:
            ValueError: They cannot be decoded.
        """
        value = json.loads(self.value)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        return self.read_key(), value


class Journal(Protocol):
    """Receives changes of definitions."""

    def put(self, kind: str, key: Key, value: Mapping[str, object]) -> None:
        """Write a definition; replace the one with the same key.

        Args:
            kind: For example ``queue``.
            key: Identifies it among those of its kind.
            value: Data that JSON can represent.
        """

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition if it exists."""


#: Subtracts an existing row from the summary.
_SUBTRACT_ROW: Final = """
update summary set rows = rows - 1, sum = sum - found.crc
from (select crc from definitions where kind = ? and key = ?) as found
"""
#: SQLite error codes that mean damage, rather than limits or disk errors.
_DAMAGE: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}
)


#: Minimum size of a database in bytes.
_MIN_BYTES: Final = 512


class DefinitionsDatabase:
    """The definitions of one data directory. Implements Journal.

    Args:
        path: The database file; created if missing.
        is_temporary: Whether it is removed before a loss of power could matter: nothing is synced or copied.
    Raises:
        DefinitionsDamagedError: It is damaged.
        DefinitionsVersionError: It was written by a newer version.
        sqlite3.Error: It cannot be opened.
    """

    def __init__(self, path: Path, is_temporary: bool = False) -> None:
        self._path = path
        self._is_temporary = is_temporary
        #: Called with changes that are durable, in the thread that has written them.
        self.on_written: Callable[[Changes], None] | None = None
        self.changes: Changes = {}
        #: A write has failed; see _reopen().
        self._needs_reopen = False
        size = path.stat().st_size if path.exists() else 0
        if 0 < size < _MIN_BYTES or (not size and _copy_of(path).exists()):
            # SQLite would treat it as a new database.
            raise DefinitionsDamagedError(self._damage_message("it is empty"))
        _create_private(path)
        try:
            self._database = self._connect()
        except (sqlite3.Error, ValueError) as error:
            if _is_damage(error):
                raise DefinitionsDamagedError(self._damage_message(error)) from error
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
                raise DefinitionsDamagedError(self._damage_message(error)) from error
            raise
        if not is_temporary:
            self._copy()

    def put(self, kind: str, key: Key, value: Mapping[str, object]) -> None:
        """Write a definition with the next commit."""
        self.changes[kind, json.dumps(key)] = json.dumps(value)

    def delete(self, kind: str, key: Key) -> None:
        """Remove a definition with the next commit."""
        self.changes[kind, json.dumps(key)] = None

    def take(self) -> Changes:
        """Return the collected changes. The caller must write them or put them back."""
        taken, self.changes = self.changes, {}
        return taken

    def put_back(self, changes: Changes) -> None:
        """Put back changes that could not be written; newer changes take precedence."""
        self.changes = changes | self.changes

    def commit(self) -> None:
        """Make all changes since the last commit durable.

        Raises:
            sqlite3.Error: They could not be written; they are kept for the next commit.
        """
        changes = self.take()
        try:
            self.write(changes)
        except BaseException:
            self.put_back(changes)
            raise

    def write(self, changes: Changes) -> None:
        """Make changes durable. It may be called in another thread, one call at a time.

        Args:
            changes: The result of take().
        Raises:
            sqlite3.Error: They could not be written.
            DefinitionsDamagedError: An earlier write failure has damaged the file.
        """
        if not changes:
            return
        if self._needs_reopen:
            self._reopen()
        put = [
            (kind, key, value, _crc(kind, key, value)) for (kind, key), value in changes.items() if value is not None
        ]
        replaced = [*changes]
        self._database.execute("begin immediate")
        try:
            self._database.executemany(_SUBTRACT_ROW, replaced)
            self._database.executemany("delete from definitions where kind = ? and key = ?", replaced)
            self._database.executemany("insert into definitions values (?, ?, ?, ?)", put)
            count = len(put), sum(crc for *_, crc in put)
            self._database.execute("update summary set rows = rows + ?, sum = sum + ?", count)
            self._database.execute("commit")
        except sqlite3.Error:
            # After a failed write or sync the contents of the disk are unknown.
            self._needs_reopen = True
            # SQLite may have rolled back already if the disk is full.
            if self._database.in_transaction:
                self._database.execute("rollback")
            raise
        if self.on_written is not None:
            self.on_written(changes)

    def _reopen(self) -> None:
        """Reopen the database after a failed write, checkpoint the WAL and check for damage.

        The kernel may consider pages clean whose write failed, so a second sync alone would prove nothing.
        """
        self._database.close()
        self._database = self._connect()
        busy, *_ = self._database.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise sqlite3.OperationalError("database is locked")
        self._check()
        self._needs_reopen = False

    def _connect(self) -> sqlite3.Connection:
        # Used by one thread at a time.
        database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        # Text that cannot be decoded fails its checksum.
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        try:
            database.execute(f"pragma journal_mode = {'memory' if self._is_temporary else 'wal'}")
            database.execute(f"pragma synchronous = {'off' if self._is_temporary else 'full'}")
        except BaseException:
            database.close()
            raise
        return database

    def load(self, kind: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Return all committed definitions of a kind in order of key.

        Raises:
            ValueError: One cannot be decoded.
        """
        return (row.read() for row in self.rows(kind))

    def rows(self, kind: str) -> Iterator[Row]:
        """Return the undecoded rows of a kind in order of key."""
        rows = self._database.execute("select key, value from definitions where kind = ? order by key", (kind,))
        return (Row(kind, key, value) for key, value in rows.fetchall())

    def is_empty(self) -> bool:
        """Return whether there are no definitions."""
        return self._database.execute("select 1 from definitions limit 1").fetchone() is None

    def close(self) -> None:
        """Commit changes and close the database."""
        self.commit()
        self._database.close()

    def abandon(self) -> None:
        """Close the database without the changes that are not committed, as the death of the process does."""
        self._database.close()

    def _migrate(self) -> None:
        """Migrate an older schema in one transaction, after a backup of the old database.

        Raises:
            DefinitionsVersionError: The schema is newer.
            sqlite3.Error: The migration failed; nothing has changed.
        """
        (version,) = self._database.execute("pragma user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise DefinitionsVersionError(
                f"{self._path} was written by a newer version of Leveret (schema {version}, this version supports"
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
        """Back up the database before a migration, unless a backup of this schema exists."""
        backup = self._path.with_suffix(f".schema-{version}{self._path.suffix}")
        if not backup.exists():
            draft = backup.with_suffix(".tmp")
            draft.unlink(missing_ok=True)
            _create_private(draft)
            self._database.execute("vacuum into ?", (str(draft),))
            _put_in_place(draft, backup)

    def _check(self) -> None:
        """Read the whole database and verify it.

        Raises:
            DefinitionsDamagedError: It is damaged.
            sqlite3.Error: It is damaged or cannot be read.
        """
        (found,) = self._database.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise DefinitionsDamagedError(str(found).splitlines()[-1])
        count = total = 0
        for kind, key, value, crc in self._database.execute("select kind, key, value, crc from definitions"):
            if crc != _crc(kind, key, value):
                raise DefinitionsDamagedError(f"{kind} {key} does not match its checksum")
            count += 1
            total += crc
        if self._database.execute("select rows, sum from summary").fetchone() != (count, total):
            raise DefinitionsDamagedError("definitions are missing")

    def _copy(self) -> None:
        """Replace the copy with one of the verified database."""
        draft = self._path.with_suffix(".copy.tmp")
        try:
            draft.unlink(missing_ok=True)
            _create_private(draft)
            self._database.execute("vacuum into ?", (str(draft),))
            _put_in_place(draft, _copy_of(self._path))
        except (OSError, sqlite3.Error):
            # Usually no space. The previous copy stays.
            draft.unlink(missing_ok=True)

    def _damage_message(self, error: object) -> str:
        """Return a one-line message: what is wrong and what to do."""
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
    """Migrate to schema 1: add checksums. The first databases had no version either."""
    columns = [name for _, name, *_ in database.execute("pragma table_info(definitions)")]
    if columns and "crc" not in columns:
        database.execute("alter table definitions add column crc integer not null default 0")
        database.execute("update definitions set crc = crc_of(kind, key, value)")


#: Migrations: the one at index N migrates schema N to N + 1.
_STEPS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (_add_checksums,)
_SCHEMA_VERSION: Final = len(_STEPS)


def _create_private(path: Path) -> None:
    """Create an empty file with mode 0600: the database contains password hashes. SQLite keeps the mode."""
    path.touch(mode=0o600)


def _put_in_place(draft: Path, path: Path) -> None:
    """Sync a file written by SQLite and move it to its final path."""
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
    """Return whether an error means that the file's contents are damaged."""
    if not isinstance(error, sqlite3.Error):
        return True
    try:
        code = error.sqlite_errorcode
    except AttributeError:
        # The module sqlite3 raised it, not SQLite.
        return False
    return (code & 0xFF) in _DAMAGE
