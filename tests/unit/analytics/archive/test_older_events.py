"""Events that the broker does not keep any more are read from the archive that its data directory names."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import leveret
from leveret.analytics.archive.archive_files import ArchiveFiles
from leveret.analytics.errors import OptionError
from leveret.storage.directory.archive_note import NAME, ArchiveNote, write_note
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_log import event_files, file_name
from leveret.storage.snapshots.snapshot import SnapshotError
from tests.spark.directories import START, DirectoryBuilder
from tests.support.archived import archive
from tests.support.examples import examples


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    """A directory in an archive, together with another one; the first of its two events has been removed."""
    builder, other = DirectoryBuilder(tmp_path / "data"), DirectoryBuilder(tmp_path / "other")
    for each, broker in ((builder, "one"), (other, "two")):
        store = each.store(each.queue("q"))
        each.publish(store, [b"m"] * 2)
        each.settle(store, 1)
        each.tick()
        archive(each, ArchiveFiles(str(tmp_path / "archive")), broker=broker)
    other.close()
    builder.wait(7200)
    builder.reopen()
    builder.settle(builder.store(builder.engine.queues[1]), 1)
    builder.tick()
    assert remove_first(builder.path, 100)
    yield builder
    builder.close()


def remove_first(path: str, count: int) -> int:
    """Remove files of the event log, but never the last one; the number of those that were removed."""
    removed = event_files(DiskFiles(), f"{path}/events")[:-1][:count]
    for file in removed:
        os.unlink(f"{path}/events/{file_name(file)}")
    return len(removed)


def oldest(builder: DirectoryBuilder) -> float:
    """Since when it has events."""
    return event_files(DiskFiles(), f"{builder.path}/events")[0] / 1_000_000


def seqs(source: Any, **options: Any) -> list[int]:
    found: list[int] = leveret.scan(source, "events", columns=["seq"], **options).read_all()["seq"].to_pylist()
    return sorted(found)


def told(caplog: pytest.LogCaptureFixture, source: Any, **options: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        leveret.scan(source, **{"table": "events"} | options).read_all()
    return [record.getMessage() for record in caplog.records]


def test_events_of_an_earlier_time_are_those_of_the_archive(builder: DirectoryBuilder) -> None:
    since = oldest(builder)
    assert seqs(builder.path) == seqs(builder.path, since=since - 1) == seqs(builder.path, until=since + 3600) == [2]
    assert seqs(builder.path, since=since - 7300) == [1, 2]
    assert seqs(builder.path, since=since - 3600) == [2]
    assert seqs(f"file://{builder.path}", until=since - 3600) == [1]
    assert seqs(builder.path, since=since - 7300, archive="off") == [2]
    assert seqs(builder.path, archive="all") == seqs(builder.path, archive=since - 7300) == [1, 2]
    assert seqs(builder.path, archive=since - 3600) == [2]
    assert seqs(builder.path, archive="all", vhost="other") == []
    assert seqs(builder.path, archive="all", queue="q") == [1, 2]
    assert seqs(builder.path, archive="all", limit=1) == [1]
    # The columns are those of the live table.
    assert leveret.scan(builder.path, "events", archive="all").schema.equals(
        leveret.scan(builder.path, "events").schema
    )


def test_a_moment_that_the_broker_has_no_records_of_is_read_from_the_archive(
    builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    then = oldest(builder) - 3600
    assert seqs(builder.path, as_of=then) == [1]
    assert seqs(builder.path, as_of=START / 1e6) == []
    (text,) = told(caplog, builder.path, as_of=then)
    assert "the events are read from the archive" in text
    assert text.count("has no records of") == 1
    with pytest.raises(SnapshotError, match="has no records of"):
        leveret.scan(builder.path, "events", as_of=then, archive="off")
    with pytest.raises(SnapshotError, match="has no records of"):
        leveret.scan(builder.path, as_of=then)
    shutil.rmtree(f"{builder.path}/../archive")
    with pytest.raises(
        SnapshotError, match=r"has no records of .*; older ones are in the archive .*: there is no archi"
    ):
        seqs(builder.path, as_of=then)


def test_the_log_says_in_one_line_where_events_are_from(
    builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    since, archived = oldest(builder), f"{os.path.dirname(builder.path)}/archive"
    begins = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    says = f"{builder.path} has the events from {begins} on; older ones are read from the archive {archived}"
    assert told(caplog, builder.path, since=since - 3600) == [f"{says} (archive=off leaves them out)"]
    for options in ({}, {"since": since + 1}, {"until": since + 1}, {"table": "messages", "since": 1}):
        assert told(caplog, builder.path, **options) == []
    assert told(caplog, builder.path, since=since - 3600, archive="off") == []
    assert told(caplog, [archived, builder.path], since=since - 3600) == []


def test_what_is_missing_is_one_line(builder: DirectoryBuilder, caplog: pytest.LogCaptureFixture) -> None:
    begins = f"{datetime.fromtimestamp(oldest(builder), UTC):%Y-%m-%d %H:%M:%S} UTC"
    kept = f"{builder.path} has the events from {begins} on; "
    empty = f"{builder.path}-empty"
    ArchiveFiles(empty).make()
    for url, said in (
        (f"{builder.path}-nowhere", "there is no archive"),
        (empty, "it has nothing of this data directory"),
        ("nothing://archive", "nothing://archive: Protocol not known: nothing"),
    ):
        write_note(DiskFiles(), builder.path, ArchiveNote(url, "one"))
        says = f"{kept}older ones, if there were any, are in the archive {url}, which cannot be read: {said}"
        assert told(caplog, builder.path, since=1) == [says]
        assert seqs(builder.path, archive="all") == [2]
    os.unlink(f"{builder.path}/{NAME}")
    assert told(caplog, builder.path, since=1) == []
    assert told(caplog, builder.path, archive="all") == [
        f"{kept}it has no file {NAME}, which would name the archive with older ones"
    ]


def test_the_option_is_checked(builder: DirectoryBuilder) -> None:
    with pytest.raises(OptionError, match=r"option 'archive' is auto, off, all, or a time .*, not 'maybe'"):
        leveret.scan(builder.path, "events", archive="maybe")
    with pytest.raises(OptionError, match="option 'archive' does not apply to table messages, only to events"):
        leveret.scan(builder.path, archive="off")
    with pytest.raises(OptionError, match="the option archive is for data directories"):
        leveret.scan([f"{builder.path}/../archive", builder.path], "events", archive="off")


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["settle", "same", "wait", "roll", "reopen", "archive"]), max_size=25), st.data())
def test_each_event_is_there_once(steps: list[str], data: st.DataObject) -> None:
    """Also if events of one time are in the last file that was removed and in the first one that is left."""
    with tempfile.TemporaryDirectory() as directory:
        builder, files = DirectoryBuilder(Path(directory) / "data"), ArchiveFiles(f"{directory}/archive")
        store = builder.store(builder.queue("q"))
        builder.publish(store, [b"m"] * 30)
        builder.tick()
        archive(builder, files)
        for step in steps:
            if step == "reopen":
                builder.reopen()
                store = builder.store(builder.engine.queues[1])
            elif step == "roll":
                builder.engine._events._size = builder.engine._events._file_bytes
            elif step == "archive":
                builder.tick()
                archive(builder, files)
            elif step == "wait":
                builder.wait(data.draw(st.sampled_from([0.000001, 1, 100])))
            else:
                # The clock stands still.
                builder.clock._step = 0 if step == "same" else 10
                builder.settle(store, 1)
        builder.clock._step = 10
        builder.tick()
        archive(builder, files)
        for _ in range(data.draw(st.integers(0, 2))):
            builder.settle(store, 1)
        builder.tick()
        everything = leveret.scan(builder.path, "events").read_all().to_pylist()
        remove_first(builder.path, data.draw(st.integers(0, len(event_files(DiskFiles(), f"{builder.path}/events")))))
        assert rows(leveret.scan(builder.path, "events", archive="all")) == Counter(map(repr, everything))
        since = data.draw(st.sampled_from([row["at"] for row in everything])) if everything else 1
        later = [row for row in everything if everything and row["at"] >= since]
        assert rows(leveret.scan(builder.path, "events", since=since)) == Counter(map(repr, later))
        builder.close()


def rows(reader: Any) -> Counter[str]:
    return Counter(map(repr, reader.read_all().to_pylist()))


def test_an_archiver_whose_note_cannot_be_written_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.publish(builder.store(builder.queue("q")), [b"m"])
    builder.tick()
    (tmp_path / "data" / NAME).mkdir()
    assert archive(builder, ArchiveFiles(str(tmp_path / "archive")))
    assert f"{builder.path}/{NAME} cannot be written: Is a directory" in caplog.text
    builder.close()


def test_the_note_names_the_archive_of_last(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.tick()
    for name in ("first", "second"):
        archive(builder, ArchiveFiles(f"file://{tmp_path}/{name}"))
        fields = json.loads((tmp_path / "data" / NAME).read_bytes())
        assert (fields["url"], fields["broker"]) == (f"{tmp_path}/{name}", "one")
    builder.close()
