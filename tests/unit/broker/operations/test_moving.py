from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.jobs.job_options import read_move_options
from leveret.broker.operations.jobs.plans import Counts
from leveret.broker.operations.jobs.returning import MoveEnd, ReturnWork
from leveret.broker.operations.jobs.runner import ends_of
from leveret.broker.operations.principal import Principal
from leveret.protocol.field_table import longstr
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.memory_broker import MemoryBroker
from tests.support.queue_content import arguments, contents, drain, headers_of, publish, route_of
from tests.support.queues import declare, settle

NewMove: TypeAlias = Callable[..., ReturnWork]

QUORUM = (("x-queue-type", longstr("quorum")),)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def loop(broker: MemoryBroker) -> ManualLoop:
    return broker.loop


@pytest.fixture
def vhost(broker: MemoryBroker) -> VirtualHost:
    return broker.vhost


@pytest.fixture
def new_move(broker: MemoryBroker) -> NewMove:
    """A function that begins to move messages."""

    def begin(
        source: ClassicQueue, target: ClassicQueue, wanted: dict[str, Any] | None = None, limit: int | None = None
    ) -> ReturnWork:
        principal = Principal(broker.accounts, broker.accounts.users["guest"], broker.vhost)
        options = read_move_options({"to": target.name, "filter": wanted, "limit": limit})
        return ReturnWork(principal, source, options, ends_of(source), Counts(), ends_early=True)

    return begin


@pytest.fixture
def source(vhost: VirtualHost) -> ClassicQueue:
    return declare(vhost, "from")


@pytest.fixture
def target(vhost: VirtualHost) -> ClassicQueue:
    return declare(vhost, "to")


def run(move: ReturnWork) -> ReturnWork:
    for _ in range(10_000):
        if move.end is not None:
            break
        move.step(256)
    return move


def numbered(count: int) -> list[str]:
    return [f"{number:05}" for number in range(count)]


class TestAll:
    def test_all_messages_move_in_order(self, new_move: NewMove, source: ClassicQueue, target: ClassicQueue) -> None:
        publish(source, *numbered(1000), key="k", exchange="x")
        publish(source, "another size")
        move = run(new_move(source, target))
        assert (move.counts.returned, move.counts.scanned, move.end) == (1001, 1001, MoveEnd.EMPTY)
        assert contents(source) == []
        moved = drain(target)
        assert [message.body.decode() for message in moved] == [*numbered(1000), "another size"]
        assert route_of(moved[0]) == ("x", "k"), "they stay as they are"

    def test_they_were_not_delivered_before(
        self, new_move: NewMove, source: ClassicQueue, target: ClassicQueue
    ) -> None:
        publish(source, "a")
        run(new_move(source, target))
        entry = target.get(None)
        assert entry is not None
        assert entry[2] is False

    def test_queues_that_move_into_each_other_come_to_an_end(
        self, new_move: NewMove, source: ClassicQueue, target: ClassicQueue
    ) -> None:
        publish(source, *numbered(300))
        publish(target, *numbered(300))
        there, back = new_move(source, target), new_move(target, source)
        while there.end is None or back.end is None:
            for move in (there, back):
                if move.end is None:
                    move.step(256)
        assert (there.counts.returned, back.counts.returned) == (300, 300)


class TestSafety:
    def test_the_source_is_deleted_meanwhile(
        self, new_move: NewMove, vhost: VirtualHost, source: ClassicQueue, target: ClassicQueue
    ) -> None:
        publish(source, *numbered(300))
        move = new_move(source, target)
        move.step(256)
        vhost.delete_queue(source)
        assert run(move).end is MoveEnd.DELETED
        assert contents(target) == numbered(256)

    def test_the_target_is_deleted_meanwhile(
        self, new_move: NewMove, vhost: VirtualHost, source: ClassicQueue, target: ClassicQueue
    ) -> None:
        publish(source, *numbered(300))
        move = new_move(source, target)
        vhost.delete_queue(target)
        assert run(move).end is MoveEnd.DELETED
        assert contents(source) == numbered(300)

    @pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
    def test_a_target_that_is_full_takes_no_more(
        self, new_move: NewMove, vhost: VirtualHost, source: ClassicQueue, overflow: str
    ) -> None:
        target = declare(vhost, "bounded", arguments=arguments(max_length=3, overflow=overflow))
        publish(target, "x")
        publish(source, *"abcd")
        move = run(new_move(source, target))
        assert (move.counts.returned, move.end) == (2, MoveEnd.TARGET_FULL)
        assert contents(target) == ["x", "a", "b"]
        assert contents(source) == ["c", "d"]

    def test_consumers_of_the_target_make_room(
        self, new_move: NewMove, vhost: VirtualHost, source: ClassicQueue, loop: ManualLoop
    ) -> None:
        target = declare(vhost, "bounded", arguments=arguments(max_length=1))
        consumer = FakeConsumer(target, no_ack=True)
        target.add_consumer(consumer)
        publish(source, *"abc")
        move = new_move(source, target)
        while move.end is None:
            move.step(256)
            loop.run()
        assert move.counts.returned >= 1
        assert sorted([text for run_ in consumer.runs for text in run_] + contents(source)) == ["a", "b", "c"]


class TestFilter:
    def fill(self, source: ClassicQueue) -> None:
        for number in range(6):
            publish(source, f"{number}", key="even" if number % 2 == 0 else "odd")

    def test_it_is_available_meanwhile_and_not_redelivered(
        self, new_move: NewMove, source: ClassicQueue, target: ClassicQueue
    ) -> None:
        self.fill(source)
        new_move(source, target, {"routing_key": "odd"}).step(256)
        assert (source.ready_count(), source.unacked_count) == (3, 0)
        entry = source.get(None)
        assert entry is not None
        assert (entry[1].body, entry[2]) == (b"0", False)


class TestKinds:
    def test_a_time_to_live_starts_anew(
        self, new_move: NewMove, vhost: VirtualHost, target: ClassicQueue, loop: ManualLoop
    ) -> None:
        source = declare(vhost, "short", arguments=arguments(message_ttl=1000))
        publish(source, "a")
        run(new_move(source, target))
        loop.advance(5)
        assert contents(target) == ["a"], "the target has none"
        publish(target, "b")
        run(new_move(target, source))
        loop.advance(5)
        assert contents(source) == []

    def test_a_message_keeps_its_own(
        self, new_move: NewMove, source: ClassicQueue, target: ClassicQueue, loop: ManualLoop
    ) -> None:
        publish(source, "a", expiration=1000)
        run(new_move(source, target))
        loop.advance(5)
        assert contents(target) == []

    def test_priorities(self, new_move: NewMove, vhost: VirtualHost, source: ClassicQueue) -> None:
        target = declare(vhost, "ranked", arguments=arguments(max_priority=5))
        publish(source, "low", priority=1)
        publish(source, "high", priority=4)
        run(new_move(source, target))
        assert contents(target) == ["high", "low"]

    @pytest.mark.parametrize("wanted", [{}, {"routing_key": "k"}])
    def test_quorum_queues_count_no_failed_delivery(
        self, new_move: NewMove, vhost: VirtualHost, target: ClassicQueue, wanted: dict[str, Any]
    ) -> None:
        source = declare(vhost, "quorum", arguments=QUORUM)
        publish(source, "returned", key="k")
        publish(source, "other", key="l")
        consumer = FakeConsumer(source, room=2)
        source.add_consumer(consumer)
        source.deliver()
        source.remove_consumer(consumer)
        settle(consumer, consumer.held, "requeue")
        run(new_move(source, target, wanted))
        moved = drain(target)
        assert moved[0].body == b"returned"
        assert all(key != "x-delivery-count" for key, _ in headers_of(moved[0]))
        if wanted:
            left = drain(source)
            assert [dict(headers_of(message))["x-delivery-count"].value for message in left] == [1]
