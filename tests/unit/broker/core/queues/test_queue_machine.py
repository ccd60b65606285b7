"""Random histories of one queue, compared with a plain model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.broker.core.queues.queue import Holder
from leveret.storage.interface import Entry
from tests.support.examples import examples
from tests.support.fake_consumer import PLENTY, FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message, size_of
from tests.support.queues import AnyHolder, declare, new_vhost, settle

Outcome = Literal["acknowledge", "reject", "requeue"]


class QueueMachine(RuleBasedStateMachine):
    """A queue with consumers that come and go, and a getter.

    The model knows for each message whether it is ready, or with whom; it does not know which consumer is
    next. ``settled`` counts how often a message has left the queue for good, which must end at 1 for all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = ManualLoop()
        self.queue = declare(new_vhost(self.loop))
        self.published = 0
        self.settled: Counter[str] = Counter()
        self.returned: set[str] = set()
        self.consumers: list[FakeConsumer] = []
        self.left: list[FakeConsumer] = []
        self.holder = Holder(self.queue)
        self.got: list[Entry] = []
        #: The messages never returned that each has got; None stands for basic.get.
        self.fresh: dict[FakeConsumer | None, list[int]] = {}

    # -- what may happen -----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 9))
    def publish(self, count: int) -> None:
        messages = [message(str(self.published + each)) for each in range(count)]
        self.published += count
        self.queue.publish(messages, size_of(messages))

    @rule(room=st.sampled_from([0, 1, 2, 5, PLENTY]), priority=st.integers(-1, 1), no_ack=st.booleans())
    def consume(self, room: int, priority: int, no_ack: bool) -> None:
        consumer = _Recorder(self, f"c{len(self.consumers) + len(self.left)}", room, no_ack, priority)
        self.consumers.append(consumer)
        self.queue.add_consumer(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        consumer = self.consumers.pop(data.draw(st.integers(0, len(self.consumers) - 1)))
        self.left.append(consumer)
        self.queue.remove_consumer(consumer)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), room=st.integers(0, 6))
    def change_room(self, data: st.DataObject, room: int) -> None:
        consumer = data.draw(st.sampled_from(self.consumers))
        consumer.room = room
        self.queue.unblock(consumer)

    @rule(data=st.data(), outcome=st.sampled_from(["acknowledge", "reject", "requeue"]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        holders = [each for each in self.consumers + self.left if each.held]
        if not holders:
            return
        consumer = data.draw(st.sampled_from(holders))
        entries = data.draw(st.lists(st.sampled_from(consumer.held), min_size=1, unique_by=lambda entry: entry[0]))
        consumer.held = [entry for entry in consumer.held if entry not in entries]
        self._settle(consumer, entries, outcome)
        self.queue.unblock(consumer)

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        expected = self._ready_after_delivery()
        entry = self.queue.get(None if no_ack else self.holder)
        assert (entry is None) is (expected == 0)
        if entry is not None:
            self._note(entry, None)
            if no_ack:
                self.settled[entry[1].body.decode()] += 1
            else:
                self.got.append(entry)

    @precondition(lambda self: self.got)
    @rule(data=st.data(), outcome=st.sampled_from(["acknowledge", "reject", "requeue"]))
    def settle_got(self, data: st.DataObject, outcome: Outcome) -> None:
        entry = self.got.pop(data.draw(st.integers(0, len(self.got) - 1)))
        self._settle(self.holder, [entry], outcome)

    @rule()
    def purge(self) -> None:
        expected = self._ready_after_delivery()
        ready = set(self._ready())
        assert self.queue.purge() == expected == len(ready)
        self.settled.update(ready)

    @rule()
    def end_turn(self) -> None:
        self.loop.run()
        if self.queue.store.ready_count:
            assert [consumer.tag for consumer in self.consumers if consumer.credit() > 0] == []

    # -- what always holds -------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        held = Counter(entry[1].body.decode() for holder in self.consumers + self.left for entry in holder.held)
        held.update(entry[1].body.decode() for entry in self.got)
        assert self.queue.unacked_count == held.total()
        assert self.holder.unacked == len(self.got)
        assert all(each.unacked == len(each.held) for each in self.consumers + self.left)
        everywhere = self.settled + held
        assert max(everywhere.values(), default=1) == 1
        assert self.queue.store.ready_count == self.published - everywhere.total()

    @invariant()
    def messages_never_returned_come_in_order(self) -> None:
        assert all(numbers == sorted(numbers) for numbers in self.fresh.values())

    @invariant()
    def who_has_left_gets_nothing(self) -> None:
        assert all(not consumer.blocked for consumer in self.left)

    def teardown(self) -> None:
        """In the end everything that is held or ready can still be had, in order."""
        for consumer in self.consumers:
            self.queue.remove_consumer(consumer)
        for consumer in self.consumers + self.left:
            if consumer.held:
                self._settle(consumer, list(reversed(consumer.held)), "requeue")
                consumer.held = []
        if self.got:
            self._settle(self.holder, self.got, "requeue")
        rest = []
        while (entry := self.queue.get(None)) is not None:
            rest.append(entry[1].body.decode())
        assert rest == [str(number) for number in range(self.published) if not self.settled[str(number)]]

    # -- the model -----------------------------------------------------------------------------------------

    def note_delivery(self, consumer: FakeConsumer, entries: Sequence[Entry]) -> None:
        """A consumer got messages: those never returned come in the order of publishing."""
        assert consumer not in self.left
        for entry in entries:
            self._note(entry, consumer)
            if consumer.no_ack:
                self.settled[entry[1].body.decode()] += 1

    def _note(self, entry: Entry, receiver: FakeConsumer | None) -> None:
        body = entry[1].body.decode()
        assert entry[2] is (body in self.returned)
        if body not in self.returned:
            self.fresh.setdefault(receiver, []).append(int(body))

    def _settle(self, holder: AnyHolder, entries: list[Entry], outcome: Outcome) -> None:
        texts = [entry[1].body.decode() for entry in entries]
        if outcome == "requeue":
            self.returned.update(texts)
        else:
            self.settled.update(texts)
        settle(holder, entries, outcome)

    def _ready_after_delivery(self) -> int:
        """Let the queue deliver as it would by itself; the ready messages left."""
        self.queue.deliver()
        return self.queue.store.ready_count

    def _ready(self) -> list[str]:
        held = {entry[1].body.decode() for each in self.consumers + self.left for entry in each.held}
        held.update(entry[1].body.decode() for entry in self.got)
        return [
            str(number) for number in range(self.published) if str(number) not in held and not self.settled[str(number)]
        ]


class _Recorder(FakeConsumer):
    """A consumer that tells the machine what it gets."""

    def __init__(self, machine: QueueMachine, tag: str, room: int, no_ack: bool, priority: int) -> None:
        super().__init__(machine.queue, tag, room, no_ack, priority=priority)
        self._machine = machine

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        super().deliver(entries, body_bytes)
        self._machine.note_delivery(self, entries)


QueueMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=50)
TestQueueMachine = QueueMachine.TestCase
