"""Returned messages of queues in a data directory: their counts and their order survive restarts."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.protocol.field_table import FieldTable, longstr
from tests.support.queue_content import publish
from tests.support.simulated_files import SimulatedFiles
from tests.support.stored_queue import Start


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.mark.parametrize("written", [True, False])
def test_counts_and_order_survive(files: SimulatedFiles, written: bool) -> None:
    given: dict[str, Any] = {"redelivery_limit": 5}
    before = Start(files, **given)
    publish(before.queue, *"abc", persistent=True)
    if written:
        before.loop.run()
    before.returned(2)
    entry, other = before.got(), before.got()
    before.queue.requeue([other])
    before.queue.requeue([entry])
    before.stop()
    after = Start(files, **given)
    assert after.drain() == [("b", True, 1), ("a", True, 3), ("c", False, None)]
    after.stop()
    assert Start(files, **given).drain() == []


def test_the_limit_counts_what_was_before(files: SimulatedFiles) -> None:
    given: dict[str, Any] = {"redelivery_limit": 2}
    before = Start(files, **given)
    publish(before.queue, "a", persistent=True)
    before.returned(2)
    before.stop()
    after = Start(files, **given)
    after.returned()
    assert after.drain() == []
    assert +after.queue.counters.dropped == {"delivery_limit": 1}


def test_returned_messages_are_found_without_the_limit(files: SimulatedFiles) -> None:
    before = Start(files, redelivery_limit=2)
    publish(before.queue, *"ab", persistent=True)
    before.returned()
    before.stop()
    assert Start(files).drain() == [("a", True, 1), ("b", False, None)]


def test_priorities(files: SimulatedFiles) -> None:
    given: dict[str, Any] = {"redelivery_limit": 2, "max_priority": 9}
    before = Start(files, **given)
    for body, priority in (("low", 0), ("a", 5), ("b", 5), ("top", 9)):
        publish(before.queue, body, priority=priority, persistent=True)
    entries = [before.got() for _ in range(4)]
    before.queue.requeue([entries[2]])
    before.queue.requeue([entries[3]])
    before.stop()
    after = Start(files, **given)
    assert after.drain() == [("top", True, None), ("b", True, 1), ("a", True, None), ("low", True, 1)]


@pytest.mark.parametrize("lazy", [True, False])
def test_transient_messages(files: SimulatedFiles, lazy: bool) -> None:
    """They can be read wherever they are, and are gone after a restart."""
    given: dict[str, Any] = {"redelivery_limit": 9, "queue_mode": "lazy" if lazy else "default"}
    before = Start(files, **given)
    publish(before.queue, *"abc")
    for _ in range(4):
        before.loop.run()
        before.returned()
    before.queue.backing.page_out(1 << 20)
    before.loop.run()
    before.returned()
    before.loop.run()
    assert before.drain() == [("a", True, 5), ("b", False, None), ("c", False, None)]
    publish(before.queue, *"d")
    before.returned()
    before.stop()
    assert Start(files, **given).drain() == []


def test_a_queue_in_memory_moves_to_disk(files: SimulatedFiles) -> None:
    start = Start(files, durable=False, redelivery_limit=9, max_priority=2)
    publish(start.queue, *"abc")
    publish(start.queue, *"d", priority=1)
    held = [start.got() for _ in range(3)]
    start.queue.requeue([held[1]])
    start.queue.backing.page_out(1 << 20)
    start.loop.run()
    start.queue.requeue([held[2], held[0]])
    start.loop.run()
    assert start.drain() == [("d", True, 1), ("a", True, 1), ("b", True, 1), ("c", False, None)]


def test_a_queue_that_moved_to_disk_with_what_was_held_can_be_deleted(files: SimulatedFiles) -> None:
    start = Start(files, durable=False)
    publish(start.queue, *"abcd")
    held = [start.got() for _ in range(4)]
    start.queue.requeue([held[3]])
    start.queue.backing.page_out(1 << 20)
    start.loop.run()
    assert start.drain() == [("d", True, None)]
    # How long these are, the store in memory has not counted.
    start.queue.acknowledge(held[:2])
    (store,) = start.queue.backing.stores()
    assert (store.taken_count, store.taken_bytes) == (1, 0)
    # A checkpoint and an event have the sums of bytes.
    start.engine.checkpoint()
    start.loop.advance(2)
    start.queue.backing.delete()
    start.loop.advance(2)
    assert not start.engine.queues


# -- delayed retries ----------------------------------------------------------------------------------------

RETRY: dict[str, Any] = {"delayed_retry_type": "all", "delayed_retry_min": 10_000, "delayed_retry_max": 60_000}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_waits_is_neither_early_nor_lost(files: SimulatedFiles, kind: str) -> None:
    given = {**RETRY, "queue_type": kind}
    before = Start(files, **given)
    publish(before.queue, *"abc", persistent=True)
    before.returned()
    before.loop.advance(4)
    before.returned()
    before.stop()
    after = Start(files, 1009.0, **given)
    after.loop.advance(0.9)
    assert after.drain() == [("c", False, 0 if kind == "quorum" else None)]
    assert after.queue.contents.delayed_count == 2
    after.loop.advance(0.2)
    assert after.drain() == [("a", True, 0 if kind == "quorum" else 1)]
    after.loop.advance(3.8)
    assert after.drain() == []
    after.stop()
    again = Start(files, 2000.0, **given)
    again.loop.advance(0)
    assert [body for body, *_ in again.drain()] == ["b"]
    assert again.queue.contents.delayed_count == 0


def test_they_are_found_without_the_arguments_and_by_priority(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY, max_priority=5)
    for body, priority in (("a", 1), ("b", 5)):
        publish(before.queue, body, priority=priority, persistent=True)
    before.returned(2)
    before.stop()
    after = Start(files, 1020.0, max_priority=5)
    publish(after.queue, "c", priority=5)
    after.loop.advance(0)
    assert [body for body, *_ in after.drain()] == ["b", "c", "a"]


def test_their_time_to_live_survives(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY)
    publish(before.queue, "b", persistent=True, expiration=5_000)
    publish(before.queue, "a", persistent=True, expiration=15_000)
    before.returned(2)
    before.stop()
    after = Start(files, 1010.0, **RETRY)
    after.loop.advance(0)
    assert (after.queue.ready_count(), after.queue.counters.dropped["expired"]) == (1, 1)
    after.loop.advance(4.9)
    assert after.queue.ready_count() == 1
    after.loop.advance(0.2)
    assert after.queue.ready_count() == 0


def test_the_count_and_the_delay_go_on(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY, queue_type="quorum", delivery_limit=2)
    publish(before.queue, "a", persistent=True)
    before.queue.requeue([before.got()], failed=True)
    before.stop()
    after = Start(files, 1010.0, **RETRY, queue_type="quorum", delivery_limit=2)
    after.loop.advance(0)
    after.queue.requeue([after.got()], failed=True)
    after.loop.advance(19.9)
    assert after.queue.ready_count() == 0
    after.loop.advance(0.2)
    after.queue.requeue([after.got()], failed=True)
    assert +after.queue.counters.dropped == {"delivery_limit": 1}


@pytest.mark.parametrize("durable", [True, False])
def test_transient_messages_wait_on_disk_until_the_restart(files: SimulatedFiles, durable: bool) -> None:
    before = Start(files, durable=durable, **RETRY)
    publish(before.queue, *"ab")
    publish(before.queue, "c", persistent=True)
    before.returned(3)
    before.loop.run()
    before.loop.advance(1)
    assert before.queue.backing.held_bytes == 0
    before.loop.advance(9)
    assert [body for body, *_ in before.drain()] == ["a", "b", "c"]
    publish(before.queue, *"de")
    publish(before.queue, "f", persistent=True)
    before.returned(3)
    before.stop()
    after = Start(files, 2000.0, durable=durable, **RETRY)
    after.loop.advance(0)
    assert [body for body, *_ in after.drain()] == (["f"] if durable else [])


@pytest.mark.parametrize("loaded", [True, False])
def test_a_purge_after_a_start(files: SimulatedFiles, loaded: bool) -> None:
    before = Start(files, **RETRY)
    publish(before.queue, *["a"] * 3000, persistent=True)
    before.returned(3000)
    before.stop()
    after = Start(files, 1001.0, **RETRY)
    if loaded:
        after.loop.advance(0)
    assert after.queue.purge() == 3000
    publish(after.queue, "b", persistent=True)
    after.returned()
    after.loop.advance(11)
    assert [body for body, *_ in after.drain()] == ["b"]
    after.stop()
    again = Start(files, 3000.0, **RETRY)
    again.loop.advance(1)
    assert again.drain() == []


def test_very_many_return_in_their_order(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY)
    bodies = [f"{number:04d}" for number in range(3000)]
    publish(before.queue, *bodies, persistent=True)
    before.returned(3000)
    before.loop.advance(10)
    assert [body for body, *_ in before.drain()] == bodies
    before.stop()
    again = Start(files, 3000.0, **RETRY)
    again.loop.advance(1)
    assert again.drain() == []


def test_a_queue_in_memory_moves_to_disk_with_what_is_held(files: SimulatedFiles) -> None:
    start = Start(files, durable=False, **RETRY)
    publish(start.queue, *"abcd")
    held = [start.got() for _ in range(3)]
    start.queue.requeue([held[1]])
    start.queue.acknowledge([held[0]])
    start.loop.advance(1)
    start.queue.requeue([held[2]])
    start.loop.advance(10)
    assert [body for body, *_ in start.drain()] == ["b", "c", "d"]


@pytest.mark.parametrize("wait", [1.0, 11.0])
def test_a_duplicate_of_what_waits_is_dropped(files: SimulatedFiles, wait: float) -> None:
    """Before a restart and after it."""
    headers: FieldTable = (("x-deduplication-header", longstr("a")),)
    given: dict[str, Any] = {**RETRY, "message_deduplication": "true"}
    before = Start(files, **given)
    for _ in range(2):
        publish(before.queue, "a", headers=headers, persistent=True)
    before.returned()
    publish(before.queue, "a", headers=headers, persistent=True)
    assert (before.queue.store.ready_count, before.queue.counters.deduplicated) == (0, 2)
    before.stop()
    after = Start(files, **given)
    after.loop.advance(wait)
    publish(after.queue, "a", headers=headers, persistent=True)
    assert after.queue.counters.deduplicated == 1
    after.loop.advance(11)
    assert len(after.drain()) == 1
    publish(after.queue, "a", headers=headers, persistent=True)
    assert len(after.drain()) == 1
