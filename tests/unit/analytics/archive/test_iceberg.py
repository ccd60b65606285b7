from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import leveret
from leveret.analytics import arrow_schema
from leveret.analytics.archive import data_writer, upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.data_writer import DataWriter
from leveret.analytics.archive.manifests import read_manifests, store_ids
from leveret.analytics.archiver import Archiver
from leveret.analytics.arrow_schema import schema_of
from leveret.analytics.columns import ARCHIVED_TABLES
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from leveret.analytics.iceberg import tables as iceberg_tables
from leveret.analytics.iceberg.table_layout import table_file
from leveret.analytics.iceberg.tables import IcebergTables
from leveret.analytics.program import main
from leveret.storage.stores.segment_store import SegmentStore
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archiver_options
from tests.support.documentation import block
from tests.support.iceberg import archive_into, keys_of_archive, keys_of_table, opened, table_in, tables_of

HOUR = 3600
DAY = 24 * HOUR
#: A minute before midnight.
EVENING = START // 86_400_000_000 * 86_400_000_000 + (DAY - 60) * 1_000_000
QUEUES = ("orders", "invoices", "mails", "audit", "returns")


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data", start=EVENING)
    yield builder
    builder.close()


@pytest.fixture
def stores(builder: DirectoryBuilder) -> list[SegmentStore]:
    return [builder.store(builder.queue(name)) for name in QUEUES]


@pytest.fixture
def files(tmp_path: Path) -> ArchiveFiles:
    return ArchiveFiles(str(tmp_path / "archive"))


@pytest.fixture(params=["archive", "sql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A catalog in the archive, and one in SQLite."""
    return "archive" if request.param == "archive" else f"sqlite:///{tmp_path}/catalog.db"


def publish(builder: DirectoryBuilder, stores: list[SegmentStore], count: int = 2) -> None:
    """Publish to all queues in turn, and settle the first message of one."""
    for number in range(count):
        for store in stores:
            builder.publish(store, [b"%d" % number])
    builder.settle(stores[0], 1)
    builder.tick()


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["leveret-analytics", *arguments])
    return main()


def test_tables_have_the_rows_of_the_archive(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, catalog: str
) -> None:
    tables = tables_of(files, catalog)
    for _ in range(2):
        for vhost in ("/", None):
            builder.audit("queue.purged", "orders", vhost)
        publish(builder, stores)
        archive_into(builder, files, tables)
    messages, events, audit = (table_in(catalog, files, name) for name in ARCHIVED_TABLES)
    orders = (["queue", "seq"], ["at", "seq"], ["at", "vhost"])
    for name, table, order in zip(ARCHIVED_TABLES, (messages, events, audit), orders, strict=True):
        wanted = leveret.scan(files.url, name).read_all()
        found = table.scan().to_arrow().cast(wanted.schema)
        keys = [(each, "ascending") for each in order]
        assert found.sort_by(keys).to_pylist() == wanted.sort_by(keys).to_pylist()
        assert found.num_rows > 0
    assert messages.format_version == 2
    assert audit.scan().to_arrow().num_rows == 4
    # Its rows are not of queues, so there are no buckets.
    assert [field.name for field in audit.spec().fields] == ["at_day"]
    # The archive and its files know the columns by the same numbers.
    (path, *_) = Path(files.url).glob("messages/*/*.parquet")
    in_file = {each.name: int(each.metadata[b"PARQUET:field_id"]) for each in pq.read_schema(path)}
    assert in_file == {each.name: each.field_id for each in messages.schema().fields}


def test_queries_pass_over_files_of_other_queues_and_days(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles
) -> None:
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, "archive"))
    builder.wait(DAY)
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, "archive"))
    table = table_in("archive", files)
    everything = list(table.scan().plan_files())
    of_queue = list(table.scan(row_filter="queue = 'orders'").plan_files())
    assert (len(everything), len(of_queue)) == (6, 2)
    second = "enqueued_at >= '2023-11-15T12:00:00+00:00'"
    assert len(list(table.scan(row_filter=second).plan_files())) == 3
    for each in everything:
        rows = pq.read_table(each.file.file_path.removeprefix("file://"))
        assert rows["enqueued_at"].to_pylist() == sorted(rows["enqueued_at"].to_pylist())
        assert each.file.sort_order_id == table.sort_order().order_id == 1
        assert each.file.record_count == rows.num_rows
    assert {"orders", "audit"} <= set(table.scan().to_arrow()["queue"].to_pylist())


def test_a_file_that_is_not_sorted_says_so(
    builder: DirectoryBuilder, files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two queues of one bucket, one after the other in the file, and row groups of single batches.
    buckets = tables_of(files, "archive").buckets
    names = [name for name in map(str, range(50)) if buckets.of_name(name) == buckets.of_name("0")][:2]
    stores = [builder.store(builder.queue(name)) for name in names]
    for _ in range(3):
        for store in stores:
            builder.publish(store, [b"x"])
    builder.tick()
    monkeypatch.setattr(data_writer, "_GROUP_BYTES", 1)
    archive_into(builder, files, tables_of(files, "archive"))
    table = table_in("archive", files)
    (task,) = table.scan().plan_files()
    assert (task.file.sort_order_id, task.file.record_count) == (0, 6)


class Killed(Exception):
    pass


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_a_killed_archiver_left_is_completed_and_never_twice(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    catalog: str,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog))
    commit = IcebergTables._commit

    def killed(self: IcebergTables, *arguments: Any) -> Any:
        if moment == "after":
            commit(self, *arguments)
        raise Killed

    publish(builder, stores)
    with monkeypatch.context() as patch:
        patch.setattr(IcebergTables, "_commit", killed)
        with pytest.raises(ArchiveError):
            archive_into(builder, files, tables_of(files, catalog))
    assert keys_of_table(table_in(catalog, files)).total() == (20 if moment == "after" else 10)
    archive_into(builder, files, tables_of(files, catalog))
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 20


def test_a_commit_whose_answer_was_lost_is_not_repeated_by_the_same_archiver(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_of(files, "archive")
    publish(builder, stores)
    archive_into(builder, files, tables)
    archiver = Archiver(archiver_options(builder), files, tables)
    publish(builder, stores)
    archiver.copy()
    commit = IcebergTables._commit
    lost: list[bool] = []

    def once(self: IcebergTables, *arguments: Any) -> Any:
        found = commit(self, *arguments)
        if not lost:
            lost.append(True)
            raise ConnectionError("connection lost")
        return found

    monkeypatch.setattr(IcebergTables, "_commit", once)
    with pytest.raises(ArchiveError, match="cannot be reached: connection lost; the archive goes on"):
        archiver.follow()
    archiver.follow()
    archiver.close()
    assert keys_of_table(table_in("archive", files)) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 20


def test_of_two_writers_one_begins_again(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(builder, stores)
    archive_into(builder, files, None)
    state = read_manifests(files, store_ids(files)[0])
    first, second = tables_of(files, catalog), tables_of(files, catalog)
    first.follow(state)
    second.follow(state)
    publish(builder, stores)
    archive_into(builder, files, None)
    state = read_manifests(files, store_ids(files)[0])
    commit = second._commit
    raced: list[dict[str, int]] = []

    def late(*arguments: Any) -> Any:
        if not raced:
            raced.append(first.follow(state))
        return commit(*arguments)

    monkeypatch.setattr(second, "_commit", late)
    assert second.follow(state) == {"messages": 0, "events": 0, "audit": 0}
    assert raced == [{"messages": 1, "events": 1, "audit": 0}]
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)


def test_an_older_archive_is_taken_over_by_one_command(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Its files do not have the numbers of columns, and rows of all queues.
    with monkeypatch.context() as patch:
        plain = lambda table: schema_of(ARCHIVED_TABLES[table], list(ARCHIVED_TABLES[table]))  # noqa: E731
        patch.setattr(data_writer, "archived_schema", plain)
        publish(builder, stores)
        archive_into(builder, files, None)
    files_before = sorted(Path(files.url).glob("*/*/*.parquet"))
    for _ in range(2):
        assert run(["iceberg", "--archive", files.url], monkeypatch) == 0
        table = table_in("archive", files)
        assert keys_of_table(table) == keys_of_archive(files.url)
        assert table.scan(row_filter="queue = 'audit'").to_arrow()["body"].to_pylist() == [b"0", b"1"]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"leveret-analytics iceberg: broker one: {count} files of messages, {count} files of events, "
        "0 files of audit added or removed"
        for count in (1, 0)
    ]
    assert sorted(Path(files.url).glob("*/*/*.parquet")) == files_before
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, "archive"))
    builder.wait(3 * DAY)
    archive_into(builder, files, tables_of(files, "archive"))
    assert keys_of_table(table_in("archive", files)) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 20


def test_readers_of_an_older_snapshot_go_on_for_an_hour(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, catalog: str
) -> None:
    for _ in range(3):
        publish(builder, stores[:1])
        archive_into(builder, files, tables_of(files, catalog))
    before = table_in(catalog, files)
    assert len(list(before.scan().plan_files())) == 3
    builder.wait(3 * HOUR)
    # The events are put together first.
    archive_into(builder, files, tables_of(files, catalog))
    archive_into(builder, files, tables_of(files, catalog))
    after = table_in(catalog, files)
    assert len(list(after.scan().plan_files())) == 1
    assert keys_of_table(before) == keys_of_table(after) == keys_of_archive(files.url)
    builder.wait(2 * HOUR)
    archive_into(builder, files, tables_of(files, catalog))
    with pytest.raises(FileNotFoundError):
        keys_of_table(before)
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
    assert len(list(Path(files.url).glob("messages/*/*.parquet"))) == 1


def test_new_rows_are_appended_by_themselves(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, catalog: str
) -> None:
    """So who reads what was appended may leave out snapshots that replace files, even after the catalog was away."""
    for _ in range(3):
        publish(builder, stores)
        archive_into(builder, files, tables_of(files, catalog))
    builder.wait(3 * HOUR)
    archiver = Archiver(archiver_options(builder), files, tables_of(files, catalog))
    archiver.follow()
    for _ in range(5):
        archiver.keep_up()
    publish(builder, stores)
    archiver.copy()
    archiver.follow()
    archiver.close()
    table = table_in(catalog, files)
    assert keys_of_table(table) == keys_of_archive(files.url)
    summaries = [each.summary for each in table.metadata.snapshots if each.summary is not None]
    found = [(each.operation.value, each["added-records"]) for each in summaries]
    assert found == [("append", "10")] * 3 + [("overwrite", "30"), ("append", "10")]


def test_rows_that_are_too_old_leave_the_tables(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, catalog: str
) -> None:
    keep = 30 * DAY * 1_000_000
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog), keep=keep)
    builder.wait(31 * DAY)
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog), keep=keep)
    table = table_in(catalog, files)
    assert keys_of_table(table) == keys_of_archive(files.url)
    assert keys_of_table(table).total() == 10
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["total-records"] == "10"


def test_snapshots_that_nobody_reads_are_removed_with_what_only_they_have(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(iceberg_tables, "_EXPIRED_MIN", 3)
    for _ in range(4):
        publish(builder, stores[:1])
        archive_into(builder, files, tables_of(files, catalog))
    assert len(table_in(catalog, files).metadata.snapshots) == 4
    later = table_in(catalog, files).metadata.last_updated_ms * 1000 + 2 * HOUR * 1_000_000
    publish(builder, stores[:1])
    archive_into(builder, files, tables_of(files, catalog, lambda: later))
    table = table_in(catalog, files)
    assert len(table.metadata.snapshots) == 2
    assert keys_of_table(table) == keys_of_archive(files.url)
    lists = {each.manifest_list for each in table.metadata.snapshots}
    manifests = {one.manifest_path for each in table.metadata.snapshots for one in each.manifests(table.io)}
    there = {files.location(path) for path in files.paths_below("iceberg/leveret/messages") if path.endswith(".avro")}
    assert there == lists | manifests


def test_several_brokers_are_in_one_table(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, catalog: str, tmp_path: Path
) -> None:
    other = DirectoryBuilder(tmp_path / "other", start=EVENING)
    elsewhere = [other.store(other.queue("orders"))]
    one, two = tables_of(files, catalog), tables_of(files, catalog)
    for _ in range(3):
        publish(builder, stores)
        archive_into(builder, files, one)
        publish(other, elsewhere)
        archive_into(other, files, two, broker="two")
    found = table_in(catalog, files).scan().to_arrow()
    counts = {each["values"]: each["counts"] for each in pc.value_counts(found["broker"]).to_pylist()}
    assert counts == {"one": 30, "two": 6}
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
    other.close()


def test_a_column_that_is_added_later_is_null_in_older_files(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog))
    monkeypatch.setitem(ARCHIVED_TABLES, "messages", {**ARCHIVED_TABLES["messages"], "exchange_2": "string"})
    monkeypatch.setitem(
        __import__("leveret.analytics.columns", fromlist=["COLUMNS"]).COLUMNS["messages"],
        "exchange_2",
        leveret.analytics.columns.Column("string", "Another one", True),
    )
    rows = leveret.scan(files.url).read_all()
    added = rows.slice(0, 1).set_column(rows.schema.get_field_index("exchange_2"), "exchange_2", pa.array(["e"]))
    (store,) = store_ids(files)
    state = read_manifests(files, store)
    assert state.last is not None
    with DataWriter(files, "one", 99, tables_of(files, catalog).buckets) as writer:
        writer.add("messages", added.combine_chunks().to_batches()[0])
        (new,) = writer.finish()
    tables_of(files, catalog).follow(type(state)(state.last, {**state.files, new.path: new}))
    table = table_in(catalog, files)
    assert table.schema().find_field("exchange_2").field_id == max(arrow_schema.field_ids("messages").values())
    assert sorted(table.scan().to_arrow()["exchange_2"].to_pylist(), key=str) == [None] * 10 + ["e"]


def test_a_table_that_somebody_else_has_written_to_is_left_alone_until_it_is_repaired(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tables = tables_of(files, catalog)
    publish(builder, stores)
    archive_into(builder, files, tables)
    table = table_in(catalog, files)
    (store,) = store_ids(files)
    known = next(each for each in read_manifests(files, store).files.values() if each.table == "messages")
    other = replace(known, path="messages/date=2023-11-14/other.parquet")
    shutil.copy(f"{files.url}/{known.path}", f"{files.url}/{other.path}")
    bucket = tables.buckets.of_file(files, known)
    with table.transaction() as change, change.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(table_file(files, other, table.metadata, bucket).file)
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        snapshot.delete_data_file(next(iter(table.scan(row_filter="queue = 'audit'").plan_files())).file)
    assert keys_of_table(table_in(catalog, files)) != keys_of_archive(files.url)
    publish(builder, stores)
    with pytest.raises(ArchiveRefusedError, match=r"somebody else has written to table leveret.messages .* --repair"):
        archive_into(builder, files, tables)
    assert keys_of_archive(files.url).total() == 20
    command = ["iceberg", "--archive", files.url, "--iceberg", catalog]
    assert run(command, monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "somebody else has written to table leveret.messages of the Iceberg catalog" in line
    assert run([*command, "--repair"], monkeypatch) == 0
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
    publish(builder, stores)
    archive_into(builder, files, tables)
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)


def test_a_table_that_is_ahead_of_an_archive_is_left_alone_until_it_is_repaired(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog))
    shutil.copytree(f"{files.url}/manifests", tmp_path / "older")
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog))
    shutil.rmtree(f"{files.url}/manifests")
    shutil.copytree(tmp_path / "older", f"{files.url}/manifests")
    command = ["iceberg", "--archive", files.url, "--iceberg", catalog]
    assert run(command, monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "has manifest 4 of broker one, but the newest one of" in line
    assert "is 2: the archive is an older copy" in line
    assert run([*command, "--repair"], monkeypatch) == 0
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 10


def test_a_table_of_another_archive_is_refused(
    builder: DirectoryBuilder, stores: list[SegmentStore], files: ArchiveFiles, tmp_path: Path
) -> None:
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    publish(builder, stores)
    archive_into(builder, files, tables_of(files, catalog))
    other = ArchiveFiles(str(tmp_path / "other"))
    with pytest.raises(ArchiveRefusedError, match=r"is not of the archive .*/other: it is of the archive .*/archive;"):
        archive_into(builder, other, tables_of(other, catalog), reader="other")
    assert keys_of_archive(other.url).total() == 10


def test_a_table_can_be_read_without_a_catalog(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(5):
        publish(builder, stores)
        archive_into(builder, files, tables_of(files, "archive"))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(block("python", "StaticTable"), found)
    assert keys_of_table(found["table"]) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 50
    assert capsys.readouterr().out.startswith("pyarrow.Table\nbroker: string\nseq: int64\nbody: binary\n")
    version = (tmp_path / "archive/iceberg/leveret/messages/metadata/version-hint.text").read_text()
    assert found["newest"].name == f"v{version}.metadata.json"


def test_files_that_tables_may_have_are_kept_while_the_catalog_is_away(
    builder: DirectoryBuilder,
    stores: list[SegmentStore],
    files: ArchiveFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "GRACE", 0)
    catalog = f"sqlite:///{tmp_path}/catalog.db"
    for _ in range(3):
        publish(builder, stores[:1])
        archive_into(builder, files, tables_of(files, catalog))
    before = table_in(catalog, files)
    builder.wait(3 * HOUR)
    archiver = Archiver(archiver_options(builder), files, tables_of(files, "sqlite:////nowhere/catalog.db"))
    with pytest.raises(ArchiveError, match=r"the Iceberg catalog sqlite:////nowhere/catalog.db cannot be reached"):
        archiver.follow()
    archiver.close()
    assert keys_of_table(before) == keys_of_archive(files.url)
    archive_into(builder, files, tables_of(files, catalog))
    assert keys_of_table(table_in(catalog, files)) == keys_of_archive(files.url)


def test_columns_have_numbers() -> None:
    for table, columns in ARCHIVED_TABLES.items():
        # A column that is added stands last, as in Iceberg's tables.
        first = arrow_schema.FIRST_COLUMNS[table]
        assert tuple(columns)[: len(first)] == first
        numbers = arrow_schema.field_ids(table)
        assert sorted(numbers.values()) == [*range(1, len(numbers) + 1)]
    # Files have been written with these.
    assert (len(arrow_schema.FIRST_COLUMNS["messages"]), len(arrow_schema.FIRST_COLUMNS["events"])) == (36, 23)


def test_a_store_of_objects(builder: DirectoryBuilder, stores: list[SegmentStore], bucket: str) -> None:
    files = ArchiveFiles(f"{bucket}/lake")
    for _ in range(2):
        publish(builder, stores)
        archive_into(builder, files, tables_of(files, "archive"))
    table = opened("archive", files).load_table("leveret.messages")
    assert table.location() == "s3://bucket/lake/iceberg/leveret/messages"
    assert keys_of_table(table) == keys_of_archive(files.url)
    assert keys_of_archive(files.url).total() == 20
