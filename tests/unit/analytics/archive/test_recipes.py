"""The programs and queries of docs/archive.md that take an archive further."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import leveret
from leveret.analytics.archive import manifests, upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive
from tests.support.documentation import block, blocks

KEY = ("broker", "queue_id", "store_priority", "seq")


@pytest.fixture
def every_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each third manifest names all files."""
    monkeypatch.setattr(manifests, "COMPLETE_STEP", 3)


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectoryBuilder]:
    """Archived: 40 messages in each of two queues, of which 10 have left. The present directory has the archive."""
    monkeypatch.chdir(tmp_path)
    builder = DirectoryBuilder(tmp_path / "leveret-data")
    publish(builder)
    for queue in list(builder.engine.queues.values()):
        builder.settle(builder.store(queue), 10)
    builder.tick()
    archive(builder, ArchiveFiles("archive"), batch=30)
    yield builder
    builder.close()


def publish(builder: DirectoryBuilder) -> None:
    for name, vhost in (("a", "/"), ("b/=", "other")):
        store = builder.store(builder.queue(name, vhost))
        builder.publish(store, [b"%s %d" % (name.encode(), at) for at in range(40)], headers={"n": 1})
    builder.tick()


def run(program: str) -> None:
    # All messages of these tests are older.
    exec(program.replace("2026-01-31", "2023-01-31"), {})


def rows(found: Any) -> list[dict[str, Any]]:
    """Return rows in the order of their keys; maps as dictionaries."""
    listed = [{**row, "headers": dict(row["headers"])} for row in found.to_pylist()]
    return sorted(listed, key=lambda row: [row[name] for name in KEY])


def test_messages_are_merged_into_a_delta_table(builder: DirectoryBuilder) -> None:
    program = block("python", "from deltalake import")
    for expected in (80, 160):
        for _ in range(2):
            run(program)
            merged = rows(DeltaTable("delta/messages").to_pyarrow_table())
            assert len(merged) == expected
            assert merged == rows(leveret.scan("archive").read_all())
        publish(builder)
        archive(builder, ArchiveFiles("archive"))


def test_messages_are_merged_into_an_iceberg_table(builder: DirectoryBuilder, tmp_path: Path) -> None:
    program = block("python", "from pyiceberg.catalog.sql")
    for expected in (80, 160):
        for _ in range(2):
            run(program)
            catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/iceberg/catalog.db")
            merged = rows(catalog.load_table("leveret.messages").scan().to_arrow())
            catalog.close()
            assert len(merged) == expected
            assert merged == rows(leveret.scan("archive").read_all())
        publish(builder)
        archive(builder, ArchiveFiles("archive"))


def test_recipes_of_tables_take_200_000_rows(builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, as a program that is run again and again does: no row is added twice, and those that are new are added."""
    row = leveret.scan("archive", limit=1).read_all()
    column = row.schema.get_field_index("seq")

    for count in (200_000, 200_001):
        many = row.take(pa.array(np.zeros(count, np.int64)))
        many = many.set_column(column, "seq", pa.array(np.arange(count)))
        monkeypatch.setattr(leveret, "scan", lambda *_, found=many, **__: found.to_reader())
        for text in ("from pyiceberg.catalog.sql", "from deltalake import"):
            run(block("python", text))
    assert DeltaTable("delta/messages").to_pyarrow_dataset().count_rows() == 200_001
    catalog = SqlCatalog("local", uri="sqlite:///iceberg/catalog.db")
    assert catalog.load_table("leveret.messages").scan().count() == 200_001
    catalog.close()


def test_messages_are_joined_with_their_events_and_a_day_is_exported_again(builder: DirectoryBuilder) -> None:
    found: dict[str, Any] = {}
    exec(block("python", "left join events"), found)
    fates = found["fates"].project("queue, seq, kind").fetchall()
    assert [(seq, kind) for queue, seq, kind in fates if queue == "a"] == [
        (seq, "ack" if seq <= 10 else None) for seq in range(1, 41)
    ]
    for name in ("messages", "events"):
        found[name].close()
    for _ in range(2):
        exec(block("python", "delete_matching").replace("2026-01-31", "2023-11-14"), {})
    again = ds.dataset("again", partitioning="hive").to_table()
    assert again.num_rows == leveret.scan("archive").read_all().num_rows == 80


def test_a_dashboard_reads_the_files_that_the_manifests_name(
    builder: DirectoryBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while small files are put together, and their contents are in the old files and in the new ones."""
    monkeypatch.setattr(upkeep, "_MANY", 2)
    publish(builder)
    archive(builder, ArchiveFiles("archive"), batch=7)
    for path in list(Path("archive/superseded").glob("*/*/*")):
        path.rename(str(path).replace("superseded/", ""))
    removed = [path for path in Path("archive/messages").glob("*/*") if path.suffix == ".parquet"]
    views, arrived, lost = blocks("sql", "docs/archive.md")
    with duckdb.connect() as database:
        database.execute(views)
        assert len(removed) > len(database.execute("from files where \"table\" = 'messages'").fetchall())
        counts = database.execute(f"select queue, sum(messages) from ({arrived.strip().rstrip(';')}) group by all")
        assert sorted(counts.fetchall()) == [("a", 80), ("b/=", 80)]
        # All were acknowledged.
        assert database.execute(lost).fetchall() == []
        left = database.execute("select broker, queue, sum(messages) from events group by all order by all")
        assert left.fetchall() == [("one", "a", 10), ("one", "b/=", 10)]


def test_a_dashboard_of_an_archive_with_complete_manifests(every_third: None, builder: DirectoryBuilder) -> None:
    for _ in range(3):
        publish(builder)
        archive(builder, ArchiveFiles("archive"), batch=30)
    views = blocks("sql", "docs/archive.md")[0].replace("% 50", "% 3")
    with duckdb.connect() as database:
        database.execute(views)
        key = ", ".join(KEY)
        counted = database.execute(f"select count(*), count(distinct ({key})) from messages")
        assert counted.fetchall() == [(320, 320)]
