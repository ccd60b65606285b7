from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from leveret.analytics.archive import upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import read_manifests, store_ids
from leveret.analytics.archiver import Archiver, main
from leveret.analytics.columns import ARCHIVED_TABLES, TABLES
from leveret.analytics.errors import ArchiveError, ArchiveRefusedError
from leveret.storage.disk.files import DiskFiles
from leveret.storage.readers.reader_file import read_reader
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive, archiver_options, data_files

DAY = 86_400


class Killed(BaseException):
    """The archiver is killed."""


class KilledFiles(ArchiveFiles):
    """Kills its archiver at one call that changes the archive: before it, or when it has been carried out."""

    def __init__(self, url: str, at: int, is_done: bool) -> None:
        super().__init__(url)
        self._left = at
        self._is_done = is_done

    def _step(self, is_after: bool) -> None:
        if self._is_done == is_after:
            self._left -= 1
            if not self._left:
                raise Killed

    def create(self, path: str, octets: bytes) -> None:
        self._step(is_after=False)
        super().create(path, octets)
        self._step(is_after=True)

    def new_file(self, path: str) -> Any:
        self._step(is_after=False)
        found = super().new_file(path)
        self._step(is_after=True)
        return found

    def finish(self, path: str, sink: BinaryIO) -> None:
        self._step(is_after=False)
        super().finish(path, sink)
        self._step(is_after=True)

    def delete(self, path: str) -> None:
        self._step(is_after=False)
        super().delete(path)
        self._step(is_after=True)

    def discard(self, path: str, sink: Any) -> None:
        """What is killed leaves its drafts."""
        sink.close()


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.queue("a/=%b")
    builder.queue("c", "other")
    builder.tick()
    yield builder
    builder.close()


def rows(url: str, table: str = "messages") -> list[dict[str, Any]]:
    files = ArchiveFiles(url)
    found: list[dict[str, Any]] = []
    for each in data_files(files, table):
        with files.open(each.path) as file:
            part = pq.read_table(file).to_pylist()
        assert len(part) == each.rows
        found += part
    return found


def bodies(url: str) -> Counter[bytes]:
    return Counter(row["body"] for row in rows(url))


def test_messages_and_events_are_copied_with_all_columns(builder: DirectoryBuilder, any_url: str) -> None:
    first, second = builder.store(builder.queue("q/=%")), builder.store(builder.queue("ü", "other"))
    builder.publish(first, [b"a%d" % number for number in range(70)], headers={"n": 1}, message_id="m")
    builder.wait(DAY)
    builder.publish(second, [b"b%d" % number for number in range(30)])
    builder.settle(first, 10)
    builder.tick()
    assert archive(builder, ArchiveFiles(any_url)) == [2]
    found = rows(any_url)
    assert [list(row) == ["broker", *TABLES["messages"]] for row in found] == [True] * 100
    assert {(row["broker"], row["vhost"], row["queue"]) for row in found} == {
        ("one", "/", "q/=%"),
        ("one", "other", "ü"),
    }
    assert Counter(row["body"] for row in found).total() == len({row["body"] for row in found}) == 100
    assert dict(found[0]["headers"]) == {"n": "1"}
    events = rows(any_url, "events")
    assert [(row["broker"], row["queue"], row["kind"], row["messages"]) for row in events] == [
        ("one", "q/=%", "ack", 10)
    ]
    files = ArchiveFiles(any_url).paths_below("messages")
    assert [path.split("/")[1] for path in files] == ["date=2023-11-14", "date=2023-11-15"]


def test_each_run_adds_what_has_come(builder: DirectoryBuilder, url: str) -> None:
    queue = builder.queue("q")
    store = builder.store(queue)
    for number in range(3):
        builder.publish(store, [b"%d" % number])
        builder.tick()
        assert len(archive(builder, ArchiveFiles(url))) == 1
        assert archive(builder, ArchiveFiles(url)) == []
    assert bodies(url) == {b"0": 1, b"1": 1, b"2": 1}
    reader = read_reader(DiskFiles(), builder.path, "lake")
    assert reader is not None
    assert reader.next[f"{queue.qid}/0"] == 4


def test_a_large_backlog_is_copied_in_steps(builder: DirectoryBuilder, url: str) -> None:
    for name in ("p", "q"):
        builder.publish(builder.store(builder.queue(name)), [b"%d" % number for number in range(95)])
    builder.tick()
    assert len(archive(builder, ArchiveFiles(url), batch=20)) >= 10
    assert bodies(url) == {b"%d" % number: 2 for number in range(95)}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_kill_at_any_call_leaves_each_row_once(
    builder: DirectoryBuilder, url: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files are put together all the time, and deleted at once.
    monkeypatch.setattr(upkeep, "_MANY", 2)
    monkeypatch.setattr(upkeep, "GRACE", 0)
    store = builder.store(builder.queue("q"))
    sent: Counter[bytes] = Counter()
    kills = 0
    while True:
        builder.publish(store, [b"%d %d" % (kills, number) for number in range(30)])
        sent.update(b"%d %d" % (kills, number) for number in range(30))
        builder.settle(store, 5)
        for number in range(4):
            builder.audit("queue.purged", f"{kills} {number}")
        builder.tick()
        try:
            archive(builder, KilledFiles(url, kills + 1, is_done))
        except Killed:
            kills += 1
        else:
            break
        # What is committed is there once; the rest comes with the next run.
        assert bodies(url) <= sent
        assert len({row["object"] for row in rows(url, "audit")}) == len(rows(url, "audit"))
        assert kills < 50
    assert kills >= 5
    archive(builder, ArchiveFiles(url))
    assert bodies(url) == sent
    assert sum(row["messages"] for row in rows(url, "events")) == 5 * (kills + 1)
    audited = Counter(row["object"] for row in rows(url, "audit"))
    assert audited == {f"{kill} {number}": 1 for kill in range(kills + 1) for number in range(4)}
    state = read_manifests(ArchiveFiles(url), store_ids(ArchiveFiles(url))[0])
    on_disk = {path for table in ARCHIVED_TABLES for path in ArchiveFiles(url).paths_below(table)}
    assert state.files.keys() <= on_disk <= state.files.keys() | state.removed.keys()
    assert os.listdir(f"{builder.path}/snap") == []


def test_an_archiver_that_was_believed_dead_cannot_go_on(builder: DirectoryBuilder, any_url: str) -> None:
    store = builder.store(builder.queue("q"))
    old = Archiver(archiver_options(builder), ArchiveFiles(any_url))
    builder.publish(store, [b"x"])
    builder.tick()
    new = Archiver(archiver_options(builder), ArchiveFiles(any_url))
    with pytest.raises(ArchiveRefusedError, match="another archiver writes for the same data directory"):
        old.copy()
    old.close()
    new.copy()
    new.close()
    assert bodies(any_url) == {b"x": 1}


def test_names_of_brokers(builder: DirectoryBuilder, url: str, tmp_path: Path) -> None:
    archive(builder, ArchiveFiles(url), broker="", default_broker="host")
    archive(builder, ArchiveFiles(url), broker="", default_broker="moved")
    with pytest.raises(ArchiveRefusedError, match=r"is called host in .*, and cannot become other"):
        archive(builder, ArchiveFiles(url), broker="other")
    second = DirectoryBuilder(tmp_path / "second")
    second.publish(second.store(second.queue("q")), [b"x"])
    second.tick()
    with pytest.raises(ArchiveRefusedError, match="another data directory whose broker is called host; choose a name"):
        archive(second, ArchiveFiles(url), broker="", default_broker="host")
    with pytest.raises(ArchiveRefusedError, match="a broker's name has 1 to 64 letters"):
        archive(second, ArchiveFiles(url), broker="a/b")
    archive(second, ArchiveFiles(url), broker="second")
    second.close()
    assert [row["broker"] for row in rows(url)] == ["second"]


def test_what_cannot_be_written_is_said_and_copied_later(builder: DirectoryBuilder, tmp_path: Path) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"x"] * 3)
    builder.tick()
    (tmp_path / "archive").write_text("a file")
    with pytest.raises(ArchiveError, match=r"archive/archive\.json: Not a directory"):
        archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    (tmp_path / "archive").unlink()
    archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    assert bodies(str(tmp_path / "archive")) == {b"x": 3}


def test_files_that_were_begun_are_not_left_in_a_store(bucket: str) -> None:
    files = ArchiveFiles(f"{bucket}/drafts")
    for size in (0, 100, 12 << 20):
        file = files.new_file("messages/a.parquet")
        file.write(bytes(size))
        files.discard("messages/a.parquet", file)
        assert files.paths_below("messages") == []


def test_a_bucket_that_does_not_exist_is_said_in_one_line(
    builder: DirectoryBuilder, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data-dir", builder.path, "--once", "--to", f"{bucket}-2/lake", "--broker", "one"]) == 1
    said = capsys.readouterr().err
    assert said == "leveret-analytics archive: s3://bucket-2/lake/archive.json: The specified bucket does not exist\n"


def test_the_program(builder: DirectoryBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"x"] * 3)
    builder.tick()
    given = ["--data-dir", builder.path, "--once", "--to"]
    assert main([*given, str(tmp_path / "archive"), "--broker", "one"]) == 0
    said = "leveret-analytics archive: manifest 2: 3 messages, 0 events, 0 lines of the audit log in 1 files\n"
    assert capsys.readouterr().err == said
    assert bodies(str(tmp_path / "archive")) == {b"x": 3}
    assert main([*given, f"{builder.path}/archive"]) == 1
    assert "is in the data directory; put the archive somewhere else" in capsys.readouterr().err
    assert main([*given, "nothing://x"]) == 1
    assert "leveret-analytics archive: nothing://x: Protocol not known: nothing" in capsys.readouterr().err
    for wrong in (["--interval", "0"], ["--interval", "x"], ["--reader", "a/b"]):
        with pytest.raises(SystemExit) as raised:
            main([*given, str(tmp_path / "archive"), *wrong])
        assert raised.value.code == 2
