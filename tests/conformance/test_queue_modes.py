"""Rules 4.4.1 to 4.4.8: what clients see of a queue is the same in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bounded import REJECTING, limits, outcomes, refill, take_dead_letters
from tests.conformance.deaths import arrival, arrivals, dead_letter_to, history
from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.queue_modes import DEFAULT, LAZY, NewQueue, durable, mode, persistence, queue_in_mode
from tests.conformance.topology import bodies, counts, drain, got, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

__all__ = ["durable", "mode", "persistence", "queue_in_mode"]


MAXLEN = "maxlen"


# --- 4.4.1, 4.4.2: choosing the mode ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [LAZY, DEFAULT])
def test_4_4_1_modes(channel: Channel, unique: Unique, given: Triple) -> None:
    queue = new_queue(channel, unique, b"m", arguments=[given])
    assert drain(channel, queue) == [b"m"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("x-queue-mode", "S", "bogus"), "\"unsupported queue mode 'bogus'\""),
        (("x-queue-mode", "S", "LAZY"), "\"unsupported queue mode 'LAZY'\""),
        (("x-queue-mode", "S", ""), "\"unsupported queue mode ''\""),
        (("x-queue-mode", "I", 1), "{unacceptable_type,signedint}"),
    ],
)
def test_4_4_1_no_other_mode(channel: Channel, unique: Unique, given: Triple, shown: str) -> None:
    queue = unique()
    text = f"PRECONDITION_FAILED - invalid arg 'x-queue-mode' for queue '{queue}' in vhost '/': {shown}"
    with channel.expect_channel_close(406, text, (50, 10)):
        channel.queue_declare(queue, arguments=[given])


@pytest.mark.parametrize(("declared", "again"), [(LAZY, DEFAULT), (DEFAULT, LAZY), (LAZY, None), (None, LAZY)])
def test_4_4_2_another_mode_is_another_queue(
    connect: Connect, channel: Channel, unique: Unique, declared: Triple | None, again: Triple | None
) -> None:
    queue = new_queue(channel, unique, arguments=[declared] if declared else [])
    text = f"PRECONDITION_FAILED - inequivalent arg 'x-queue-mode' for queue '{queue}' in vhost '/': "

    if declared and again:
        text += f"received '{again[2]}' but current is '{declared[2]}'"
    elif again:
        text += f"received the value '{again[2]}' of type 'longstr' but current is none"
    elif declared:
        text += f"received none but current is the value '{declared[2]}' of type 'longstr'"
    other = connect().channel()
    with other.expect_channel_close(406, text, (50, 10)):
        other.queue_declare(queue, arguments=[again] if again else [])
    # After it has been deleted it may be anything.
    channel.queue_delete(queue)
    channel.queue_declare(queue, arguments=[again] if again else [])


# --- 4.4.8: nothing that a client could see -----------------------------------------------------------------------


def mixed() -> list[bytes]:
    """Bodies of all lengths, around those at which brokers treat them differently."""
    lengths = (0, 1, 100, 4095, 4096, 5000, 65_535, 65_536, 100_000, 131_000)
    return [b"%d:" % length + bytes(length) for length in lengths]


def test_4_4_8_order_and_content(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    expected = []
    for turn in range(3):
        expected += [b"%d." % turn + body for body in mixed()]
    refill(channel, queue, *expected[:10], **persistence)
    refill(channel, queue, *expected[10:20])
    refill(channel, queue, *expected[20:], priority=3, headers=[("k", "x", b"\xff")], **persistence)
    channel.consume(queue)
    found = channel.deliveries(len(expected), timeout=120)
    assert bodies(found) == expected
    assert [each.redelivered for each in found] == [False] * len(expected)
    assert found[0].properties == persistence
    assert found[10].properties == {}
    assert found[20].properties == {"priority": 3, "headers": [("k", "x", b"\xff")], **persistence}


def test_4_4_8_a_backlog(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    expected = [b"%d" % number for number in range(9000)]
    refill(channel, queue, *expected[:5000], **persistence)
    assert got(channel, queue, no_ack=True).message_count == 4999
    refill(channel, queue, *expected[5000:], **persistence)
    assert counts(channel, queue)[0] == 8999
    channel.qos(500)
    channel.consume(queue)
    found: list[Delivery] = []
    while len(found) < 8999:
        found += channel.deliveries(min(250, 8999 - len(found)))
        channel.ack(found[-1].delivery_tag, multiple=True)
    assert bodies(found) == expected[1:]


def test_4_4_8_confirms(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    assert outcomes(channel, queue, *numbered(50), properties=persistence) == [True] * 50
    assert outcomes(channel, queue, *numbered(50)) == [True] * 50
    assert drain(channel, queue) == numbered(50) * 2


def test_4_4_8_requeue(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    refill(channel, queue, *numbered(8), **persistence)
    unacked = [got(channel, queue) for _ in range(6)]
    channel.nack(unacked[3].delivery_tag)
    channel.reject(unacked[1].delivery_tag)
    channel.ack(unacked[0].delivery_tag)
    first = got(channel, queue)
    assert (first.body, first.redelivered) == (b"2", True)
    refill(channel, queue, b"9", **persistence)
    channel.recover()
    left = [got(channel, queue) for _ in range(8)]
    assert [each.redelivered for each in left] == [True] * 5 + [False] * 3
    assert bodies(left) == [b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"]


def test_4_4_8_a_closed_channel(
    connect: Connect, channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any], poll: Poll
) -> None:
    queue = queue_in_mode()
    refill(channel, queue, *numbered(300), **persistence)
    holder = connect().channel()
    holder.qos(200)
    tag = holder.consume(queue).consumer_tag
    unacked = holder.deliveries(200)
    holder.cancel(tag)
    for delivery in unacked[::2]:
        holder.ack(delivery.delivery_tag)
    holder.close()
    expected = numbered(300)
    expected = [*expected[1:200:2], *expected[200:]]
    poll(lambda: counts(channel, queue)[0] == 200)
    channel.consume(queue)
    found = channel.deliveries(200)
    assert [(each.body, each.redelivered) for each in found] == [(body, at < 100) for at, body in enumerate(expected)]


@pytest.mark.parametrize("dead_letters", [False, True])
def test_4_4_8_drop_head(
    channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any], dead_letters: bool
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(*limits(3, 100, letters=letters if dead_letters else None))
    refill(channel, queue, *numbered(4), **persistence)
    refill(channel, queue, b"x" * 96, **persistence)
    refill(channel, queue, b"last", **persistence)
    assert drain(channel, queue) == [b"x" * 96, b"last"]
    dead = [(body, MAXLEN) for body in numbered(4)]
    assert take_dead_letters(channel, letters) == (dead if dead_letters else [])


@pytest.mark.parametrize("overflow", REJECTING)
def test_4_4_8_rejecting(
    channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any], overflow: str
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(*limits(2, overflow=overflow, letters=letters))
    assert outcomes(channel, queue, *numbered(4), properties=persistence) == [True, True, False, False]
    assert got(channel, queue, no_ack=True).body == b"1"
    assert outcomes(channel, queue, b"5", properties=persistence) == [True]
    assert drain(channel, queue) == [b"2", b"5"]
    dead = [(b"3", MAXLEN), (b"4", MAXLEN)]
    assert take_dead_letters(channel, letters) == (dead if overflow == "reject-publish-dlx" else [])


def test_4_4_8_a_limit_that_comes_later(
    channel: Channel, unique: Unique, policy: SetPolicy, durable: bool, persistence: dict[str, Any]
) -> None:
    """A queue has one policy, so this is for a mode by argument."""
    letters = new_queue(channel, unique, hint="letters")
    queue = new_queue(channel, unique, arguments=[LAZY, *dead_letter_to("", letters)], durable=durable)
    refill(channel, queue, *numbered(3000), **persistence)
    policy(queue, {"max-length": 2})
    assert arrivals(channel, letters, 2998) == numbered(2998)
    assert drain(channel, queue) == [b"2999", b"3000"]


def test_4_4_8_expiry(channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(("x-message-ttl", "I", 300), *dead_letter_to("", letters))
    refill(channel, queue, *mixed(), **persistence)
    refill(channel, queue, b"at once", expiration="0", **persistence)
    assert arrivals(channel, letters, 11) == [*mixed(), b"at once"]
    assert counts(channel, queue)[0] == 0


def test_4_4_8_a_message_expires_at_the_head_only(
    channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any]
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(*dead_letter_to("", letters))
    refill(channel, queue, b"stays", **persistence)
    refill(channel, queue, b"goes", expiration="1", **persistence)
    refill(channel, queue, b"stays too", expiration="100000", **persistence)
    head = got(channel, queue)
    assert arrivals(channel, letters, 1) == [b"goes"]
    channel.nack(head.delivery_tag)
    assert drain(channel, queue) == [b"stays", b"stays too"]


def test_4_4_8_dead_letters_of_rejects(
    channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any]
) -> None:
    target = queue_in_mode()
    queue = queue_in_mode(*dead_letter_to("", target))
    refill(channel, queue, *mixed(), **persistence)
    channel.consume(queue)
    for delivery in channel.deliveries(10):
        channel.reject(delivery.delivery_tag, requeue=False)
    found = [arrival(channel, target) for _ in range(10)]
    assert bodies(found) == mixed()
    assert [history(each) for each in found] == [[(queue, "rejected", 1)]] * 10


def test_4_4_8_priorities(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode(("x-max-priority", "I", 2))
    for number in range(30):
        refill(channel, queue, b"%d" % number, priority=number % 4, **persistence)
    high = [b"%d" % number for number in range(30) if number % 4 >= 2]
    rest = [b"%d" % number for level in (1, 0) for number in range(30) if number % 4 == level]
    unacked = [got(channel, queue) for _ in range(16)]
    channel.nack(unacked[4].delivery_tag, multiple=True)
    assert drain(channel, queue) == [*high[:5], *[*high, *rest][16:]]


def test_4_4_8_purge_and_delete(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    refill(channel, queue, *numbered(100), **persistence)
    held = got(channel, queue)
    assert channel.queue_purge(queue).message_count == 99
    refill(channel, queue, b"101", b"102", **persistence)
    channel.nack(held.delivery_tag)
    assert got(channel, queue, no_ack=True).body == b"1"
    assert channel.queue_delete(queue).message_count == 2
