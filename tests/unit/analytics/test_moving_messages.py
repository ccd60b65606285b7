"""A message that is returned, dead-lettered or moved is one row at each moment, while its copy is being synced too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import leveret
from leveret.storage.disk.files import DiskFiles
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import DEAD_LETTERED, EVENT_BYTES, EventKind
from leveret.storage.recovery.checkpoint import read_checkpoints
from leveret.storage.snapshots import dead
from leveret.storage.snapshots.snapshot import Request, SnapshotMemory, take_snapshot
from tests.spark.directories import DirectoryBuilder
from tests.support.plain_reader import open_reader


def rows(path: str, **options: Any) -> Counter[tuple[str, bytes]]:
    found = leveret.scan(path, columns=["queue", "body"], **options).read_all().to_pylist()
    return Counter((row["queue"], row["body"]) for row in found)


@pytest.mark.parametrize("tail", [EVENT_BYTES, 400 * EVENT_BYTES])
def test_a_message_and_its_copy_are_one_row(tmp_path: Path, tail: int) -> None:
    held: list[Callable[[], None]] = []
    options = EngineOptions(segment_bytes=4000, ballast_bytes=0, when_defined=held.append)
    builder = DirectoryBuilder(tmp_path, options)
    source, target = (builder.store(builder.queue(name)) for name in ("source", "target"))
    bodies = [b"%d" % number for number in range(20)]
    builder.publish(source, bodies)
    builder.tick()
    before = builder.clock.time
    memory = SnapshotMemory()

    def remembered() -> int:
        with open_reader(builder.path, Request(memory=memory)) as reader:
            return sum(1 for queue in reader.queues for _ in reader.messages(queue))

    def leave(count: int, kind: EventKind, flags: int) -> None:
        entries = source.take(count, 1 << 30)[0]
        builder.append(target if kind != EventKind.RETURNED else source, [entry[1].body for entry in entries])
        source.settle(entries, kind, flags)
        builder.engine.flush()

    with mock.patch.object(dead, "_TAIL_BYTES", tail):
        assert remembered() == 20
        found: Counter[tuple[str, bytes]] = Counter()
        for count, kind, flags in (
            (5, EventKind.MAXLEN, DEAD_LETTERED),
            (4, EventKind.MOVED, 0),
            (3, EventKind.RETURNED, 0),
        ):
            leave(count, kind, flags)
            builder.wait(1)
            builder.tick()
            found = rows(builder.path)
            assert sorted(body for _, body in found.elements()) == sorted(bodies)
            assert remembered() == 20
        assert sum(found[queue, body] for queue, body in found if queue == "target") == 9
        counts = leveret.scan(builder.path, "queues", columns=["queue", "messages"]).read_all().to_pylist()
        assert {row["queue"]: row["messages"] for row in counts} == {"source": 11, "target": 9}
        # What was is as it was.
        assert {queue for queue, _ in rows(builder.path, as_of=str(before / 1e6))} == {"source"}
        # Copies may be lost with the process, so the originals are back after a crash.
        builder.reopen(in_order=False)
        builder.tick()
        assert rows(builder.path).total() == 32
        assert remembered() == 32
        for callback in held:
            callback()
        store = next(each for each in builder.engine.queues.values() if each.attributes["name"] == "source").stores[0]
        entries = store.take(100, 1 << 30)[0]
        store.settle(entries, EventKind.ACK)
        builder.tick()
        assert {queue for queue, _ in rows(builder.path)} == {"target"}
    builder.close()


def test_what_leaves_when_a_checkpoint_is_written_is_one_row(tmp_path: Path) -> None:
    held: list[Callable[[], None]] = []
    options = EngineOptions(segment_bytes=4000, ballast_bytes=0, when_defined=held.append)
    builder = DirectoryBuilder(tmp_path, options)
    source, target = (builder.store(builder.queue(name)) for name in ("source", "target"))
    builder.publish(source, [b"x"] * 10)
    entries = source.take(10, 1 << 30)[0]
    builder.append(target, [b"x"] * 10)
    source.settle(entries, EventKind.MAXLEN, DEAD_LETTERED)
    builder.engine.flush()
    with mock.patch("leveret.storage.recovery.restart.Checkpointer.due", True):
        builder.tick()
    (checkpoint,) = read_checkpoints(DiskFiles(), f"{builder.path}/ckpt", [])[:1]
    with take_snapshot(builder.path, Request(messages=False)) as snapshot:
        assert snapshot.cut == (checkpoint.position, checkpoint.created)
    assert rows(builder.path).total() == 10
    builder.close()
