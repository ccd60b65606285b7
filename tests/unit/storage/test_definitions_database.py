from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from leveret.storage.definitions_database import DefinitionsDamagedError, DefinitionsDatabase, Row


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """There are hashes of passwords in it, in its copy and in what SQLite writes beside it."""
    umask = os.umask(0o022)
    try:
        database = DefinitionsDatabase(tmp_path / "definitions.sqlite")
        database.put("user", ("guest",), {"password_hash": "x"})
        database.commit()
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(umask)
    assert "definitions.copy.sqlite" in modes
    assert set(modes.values()) == {0o600}, modes


def test_its_copy_is_on_the_disk_before_it_takes_the_place_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    DefinitionsDatabase(tmp_path / "definitions.sqlite").close()
    copy = (tmp_path / "definitions.copy.sqlite").stat().st_ino
    assert synced[-2:] == [copy, tmp_path.stat().st_ino]


class Failing:
    """A connection that fails once, at a statement."""

    def __init__(self, connection: sqlite3.Connection, statement: str, code: int) -> None:
        self._connection = connection
        self._statement = statement
        self._code = code
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement, or fail."""
        if statement == self._statement and not self.failed:
            self.failed = True
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *arguments)


def names(database: DefinitionsDatabase) -> list[str]:
    return [name for (name,), _ in database.load("user")]


@pytest.mark.parametrize("statement", ["commit", "update summary set rows = rows + ?, sum = sum + ?"])
def test_a_failed_commit_is_done_anew_on_another_connection(tmp_path: Path, statement: str) -> None:
    """The system may say of a second sync that all is well, though the first has lost what it was for."""
    path = tmp_path / "definitions.sqlite"
    database = DefinitionsDatabase(path)
    database.put("user", ("a",), {})
    database.commit()
    before = database._database
    database._database = cast("sqlite3.Connection", Failing(before, statement, sqlite3.SQLITE_IOERR))
    database.put("user", ("b",), {})
    with pytest.raises(sqlite3.OperationalError):
        database.commit()
    assert database.changes
    checkpoints: list[int] = []
    connect = database._connect

    def reconnect() -> sqlite3.Connection:
        connection = connect()
        connection.set_trace_callback(lambda text: checkpoints.append(1) if "wal_checkpoint" in text else None)
        return connection

    database._connect = reconnect  # type: ignore[method-assign]
    database.commit()
    assert database._database is not before
    with pytest.raises(sqlite3.ProgrammingError):
        before.execute("select 1")
    assert checkpoints, "what is in the log is written once more, to another place"
    assert names(database) == ["a", "b"]
    database.close()
    again = DefinitionsDatabase(path)
    assert names(again) == ["a", "b"]
    again.close()


def test_a_file_that_is_damaged_after_a_failure_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    database = DefinitionsDatabase(path)
    database.put("user", ("a",), {})
    database.commit()
    database._database = cast("sqlite3.Connection", Failing(database._database, "commit", sqlite3.SQLITE_IOERR))
    database.put("user", ("b",), {})
    with pytest.raises(sqlite3.OperationalError):
        database.commit()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("delete from definitions")
    with pytest.raises(DefinitionsDamagedError, match="definitions are missing"):
        database.commit()
    database._database.close()


def test_a_locked_database_is_tried_again_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    database = DefinitionsDatabase(path)
    database.put("user", ("a",), {})
    connection = database._database
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            database.commit()
        other.execute("rollback")
    database.commit()
    assert database._database is connection
    assert names(database) == ["a"]
    database.close()


def test_changes_that_are_put_back_do_not_replace_newer_ones(tmp_path: Path) -> None:
    database = DefinitionsDatabase(tmp_path / "definitions.sqlite")
    database.put("user", ("a",), {"x": 1})
    database.put("user", ("b",), {})
    taken = database.take()
    assert not database.changes
    database.delete("user", ("b",))
    database.put_back(taken)
    database.commit()
    assert names(database) == ["a"]
    database.close()


@pytest.mark.parametrize(("key", "value"), [("{}", "{}"), ('["a"]', "[]"), ("[1]", "{}"), ('["a"', "{}")])
def test_a_row_that_is_none(key: str, value: str) -> None:
    with pytest.raises(ValueError):
        Row("user", key, value).read()
