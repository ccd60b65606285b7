from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import leveret
from leveret.analytics.archive import upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import BrokerFiles, read_manifests, store_ids
from leveret.analytics.archiver import main
from leveret.storage.stores.segment_store import SegmentStore
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive

HOUR = 3600
DAY = 24 * HOUR
#: A minute before midnight.
EVENING = START // 86_400_000_000 * 86_400_000_000 + (DAY - 60) * 1_000_000


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data", start=EVENING)
    yield builder
    builder.close()


@pytest.fixture
def store(builder: DirectoryBuilder) -> SegmentStore:
    return builder.store(builder.queue("q"))


def state_of(url: str) -> BrokerFiles:
    files = ArchiveFiles(url)
    return read_manifests(files, store_ids(files)[0])


def add(builder: DirectoryBuilder, store: SegmentStore, url: str, count: int, keep: int | None = None) -> None:
    """Copy messages one by one."""
    for _ in range(count):
        builder.publish(store, [b"x"])
        builder.tick()
        archive(builder, ArchiveFiles(url), keep=keep)


def seqs(url: str) -> list[int]:
    return sorted(leveret.scan(url, columns=["seq"]).read_all()["seq"].to_pylist())


def test_files_of_a_day_that_is_over_become_one(builder: DirectoryBuilder, store: SegmentStore, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    add(builder, store, url, 5)
    assert len(state_of(url).files) == 5
    builder.wait(HOUR // 2)
    archive(builder, ArchiveFiles(url))
    # Rows of the evening may still come.
    assert len(state_of(url).files) == 5
    builder.wait(2 * HOUR)
    archive(builder, ArchiveFiles(url))
    state = state_of(url)
    (file,) = state.files.values()
    assert (file.rows, file.queues, len(state.removed)) == (5, (("/", "q"),), 5)
    assert EVENING < file.first < file.last < EVENING + 1_000_000
    assert seqs(url) == [1, 2, 3, 4, 5]
    assert pq.ParquetFile(f"{url}/{file.path}").num_row_groups == 1
    add(builder, store, url, 1)
    assert seqs(url) == [1, 2, 3, 4, 5, 6]


def test_many_files_of_the_day_become_one(
    builder: DirectoryBuilder, store: SegmentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_MANY", 4)
    url = str(tmp_path / "archive")
    add(builder, store, url, 3)
    assert len(state_of(url).files) == 3
    add(builder, store, url, 1)
    assert len(state_of(url).files) == 1
    monkeypatch.setattr(upkeep, "_MERGE_BYTES", 1)
    add(builder, store, url, 3)
    # Two at a time, of which the first is a large one.
    assert [each.rows for each in state_of(url).files.values()] == [1, 1, 5]
    monkeypatch.setattr(upkeep, "_SMALL", 1)
    add(builder, store, url, 4)
    assert len(state_of(url).files) == 7
    assert seqs(url) == list(range(1, 12))


def test_what_was_put_together_is_deleted_an_hour_later(
    builder: DirectoryBuilder, store: SegmentStore, tmp_path: Path
) -> None:
    url = str(tmp_path / "archive")
    add(builder, store, url, 3)
    begun = leveret.scan(url, columns=["seq"])
    builder.wait(3 * HOUR)
    archive(builder, ArchiveFiles(url))
    # A start does not take the files for left over ones.
    archive(builder, ArchiveFiles(url))
    # Who reads all files of a table has each row once; queries that have begun find the files elsewhere.
    assert pq.read_table(f"{url}/messages")["seq"].to_pylist() == [1, 2, 3]
    assert begun.read_all().num_rows == 3
    assert len(list(Path(url).glob("superseded/messages/*/*"))) == 3
    builder.wait(2 * HOUR)
    archive(builder, ArchiveFiles(url))
    assert len(list(Path(url).glob("messages/*/*"))) == 1
    assert list(Path(url).glob("superseded/messages/*/*")) == []
    assert len(state_of(url).removed) == 3
    builder.wait(DAY)
    while state_of(url).removed:
        archive(builder, ArchiveFiles(url))
    assert seqs(url) == [1, 2, 3]


def test_old_rows_are_removed(builder: DirectoryBuilder, store: SegmentStore, tmp_path: Path) -> None:
    url, keep = str(tmp_path / "archive"), 30 * DAY * 1_000_000
    add(builder, store, url, 2, keep)
    builder.settle(store, 1)
    builder.wait(10 * DAY)
    add(builder, store, url, 2, keep)
    builder.wait(19 * DAY)
    archive(builder, ArchiveFiles(url), keep=keep)
    assert seqs(url) == [1, 2, 3, 4]
    assert leveret.scan(url, "events").read_all().num_rows == 1
    builder.wait(2 * DAY)
    archive(builder, ArchiveFiles(url), keep=keep)
    assert seqs(url) == [3, 4]
    # Without `keep`, what is there stays.
    builder.wait(100 * DAY)
    archive(builder, ArchiveFiles(url))
    assert seqs(url) == [3, 4]
    assert leveret.scan(url, "events").read_all().num_rows == 0
    # What has been removed does not come again from the data directory.
    assert sorted(leveret.scan([url, builder.path], columns=["seq"]).read_all()["seq"].to_pylist()) == [3, 4]


@pytest.mark.parametrize("wrong", ["30", "0d", "-1d", "1M", "d", ""])
def test_a_wrong_time_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["--data-dir", "d", "--to", "a", f"--keep={wrong}"])
    assert raised.value.code == 2
    assert f"'{wrong}' is not a time with its unit, such as 30d or 12h" in capsys.readouterr().err


def test_a_time_is_kept_by_the_program(builder: DirectoryBuilder, store: SegmentStore, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    builder.publish(store, [b"x"])
    builder.tick()
    # The clock of the program shows years later.
    assert main(["--data-dir", builder.path, "--to", url, "--once", "--keep", "30d"]) == 0
    assert seqs(url) == []
    builder.publish(store, [b"x"])
    builder.tick()
    assert main(["--data-dir", builder.path, "--to", url, "--once", "--keep", "900000d"]) == 0
    assert seqs(url) == [2]
