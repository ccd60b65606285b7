"""Delivery tags and acknowledgements, with prefetch and transactions."""

from __future__ import annotations

import pytest
from pamqp import commands

from leveret.broker.core.queues.queue import Queue
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.transport import BODY


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """Channel 1 for the test, channel 2 to publish; a queue q with the messages 1 to 6."""
    opened = broker.open(channels=2)
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.send(*(publish(2, "q", str(number).encode()) for number in range(1, 7)))
    return opened


@pytest.fixture
def queue(broker: MemoryBroker, client: MemoryClient) -> Queue:
    return broker.vhost.queues["q"]


def bodies(client: MemoryClient) -> str:
    """Return the received bodies, of one letter each."""
    return "".join(each.payload.decode() for each in client.frames() if each.type == BODY)


def consume(client: MemoryClient, tag: str = "c", *, prefetch: int | None = None, shared: int | None = None) -> str:
    """Start a consumer on channel 1, after setting limits; return the bodies of its first deliveries."""
    if prefetch is not None:
        client.send(method(1, commands.Basic.Qos, prefetch_count=prefetch))
    if shared is not None:
        client.send(method(1, commands.Basic.Qos, prefetch_count=shared, global_=True))
    client.frames()
    client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag=tag))
    return bodies(client)


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(1, commands.Basic.Ack, delivery_tag=tag, multiple=multiple)


def nack(tag: int, *, multiple: bool = False, requeue: bool = True) -> bytes:
    return method(1, commands.Basic.Nack, delivery_tag=tag, multiple=multiple, requeue=requeue)


def unknown_tag(client: MemoryClient) -> tuple[str, int]:
    """Return the delivery tag and the method that a channel.close names."""
    close = client.only(commands.Channel.Close)
    prefix, _, tag = close.reply_text.rpartition(" ")
    assert (close.reply_code, prefix, close.class_id) == (406, "PRECONDITION_FAILED - unknown delivery tag", 60)
    return tag, close.method_id


class TestTags:
    def test_single_and_multiple(self, client: MemoryClient, queue: Queue) -> None:
        assert consume(client) == "123456"
        for octets, left in ((ack(2), 5), (ack(4, multiple=True), 2), (ack(5), 1), (ack(0, multiple=True), 0)):
            client.send(octets)
            assert queue.unacked_count == left
        client.send(ack(0, multiple=True))
        assert client.frames() == []

    def test_gets_and_unacknowledged_deliveries_are_numbered_too(self, client: MemoryClient) -> None:
        tags = []
        for no_ack in (True, False, True, False):
            client.send(method(1, commands.Basic.Get, queue="q", no_ack=no_ack))
            tags.append(client.only(commands.Basic.GetOk).delivery_tag)
        assert tags == [1, 2, 3, 4]
        client.send(ack(2), ack(4))
        assert client.frames() == []
        client.send(ack(3))
        assert unknown_tag(client) == ("3", 80)

    @pytest.mark.parametrize(
        ("octets", "tag", "blamed"),
        [
            (ack(7), "7", 80),
            (ack(0), "0", 80),
            (ack(99, multiple=True), "99", 80),
            (nack(7), "7", 120),
            (nack(99, multiple=True), "99", 120),
            (method(1, commands.Basic.Reject, delivery_tag=7, requeue=True), "7", 90),
            (ack(1) + ack(1), "1", 80),
            (ack(1) + ack(2) + ack(9) + ack(3), "9", 80),
            (ack(3, multiple=True) + ack(2), "2", 80),
        ],
    )
    def test_tags_that_are_not_outstanding(
        self, client: MemoryClient, queue: Queue, octets: bytes, tag: str, blamed: int
    ) -> None:
        consume(client)
        client.send(octets)
        assert unknown_tag(client) == (tag, blamed)
        assert queue.unacked_count == 0, "what was outstanding has returned"

    def test_a_run_of_acks_counts_up_to_the_wrong_one(self, client: MemoryClient, queue: Queue) -> None:
        consume(client)
        client.send(ack(1) + ack(2) + ack(9) + ack(3))
        assert queue.counters.acknowledged == 2
        assert queue.store.ready_count == 4

    def test_a_wrong_multiple_settles_nothing(self, client: MemoryClient, queue: Queue) -> None:
        consume(client)
        client.send(ack(99, multiple=True))
        assert (queue.counters.acknowledged, queue.store.ready_count) == (0, 6)

    def test_tags_are_the_channels_own(self, client: MemoryClient) -> None:
        consume(client)
        client.send(method(2, commands.Basic.Ack, delivery_tag=1))
        assert unknown_tag(client) == ("1", 80)


class TestReturning:
    def test_requeued_messages_return_to_their_positions_in_any_order(self, client: MemoryClient) -> None:
        client.send(*(method(1, commands.Basic.Get, queue="q") for _ in range(4)))
        client.frames()
        reject = method(1, commands.Basic.Reject, delivery_tag=2, requeue=True)
        client.send(nack(4), nack(1), reject, ack(3))
        assert consume(client) == "12456"

    def test_messages_rejected_without_requeue_are_dropped(self, client: MemoryClient, queue: Queue) -> None:
        consume(client)
        client.send(nack(5, multiple=True, requeue=False))
        client.send(method(1, commands.Basic.Reject, delivery_tag=6))
        assert (queue.unacked_count, queue.store.ready_count) == (0, 0)

    @pytest.mark.parametrize("kind", [commands.Basic.Recover, commands.Basic.RecoverAsync])
    def test_recover_returns_all(self, client: MemoryClient, kind: type[commands.Basic.Recover]) -> None:
        assert consume(client, prefetch=2) == "12"
        client.send(method(1, commands.Basic.Get, queue="q"))
        client.frames()
        client.send(method(1, kind, requeue=True))
        assert bodies(client) == "12"
        client.send(ack(1))
        assert unknown_tag(client) == ("1", 80)

    def test_recover_ok_comes_before_the_deliveries(self, client: MemoryClient) -> None:
        consume(client, prefetch=1)
        came = client.call(1, commands.Basic.Recover, requeue=True)
        assert [each.kind for each in came] == [commands.Basic.RecoverOk, commands.Basic.Deliver]
        assert came[1].redelivered

    def test_a_cancelled_consumers_messages_stay_with_the_channel(self, client: MemoryClient, queue: Queue) -> None:
        consume(client, prefetch=2)
        client.call(1, commands.Basic.Cancel, consumer_tag="c")
        assert queue.unacked_count == 2
        client.send(ack(1))
        assert client.frames() == [], "it gets no more"
        client.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        assert (queue.unacked_count, queue.store.ready_count) == (0, 5)


class TestPrefetch:
    def test_each_consumer_has_its_own_limit(self, client: MemoryClient) -> None:
        assert consume(client, "a", prefetch=2) == "12"
        assert consume(client, "b", prefetch=1) == "3"
        client.send(ack(1))
        assert bodies(client) == "4"
        client.send(ack(3), ack(2))
        assert bodies(client) == "56"

    def test_consumers_share_the_global_limit(self, client: MemoryClient) -> None:
        assert consume(client, "a", shared=2) == "12"
        assert consume(client, "b") == ""
        client.send(ack(1))
        assert bodies(client) == "3"

    def test_both_limits_count(self, client: MemoryClient) -> None:
        assert consume(client, "a", prefetch=2, shared=3) == "12"
        assert consume(client, "b") == "3"

    def test_raising_the_global_limit_takes_effect_immediately(self, client: MemoryClient) -> None:
        consume(client, shared=1)
        client.send(method(1, commands.Basic.Qos, prefetch_count=3, global_=True))
        assert bodies(client) == "23"
        client.send(method(1, commands.Basic.Qos, prefetch_count=0, global_=True))
        assert bodies(client) == "456"

    def test_gets_do_not_count(self, client: MemoryClient) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"))
        client.frames()
        assert consume(client, shared=2) == "23"

    def test_without_acknowledgement_there_is_no_limit(self, client: MemoryClient) -> None:
        client.send(method(1, commands.Basic.Qos, prefetch_count=1, global_=True))
        client.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c", no_ack=True))
        assert bodies(client) == "123456"


class TestTransactions:
    @pytest.fixture(autouse=True)
    def transactional(self, client: MemoryClient) -> None:
        client.call(1, commands.Tx.Select)

    def test_publishes_wait_for_the_commit(self, client: MemoryClient, queue: Queue) -> None:
        client.send(publish(1, "q", b"7"), publish(1, "nowhere", b"8", mandatory=True))
        assert (queue.store.ready_count, client.frames()) == (6, [])
        came = client.call(1, commands.Tx.Commit)
        assert [each.kind for each in came] == [commands.Basic.Return, commands.Tx.CommitOk]
        assert queue.store.ready_count == 7

    def test_publishes_are_checked_at_once(self, client: MemoryClient, queue: Queue) -> None:
        client.send(publish(1, "q", b"7"), publish(1, "q", b"8", exchange="missing"))
        assert client.only(commands.Channel.Close).reply_code == 404
        assert queue.store.ready_count == 6

    @pytest.mark.parametrize(("octets", "left"), [(ack(1), 5), (nack(1, requeue=False), 5), (nack(1), 6)])
    def test_acknowledgements_wait_for_the_commit(
        self, client: MemoryClient, queue: Queue, octets: bytes, left: int
    ) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"), octets)
        client.frames()
        assert (queue.store.ready_count, queue.unacked_count) == (5, 1)
        client.call(1, commands.Tx.Commit)
        assert (queue.store.ready_count, queue.unacked_count) == (left, 0)

    def test_a_tag_acknowledged_in_a_transaction_is_no_longer_outstanding(self, client: MemoryClient) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"))
        client.frames()
        client.send(ack(1), ack(1))
        assert unknown_tag(client) == ("1", 80)

    def test_a_rollback_makes_it_outstanding_again_in_its_place(self, client: MemoryClient, queue: Queue) -> None:
        client.send(*(method(1, commands.Basic.Get, queue="q") for _ in range(3)))
        client.frames()
        client.send(ack(2), publish(1, "q", b"7"))
        client.call(1, commands.Tx.Rollback)
        assert (queue.store.ready_count, queue.unacked_count) == (3, 3)
        client.send(ack(2, multiple=True))
        client.call(1, commands.Tx.Commit)
        assert (queue.store.ready_count, queue.unacked_count) == (3, 1)

    def test_closing_the_channel_discards_the_transaction(self, client: MemoryClient, queue: Queue) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"), ack(1), publish(1, "q", b"7"))
        client.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
        assert (queue.store.ready_count, queue.unacked_count) == (6, 0)

    def test_a_commit_makes_room_for_the_consumer(self, client: MemoryClient) -> None:
        assert consume(client, prefetch=1) == "1"
        client.send(ack(1))
        assert bodies(client) == ""
        client.send(method(1, commands.Tx.Commit))
        assert bodies(client) == "2"

    def test_recover_leaves_held_acknowledgements_alone(self, client: MemoryClient, queue: Queue) -> None:
        client.send(method(1, commands.Basic.Get, queue="q"), method(1, commands.Basic.Get, queue="q"), ack(1))
        client.frames()
        client.call(1, commands.Basic.Recover, requeue=True)
        assert (queue.store.ready_count, queue.unacked_count) == (5, 1)
        client.call(1, commands.Tx.Commit)
        assert (queue.store.ready_count, queue.unacked_count) == (5, 0)
