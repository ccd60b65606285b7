"""Named consumers of a stream, without sockets: where each goes on, whose turn it is, and what stays on disk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.broker.core.queues.consumer_names import NAMES_MAX, ConsumerName
from leveret.policies.policy import Policy
from leveret.policies.stream_arguments import Begin, StreamPlace
from leveret.protocol.faults import ChannelFault
from leveret.storage.message import NO_ENVELOPE, Message
from tests.support.examples import examples
from tests.support.fake_consumer import FakeConsumer
from tests.support.queues import Outcome, settle
from tests.support.streams import StreamBroker, number, offsets

FIRST = StreamPlace(Begin.FIRST)
SMALL = number("x-stream-max-segment-size-bytes", 1000)


def numbered(count: int, start: int = 0) -> list[str]:
    return [str(each) for each in range(start, start + count)]


def attach(
    broker: StreamBroker, name: str = "n", place: StreamPlace | None = None, room: int = 1000, tag: str = "c"
) -> FakeConsumer:
    """Add a named consumer, and end the turn."""
    consumer = FakeConsumer(broker.stream, tag, room)
    broker.stream.add_consumer(consumer, place, name)
    broker.loop.run()
    return consumer


def next_offset(broker: StreamBroker, name: str = "n") -> int:
    return broker.stream.names.by_name[name].next - 1


def acknowledge(consumer: FakeConsumer, *positions: int) -> None:
    """Acknowledge messages by their places among those that are not acknowledged."""
    entries = [consumer.held[each] for each in positions]
    consumer.held = [entry for entry in consumer.held if entry not in entries]
    settle(consumer, entries, "acknowledge")
    consumer.unblock()


def restarted(broker: StreamBroker, *, crash: bool = False) -> StreamBroker:
    """Start a broker with the same files."""
    if crash:
        broker.files.stop()
    else:
        assert broker.stores.close()
    return StreamBroker(broker.files, (SMALL,), now=broker.loop.now)


def test_what_is_given_back_counts_when_a_later_message_is_acknowledged() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(9))
    consumer = attach(broker, place=FIRST)
    acknowledge(consumer, 0)
    consumer.requeue(0, 1, 3)
    assert next_offset(broker) == 1
    acknowledge(consumer, 0)
    # The one behind it was given back, too.
    assert next_offset(broker) == 4
    acknowledge(consumer, 0)
    assert next_offset(broker) == 6
    consumer.requeue(*range(3))
    broker.stream.remove_consumer(consumer)
    assert attach(broker).received == numbered(3, 6)


def test_what_is_acknowledged_after_a_cancel_counts_until_another_begins() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(3))
    consumer = attach(broker, place=FIRST)
    broker.stream.remove_consumer(consumer)
    acknowledge(consumer, 0)
    assert next_offset(broker) == 1
    again = attach(broker)
    assert again.received == numbered(2, 1)
    acknowledge(consumer, 0, 0)
    assert next_offset(broker) == 1


def test_what_is_acknowledged_after_a_name_was_set_does_not_count() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(5))
    consumer = attach(broker, place=FIRST)
    acknowledge(consumer, 0)
    broker.stream.remove_consumer(consumer)
    broker.stream.set_name("n", FIRST)
    acknowledge(consumer, 0, 1)
    assert next_offset(broker) == 0
    assert attach(broker).received == numbered(5)


def test_what_is_abandoned_is_delivered_again() -> None:
    broker = StreamBroker()
    broker.publish(*numbered(3))
    consumer = attach(broker, place=FIRST)
    acknowledge(consumer, 0)
    # As at the end of a channel.
    broker.stream.release(consumer, consumer.held, "abandoned")
    broker.stream.requeue(consumer.held, abandoned=True)
    broker.stream.remove_consumer(consumer)
    assert broker.stream.names.name_of(consumer) is None
    assert attach(broker).received == numbered(2, 1)


@pytest.mark.parametrize("crash", [False, True])
def test_names_survive_a_restart(crash: bool) -> None:
    broker = StreamBroker(arguments=(SMALL,))
    broker.publish(*numbered(9))
    acknowledge(attach(broker, "a", FIRST), *range(4))
    acknowledge(attach(broker, "ü" * 100, FIRST), *range(7))
    broker.stream.set_name("gone", FIRST)
    broker.loop.run()
    broker.stream.delete_name("gone")
    broker.loop.run()
    again = restarted(broker, crash=crash)
    assert {name: next_offset(again, name) for name in again.stream.names.by_name} == {"a": 4, "ü" * 100: 7}
    assert attach(again, "a").received == numbered(5, 4)
    # What is no message is in no count.
    assert again.stream.figures().messages_persistent == 9


def test_another_stream_of_the_name_has_no_names() -> None:
    broker = StreamBroker(arguments=(SMALL,))
    broker.publish("a")
    attach(broker)
    broker.vhost.delete_queue(broker.stream)
    broker.loop.run()
    assert not broker.engine.queues
    again = restarted(broker)
    assert not again.stream.names.by_name


def test_records_that_are_not_needed_are_removed() -> None:
    broker = StreamBroker(arguments=(SMALL,))
    broker.stream.set_name("idle", StreamPlace(Begin.OFFSET, 5))
    broker.loop.run()
    consumer = attach(broker, "busy")
    for start in range(7000):
        broker.publish(str(start))
        acknowledge(consumer, 0)
    broker.loop.run()
    again = restarted(broker, crash=True)
    assert (next_offset(again, "idle"), next_offset(again, "busy")) == (5, 7000)
    for each in (broker, again):
        (names,) = [queue for queue in each.engine.queues.values() if "offsets" in queue.attributes]
        assert names.stores[0].ready_count < 6000


def test_there_is_a_limit_of_names() -> None:
    broker = StreamBroker()
    for each in range(NAMES_MAX):
        broker.stream.set_name(str(each), FIRST)
    with pytest.raises(ChannelFault, match="has 1000 consumer names, the maximum"):
        attach(broker, "one more")
    assert len(broker.stream.consumers) == 0
    broker.stream.delete_name("7")
    attach(broker, "one more")


def test_what_retention_removes_unread_is_counted_as_missed() -> None:
    broker = StreamBroker(arguments=(SMALL,))
    for body in numbered(100):
        broker.publish(body.ljust(100))
    acknowledge(attach(broker, "done", FIRST), *range(100))
    slow = attach(broker, "slow", FIRST, room=3)
    broker.stream.set_name("absent", FIRST)
    broker.vhost.policies.set(Policy("p", "s", {"max-length-bytes": 3000}), operator=False)
    broker.loop.run()
    first = broker.stream.stream.offsets[0]
    assert first > 60
    missed = {name: each.missed for name, each in broker.stream.names.by_name.items()}
    # The slow one has got three messages that it has not acknowledged.
    assert missed == {"done": 0, "slow": first - 3, "absent": first}
    assert (next_offset(broker, "absent"), next_offset(broker, "slow")) == (first, 0)
    acknowledge(slow, 0, 1, 2)
    broker.loop.run()
    assert slow.received[3:] == [body.ljust(100) for body in numbered(3, first)]
    again = restarted(broker, crash=True)
    assert again.stream.names.by_name["absent"].missed == first


class _Names(RuleBasedStateMachine):
    """Consumers of two names that come, acknowledge in any order, and go, while limits remove messages."""

    @initialize(most=st.sampled_from([2000, 1_000_000]))
    def begin(self, most: int) -> None:
        self.arguments = (SMALL, number("x-max-length-bytes", most))
        self.broker = StreamBroker(arguments=self.arguments)
        self.published = 0
        #: By name: its consumers, the active one first.
        self.consumers: dict[str, list[FakeConsumer]] = {"a": [], "b": []}
        #: By name: offsets that its active consumer has got and not acknowledged, in order; where it goes on.
        self.unacked: dict[str, list[int]] = {"a": [], "b": []}
        self.next: dict[str, int] = {}

    @rule(count=st.integers(1, 30))
    def publish(self, count: int) -> None:
        self.broker.publish(*[body.ljust(60) for body in numbered(count, self.published)])
        self.published += count
        self._note()

    @rule(name=st.sampled_from("ab"), room=st.integers(1, 20), place=st.none() | st.integers(0, 200))
    def attach(self, name: str, room: int, place: int | None) -> None:
        given = None if place is None else StreamPlace(Begin.OFFSET, place)
        consumer = attach(self.broker, name, given, room)
        if not self.consumers[name]:
            if given is not None or name not in self.next:
                self.next[name] = self.published if place is None else place
            self.unacked[name] = []
        self.consumers[name].append(consumer)
        self._note()

    @precondition(lambda self: any(self.unacked.values()))
    @rule(data=st.data(), outcome=st.sampled_from(["acknowledge", "reject"]))
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        name = data.draw(
            st.sampled_from([name for name, held in self.unacked.items() if held and self.consumers[name]] or ["-"])
        )
        if name == "-":
            return
        consumer = self.consumers[name][0]
        chosen = data.draw(st.sets(st.sampled_from(self.unacked[name]), min_size=1))
        entries = [entry for entry in consumer.held if entry[0] - 1 in chosen]
        consumer.held = [entry for entry in consumer.held if entry[0] - 1 not in chosen]
        settle(consumer, entries, outcome)
        self.unacked[name] = [each for each in self.unacked[name] if each not in chosen]
        reached = self.unacked[name][0] if self.unacked[name] else max(offsets(entries)) + 1
        if not self.unacked[name]:
            reached = self.read_end[name]
        self.next[name] = max(self.next[name], reached)
        consumer.unblock()
        self.broker.loop.run()
        self._note()

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name, each in self.consumers.items() if each]))
        at = data.draw(st.integers(0, len(self.consumers[name]) - 1))
        consumer = self.consumers[name].pop(at)
        self.broker.stream.release(consumer, consumer.held, "abandoned")
        self.broker.stream.remove_consumer(consumer)
        if at == 0:
            self.unacked[name] = []
        self.broker.loop.run()
        self._note()

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.broker = restarted(self.broker, crash=crash)
        self.consumers = {"a": [], "b": []}
        self.unacked = {"a": [], "b": []}

    def _note(self) -> None:
        """Take over what active consumers have got."""
        first = self.broker.stream.stream.offsets[0]
        self.read_end = {}
        for name, consumers in self.consumers.items():
            if not consumers:
                continue
            got = offsets(consumers[0].held)
            self.unacked[name] = got
            assert all(offset >= self.next[name] for offset in got)
            self.read_end[name] = self.broker.stream.readers.place_of(consumers[0])[0]
        for name in self.next:
            if not self.unacked[name]:
                self.next[name] = max(self.next[name], first)

    @invariant()
    def names_are_where_they_should_be(self) -> None:
        if not hasattr(self, "broker"):
            return
        self._note()
        names = self.broker.stream.names.by_name
        assert names.keys() == self.next.keys()
        for name, expected in self.next.items():
            assert max(names[name].next - 1, self._first(name)) == max(expected, self._first(name))
            active = names[name].active
            assert active is (self.consumers[name][0] if self.consumers[name] else None)

    def _first(self, name: str) -> int:
        """The first offset, below which a name without unacknowledged messages is never."""
        return 0 if self.unacked[name] else self.broker.stream.stream.offsets[0]

    @invariant()
    def nothing_is_left_out(self) -> None:
        for name, consumers in self.__dict__.get("consumers", {}).items():
            for consumer in consumers:
                bodies: Sequence[int] = [int(body) for body in consumer.received]
                assert list(bodies) == sorted(set(bodies)), name


TestNames = _Names.TestCase
TestNames.settings = settings(max_examples=examples(60), stateful_step_count=30)


def test_a_consumer_that_does_not_settle_its_first_message_takes_little_memory() -> None:
    name = ConsumerName("a", 1)
    message = Message(NO_ENVELOPE, b"")
    tracemalloc.start()
    try:
        for first in range(1, 100_001, 100):
            entries = [(number, message, False) for number in range(first, first + 100)]
            name.delivered(entries)
            name.settled([entry for entry in reversed(entries) if entry[0] > 1], are_returned=False)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 100_000
    assert (name.next, name.has_unacked) == (1, True)
    assert name.settled([(1, message, False)], are_returned=False)
    assert (name.next, name.has_unacked) == (100_001, False)
