"""Rules 2.1.1 to 2.1.13: what happens to a publish at a limit."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.bounded import REJECTING, bounded, in_one_write, limits, outcomes, take_dead_letters
from tests.conformance.fixtures import Connect, Refuse, Unique
from tests.conformance.topology import bodies, counts, drain, got, new_exchange, new_queue, numbered
from tests.support.wire import Channel

DECLARE = commands.Queue.Declare
MAXLEN = "maxlen"
PARTIAL = "PRECONDITION_FAILED - partial tx completion"
rejecting = pytest.mark.parametrize("overflow", REJECTING)


def fan_out(channel: Channel, unique: Unique, *queues: str) -> str:
    exchange = new_exchange(channel, unique, "fanout")
    for queue in queues:
        channel.queue_bind(queue, exchange)
    return exchange


@pytest.mark.parametrize("overflow", [None, "drop-head", "reject-publish", "reject-publish-dlx"])
def test_2_1_1_by_argument(channel: Channel, unique: Unique, overflow: str | None) -> None:
    queue = bounded(channel, unique, 2, None, overflow)
    rejects = overflow in REJECTING
    assert outcomes(channel, queue, *numbered(4)) == [True, True, not rejects, not rejects]
    assert drain(channel, queue) == ([b"1", b"2"] if rejects else [b"3", b"4"])


@pytest.mark.parametrize("value", ["Drop-Head", "REJECT-PUBLISH", "reject_publish", "reject-publish ", "none"])
def test_2_1_1_values_are_case_sensitive(refuse: Refuse, value: str) -> None:
    refuse("x-overflow", ": invalid_overflow", arguments=[("x-overflow", "S", value)])


@rejecting
def test_2_1_3_without_a_limit_nothing_is_rejected(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, overflow=overflow)
    assert all(outcomes(channel, queue, *numbered(100)))
    assert drain(channel, queue) == numbered(100)


@rejecting
def test_2_1_4_bytes_one_message_at_a_time(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, None, 10, overflow)
    published = [b"x" * 11, b"x" * 10, b"", b"x"]
    assert outcomes(channel, queue, *published) == [False, True, True, False]
    assert drain(channel, queue) == [b"x" * 10, b""]


@rejecting
def test_2_1_4_a_smaller_message_may_still_fit(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 3, 10, overflow)
    published = [b"x" * 6, b"x" * 5, b"x" * 4, b"", b""]
    assert outcomes(channel, queue, *published) == [True, False, True, True, False]


@rejecting
def test_2_1_4_room_is_there_as_soon_as_a_message_leaves(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 1, None, overflow)
    for body in numbered(5):
        assert outcomes(channel, queue, body, b"too much") == [True, False]
        assert got(channel, queue).body == body


@rejecting
@pytest.mark.parametrize("confirm", [True, False])
def test_2_1_5_and_2_1_6_which_of_them_dead_letters(
    channel: Channel, unique: Unique, overflow: str, confirm: bool
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 1, None, overflow, letters=letters)
    if confirm:
        assert outcomes(channel, queue, *numbered(3)) == [True, False, False]
    else:
        in_one_write(channel, queue, *numbered(3))
    assert drain(channel, queue) == [b"1"]
    dead = [(b"2", MAXLEN), (b"3", MAXLEN)]
    assert take_dead_letters(channel, letters) == (dead if overflow == "reject-publish-dlx" else [])


def test_2_1_6_a_missing_dead_letter_exchange(channel: Channel, unique: Unique) -> None:
    arguments = [*limits(1, None, "reject-publish-dlx"), ("x-dead-letter-exchange", "S", unique("missing"))]
    queue = new_queue(channel, unique, arguments=arguments)
    assert outcomes(channel, queue, *numbered(3)) == [True, False, False]
    assert drain(channel, queue) == [b"1"]


@rejecting
def test_2_1_7_one_nack(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 0, None, overflow)
    channel.confirm_select()
    channel.publish("", queue, b"x")
    channel.wait_until(lambda: bool(channel.confirms), "confirm")
    assert [(confirm.ack, confirm.delivery_tag) for confirm in channel.confirms] == [(False, 1)]
    channel.sync(queue)
    assert len(channel.confirms) == 1


@rejecting
def test_2_1_7_silence_without_confirm_mode(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 1, None, overflow)
    in_one_write(channel, queue, *numbered(3))
    assert drain(channel, queue) == [b"1"]
    channel.sync(queue)
    assert not channel.confirms
    assert not channel.returns


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("full", [1, 2, 3])
def test_2_1_8_all_other_queues_keep_their_copies(channel: Channel, unique: Unique, mode: int, full: int) -> None:
    refusing = [bounded(channel, unique, 0, None, "reject-publish") for _ in range(full)]
    keeping = [new_queue(channel, unique, durable=durable) for durable in (False, True)]
    exchange = fan_out(channel, unique, keeping[0], *refusing, keeping[1])
    settled = outcomes(channel, "", *numbered(3), exchange=exchange, properties={"delivery_mode": mode})
    assert settled == [False] * 3
    assert [drain(channel, queue) for queue in keeping] == [numbered(3)] * 2
    assert [drain(channel, queue) for queue in refusing] == [[]] * full


@pytest.mark.parametrize("full", [1, 2])
def test_2_1_9_no_confirm_follows_a_nack(channel: Channel, unique: Unique, full: int) -> None:
    refusing = [bounded(channel, unique, 0, None, "reject-publish") for _ in range(full)]
    durable, transient = new_queue(channel, unique, durable=True), new_queue(channel, unique)
    exchange = fan_out(channel, unique, durable, *refusing, transient)
    channel.confirm_select()
    channel.publish(exchange, "", b"x", {"delivery_mode": 2})
    channel.publish("", durable, b"y", {"delivery_mode": 2})
    # The second message is on disk only after the first one.
    channel.wait_until(lambda: any(confirm.ack for confirm in channel.confirms), "ack")
    channel.sync(durable, transient, *refusing)
    # In one flush acks go before nacks (5.10).
    assert sorted((confirm.delivery_tag, confirm.ack) for confirm in channel.confirms) == [(1, False), (2, True)]
    assert bodies([got(channel, durable), got(channel, durable)]) == [b"x", b"y"]


@rejecting
def test_2_1_10_mandatory(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 0, None, overflow)
    channel.confirm_select()
    channel.publish("", queue, b"x", mandatory=True)
    assert channel.wait_for_confirms(1) == [False]
    channel.sync(queue)
    assert not channel.returns


def test_2_1_11_the_requeue_bit_of_a_nack(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 0, None, "reject-publish")
    channel.confirm_select()
    channel.publish("", queue, b"x")
    nack = channel.connection.wire.expect(channel.number, commands.Basic.Nack)
    assert (nack.delivery_tag, nack.requeue) == (1, True)


@rejecting
def test_2_1_12_a_transaction(channel: Channel, connect: Connect, unique: Unique, overflow: str) -> None:
    letters = new_queue(channel, unique, hint="letters")
    full = bounded(channel, unique, 1, None, overflow, letters=letters)
    other, acked = new_queue(channel, unique), new_queue(channel, unique, b"acked", b"left")
    transaction = connect().channel()
    transaction.tx_select()
    transaction.ack(got(transaction, acked).delivery_tag)
    for body in numbered(2):
        for queue in (full, other):
            transaction.publish("", queue, body)
    with transaction.expect_channel_close(406, PARTIAL, commands.Tx.Commit):
        transaction.tx_commit()
    assert drain(channel, full) == [b"1"]
    assert drain(channel, other) == numbered(2)
    assert drain(channel, acked) == [b"left"]
    assert take_dead_letters(channel, letters) == ([(b"2", MAXLEN)] if overflow == "reject-publish-dlx" else [])


def test_2_1_12_drop_head_fails_no_transaction(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 1)
    transaction = connect().channel()
    transaction.tx_select()
    for body in numbered(3):
        transaction.publish("", queue, body)
    transaction.tx_commit()
    assert drain(channel, queue) == [b"3"]


@rejecting
def test_2_1_13_pipelined_publishes_never_exceed_the_limit(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, 10, None, overflow)
    assert outcomes(channel, queue, *numbered(300)) == [True] * 10 + [False] * 290
    assert drain(channel, queue) == numbered(10)


def test_2_1_13_publishers_of_many_connections(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 50, None, "reject-publish")
    publishers = [connect().channel() for _ in range(4)]
    for publisher in publishers:
        publisher.confirm_select()
        in_one_write(publisher, queue, *[b"x"] * 40)
    settled = [publisher.wait_for_confirms(40) for publisher in publishers]
    assert sum(outcome.count(True) for outcome in settled) == 50
    assert counts(channel, queue) == (50, 0)
