"""The table `audit`: the lines of the audit log, by time and virtual host."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import fsspec
import pytest

from leveret.analytics.errors import OptionError
from leveret.storage.audit_log import AuditLog
from leveret.storage.disk.files import DiskFiles
from leveret.storage.snapshots.snapshot import read_directory_format
from tests.spark.directories import START, DirectoryBuilder, rows_of_table

SECOND: Final = 1_000_000
COLUMNS: Final = ["kind", "object"]


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    made = DirectoryBuilder(tmp_path / "data")
    now = START
    store_id = read_directory_format(DiskFiles(), made.path).store_id
    log = AuditLog(DiskFiles(), made.path, store_id, lambda: now, file_bytes=200)
    record = {"user": "ann", "host": "10.0.0.1", "details": {"durable": True}}
    for number in range(6):
        about = {"vhost": "v" if number % 2 else "/", "object": f"q{number}"}
        log.add({"at": START + number * SECOND, "kind": "queue.created", **record, **about})
        log.write()
        now += SECOND
    log.add(
        {"at": START + 6 * SECOND, "kind": "alarm.set", "user": "rmq-internal", "broker": True, "object": "a\udcff"}
    )
    log.add({"at": START + 7 * SECOND, "kind": "queue.purged", "user": "bob", "object": "q", "count": 5, "details": {}})
    log.close()
    made.close()
    return made


def rows(path: str, **options: Any) -> list[str]:
    return [row["object"] for row in rows_of_table(path, table="audit", columns=COLUMNS, **options)]


def test_all_columns(builder: DirectoryBuilder) -> None:
    found = rows_of_table(builder.path, table="audit")
    first = {name: value for name, value in found[0].items() if name not in ("at", "event_at")}
    assert first == {
        "kind": "queue.created",
        "user_name": "ann",
        "host": "10.0.0.1",
        "consequence": False,
        "vhost": "/",
        "object": "q0",
        "messages": None,
        "details": '{"durable": true}',
    }
    assert found[0]["at"] == found[0]["event_at"]
    assert [row["messages"] for row in found] == [None] * 7 + [5]
    assert (found[6]["consequence"], found[6]["host"], found[6]["object"]) == (True, None, "a\ufffd")


def test_by_virtual_host(builder: DirectoryBuilder) -> None:
    assert rows(builder.path, vhost="v") == ["q1", "q3", "q5"]


def test_by_time(builder: DirectoryBuilder) -> None:
    since, until = START // SECOND + 2, START // SECOND + 4
    assert rows(builder.path, since=f"{since}", until=f"{until}") == ["q2", "q3", "q4"]


def test_a_copy_is_read(builder: DirectoryBuilder, tmp_path: Path) -> None:
    location = f"memory://{tmp_path}/copy"
    fsspec.filesystem("memory").put(builder.path, location, recursive=True)
    assert len(rows(location)) == 8


def test_queues_and_streams_are_refused(builder: DirectoryBuilder) -> None:
    with pytest.raises(OptionError, match="queue"):
        rows(builder.path, queue="q")
