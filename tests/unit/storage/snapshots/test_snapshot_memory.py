"""Snapshots that remember what earlier ones have read show what others show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.storage.event_format import EventKind
from leveret.storage.snapshots.snapshot import Choice, Request, SnapshotMemory, take_snapshot
from tests.spark.directories import DirectoryBuilder

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "settle", "requeue", "declare", "delete", "checkpoint", "restart"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=30,
)


def happen(builder: DirectoryBuilder, what: str, where: int, count: int) -> None:
    if what == "declare" or not builder.engine.queues:
        builder.queue(f"q{builder.clock.time}")
        return
    queue = list(builder.engine.queues.values())[where % len(builder.engine.queues)]
    store = builder.store(queue)
    if what == "publish":
        builder.publish(store, [b"m"] * count)
    elif what == "settle":
        builder.settle(store, count, EventKind.REJECT)
    elif what == "requeue":
        store.requeue(store.take(count, 1000)[0])
    elif what == "delete":
        builder.engine.delete_queue(queue)
    elif what == "checkpoint":
        builder.engine.checkpoint()
    elif what == "restart":
        builder.reopen(in_order=count > 4)


@settings(max_examples=25)
@given(STEPS, st.booleans())
def test_a_snapshot_with_memory_is_the_same(steps: list[tuple[str, int, int]], dead_too: bool) -> None:
    with TemporaryDirectory() as path:
        builder = DirectoryBuilder(Path(path))
        builder.tick()
        request = Request(dead_too=dead_too, link=False)
        with_memory = replace(request, memory=SnapshotMemory())
        for what, where, count in steps:
            happen(builder, what, where, count)
            builder.tick()
            assert take_snapshot(path, with_memory) == take_snapshot(path, request)
        builder.close()


def test_names_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = DirectoryBuilder(tmp_path)
    queues = [builder.queue(name) for name in "abc"]
    builder.tick()
    request = Request(memory=SnapshotMemory())
    with take_snapshot(builder.path, request) as snapshot:
        assert {queue.name for queue in snapshot.queues} == {"a", "b", "c"}
    (tmp_path / "q" / f"{queues[0].qid:08x}" / "QUEUE.json").write_text("damaged")
    builder.engine.delete_queue(queues[1])
    builder.queue("d")
    builder.tick()
    with take_snapshot(builder.path, request) as snapshot:
        assert {queue.name for queue in snapshot.queues} == {"a", "c", "d"}
    with take_snapshot(builder.path) as snapshot:
        assert {queue.name for queue in snapshot.queues} == {"#1", "c", "d"}


def test_only_what_was_chosen_is_in_a_snapshot(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    stores = {name: builder.store(builder.queue(name)) for name in "abc"}
    for store in stores.values():
        builder.publish(store, [b"m"])
    cut = builder.tick()
    seen: list[Choice] = []

    def choose(choice: Choice) -> set[int]:
        seen.append(choice)
        return {2, 3, 99}

    request = Request(choose=choose, wanted=lambda _, name: name != "c")
    with take_snapshot(builder.path, request) as snapshot:
        assert [queue.name for queue in snapshot.queues] == ["b"]
        assert {name.name for name in snapshot.names.values()} == {"a", "b", "c"}
        (choice,) = seen
        assert (choice.cut, set(choice.wanted), choice.lease) == (snapshot.cut, {1, 2}, snapshot.lease)
        assert snapshot.cut.time <= cut
