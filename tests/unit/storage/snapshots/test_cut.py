"""Cuts: the ticks of the event log, also the first one of a file."""

from __future__ import annotations

import os
from pathlib import Path

from leveret.storage.disk.files import DiskFiles
from leveret.storage.event_log import event_files, file_name
from leveret.storage.snapshots.dead import last_tick
from leveret.storage.snapshots.snapshot import read_directory_format
from tests.spark.directories import DirectoryBuilder


def test_the_first_tick_of_a_file_that_was_named_a_moment_later(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    builder.publish(builder.store(builder.queue("q")), [b"1"])
    builder.tick()
    events, store_id = f"{builder.path}/events", read_directory_format(DiskFiles(), builder.path).store_id
    tick = last_tick(DiskFiles(), events, store_id)
    assert tick is not None
    (file,) = event_files(DiskFiles(), events)
    assert file == tick.position.file
    later = tick.time + 40
    os.rename(f"{events}/{file_name(file)}", f"{events}/{file_name(later)}")
    found = last_tick(DiskFiles(), events, store_id, tick.time)
    assert found is not None
    assert (found.time, found.position.file, found.position.offset) == (tick.time, later, tick.position.offset)
    assert last_tick(DiskFiles(), events, store_id, tick.time - 1) is None
    builder.close()
