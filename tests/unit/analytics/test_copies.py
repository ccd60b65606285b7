from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from leveret.storage.event_format import EventKind
from tests.spark.directories import DirectoryBuilder, rows_of_table


def rows(location: str, columns: list[str], **options: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows_of_table(location, columns=columns, **options)]


@pytest.mark.parametrize("protocol", ["file", "local", "memory"])
def test_a_copy_is_read_as_the_directory_is(tmp_path: Path, protocol: str) -> None:
    builder = DirectoryBuilder(tmp_path / "data")
    gone = builder.queue("gone")
    for queue in (gone, builder.queue("there")):
        builder.publish(builder.store(queue), [b"%03d" % number for number in range(60)])
        builder.settle(builder.store(queue), 20, EventKind.MAXLEN)
    builder.engine.delete_queue(gone)
    builder.tick()
    location = f"{protocol}://{tmp_path}/copy"
    # PyArrow knows the first one, fsspec the others.
    fsspec.filesystem(protocol).put(builder.path, location, recursive=True)
    builder.close()
    messages = rows(location, ["queue", "seq", "body"])
    assert messages == [("there", seq, b"%03d" % (seq - 1)) for seq in range(21, 61)]
    events = rows(location, ["queue", "kind", "messages"], table="events", queue="gone")
    assert events == [("gone", "maxlen", 20), ("gone", "queue_deleted", 40)]
    assert rows(location, ["queue", "messages", "body_bytes"], table="queues") == [("there", 40, 120)]
