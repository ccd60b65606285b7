"""The global prefetch limit is kept, used in full, and shared fairly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.unacked import SharedPrefetch
from leveret.storage.interface import Entry
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message, size_of
from tests.support.queues import declare, new_vhost, settle


class SharingConsumer(FakeConsumer):
    """A consumer without a prefetch limit except the shared one.

    Args:
        queue: The queue consumed from.
        tag: Its consumer tag.
        shared: The limit.
        no_ack: Messages count as settled once sent.
        log: Its tag is appended for each message.
    """

    def __init__(
        self, queue: Queue, tag: str, shared: SharedPrefetch, no_ack: bool = False, log: list[str] | None = None
    ) -> None:
        super().__init__(queue, tag, no_ack=no_ack, log=log)
        self.shared = shared
        self.channel_id = id(shared)

    def credit(self) -> int:
        return self.shared.credit(self)

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        assert len(entries) <= self.credit()
        self.log += [self.tag] * len(entries)
        self.shared.count_delivered(self, 0 if self.no_ack else len(entries))
        if not self.no_ack:
            self.unacked += len(entries)
            self.held += entries

    def cancelled(self) -> None:
        self.shared.remove(self)

    def settle(self) -> None:
        """Acknowledge the oldest message, as a channel does."""
        settle(self, [self.held.pop(0)], "acknowledge")
        self.shared.release(1)


def publish(queue: Queue, count: int) -> None:
    messages = [message("m")] * count
    queue.publish(messages, size_of(messages))


class SharingMachine(RuleBasedStateMachine):
    """State machine: consumers of several queues with one limit, and turns with several events."""

    @initialize(kinds=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=5))
    def begin(self, kinds: list[tuple[int, bool]]) -> None:
        self.loop = ManualLoop()
        vhost = new_vhost(self.loop)
        self.queues = [declare(vhost, f"q{number}") for number in range(3)]
        self.shared = SharedPrefetch()
        self.consumers = [
            SharingConsumer(self.queues[number], f"c{i}", self.shared, no_ack)
            for i, (number, no_ack) in enumerate(kinds)
        ]
        for consumer in self.consumers:
            consumer.queue.add_consumer(consumer)

    @rule(number=st.integers(0, 2), count=st.integers(1, 20))
    def publish(self, number: int, count: int) -> None:
        publish(self.queues[number], count)

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if holders := [consumer for consumer in self.consumers if consumer.held]:
            data.draw(st.sampled_from(holders)).settle()

    @rule(limit=st.integers(0, 6))
    def change(self, limit: int) -> None:
        self.shared.set_limit(limit)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        idle = [consumer for consumer in self.consumers if not consumer.held]
        if idle and len(self.consumers) > 1:
            consumer = data.draw(st.sampled_from(idle))
            self.consumers.remove(consumer)
            self.shared.remove(consumer)
            consumer.queue.remove_consumer(consumer)

    @rule()
    def end_turn(self) -> None:
        before = self.shared.unacked
        self.loop.run()
        limit, unacked = self.shared.limit, self.shared.unacked
        assert not limit or unacked <= max(limit, before)
        if not limit or unacked < limit:
            assert all(consumer.queue.store.ready_count == 0 for consumer in self.consumers), "room, and somebody waits"

    @rule(count=st.integers(10, 30))
    def take_turns(self, count: int) -> None:
        """Check that consumers with ready messages are served equally often."""
        acking = [consumer for consumer in self.consumers if not consumer.no_ack]
        if not acking or any(consumer.no_ack for consumer in self.consumers):
            return
        self.shared.set_limit(1)
        self.loop.run()
        while held := [consumer for consumer in acking if consumer.held]:
            held[0].settle()
            self.loop.run()
        served: Counter[str] = Counter()
        for queue in {consumer.queue for consumer in acking}:
            publish(queue, count * len(acking))
        self.loop.run()
        for _ in range(count):
            holder = next(consumer for consumer in acking if consumer.held)
            served[holder.tag] += 1
            holder.settle()
            self.loop.run()
        # One may be served once more before the others know that there is something to wait for.
        assert max(served.values()) - min(served[consumer.tag] for consumer in acking) <= 2

    @invariant()
    def what_is_held_is_counted(self) -> None:
        if hasattr(self, "shared"):
            assert self.shared.unacked == sum(len(consumer.held) for consumer in self.consumers)


TestSharingMachine = SharingMachine.TestCase
