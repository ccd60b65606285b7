from __future__ import annotations

from pathlib import Path

import pytest

from leveret.storage.directory.queue_names import DELETED_FILE, forget_deleted, note_deleted, read_deleted
from leveret.storage.disk.files import DiskFiles
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.snapshot import NoSuchQueueError, Request, take_snapshot
from tests.spark.directories import DirectoryBuilder
from tests.support.plain_reader import open_reader

MINUTE = 60_000_000


@pytest.fixture
def builder(tmp_path: Path) -> DirectoryBuilder:
    options = EngineOptions(segment_bytes=4000, ballast_bytes=0, event_retention=10 * MINUTE)
    return DirectoryBuilder(tmp_path / "data", options)


def names(builder: DirectoryBuilder) -> list[str]:
    return [each.name for each in read_deleted(DiskFiles(), f"{builder.path}/events")]


def test_events_of_a_deleted_queue_have_its_name(builder: DirectoryBuilder) -> None:
    gone, kept = builder.queue("gone", "v"), builder.queue("kept")
    for queue in (gone, kept):
        builder.publish(builder.store(queue), [b"x"] * 5)
        builder.settle(builder.store(queue), 2)
    builder.engine.delete_queue(gone)
    builder.tick()
    with open_reader(builder.path, Request(messages=False, events=True)) as reader:
        found = {reader.snapshot.names[event.qid][:3] for event in reader.events() if event.qid}
        assert found == {("v", "gone", True), ("/", "kept", True)}
        assert [queue.name for queue in reader.queues] == ["kept"]

    def wanted(_: str, name: str) -> bool:
        return name == "gone"

    # It has events, but no messages.
    take_snapshot(builder.path, Request(events=True, messages=False, wanted=wanted, described="'gone'")).close()
    with pytest.raises(NoSuchQueueError, match="has no queue 'gone'; queues there: kept"):
        take_snapshot(builder.path, Request(wanted=wanted, described="'gone'"))


def test_queues_that_end_with_the_process_have_names_too(builder: DirectoryBuilder) -> None:
    builder.publish(builder.store(builder.queue("fleeting", durable=False)), [b"x"], delivery_mode=1)
    builder.tick()
    builder.close()
    again = DirectoryBuilder(Path(builder.path))
    assert names(again) == ["fleeting"]
    again.close()


def test_a_queue_without_events_needs_no_name(builder: DirectoryBuilder) -> None:
    """Some programs make and delete them all day long."""
    for name in ("unused", "used", "refused"):
        queue = builder.queue(name)
        store = builder.store(queue)
        if name == "used":
            builder.publish(store, [b"x"])
        if name == "refused":
            store.note(EventKind.REFUSED, 1, 1)
        builder.engine.delete_queue(queue)
    builder.tick()
    assert names(builder) == ["used", "refused"]


def test_names_are_forgotten_with_the_events(builder: DirectoryBuilder) -> None:
    for name in ("first", "second"):
        queue = builder.queue(name)
        builder.publish(builder.store(queue), [b"x"])
        builder.engine.delete_queue(queue)
        builder.tick()
        # So that the log continues in another file.
        builder.engine._events._size = 1 << 30
        builder.wait(3600)
    keeper = builder.store(builder.queue("keeper"))
    for _ in range(3):
        assert names(builder)[-1] == "second"
        builder.publish(keeper, [b"x"])
        builder.settle(keeper, 1)
        builder.engine.checkpoint()
        builder.tick()
    assert names(builder) == ["second"]


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    files, directory = DiskFiles(), str(tmp_path)
    note_deleted(files, directory, 1, True, {"vhost": "/", "name": "one"}, 10)
    with (tmp_path / DELETED_FILE).open("ab") as file:
        file.write(b'{"qid": 2, "name": "half a li')
    note_deleted(files, directory, 3, False, {}, 30)
    with (tmp_path / DELETED_FILE).open("ab") as file:
        file.write(b'[]\n{"qid": "x"}\n\xff\n')
    assert [(each.qid, each.name) for each in read_deleted(files, directory)] == [(1, "one"), (3, "#3")]
    forget_deleted(files, directory, 20)
    assert [each.qid for each in read_deleted(files, directory)] == [3]
