from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.options import parse_options
from leveret.analytics.streaming.message_stream import MessageStream
from leveret.storage.engine import EngineOptions
from leveret.storage.event_format import EventKind
from tests.spark.directories import DirectoryBuilder

#: Segments of a few messages, and a trash that keeps none.
OPTIONS = EngineOptions(segment_bytes=1000, trash_bytes=1, ballast_bytes=0)


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DirectoryBuilder]:
    builder = DirectoryBuilder(tmp_path, OPTIONS)
    yield builder
    builder.close()


def stream(builder: DirectoryBuilder, **options: str) -> MessageStream:
    return MessageStream(parse_options({"path": builder.path, **options}))


def advance(builder: DirectoryBuilder, start: Any, limit: int = 0, **options: str) -> Any:
    """Return the offset after the next batch of a query that was just started, as Spark stores it."""
    return json.loads(json.dumps(stream(builder, **options).advance(start, limit)))


def begin(builder: DirectoryBuilder, **options: str) -> Any:
    return stream(builder, **options).first()


def consume(builder: DirectoryBuilder, store: Any, bodies: list[bytes]) -> None:
    """Publish messages, which are written, and acknowledge all; their segments go at once."""
    builder.publish(store, bodies)
    builder.settle(store, store.ready_count)
    for _ in range(3):
        builder.tick()


def test_what_was_consumed_between_two_triggers_is_an_error_that_says_what_to_do(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("orders"))
    builder.publish(store, [b"read"] * 3)
    builder.tick()
    start = begin(builder)
    offset = advance(builder, start)
    builder.settle(store, 3)
    consume(builder, store, [b"x" * 90] * 40)
    builder.publish(store, [b"new"])
    builder.tick()
    text = (
        r"^40 messages of queue 'orders' in virtual host '/' \(numbers 4 to 43\) were consumed or removed, .*"
        "failOnDataLoss=false .* new checkpoint directory"
    )
    for _ in range(2):
        with pytest.raises(AnalyticsError, match=text):
            advance(builder, offset)
    # The failed query has left no links, and goes on when it is told to.
    assert not list(Path(builder.path, "snap").iterdir())
    offset = advance(builder, offset, failOnDataLoss="false")
    assert offset["missed"] == {"/": {"orders": 40}}
    consume(builder, store, [b"x" * 90] * 10)
    assert advance(builder, offset, failOnDataLoss="false")["missed"] == {"/": {"orders": 50}}
    with pytest.raises(AnalyticsError, match=r"^10 messages of queue 'orders' .*\(numbers 45 to 54\)"):
        advance(builder, offset)


def test_a_limited_batch_misses_what_it_has_left_behind(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x" * 90] * 30)
    # The messages are dead and still there when the batch is made.
    builder.settle(store, 5)
    builder.tick()
    offset = advance(builder, begin(builder), 10)
    assert offset["unread"] == {"1/0": [31, 20]}
    assert advance(builder, offset, 10)["unread"] == {"1/0": [31, 10]}
    builder.settle(store, 25)
    for _ in range(3):
        builder.tick()
    with pytest.raises(AnalyticsError, match=r"^20 messages of queue 'q' .*\(numbers 11 to 30\)"):
        advance(builder, offset, 10)


def test_messages_that_were_in_no_file_are_not_promised(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    offset = advance(builder, begin(builder))
    for _ in range(5):
        # Settled in the turn in which they came.
        builder.append(store, [b"fast"] * 20)
        store.settle(store.take(20, 1000)[0])
        builder.append(store, [b"purged"], delivery_mode=1)
        store.purge()
        builder.tick()
        assert advance(builder, offset) == offset
    builder.publish(store, [b"slow"])
    builder.tick()
    offset = advance(builder, offset)
    assert "missed" not in offset
    # Neither are transient ones that a restart drops.
    store.set_lazy(True)
    builder.publish(store, [b"transient"] * 5, delivery_mode=1)
    assert store.log.spilled[0] == 5
    builder.reopen()
    builder.tick()
    assert "missed" not in advance(builder, offset)


@pytest.mark.parametrize("kind", [EventKind.EXPIRED, EventKind.MAXLEN, EventKind.MOVED])
def test_what_leaves_in_other_ways_is_missed_too(builder: DirectoryBuilder, kind: EventKind) -> None:
    store = builder.store(builder.queue("q"), 3)
    offset = advance(builder, begin(builder))
    builder.publish(store, [b"x" * 90] * 20)
    builder.settle(store, 20, kind)
    for _ in range(3):
        builder.tick()
    with pytest.raises(AnalyticsError, match=r"^20 messages of queue 'q'"):
        advance(builder, offset)


def test_a_purge_is_missed_and_a_return_is_not(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    offset = advance(builder, begin(builder))
    builder.publish(store, [b"x" * 90] * 20)
    # They come again, under new numbers.
    builder.settle(store, 20, EventKind.RETURNED)
    builder.publish(store, [b"x" * 90] * 20)
    for _ in range(3):
        builder.tick()
    end = advance(builder, offset)
    assert "missed" not in end
    builder.publish(store, [b"x" * 90] * 20)
    store.purge()
    for _ in range(3):
        builder.tick()
    with pytest.raises(AnalyticsError, match=r"^20 messages of queue 'q' .*\(numbers 41 to 60\)"):
        advance(builder, end)


def test_a_deleted_queue_is_missed_if_it_had_unread_messages(builder: DirectoryBuilder) -> None:
    queues = {name: builder.queue(name) for name in ("read", "unread", "other")}
    stores = {name: builder.store(queue) for name, queue in queues.items()}
    for store in stores.values():
        builder.publish(store, [b"x"] * 10)
        store.settle(store.take(9, 1000)[0][3:6])
    builder.tick()
    offset = advance(builder, begin(builder))
    # As many messages as the query has read, but not all of them are those.
    builder.engine.delete_queue(queues["read"])
    builder.tick()
    assert advance(builder, offset) == offset
    builder.publish(stores["unread"], [b"x"])
    builder.engine.delete_queue(queues["unread"])
    builder.tick()
    with pytest.raises(AnalyticsError, match=r"^1 messages of queue 'unread' .*\(numbers 11 to 11\)"):
        advance(builder, offset)
    # Another query does not read that queue.
    assert advance(builder, offset, queue="other") == offset


def test_queues_that_come_and_go_between_two_triggers_are_missed(builder: DirectoryBuilder) -> None:
    builder.tick()
    for start in ("earliest", "latest"):
        offset = begin(builder, startingOffsets=start)
        queue = builder.queue("short")
        consume(builder, builder.store(queue), [b"x" * 90] * 20)
        builder.engine.delete_queue(queue)
        builder.tick()
        with pytest.raises(AnalyticsError, match=r"^20 messages of queue 'short'"):
            advance(builder, offset)


def test_a_query_that_was_stopped_for_longer_than_events_are_kept(builder: DirectoryBuilder) -> None:
    store = builder.store(builder.queue("q"))
    builder.publish(store, [b"x"])
    builder.tick()
    offset = advance(builder, begin(builder))
    offset["events"]["file"] -= 1
    with pytest.raises(AnalyticsError, match="it is not known which messages were removed"):
        advance(builder, offset)
    assert advance(builder, offset, failOnDataLoss="false")["next"] == offset["next"]
    # One of a version that did not look.
    del offset["events"]
    consume(builder, store, [b"x" * 90] * 20)
    assert "missed" not in advance(builder, offset)


def test_a_query_without_new_messages_notes_when_a_file_of_events_has_ended(builder: DirectoryBuilder) -> None:
    builder.publish(builder.store(builder.queue("q")), [b"x"])
    builder.tick()
    source = stream(builder)
    offset = source.advance(source.first(), 0)
    assert source.advance(offset, 0) == offset
    builder.reopen()
    builder.publish(builder.store(builder.queue("other")), [b"x"])
    builder.tick()
    later = advance(builder, offset, queue="q")
    assert later["next"] == offset["next"]
    assert later["events"]["file"] > offset["events"]["file"]
    assert list(stream(builder, queue="q").partitions(offset, later)) == []
