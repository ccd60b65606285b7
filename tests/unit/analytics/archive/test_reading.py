from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import fsspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leveret
from leveret.analytics.archive import manifests, upkeep
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.archive.manifests import broker_names
from leveret.analytics.columns import TABLES
from leveret.analytics.errors import OptionError
from leveret.storage.directory.archive_note import ArchiveNote, write_note
from leveret.storage.disk.files import DiskFiles
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive
from tests.support.documentation import block


def build(path: Path, prefix: str = "", queues: tuple[str, ...] = ("a", "b/=")) -> DirectoryBuilder:
    """60 messages in each queue, one a second, of which 10 have left; the queues are in different virtual hosts."""
    builder = DirectoryBuilder(path)
    for vhost, name in zip(("/", "other"), queues, strict=True):
        store = builder.store(builder.queue(name, vhost))
        for number in range(60):
            builder.publish(store, [f"{prefix}{name} {number}".encode()], headers={"n": number})
            builder.wait(1)
        builder.settle(store, 10)
    builder.tick()
    return builder


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = build(tmp_path / "data")
    yield builder
    builder.close()


def bodies(*sources: str, **options: Any) -> Counter[str]:
    found = leveret.scan(list(sources), columns=["body"], **options).read_all()["body"].to_pylist()
    return Counter(body.decode() for body in found)


def test_an_archive_is_read_as_the_same_table(builder: DirectoryBuilder, any_url: str) -> None:
    live = leveret.scan(builder.path).read_all()
    archive(builder, ArchiveFiles(any_url))
    found = leveret.scan(any_url)
    assert found.schema.names == ["broker", *TABLES["messages"]]
    whole = found.read_all()
    whole.validate(full=True)
    assert (whole.num_rows, set(whole["broker"].to_pylist())) == (120, {"one"})
    # What has left was archived, too.
    waiting = [row for row in whole.drop_columns(["broker"]).to_pylist() if row["seq"] > 10]
    assert waiting == live.to_pylist()
    events = leveret.scan(any_url, "events").read_all()
    assert events.drop_columns(["broker"]).equals(leveret.scan(builder.path, "events").read_all())
    counted = duckdb.sql("select queue, count(*) from whole group by queue order by queue")
    assert counted is not None
    assert counted.fetchall() == [("a", 60), ("b/=", 60)]


def test_rows_are_chosen(builder: DirectoryBuilder, url: str) -> None:
    archive(builder, ArchiveFiles(url))
    builder.publish(builder.store(builder.queue("c")), [b"c %d" % number for number in range(5)])
    builder.tick()

    def seqs(**options: Any) -> list[int]:
        found: list[int] = leveret.scan([url, builder.path], columns=["seq"], **options).read_all()["seq"].to_pylist()
        return found

    assert seqs(queue="b/=", first_seq=5, last_seq=7) == [5, 6, 7]
    assert seqs(queue="c") == [1, 2, 3, 4, 5]
    assert seqs(queue="[ac]", limit=62)[-3:] == [60, 1, 2]
    assert seqs(queue="nothing") == seqs(limit=0) == []
    assert len(seqs(vhost="other")) == 60
    twentieth = datetime.fromtimestamp(START // 1_000_000 + 20, UTC)
    assert seqs(queue="a", since=twentieth, limit=2) == [21, 22]
    assert seqs(until=twentieth) == list(range(1, 21))
    brokers = leveret.scan([url, builder.path], columns=["broker"], queue="[ac]").read_all()["broker"].to_pylist()
    assert brokers == ["one"] * 65
    events = leveret.scan(url, "events", queue="a", columns=["queue", "messages"]).read_all().to_pylist()
    assert events == [{"queue": "a", "messages": 10}]
    assert os.listdir(f"{builder.path}/snap") == []


def test_an_archive_and_live_directories_are_one_table(builder: DirectoryBuilder, any_url: str, tmp_path: Path) -> None:
    second = build(tmp_path / "second", "2 ", ("a", "d"))
    third = build(tmp_path / "third", "3 ", ("a", "d"))
    archive(builder, ArchiveFiles(any_url))
    archive(second, ArchiveFiles(any_url), broker="two")
    expected = Counter(f"{prefix}{name} {at}" for prefix, name in [("", "a"), ("", "b/=")] for at in range(60))
    expected += Counter(f"2 {name} {at}" for name in "ad" for at in range(60))
    assert bodies(any_url) == bodies(any_url, builder.path, second.path) == expected
    store = builder.store(builder.queue("new"))
    builder.publish(store, [b"new"])
    builder.settle(store, 1)
    builder.tick()
    # What came since the last copy is there, if it has left as well, until its file is gone.
    expected["new"] = 1
    assert bodies(any_url, builder.path, second.path) == expected
    expected += Counter(f"3 {name} {at}" for name in "ad" for at in range(60))
    assert bodies(any_url, builder.path, second.path, third.path) == expected
    paths = [any_url, builder.path, second.path, third.path]
    events = leveret.scan(paths, "events", columns=["broker", "messages"]).read_all().to_pylist()
    assert Counter((row["broker"], row["messages"]) for row in events) == {
        ("one", 10): 2,
        ("one", 1): 1,
        ("two", 10): 2,
        ("third", 10): 2,
    }
    for each in (second, third):
        each.close()


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_a_copy_of_a_data_directory_is_read_with_an_archive(
    builder: DirectoryBuilder, url: str, tmp_path: Path, protocol: str
) -> None:
    archive(builder, ArchiveFiles(url))
    store = builder.store(builder.queue("new"))
    builder.publish(store, [b"new"] * 20)
    builder.settle(store, 5)
    builder.tick()
    location = f"{protocol}://{tmp_path}/copy"
    fsspec.filesystem(protocol).put(builder.path, location, recursive=True)
    found = leveret.scan([url, location], columns=["broker", "queue"]).read_all().to_pylist()
    assert Counter(row["queue"] for row in found) == {"a": 60, "b/=": 60, "new": 20}
    assert {row["broker"] for row in found} == {"one"}
    events = leveret.scan([url, location], "events", columns=["messages"]).read_all()["messages"].to_pylist()
    assert sorted(events) == [5, 10, 10]
    assert broker_names(url, [location]) == {location: "one"}


def test_an_archive_of_some_queues(builder: DirectoryBuilder, url: str) -> None:
    """Of the others, the live directory has all events."""
    archive(builder, ArchiveFiles(url), queue="a")
    builder.settle(builder.store(builder.queue("c")), 0)
    builder.tick()
    events = leveret.scan([url, builder.path], "events", columns=["queue", "messages"]).read_all().to_pylist()
    assert sorted((row["queue"], row["messages"]) for row in events) == [("a", 10), ("b/=", 10)]
    assert bodies(url, builder.path).total() == bodies(url).total() + 60 == 120


STEPS = st.lists(st.sampled_from(["publish", "settle", "archive", "day", "restart", "die"]), min_size=1, max_size=20)


@given(STEPS, st.integers(1, 30))
@settings(max_examples=25)
def test_every_row_is_there_once_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Files are put together often.
        patch.setattr(upkeep, "_MANY", 3)
        _check_every_row(tmp_path_factory, steps, batch)


def _check_every_row(tmp_path_factory: pytest.TempPathFactory, steps: list[str], batch: int) -> None:
    builder = DirectoryBuilder(tmp_path_factory.mktemp("data"))
    url = f"memory://{uuid4().hex}"
    queues = [builder.queue("a"), builder.queue("b", "other")]
    builder.tick()
    archive(builder, ArchiveFiles(url))
    sent: Counter[str] = Counter()
    waiting = left = 0
    for number, step in enumerate(steps):
        if step == "publish":
            for queue in queues:
                found = [f"{queue.qid} {number} {at}" for at in range(7)]
                builder.publish(builder.store(queue), [each.encode() for each in found])
                sent.update(found)
            waiting += 7
        elif step == "settle":
            count = min(3, waiting)
            builder.settle(builder.store(queues[0]), count)
            left, waiting = left + count, waiting - count
        elif step == "archive":
            archive(builder, ArchiveFiles(url), batch=batch)
        elif step == "day":
            builder.wait(86_400)
        else:
            builder.reopen(in_order=step == "restart")
            queues = sorted(builder.engine.queues.values(), key=lambda queue: queue.qid)
        builder.tick()
        assert bodies(url, builder.path) == sent
        events = leveret.scan([url, builder.path], "events", columns=["messages"]).read_all()["messages"].to_pylist()
        assert sum(events) == left
    builder.close()


def test_options_that_archives_do_not_have(builder: DirectoryBuilder, url: str, tmp_path: Path) -> None:
    archive(builder, ArchiveFiles(url))
    for table in ("delayed", "queues", "segments"):
        with pytest.raises(OptionError, match=f"an archive has the tables messages, events, audit, but not {table}"):
            leveret.scan(url, table)
    with pytest.raises(OptionError, match="asOf and snapshot do not apply to archives"):
        leveret.scan(url, as_of=1)
    with pytest.raises(OptionError, match="startingOffsets and endingOffsets do not apply to archives"):
        leveret.scan(url, starting_offsets=7)
    with pytest.raises(OptionError, match="table events has no column 'body'; its columns are broker, vhost"):
        leveret.scan(url, "events", columns=["body"])
    with pytest.raises(OptionError, match=r"columns=\['body'\]"):
        leveret.scan(url, columns="body")
    with pytest.raises(OptionError, match="name at least one column"):
        leveret.scan(url, columns=[])
    with pytest.raises(OptionError, match=r"one data directory at a time.* 0 of these 2 are archives"):
        leveret.scan([builder.path, str(tmp_path)])
    with pytest.raises(OptionError, match="2 of these 2 are archives"):
        leveret.scan([url, url])


def test_a_file_that_is_gone_or_damaged(builder: DirectoryBuilder, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(url))
    (path,) = Path(url).glob("messages/*/*.parquet")
    octets = path.read_bytes()
    path.write_bytes(octets[:-1] + b"x")
    with pytest.raises((pa.ArrowException, OSError), match=f"{path.name}.*Parquet magic bytes not found"):
        leveret.scan(url).read_all()
    path.unlink()
    with pytest.raises((pa.ArrowException, OSError), match=f"{path.name} is gone: the archive was compacted"):
        leveret.scan(url).read_all()


def test_a_large_archive_is_read_in_parts(builder: DirectoryBuilder, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_TASK_BYTES", 1)
    archive(builder, ArchiveFiles(url), batch=20)
    assert bodies(url).total() == 120


def test_the_documented_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = build(tmp_path / "leveret-data")
    archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    builder.publish(builder.store(builder.queue("c")), [b"x"])
    builder.tick()
    monkeypatch.chdir(tmp_path)
    # All events of these tests are older.
    exec(block("python", 'leveret.scan("archive", "events"').replace("2026-01-31", "2023-01-31"), {})
    printed = capsys.readouterr().out
    for row in (("one", "a", "ack", "10"), ("one", "b/=", "60"), ("one", "c", "1", "1")):
        assert any(all(f" {word} " in line for word in row) for line in printed.splitlines()), printed
    builder.close()


def test_the_names_of_brokers(builder: DirectoryBuilder, url: str, tmp_path: Path) -> None:
    archive(builder, ArchiveFiles(url), broker="first")
    other = DirectoryBuilder(tmp_path / "other")
    other.close()
    nothing = str(tmp_path / "nothing")
    assert broker_names(url, [other.path, builder.path, nothing]) == {
        other.path: "other",
        builder.path: "first",
        nothing: "nothing",
    }


def test_brokers_that_no_archive_knows_have_different_names(builder: DirectoryBuilder, tmp_path: Path) -> None:
    """By what their directories note, or by how these are called."""
    url = str(tmp_path / "archive")
    archive(builder, ArchiveFiles(url), broker="b")
    paths = [str(tmp_path / name) for name in ("x/data", "y/data", "b", "z/w")]
    for number, path in enumerate(paths):
        other = build(Path(path), str(number), (f"q{number}", "q"))
        if number == 3:
            archive(other, ArchiveFiles(f"{url}-2"), broker="elsewhere")
        other.close()
    names = dict(zip(paths, ("x/data", "y/data", f"{tmp_path.name}/b", "elsewhere"), strict=True))
    expected = {**names, builder.path: "b"}
    assert broker_names(url, [*paths, builder.path]) == expected
    for table, rows in (("messages", 120), ("events", 2)):
        found = leveret.scan([url, *paths, builder.path], table, columns=["broker"]).read_all()["broker"].to_pylist()
        assert Counter(found) == dict.fromkeys(expected.values(), rows)
    # The same name twice is told apart, too.
    write_note(DiskFiles(), paths[0], ArchiveNote("somewhere", "elsewhere"))
    assert {broker_names(url, paths)[path] for path in (paths[0], paths[3])} == {"x/data", "w"}
