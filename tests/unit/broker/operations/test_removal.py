"""Deleting single messages of a queue by their keys."""

from __future__ import annotations

import random
from typing import Any

import pytest

from leveret.broker.auth.accounts import Accounts
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.single_messages import Removal
from leveret.protocol.faults import AmqpFault
from leveret.protocol.field_table import FieldValue, longstr
from tests.support.fake_consumer import FakeConsumer
from tests.support.queue_content import contents, publish
from tests.support.queues import declare, declare_stream, settle
from tests.support.simulated_files import SimulatedFiles, flip
from tests.support.stored_queue import Start

Skipped = list[tuple[int, int, str]]


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture(params=["default", "lazy"])
def start(request: pytest.FixtureRequest, files: SimulatedFiles) -> Start:
    """A queue in each mode."""
    return Start(files, queue_mode=request.param)


def numbered(count: int) -> list[str]:
    return [f"{number:04}" for number in range(count)]


def fill(start: Start, *bodies: str, **options: Any) -> None:
    publish(start.queue, *bodies, persistent=True, **options)
    start.loop.run()


def remove(queue: ClassicQueue, *keys: tuple[int, int], is_trial: bool = False) -> tuple[int, Skipped]:
    removal = Removal(queue, keys, is_trial)
    for _ in removal.steps():
        pass
    return removal.removed, [(each.level, each.seq, each.reason) for each in removal.skipped]


def test_only_these_are_deleted(start: Start) -> None:
    fill(start, *numbered(300))
    wanted = [*range(10, 100), 150, 152, 300, 1]
    assert remove(start.queue, *[(0, seq) for seq in wanted]) == (len(wanted), [])
    start.loop.run()
    assert (start.queue.ready_count(), start.queue.unacked_count) == (300 - len(wanted), 0)
    left = [body for seq, body in enumerate(numbered(300), 1) if seq not in wanted]
    assert start.drain() == [(body, False, None) for body in left], "the others were never delivered"


def test_they_are_gone_after_a_restart(start: Start, files: SimulatedFiles) -> None:
    fill(start, *"abcd")
    assert remove(start.queue, (0, 2), (0, 3)) == (2, [])
    start.stop()
    again = Start(files)
    assert remove(again.queue, (0, 2), (0, 3)) == (0, [(0, 2, "gone"), (0, 3, "gone")])
    assert contents(again.queue) == ["a", "d"]


@pytest.mark.parametrize("seed", range(10))
def test_no_loss_of_power_brings_them_back(files: SimulatedFiles, seed: int) -> None:
    start = Start(files)
    fill(start, *"abc")
    start.stores.when_synced(lambda: None)
    start.loop.run()
    synced: list[bool] = []
    assert remove(start.queue, (0, 2)) == (1, [])
    start.stores.when_settled(lambda: synced.append(True))
    start.loop.run()
    assert synced
    files.crash(random.Random(seed))
    assert contents(Start(files).queue) == ["a", "c"]


def test_what_a_consumer_holds_stays(start: Start) -> None:
    fill(start, *"abcd")
    consumer = FakeConsumer(start.queue, room=2)
    start.queue.add_consumer(consumer)
    start.queue.deliver()
    assert remove(start.queue, *[(0, seq) for seq in range(1, 5)]) == (2, [(0, 1, "unacked"), (0, 2, "unacked")])
    start.queue.remove_consumer(consumer)
    settle(consumer, consumer.held[:1], "acknowledge")
    settle(consumer, consumer.held[-1:], "requeue")
    start.loop.run()
    assert remove(start.queue, (0, 1), (0, 2)) == (1, [(0, 1, "gone")])
    assert contents(start.queue) == []


def test_what_was_never_there(start: Start) -> None:
    fill(start, "a")
    expected = [(0, 2, "unknown"), (0, (1 << 63) - 1, "unknown"), (7, 1, "unknown")]
    assert remove(start.queue, (0, 2), (0, (1 << 63) - 1), (7, 1)) == (0, expected)


def test_each_message_is_counted_once_and_as_purged(start: Start) -> None:
    fill(start, *"abc")
    assert remove(start.queue, (0, 2), (0, 2)) == (1, [])
    counters = start.queue.counters
    assert (counters.dropped["purged"], counters.acknowledged) == (1, 0)
    assert start.queue.figures().messages_persistent == 2


def test_they_are_not_dead_lettered(files: SimulatedFiles) -> None:
    start = Start(files, dead_letter_exchange="", dead_letter_routing_key="dlq")
    letters = declare(start.vhost, "dlq")
    fill(start, *"ab")
    assert remove(start.queue, (0, 1)) == (1, [])
    start.loop.run()
    assert letters.ready_count() == 0


def test_what_has_expired_is_dead_lettered_rather_than_deleted(files: SimulatedFiles) -> None:
    start = Start(files, dead_letter_exchange="", dead_letter_routing_key="dlq")
    letters = declare(start.vhost, "dlq")
    fill(start, "a", expiration=1000)
    start.loop.now += 2
    assert remove(start.queue, (0, 1)) == (0, [(0, 1, "gone")])
    start.loop.run()
    assert contents(letters) == ["a"]


def test_the_next_message_expires_in_time(files: SimulatedFiles) -> None:
    start = Start(files)
    fill(start, "a")
    fill(start, "b", expiration=1000)
    assert remove(start.queue, (0, 1)) == (1, [])
    start.loop.run()
    start.loop.advance(2)
    assert start.queue.store.ready_count == 0


def test_by_priority(files: SimulatedFiles) -> None:
    start = Start(files, max_priority=5)
    fill(start, "low", priority=1)
    fill(start, "high", priority=4)
    assert remove(start.queue, (4, 1), (5, 1), (1, 2)) == (1, [(1, 2, "unknown"), (5, 1, "unknown")])
    assert contents(start.queue) == ["low"]


def test_a_priority_whose_messages_are_all_gone_is_remembered_over_restarts(files: SimulatedFiles) -> None:
    start = Start(files, max_priority=5)
    fill(start, "low", priority=1)
    fill(start, "high", priority=4)
    assert remove(start.queue, (4, 1)) == (1, [])
    start.stop()
    assert remove(Start(files, max_priority=5).queue, (4, 1)) == (0, [(4, 1, "gone")])


def test_returned_messages_have_a_level_of_their_own(files: SimulatedFiles) -> None:
    start = Start(files, redelivery_limit=5)
    fill(start, *"abc")
    start.returned()
    assert remove(start.queue, (0, 1), (1, 1), (0, 3)) == (2, [(0, 1, "gone")])
    assert start.drain() == [("b", False, None)]


def test_what_waits_for_its_retry_stays(files: SimulatedFiles) -> None:
    start = Start(files, delayed_retry_type="all", delayed_retry_min=60_000)
    fill(start, *"ab")
    start.returned()
    start.loop.run()
    assert start.queue.contents.delayed_count == 1
    assert remove(start.queue, (0, 1), (2, 1), (2, 2)) == (0, [(0, 1, "gone"), (2, 1, "waiting"), (2, 2, "gone")])
    assert contents(start.queue) == ["b"]


def test_a_value_becomes_free_again(files: SimulatedFiles) -> None:
    start = Start(files)
    queue = declare(start.vhost, "unique", arguments=(("x-message-deduplication", FieldValue("t", True)),))
    headers = (("x-deduplication-header", longstr("v")),)
    for seq in (1, 2):
        assert publish(queue, "a", persistent=True, headers=headers) == 1
        assert publish(queue, "a", persistent=True, headers=headers) == 1, "it is dropped, and confirmed"
        assert queue.ready_count() == 1
        assert remove(queue, (0, seq)) == (1, [])


def test_a_damaged_message_is_left(files: SimulatedFiles) -> None:
    start = Start(files, queue_mode="lazy")
    fill(start, *numbered(3))
    for path, octets in files.snapshot().items():
        if b"0001" in octets:
            flip(files, path, octets.index(b"0001"), 1)
    assert remove(start.queue, *[(0, seq) for seq in (1, 2, 3)]) == (2, [(0, 2, "damaged")])


def test_a_deleted_queue(start: Start) -> None:
    fill(start, *numbered(100))
    removal = Removal(start.queue, [(0, seq) for seq in range(1, 101)])
    steps = removal.steps()
    next(steps)
    start.vhost.delete_queue(start.queue)
    assert [*steps] == [None]
    assert (removal.removed, len(removal.skipped), removal.skipped[0].reason) == (64, 36, "gone")


class TestOpening:
    @pytest.fixture
    def principal(self, start: Start) -> Principal:
        accounts = Accounts(("u",))
        accounts.add_user("u", "u")
        accounts.set_permissions("u", "v", "", "", "q|memory|stream")
        return Principal(accounts, accounts.users["u"], start.vhost)

    def test_the_queue_of_the_keys(self, start: Start, principal: Principal) -> None:
        assert start.queue.backing.qid is not None
        assert queues.open_for_removal(principal, "q", start.queue.backing.qid) is start.queue

    def test_one_in_memory(self, start: Start, principal: Principal) -> None:
        declare(start.vhost, "memory", durable=False)
        with pytest.raises(AmqpFault, match="in memory"):
            queues.open_for_removal(principal, "memory", 1)

    def test_a_stream(self, start: Start, principal: Principal) -> None:
        stream = declare_stream(start.vhost, "stream")
        with pytest.raises(AmqpFault, match="not supported by stream queues"):
            queues.open_for_removal(principal, "stream", stream.backing.qid or 0)
