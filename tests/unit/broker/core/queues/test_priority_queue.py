"""Priority queues: messages of one turn are delivered as if each had arrived in its own turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.protocol.field_table import FieldValue
from leveret.storage.message import Envelope, Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import ENVELOPE, size_of
from tests.support.queues import declare, new_vhost

#: Turns in which something happens: a publish of a number of messages with a priority, or an acknowledgement (None).
TURNS = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)) | st.none(), max_size=6), max_size=8)


def made(loop: ManualLoop) -> ClassicQueue:
    """Return a queue with four priorities."""
    return declare(new_vhost(loop), arguments=(("x-max-priority", FieldValue("I", 3)),))


def publish(queue: ClassicQueue, priority: int, *texts: str, varied: bool = False) -> None:
    """Publish a run of messages."""
    envelope = Envelope(ENVELOPE.route, ENVELOPE.header, persistent=False, priority=priority)
    messages = [Message(envelope, text.encode()) for text in texts]
    if varied:
        queue.publish_varied(messages, size_of(messages), max(len(text) for text in texts))
    else:
        queue.publish(messages, size_of(messages))


def deliveries(turns: list[list[tuple[int, int] | None]], room: int, single: bool, varied: bool = False) -> list[str]:
    """Return the messages that a consumer gets.

    Args:
        turns: What happens in each turn.
        room: How many unacked messages the consumer may hold.
        single: Every message and acknowledgement comes alone, in a turn of its own.
        varied: The messages of a run may differ in their headers and sizes.
    """
    loop = ManualLoop()
    queue = made(loop)
    consumer = FakeConsumer(queue, room=room)
    queue.add_consumer(consumer)
    loop.run()
    published = 0
    for events in turns:
        # A client cannot acknowledge what it gets at the end of the turn.
        known = len(consumer.held)
        for event in events:
            if event is not None:
                texts = [str(published + each) for each in range(event[0])]
                published += event[0]
                for run in [[text] for text in texts] if single else [texts]:
                    publish(queue, event[1], *run, varied=varied)
            elif known:
                known -= 1
                consumer.acknowledge()
                queue.unblock(consumer)
            if single:
                loop.run()
        loop.run()
    return consumer.received


@given(turns=TURNS, room=st.integers(1, 4), varied=st.booleans())
def test_a_turn_delivers_what_single_messages_would(
    turns: list[list[tuple[int, int] | None]], room: int, varied: bool
) -> None:
    assert deliveries(turns, room, single=False, varied=varied) == deliveries(turns, room, single=True)


def test_waiting_messages_precede_new_ones() -> None:
    loop = ManualLoop()
    queue = made(loop)
    consumer = FakeConsumer(queue, room=1)
    queue.add_consumer(consumer)
    publish(queue, 0, "first")
    publish(queue, 0, "waiting")
    consumer.acknowledge()
    queue.unblock(consumer)
    publish(queue, 3, "too late")
    loop.run()
    assert consumer.received == ["first", "waiting"]
