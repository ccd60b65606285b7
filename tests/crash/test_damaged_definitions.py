"""A database of definitions with every byte flipped and cut at every length: it is whole or it is refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leveret.storage.definitions_database import DefinitionsDamagedError, DefinitionsDatabase, DefinitionsVersionError

DEFINITIONS: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {
    ("vhost", ("/",)): {},
    **{("queue", ("/", f"q{number}")): {"durable": True, "arguments": {"n": number}} for number in range(60)},
    ("exchange", ("/", "näme")): {"type": "topic"},
}


def fill(path: Path) -> None:
    database = DefinitionsDatabase(path)
    for number in range(70):
        database.put("queue", ("/", f"q{number}"), {"durable": False})
        database.commit()
    for (kind, key), value in DEFINITIONS.items():
        database.put(kind, key, value)
    for number in range(60, 70):
        database.delete("queue", ("/", f"q{number}"))
    database.delete("queue", ("/", "never there"))
    database.close()


def contents(path: Path) -> dict[tuple[str, tuple[str, ...]], dict[str, Any]]:
    database = DefinitionsDatabase(path)
    try:
        kinds = ("vhost", "queue", "exchange")
        return {(kind, key): value for kind in kinds for key, value in database.load(kind)}
    finally:
        database.close()


def test_what_is_put_is_found_again(tmp_path: Path) -> None:
    fill(tmp_path / "definitions.sqlite")
    assert contents(tmp_path / "definitions.sqlite") == DEFINITIONS


@pytest.mark.parametrize("part", range(2))
def test_any_flipped_byte(tmp_path: Path, part: int) -> None:
    path = tmp_path / "definitions.sqlite"
    fill(path)
    octets = path.read_bytes()
    refused = 0
    for at in range(part, len(octets), 71):
        flipped = bytearray(octets)
        flipped[at] ^= 1 << at % 8
        refused += is_refused(path, bytes(flipped))
    assert refused > 20


def test_cut_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    fill(path)
    octets = path.read_bytes()
    for length in range(1, len(octets), 197):
        assert is_refused(path, octets[:length]), length


def is_refused(path: Path, octets: bytes) -> bool:
    for name in ("definitions.sqlite-wal", "definitions.sqlite-shm"):
        (path.parent / name).unlink(missing_ok=True)
    path.write_bytes(octets)
    try:
        found = contents(path)
    except DefinitionsDamagedError as error:
        text = str(error)
    else:
        assert found == DEFINITIONS
        return False
    assert "\n" not in text
    assert "definitions.sqlite is damaged" in text
    return True


def test_the_copy_of_the_last_start_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    fill(path)
    assert contents(path) == DEFINITIONS
    path.write_bytes(b"nonsense" * 512)
    with pytest.raises(DefinitionsDamagedError, match=r"rename definitions\.copy\.sqlite"):
        DefinitionsDatabase(path)
    shutil.move(tmp_path / "definitions.copy.sqlite", path)
    assert contents(path) == DEFINITIONS


def test_a_database_without_checksums_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    old = sqlite3.connect(path)
    old.execute(
        "create table definitions (kind text not null, key text not null, value text not null,"
        " primary key (kind, key)) without rowid"
    )
    old.execute("""insert into definitions values ('vhost', '["/"]', '{}')""")
    old.commit()
    old.close()
    for _ in range(2):
        assert contents(path) == {("vhost", ("/",)): {}}


def test_without_a_copy_the_error_says_so(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    path.write_bytes(b"nonsense" * 512)
    with pytest.raises(DefinitionsDamagedError, match="or use another data directory"):
        DefinitionsDatabase(path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    DefinitionsDatabase(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 2")
    with pytest.raises(
        DefinitionsVersionError, match=r"newer version of Leveret \(schema 2, this version supports 1\)"
    ):
        DefinitionsDatabase(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma user_version = 1")
    DefinitionsDatabase(path).close()


def test_an_older_schema_is_kept_as_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "definitions.sqlite"
    database = DefinitionsDatabase(path)
    database.put("vhost", ("/",), {"a": 1})
    database.close()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("pragma user_version = 0")
    for _ in range(2):
        database = DefinitionsDatabase(path)
        assert list(database.load("vhost")) == [(("/",), {"a": 1})]
        database.close()
    with closing(sqlite3.connect(tmp_path / "definitions.schema-0.sqlite")) as raw:
        assert raw.execute("pragma user_version").fetchone() == (0,)
        assert raw.execute("select count(*) from definitions").fetchone() == (1,)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("pragma user_version").fetchone() == (1,)


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "definitions.sqlite"
    database = DefinitionsDatabase(path)
    database.put("vhost", ("/",), {})
    database.close()

    def drop(raw: sqlite3.Connection) -> None:
        raw.execute("delete from definitions")

    def fail(raw: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as newer:
        newer.setattr("leveret.storage.definitions_database._STEPS", (drop, drop, fail))
        newer.setattr("leveret.storage.definitions_database._SCHEMA_VERSION", 3)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            DefinitionsDatabase(path)
    database = DefinitionsDatabase(path)
    assert list(database.load("vhost")) == [(("/",), {})]
    database.close()
