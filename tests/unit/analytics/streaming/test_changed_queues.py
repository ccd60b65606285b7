"""A streaming query that goes on looks only at queues that have changed, and finds what a look at all finds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.analytics.options import parse_options
from leveret.analytics.streaming import message_stream
from leveret.analytics.streaming.changed_queues import ChangedQueues, file_system_of
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.analytics.tables.table_reading import read_partition
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.snapshot import take_snapshot
from tests.spark.directories import DirectoryBuilder

is_local = pytest.mark.skipif(
    not ChangedQueues(gettempdir())._is_exact, reason="temporary files are where changes may be seen late"
)


def stream(builder: DirectoryBuilder, **options: str) -> MessageStream:
    return MessageStream(parse_options({"path": builder.path, **options}))


def rows_of(source: MessageStream, start: Any, end: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for partition in source.partitions(start, end):
        for batch in read_partition(partition, "messages", ["queue_id", "store_priority", "seq", "body"], True):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)


class Directory:
    """A data directory in which anything can happen to a few queues.

    Args:
        path: Where.
    """

    def __init__(self, path: Path) -> None:
        self.builder = DirectoryBuilder(path, EngineOptions(segment_bytes=600, trash_bytes=2000, ballast_bytes=0))
        for name in "abc":
            self.builder.queue(name)
        self.builder.tick()

    def do(self, what: str, where: int, count: int) -> None:
        """Let something happen to one of the queues."""
        builder, engine = self.builder, self.builder.engine
        if what == "declare" or not engine.queues:
            builder.queue(f"q{builder.clock.time}", durable=count > 2)
            return
        queue = list(engine.queues.values())[where % len(engine.queues)]
        store = builder.store(queue, count % 3 if what == "priority" else 0)
        bodies = [b"%d" % number for number in range(count)]
        if what in ("publish", "priority"):
            builder.publish(store, bodies)
        elif what == "transient":
            store.set_lazy(where % 2 == 0)
            builder.publish(store, bodies, delivery_mode=1)
        elif what == "settle":
            builder.settle(store, count, EventKind.EXPIRED if where % 2 else EventKind.ACK)
        elif what == "purge":
            store.purge()
        elif what == "lazy":
            store.set_lazy(True)
        elif what == "late":
            # After the last tick, so that a snapshot does not show it yet.
            builder.tick()
            builder.publish(store, bodies)
        elif what == "delete":
            engine.delete_queue(queue)
        elif what == "restart":
            builder.reopen(in_order=count % 2 == 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish"] * 4
            + ["settle"] * 2
            + ["priority", "transient", "purge", "lazy", "late", "declare", "delete", "restart"]
        ),
        st.integers(0, 7),
        st.integers(1, 12),
        # Whether what happened becomes visible, and whether the query looks.
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=25)
@given(STEPS)
def test_it_finds_what_a_look_at_all_queues_finds(steps: list[tuple[str, int, int, bool, bool]]) -> None:
    with TemporaryDirectory() as path:
        directory = Directory(Path(path))
        builder = directory.builder
        source = stream(builder, failOnDataLoss="false")
        offset = source.first()
        for what, where, count, is_shown, is_looked in [*steps, ("publish", 0, 1, True, True)]:
            directory.do(what, where, count)
            if is_shown:
                builder.tick()
            if not is_looked:
                continue
            other = stream(builder, failOnDataLoss="false")
            expected = other.advance(offset, 0)
            found = source.advance(offset, 0)
            assert found | {"snapshot": ""} == expected | {"snapshot": ""}
            assert rows_of(source, offset, found) == rows_of(other, offset, expected)
            if expected != offset:
                other.commit(expected)
            offset = json.loads(json.dumps(found))
        builder.close()


@settings(max_examples=12)
@given(STEPS, st.sampled_from([1, 3, 10]))
def test_limited_batches_get_every_message_once(steps: list[tuple[str, int, int, bool, bool]], limit: int) -> None:
    with TemporaryDirectory() as path:
        directory = Directory(Path(path))
        builder = directory.builder
        source = stream(builder, failOnDataLoss="false")
        start = offset = source.first()
        rows: list[tuple[Any, ...]] = []
        # The files of what leaves are gone in these cases.
        for what, where, count, is_shown, is_looked in steps:
            directory.do("publish" if what in ("settle", "purge", "delete", "restart") else what, where, count)
            if is_shown:
                builder.tick()
            if is_looked:
                end = source.advance(offset, limit)
                found = rows_of(source, offset, end)
                assert len(found) <= limit
                rows, offset = rows + found, json.loads(json.dumps(end))
        builder.tick()
        while (end := source.advance(offset, limit)) != offset:
            rows, offset = rows + rows_of(source, offset, end), end
        other = stream(builder)
        expected = other.advance(start, 0)
        assert sorted(rows) == rows_of(other, start, expected)
        assert "missed" not in offset
        builder.close()


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The names of the queues in each snapshot that was taken."""
    taken: list[set[str]] = []

    def note(*arguments: Any) -> Any:
        snapshot = take_snapshot(*arguments)
        taken.append({queue.name for queue in snapshot.queues})
        return snapshot

    monkeypatch.setattr(message_stream, "take_snapshot", note)
    return taken


def settle(builder: DirectoryBuilder, source: MessageStream, looked: list[set[str]], offset: Any) -> Any:
    """Wait until a query that has read everything looks at no queue; return its offset."""
    # What is new is known to be all only in the next step of the file system's clock.
    deadline = time.monotonic() + 30
    while not looked or looked[-1]:
        assert time.monotonic() < deadline
        let_time_pass(builder)
        before, offset = offset, source.advance(offset, 0)
        assert offset["next"] == before["next"]
    looked.clear()
    return offset


class NoDetails:
    """Details that are not known."""

    def texts(self, with_id: bool) -> dict[str, str]:
        return {}


def let_time_pass(builder: DirectoryBuilder) -> None:
    """Let there be a later moment, in which no queue has changed."""
    builder.engine.note_unroutable(1, 1, 0, NoDetails())
    builder.tick()


@is_local
def test_only_queues_that_have_changed_are_looked_at(tmp_path: Path, looked: list[set[str]]) -> None:
    builder = DirectoryBuilder(tmp_path)
    stores = {f"q{number}": builder.store(builder.queue(f"q{number}")) for number in range(8)}
    for store in stores.values():
        builder.publish(store, [b"m"] * 5)
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    assert looked.pop() == set(stores)
    offset = settle(builder, source, looked, offset)
    builder.publish(stores["q5"], [b"m"])
    builder.tick()
    end = source.advance(offset, 0)
    assert looked.pop() == {"q5"}
    assert [row[2] for row in rows_of(source, offset, end)] == [6]
    end = settle(builder, source, looked, end)
    # A further priority, a new queue, and one that is gone.
    builder.publish(builder.store(builder.engine.queues[3], 4), [b"m"])
    builder.queue("new")
    builder.engine.delete_queue(builder.engine.queues[5])
    builder.tick()
    offset, end = end, source.advance(end, 0)
    assert looked.pop() == {"q2", "new"}
    assert [row[:3] for row in rows_of(source, offset, end)] == [(3, 4, 1)]
    settle(builder, source, looked, end)
    # A query that goes on elsewhere looks at all.
    let_time_pass(builder)
    source.advance(offset, 0)
    assert looked.pop() == set(stores) - {"q4"} | {"new"}


@is_local
@pytest.mark.parametrize("priority", [0, 4])
@pytest.mark.parametrize("is_persistent", [True, False])
def test_a_new_file_is_seen(tmp_path: Path, looked: list[set[str]], priority: int, is_persistent: bool) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"), priority)
    builder.publish(store, [b"m"] * 5)
    builder.tick()
    # What was written before a stop is not appended to.
    builder.reopen()
    store = builder.store(builder.engine.queues[1], priority)
    store.set_lazy(True)
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    offset = settle(builder, source, looked, offset)
    builder.publish(store, [b"n"] * 2, delivery_mode=2 if is_persistent else 1)
    builder.tick()
    assert [row[2:] for row in rows_of(source, offset, source.advance(offset, 0))] == [(6, b"n"), (7, b"n")]


@is_local
def test_a_queue_that_was_left_unread_is_looked_at_again(tmp_path: Path, looked: list[set[str]]) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 30)
    builder.tick()
    source = stream(builder)
    offset = source.first()
    for unread in (18, 6, 0):
        let_time_pass(builder)
        end = source.advance(offset, 12)
        assert looked.pop() == {"q"}
        assert len(rows_of(source, offset, end)) == (12 if unread else 6)
        offset = end
        assert offset.get("unread", {}) == ({"1/0": [31, unread]} if unread else {})
    settle(builder, source, looked, offset)


MOUNTS = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
22 21 0:20 / /proc rw,nosuid shared:5 - proc proc rw
31 21 0:44 / /mnt/data rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
32 31 8:1 / /mnt/data/my\040disk rw - xfs /dev/sdb rw
33 21 8:2 / /mnt/over rw - ext4 /dev/sdc rw
34 33 0:50 / /mnt/over rw - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/leveret", "ext4"),
        ("/mnt/data/leveret", "nfs4"),
        ("/mnt/data", "nfs4"),
        ("/mnt/database", "ext4"),
        ("/mnt/data/my disk/leveret", "xfs"),
        ("/mnt/over/leveret", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_directory(path: str, kind: str) -> None:
    assert file_system_of(path, MOUNTS) == kind
    assert file_system_of(path, "") == ""


def test_all_queues_are_looked_at_where_changes_may_be_seen_late(
    tmp_path: Path, looked: list[set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.analytics.streaming.changed_queues.file_system_of", lambda *_: "nfs4")
    builder = DirectoryBuilder(tmp_path)
    stores = {name: builder.store(builder.queue(name)) for name in "ab"}
    source = stream(builder)
    offset = source.first()
    for _ in range(3):
        builder.publish(stores["a"], [b"m"])
        builder.tick()
        offset = source.advance(offset, 0)
        assert looked.pop() == {"a", "b"}
