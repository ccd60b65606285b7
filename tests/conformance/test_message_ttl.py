"""Rules 4.1.1 to 4.1.8: messages that expire."""

from __future__ import annotations

import time

import pytest
from pamqp import commands

from tests.conformance.deaths import after, arrival, dead_lettering, deaths
from tests.conformance.fixtures import Unique
from tests.conformance.topology import counts, drain, fill, got, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

MAX_TTL = 315_360_000_000


def ttl(milliseconds: int) -> Triple:
    return "x-message-ttl", "l", milliseconds


@pytest.mark.parametrize("letter", ["b", "B", "s", "u", "I", "i", "l", "L"])
def test_4_1_1_any_integer_type(channel: Channel, unique: Unique, letter: str) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-message-ttl", letter, 20))
    fill(channel, queue, b"one")
    assert arrival(channel, letters).body == b"one"


@pytest.mark.parametrize("milliseconds", [MAX_TTL, MAX_TTL - 1, 1 << 32])
def test_4_1_1_long_times(channel: Channel, unique: Unique, milliseconds: int) -> None:
    queue = new_queue(channel, unique, arguments=[ttl(milliseconds)])
    fill(channel, queue, b"one")
    after(channel, unique, 20)
    assert drain(channel, queue) == [b"one"]


@pytest.mark.parametrize("expiration", ["20", "00020", "+20", "0", "+0", "-0"])
def test_4_1_2_expiration(channel: Channel, unique: Unique, expiration: str) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"one", {"expiration": expiration})
    letter = arrival(channel, letters)
    assert (letter.body, deaths(letter)[0]["original-expiration"]) == (b"one", expiration)


@pytest.mark.parametrize(
    ("expiration", "reason"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 10", "no_integer"),
        ("+", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("10 ", '{leftover_string," "}'),
        ("-1", "{value_negative,-1}"),
        (str(MAX_TTL + 1), f"{{value_too_large,{MAX_TTL + 1}}}"),
    ],
)
def test_4_1_2_invalid_expiration(channel: Channel, unique: Unique, expiration: str, reason: str) -> None:
    text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}"
    with channel.expect_channel_close(406, text, commands.Basic.Publish):
        channel.publish("amq.direct", unique(), b"unroutable", {"expiration": expiration})


@pytest.mark.parametrize(("argument", "expiration"), [(50, "600000"), (600_000, "50"), (50, "50")])
def test_4_1_3_the_smaller_one(channel: Channel, unique: Unique, argument: int, expiration: str) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(argument))
    channel.publish("", queue, b"one", {"expiration": expiration})
    assert arrival(channel, letters).body == b"one"


def test_4_1_3_the_deadline_is_kept_while_unacked_and_requeued(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(600))
    channel.consume(queue, "tag")
    channel.publish("", queue, b"one")
    tag = channel.next_delivery().delivery_tag
    channel.cancel("tag")
    after(channel, unique, 700)
    channel.nack(tag)
    assert channel.get(queue) is None
    assert arrival(channel, letters).body == b"one"


def test_4_1_3_a_requeue_does_not_shorten_it(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(1500))
    started = time.monotonic()
    fill(channel, queue, b"one")
    channel.nack(got(channel, queue).delivery_tag)
    assert arrival(channel, letters).body == b"one"
    assert time.monotonic() - started >= 1.49


def test_4_1_4_only_the_head_expires(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"long", {"expiration": "600000"})
    channel.publish("", queue, b"short", {"expiration": "20"})
    after(channel, unique, 100)
    assert counts(channel, queue)[0] == 2
    assert drain(channel, letters) == []
    assert drain(channel, queue) == [b"long"]
    assert arrival(channel, letters).body == b"short"


def test_4_1_4_it_expires_when_the_head_is_delivered(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, b"long")
    for body in numbered(3):
        channel.publish("", queue, body, {"expiration": "20"})
    after(channel, unique, 100)
    assert got(channel, queue).body == b"long"
    assert [arrival(channel, letters).body for _ in range(3)] == numbered(3)


def test_4_1_4_expired_messages_count_in_limits(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-max-length", "I", 2))
    fill(channel, queue, b"long")
    channel.publish("", queue, b"short", {"expiration": "20"})
    after(channel, unique, 100)
    fill(channel, queue, b"new")
    found = [arrival(channel, letters) for _ in range(2)]
    assert [(each.body, deaths(each)[0]["reason"]) for each in found] == [(b"long", "maxlen"), (b"short", "expired")]
    assert drain(channel, queue) == [b"new"]


def test_4_1_5_each_in_its_time(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.consume(letters, no_ack=True)
    started = time.monotonic()
    for body, expiration in [(b"1", "100"), (b"2", "300"), (b"3", "200")]:
        channel.publish("", queue, body, {"expiration": expiration})
    times = []
    for body in numbered(3):
        assert channel.next_delivery().body == body
        times.append(time.monotonic() - started)
    # The third one has to wait for the second.
    assert times[0] >= 0.1
    assert times[1] >= 0.3
    assert times[2] < 10


def test_4_1_5_a_new_head_may_expire_sooner(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"long", {"expiration": "600000"})
    channel.publish("", queue, b"short", {"expiration": "1000"})
    channel.sync(queue)
    assert got(channel, queue, no_ack=True).body == b"long"
    assert arrival(channel, letters).body == b"short"


@pytest.mark.parametrize("by_argument", [True, False])
@pytest.mark.parametrize("no_ack", [True, False])
def test_4_1_6_ttl_0_with_a_consumer(channel: Channel, unique: Unique, by_argument: bool, no_ack: bool) -> None:
    queue, letters = dead_lettering(channel, unique, *([ttl(0)] if by_argument else []))
    channel.consume(queue, no_ack=no_ack)
    channel.publish("", queue, b"one", None if by_argument else {"expiration": "0"})
    assert channel.next_delivery().body == b"one"
    assert drain(channel, letters) == []


def test_4_1_6_ttl_0_with_a_full_consumer(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(0))
    channel.qos(1)
    channel.consume(queue)
    fill(channel, queue, b"one", b"two")
    assert channel.next_delivery().body == b"one"
    letter = arrival(channel, letters)
    assert (letter.body, deaths(letter)[0]["reason"]) == (b"two", "expired")


def test_4_1_6_ttl_0_without_a_consumer(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(0))
    channel.confirm_select()
    channel.publish("", queue, b"one", mandatory=True)
    assert channel.wait_for_confirms(1) == [True]
    letter = arrival(channel, letters)
    assert (letter.body, deaths(letter)[0]["reason"]) == (b"one", "expired")
    assert not channel.returns
    assert counts(channel, queue) == (0, 0)


def test_4_1_6_a_requeue_expires_it(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(0))
    channel.consume(queue, "tag")
    channel.publish("", queue, b"one")
    tag = channel.next_delivery().delivery_tag
    channel.cancel("tag")
    channel.nack(tag)
    assert channel.get(queue) is None
    letter = arrival(channel, letters)
    assert (letter.body, deaths(letter)[0]["reason"]) == (b"one", "expired")


def test_4_1_7_unacked_messages_do_not_expire(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ttl(50))
    channel.consume(queue)
    channel.publish("", queue, b"one")
    delivery = channel.next_delivery()
    after(channel, unique, 150)
    channel.ack(delivery.delivery_tag)
    channel.sync(queue)
    assert drain(channel, letters) == []


@pytest.mark.parametrize("arguments", [[], [ttl(1)], [("x-max-priority", "I", 5)], [("x-max-length", "I", 200)]])
def test_4_1_3_whoever_waits_gets_what_lives_for_a_millisecond(
    channel: Channel, unique: Unique, arguments: list[Triple]
) -> None:
    """Rule 1.7.1 (c): consumers are tried first, however busy the broker is."""
    queue, bodies = new_queue(channel, unique, arguments=arguments), numbered(50)
    channel.consume(queue, no_ack=True)
    for _ in range(10):
        for body in bodies:
            channel.publish("", queue, body, {"expiration": "1"})
        assert [delivery.body for delivery in channel.deliveries(len(bodies))] == bodies


def test_4_1_8_a_live_head_of_higher_priority(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-max-priority", "I", 5))
    channel.publish("", queue, b"low", {"priority": 1, "expiration": "20"})
    channel.publish("", queue, b"high", {"priority": 5})
    after(channel, unique, 100)
    assert (counts(channel, queue)[0], drain(channel, letters)) == (2, [])
    assert got(channel, queue).body == b"high"
    assert arrival(channel, letters).body == b"low"
    assert counts(channel, queue)[0] == 0


def test_4_1_8_an_expired_head_of_higher_priority(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-max-priority", "I", 5))
    # In this order: 3.10.8 sets its clock only for a message that comes to an empty queue.
    channel.publish("", queue, b"high", {"priority": 5, "expiration": "20"})
    channel.publish("", queue, b"low", {"priority": 1})
    assert arrival(channel, letters).body == b"high"
    assert drain(channel, queue) == [b"low"]
