"""The audit log in an archive: all lines once, alone and beside what the data directory still has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import leveret
from leveret.analytics.archive import upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archiver import main
from leveret.analytics.columns import TABLES
from leveret.analytics.errors import AnalyticsError, OptionError
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive, data_files

DAY = 86_400
GOLDEN = Path(__file__).parent / "golden" / "format-1"


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.tick()
    yield builder
    builder.close()


def write(builder: DirectoryBuilder, *names: str, vhost: str | None = "/") -> None:
    for name in names:
        builder.audit("queue.deleted", name, vhost, count=3)
        builder.wait(1)


def objects(*sources: str, **options: Any) -> list[str]:
    found: list[str] = (
        leveret.scan(list(sources), "audit", columns=["object"], **options).read_all()["object"].to_pylist()
    )
    return sorted(found)


def test_it_is_read_as_the_same_table(builder: DirectoryBuilder, any_url: str) -> None:
    write(builder, "a", "b")
    write(builder, "alarm", vhost=None)
    archive(builder, ArchiveFiles(any_url))
    live = leveret.scan(builder.path, "audit").read_all()
    found = leveret.scan(any_url, "audit").read_all()
    assert found.schema.names == ["broker", *TABLES["audit"]]
    assert found["broker"].to_pylist() == ["one"] * 3
    assert found.drop_columns(["broker"]).equals(live)
    write(builder, "c")
    assert objects(any_url) == ["a", "alarm", "b"]
    assert objects(any_url, builder.path) == ["a", "alarm", "b", "c"]
    assert objects(any_url, builder.path, vhost="/") == ["a", "b", "c"]
    assert objects(any_url, builder.path, since=f"{START // 1_000_000 + 1}") == ["alarm", "b", "c"]
    brokers = leveret.scan([any_url, builder.path], "audit", columns=["broker"]).read_all()
    assert brokers["broker"].to_pylist() == ["one"] * 4
    counted = duckdb.from_arrow(leveret.dataset([any_url, builder.path], "audit")).filter("user_name = 'ann'")
    assert counted.aggregate("count(*), sum(messages)").fetchall() == [(4, 12)]
    with pytest.raises(OptionError, match="queue"):
        objects(any_url, queue="a")


def test_each_run_adds_what_has_come(builder: DirectoryBuilder, url: str) -> None:
    for number in range(4):
        write(builder, f"{number}")
        assert len(archive(builder, ArchiveFiles(url))) == 1
        assert archive(builder, ArchiveFiles(url)) == []
        builder.reopen(in_order=number % 2 == 0)
    assert objects(url) == objects(url, builder.path) == ["0", "1", "2", "3"]


def test_much_is_copied_in_steps(builder: DirectoryBuilder, url: str) -> None:
    names = [f"{number:02}" for number in range(40)]
    write(builder, *names[:25])
    builder.reopen()
    write(builder, *names[25:])
    assert len(archive(builder, ArchiveFiles(url), batch=7)) == 6
    assert objects(url) == objects(url, builder.path) == names


def test_what_the_machines_end_has_taken_is_there_and_nothing_that_follows_is_missing(
    builder: DirectoryBuilder, url: str
) -> None:
    write(builder, "a", "b")
    (file,) = Path(builder.path, "audit").iterdir()
    synced = file.read_bytes()
    write(builder, "c", "d")
    archive(builder, ArchiveFiles(url))
    builder.audit_log.abandon()
    file.write_bytes(synced)
    builder.reopen(in_order=False)
    write(builder, "e", "f", "g", "h")
    archive(builder, ArchiveFiles(url))
    assert objects(url) == objects(url, builder.path) == list("abcdefgh")


def test_only_some_virtual_hosts_or_queues(builder: DirectoryBuilder, url: str) -> None:
    builder.queue("q")
    builder.tick()
    write(builder, "a")
    write(builder, "b", vhost="v")
    write(builder, "c", vhost=None)
    archive(builder, ArchiveFiles(url), vhost="v")
    write(builder, "d")
    write(builder, "e", vhost="v")
    assert objects(url) == ["b"]
    # What the archiver does not take is read from the data directory.
    assert objects(url, builder.path) == list("abcde")
    archive(builder, ArchiveFiles(url), queue="q")
    assert objects(url) == ["b"]
    archive(builder, ArchiveFiles(url))
    assert objects(url) == ["b", "d", "e"]


def test_lines_that_were_removed_too_early_are_reported(
    builder: DirectoryBuilder, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(builder, "a")
    archive(builder, ArchiveFiles(url))
    builder.reopen()
    write(builder, "b")
    builder.reopen()
    write(builder, "c")
    for file in sorted(Path(builder.path, "audit").iterdir())[:2]:
        file.unlink()
    with pytest.raises(AnalyticsError, match=r"lines of the audit log since .* may be gone"):
        archive(builder, ArchiveFiles(url), fail_on_data_loss=True)
    archive(builder, ArchiveFiles(url))
    assert "lines of the audit log since" in caplog.text
    assert objects(url) == ["a", "c"]


def test_small_files_are_put_together_and_old_ones_go(
    builder: DirectoryBuilder, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_MANY", 3)
    for number in range(3):
        write(builder, f"{number}")
        archive(builder, ArchiveFiles(url))
    assert [each.rows for each in data_files(ArchiveFiles(url), "audit")] == [3]
    assert objects(url) == ["0", "1", "2"]
    builder.wait(3 * DAY)
    write(builder, "new")
    archive(builder, ArchiveFiles(url), keep=2 * DAY * 1_000_000)
    assert objects(url) == ["new"]
    # Keeping less in the archive brings nothing back from the data directory.
    assert objects(url, builder.path) == ["new"]


def test_an_archive_of_the_first_format_gets_the_whole_log(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    data, url = str(tmp_path / "data"), str(tmp_path / "archive")
    assert objects(url) == []
    assert objects(url, data) == ["q0", "q1", "q2"]
    before = leveret.scan(url).read_all()
    assert main(["--data-dir", data, "--to", url, "--broker", "one", "--reader", "lake", "--once"]) == 0
    assert main(["--data-dir", data, "--to", url, "--broker", "one", "--reader", "lake", "--once"]) == 0
    assert objects(url) == objects(url, data) == ["q0", "q1", "q2"]
    assert leveret.scan(url).read_all().equals(before)
    assert leveret.scan(url, "events").read_all().num_rows == 1
    # Older versions would forget up to where the log was read: they are refused.
    newest = max(Path(url, "manifests").glob("*/*.json"))
    assert json.loads(newest.read_text())["format"] == 2
