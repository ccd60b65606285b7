"""A query for events that the broker does not keep any more is told where they are."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import leveret
from leveret.storage.analytics.archive.archive_files import ArchiveFiles
from leveret.storage.directory.archive_note import NAME
from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_log import event_files, file_name
from tests.spark.directories import DirectoryBuilder
from tests.support.archived import archive


def build(path: Path) -> tuple[DirectoryBuilder, float]:
    """A directory in an archive; the first of its two events has been removed. And since when it has events."""
    builder = DirectoryBuilder(path / "data")
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 2)
    builder.settle(store, 1)
    builder.tick()
    archive(builder, ArchiveFiles(str(path / "archive")))
    builder.wait(7200)
    builder.reopen()
    builder.settle(builder.store(builder.engine.queues[1]), 1)
    builder.tick()
    *removed, last = event_files(DiskFiles(), f"{builder.path}/events")
    assert removed
    for file in removed:
        os.unlink(f"{builder.path}/events/{file_name(file)}")
    return builder, last / 1_000_000


def told(caplog: pytest.LogCaptureFixture, source: Any, **options: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        leveret.scan(source, **{"table": "events"} | options).read_all()
    return [record.getMessage() for record in caplog.records if "older ones" in record.getMessage()]


def test_a_query_for_older_events_names_the_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder, since = build(tmp_path)
    archived = str(tmp_path / "archive")
    (text,) = told(caplog, builder.path, since=since - 3600)
    begins = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert text.startswith(f"{builder.path} has the events from {begins} on; older ones, if there were any, are in the")
    call = f"leveret.scan(['{archived}', '{builder.path}'], 'events')"
    assert text.endswith(f"in the archive {archived}: read both, as in {call}")
    assert told(caplog, builder.path, until=since - 3600) == [text]
    assert told(caplog, f"file://{builder.path}", since=since - 3600)
    # As it says.
    assert leveret.scan(builder.path, "events").read_all().num_rows == 1
    assert leveret.scan([archived, builder.path], "events").read_all().num_rows == 2
    builder.close()


def test_nothing_is_told_when_nothing_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder, since = build(tmp_path)
    archived = str(tmp_path / "archive")
    for options in ({}, {"since": since}, {"until": since + 1}, {"table": "messages", "since": 1}):
        assert told(caplog, builder.path, **options) == []
    assert told(caplog, [archived, builder.path], since=since - 3600) == []
    os.unlink(f"{builder.path}/{NAME}")
    assert told(caplog, builder.path, since=since - 3600) == []
    builder.close()


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
