"""What a streaming query does when nothing has come: nothing that depends on the number of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import parse_options
from leveret.analytics.streaming import message_stream
from leveret.analytics.streaming.changed_queues import directory_state
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.storage.engine import EngineOptions
from leveret.storage.snapshots.snapshot import take_snapshot
from tests.spark.directories import DirectoryBuilder


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The snapshots that were taken."""
    taken: list[Any] = []

    def note(*arguments: Any) -> Any:
        taken.append(take_snapshot(*arguments))
        return taken[-1]

    monkeypatch.setattr(message_stream, "take_snapshot", note)
    return taken


def stream(builder: DirectoryBuilder, **options: str) -> MessageStream:
    return MessageStream(parse_options({"path": builder.path, **options}))


def test_an_idle_trigger_takes_no_snapshot(tmp_path: Path, snapshots: list[Any]) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 10)
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    assert offset["next"]["1/0"] == 11
    assert source.advance(offset, 0) is offset
    seen = len(snapshots)
    for _ in range(5):
        builder.tick()
        assert source.advance(offset, 0) is offset
    assert len(snapshots) == seen
    # An equal offset, as Spark hands it over.
    assert source.advance(dict(offset), 0) == offset
    assert len(snapshots) == seen
    builder.publish(store, [b"m"])
    builder.tick()
    later = source.advance(offset, 0)
    assert later["next"]["1/0"] == 12
    assert source.advance(offset, 0)["next"] == later["next"], "the batch is repeated"


@pytest.mark.parametrize("in_order", [True, False])
def test_what_comes_with_a_restart_is_seen(tmp_path: Path, in_order: bool) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 10)
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    assert source.advance(offset, 0) is source.advance(offset, 0) is offset
    builder.publish(store, [b"m"] * 5)
    builder.reopen(in_order)
    builder.tick()
    assert source.advance(offset, 0)["next"]["1/0"] == 16


def test_what_was_removed_unread_is_told_after_an_idle_trigger(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path, EngineOptions(segment_bytes=1000, trash_bytes=1, ballast_bytes=0))
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 90] * 20)
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    assert source.advance(offset, 0) is source.advance(offset, 0) is offset
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 40)
    builder.tick()
    builder.tick()
    with pytest.raises(AnalyticsError, match="20 messages of queue 'q'"):
        source.advance(offset, 0)


def test_a_target_is_reached_after_an_idle_trigger(tmp_path: Path) -> None:
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"] * 10)
    builder.tick()
    source = stream(builder)
    source.stop_at_latest()
    offset = source.advance(source.first(), 0)
    builder.publish(store, [b"m"])
    builder.tick()
    assert source.advance(offset, 0) is source.advance(offset, 0) is offset
    source.stop_at_latest()
    assert source.advance(offset, 0)["next"]["1/0"] == 12


def test_the_state_of_a_directory(tmp_path: Path) -> None:
    assert directory_state(str(tmp_path)) is None
    builder = DirectoryBuilder(tmp_path)
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"m"])
    builder.tick()
    before = directory_state(builder.path)
    assert before is not None
    builder.tick()
    assert directory_state(builder.path) == before, "a broker that is idle writes no events"
    builder.publish(store, [b"m"])
    builder.tick()
    assert directory_state(builder.path) != before
