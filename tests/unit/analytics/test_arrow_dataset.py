"""`leveret.dataset`: DuckDB, Polars and PyArrow push conditions and columns into it."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.columns import TABLES
from leveret.analytics.data_files import LocalFiles
from leveret.analytics.dataset import dataset_of
from leveret.analytics.errors import OptionError
from leveret.analytics.options import parse_options
from leveret.analytics.tables import message_batches
from leveret.analytics.tables.table_query import make_query, python_options
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive
from tests.support.documentation import block


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """20 queues in two virtual hosts, each with 5 messages, one a second; 3 have left q0."""
    builder = DirectoryBuilder(tmp_path / "data")
    for number in range(20):
        store = builder.store(builder.queue(f"q{number}", "other" if number % 2 else "/"))
        for each in range(5):
            builder.publish(store, [b'{"n": %d}' % each], headers={"n": each})
            builder.wait(1)
        if not number:
            builder.settle(store, 3)
    builder.tick()
    yield builder
    builder.close()


@pytest.fixture
def opened() -> Iterator[list[str]]:
    found: list[str] = []
    read_all = LocalFiles.read_all

    def read(files: LocalFiles, path: str) -> bytes | None:
        found.append(path)
        return read_all(files, path)

    with mock.patch.object(LocalFiles, "read_all", read):
        yield found


def test_what_a_query_excludes_is_not_opened(builder: DirectoryBuilder, opened: list[str]) -> None:
    messages = leveret.dataset(builder.path)
    # Decoding a column that no query names would fail.
    with mock.patch.object(message_batches, "_header_columns", None), duckdb.connect() as database:
        queries = {
            "queue = 'q3'": 5,
            "queue in ('q3', 'q4')": 10,
            "queue = 'q3' and vhost = 'other'": 5,
            "queue = 'q3' and seq > 3": 2,
            "vhost = '/' and queue < 'q11'": 7,
            "queue like 'q1%'": 55,
        }
        for condition, rows in queries.items():
            opened.clear()
            found = database.sql(f"select count(*), sum(body_bytes) from messages where {condition}").fetchall()
            assert found[0] == (rows, rows * 8), condition
            assert len(opened) <= (20 if "like" in condition else (rows + 4) // 5), condition
        opened.clear()
        assert database.sql("select queue from messages where queue = 'q3' and seq > 5").fetchall() == []
        assert database.sql("select count(*) from messages").fetchall() == [(97,)]
    lazy = pl.scan_pyarrow_dataset(messages)
    opened.clear()
    assert lazy.filter(pl.col("queue") == "q3", pl.col("seq") > 2).select("body").collect().height == 3
    assert len(opened) == 1
    since = datetime.fromtimestamp(START // 1_000_000 + 90, UTC)
    assert messages.to_table(columns=["seq"], filter=pc.field("enqueued_at") >= since).num_rows == 10
    assert messages.to_table() == leveret.scan(builder.path).read_all()
    assert messages.filter(pc.field("queue") == "q4").filter(pc.field("seq") < 3).count_rows() == 2
    assert messages.head(3, columns={"twice": pc.field("seq") * 2}).to_pylist() == [{"twice": n} for n in (8, 10, 2)]
    assert messages.sort_by([("seq", "descending")]).head(1)["seq"].to_pylist() == [5]
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        messages.to_table(filter=pc.field("nothing") == 1)


def test_no_more_is_read_than_is_asked_for(builder: DirectoryBuilder, opened: list[str]) -> None:
    query = make_query(parse_options(python_options(str(builder.path), "messages", {})), None)
    whole = dataset_of(query)
    with closing(dataset_of(query, reads_ahead=False)) as found, closing(whole):
        condition = pc.field("seq") > 3
        reader = found.scanner(columns=["queue", "seq"], filter=condition).to_reader()
        opened.clear()
        first = reader.read_next_batch()
        # PyArrow's threads would go on meanwhile.
        time.sleep(0.2)
        assert len(opened) <= 2
        rows = [*first.to_pylist(), *reader.read_all().to_pylist()]
        assert len(opened) >= 20
        expected = whole.scanner(columns=["queue", "seq"], filter=condition).to_table()
    assert rows == expected.to_pylist()


def test_every_table_shows_the_moment_of_the_call(builder: DirectoryBuilder, opened: list[str]) -> None:
    tables = {table: (leveret.dataset(builder.path, table), leveret.scan(builder.path, table)) for table in TABLES}
    store = next(iter(builder.engine.queues.values())).stores[0]
    builder.publish(store, [b"later"] * 50)
    builder.settle(store, 52)
    builder.tick()
    for found, expected in tables.values():
        whole = expected.read_all()
        assert found.to_table() == whole
        assert found.to_table() == whole
    opened.clear()
    segments = tables["segments"][0].to_table(filter=pc.field("queue") == "q5")
    assert set(segments["queue"].to_pylist()) == {"q5"}
    assert len(opened) <= 1
    lost = tables["events"][0].to_table(filter=pc.field("at") > datetime(2100, 1, 1, tzinfo=UTC))
    assert lost.num_rows == 0
    kept = leveret.dataset(builder.path, queue="q[12]", bodies="json", body_schema="n int")
    odd = kept.to_table(columns=["queue", "value"], filter=pc.field("value", "n") == 4).to_pylist()
    assert odd == [{"queue": queue, "value": {"n": 4}} for queue in ("q1", "q2")]
    del tables, found, expected
    gc.collect()
    assert len(os.listdir(f"{builder.path}/snap")) == 1
    kept.close()
    assert os.listdir(f"{builder.path}/snap") == []
    for options in ({"limit": 3}, {"columns": ["seq"]}, {"queues": "q1"}):
        with pytest.raises(OptionError, match=next(iter(options))):
            leveret.dataset(builder.path, **options)


def test_an_archive_with_a_data_directory(builder: DirectoryBuilder, opened: list[str], tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(url), broker="one")
    builder.publish(next(iter(builder.engine.queues.values())).stores[0], [b"{}"] * 2)
    builder.tick()
    for table in ("messages", "events"):
        found = leveret.dataset([url, builder.path], table)
        assert found.to_table() == leveret.scan([url, builder.path], table).read_all()
    messages = leveret.dataset([url, builder.path])
    opened.clear()
    read: list[Any] = []
    open_file = ArchiveFiles.open

    def opening(files: ArchiveFiles, path: str) -> Any:
        read.append(path)
        return open_file(files, path)

    with mock.patch.object(ArchiveFiles, "open", opening):
        assert messages.to_table(filter=pc.field("queue") == "none").num_rows == 0
        assert messages.to_table(filter=(pc.field("queue") == "q0") & (pc.field("broker") == "two")).num_rows == 0
        assert (read, opened) == ([], [])
        assert messages.to_table(columns=["seq"], filter=pc.field("queue") == "q0").num_rows == 7
        assert len(opened) == 1
    assert leveret.dataset(url).count_rows() == 100


def test_the_program_in_the_documentation(
    builder: DirectoryBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leveret-data").symlink_to(builder.path)
    monkeypatch.chdir(tmp_path)
    builder.publish(builder.store(builder.queue("orders")), [b"x"] * 3)
    builder.tick()
    exec(block("python", "scan_pyarrow_dataset"), {})
    assert "orders" in capsys.readouterr().out
