"""Rules 21.10, 23.18, 24.7 to 24.10 and 25.1 to 25.3: what is removed from streams, and when."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.operator_policies import OPERATOR, PolicySet, only
from tests.conformance.streams import FIRST, consumer, fill, new_stream, numbered, offset, offsets
from tests.conformance.topology import counts
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel

SEGMENT = "x-stream-max-segment-size-bytes"
#: A segment has about 30 of these messages.
SMALL: Triple = (SEGMENT, "l", 10_000)
BODY = bytes(200)


def first_offset(connect: Connect, stream: str) -> int:
    """Return the first offset that can be read."""
    return offset(consumer(connect, stream, FIRST, prefetch=1).next_delivery())


def test_25_1_nothing_is_removed_without_limits(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique, SMALL)
    fill(connect, stream, *[BODY] * 200)
    assert first_offset(connect, stream) == 0


def test_25_2_one_segment_stays_whatever_the_limit(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique, ("x-max-length-bytes", "l", 1000), ("x-max-age", "S", "1s"))
    fill(connect, stream, *[BODY] * 200)
    assert first_offset(connect, stream) == 0


def test_25_3_max_length_bytes(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique, SMALL, ("x-max-length-bytes", "l", 35_000))
    fill(connect, stream, *[BODY] * 400)
    reader = consumer(connect, stream, FIRST)
    first = offset(reader.next_delivery())
    # Between 15,000 and 45,000 bytes are left, of 350 each here and there.
    assert 255 <= first < 365
    last = first
    while last < 399:
        last = offset(reader.next_delivery())


def test_25_3_max_age(channel: Channel, connect: Connect, unique: Unique, poll: Poll) -> None:
    stream = new_stream(channel, unique, SMALL, ("x-max-age", "S", "1s"))
    fill(connect, stream, *[BODY] * 100)

    def is_removed() -> bool:
        # Every new segment makes the broker look at the older ones.
        fill(connect, stream, *[BODY] * 10)
        return first_offset(connect, stream) >= 60

    poll(is_removed)


@pytest.mark.departs("none")
def test_25_1_age_counts_on_an_idle_stream(channel: Channel, connect: Connect, unique: Unique, poll: Poll) -> None:
    # RabbitMQ looks at it only when something is published.
    stream = new_stream(channel, unique, SMALL, ("x-max-age", "S", "1s"))
    fill(connect, stream, *[BODY] * 100)
    poll(lambda: first_offset(connect, stream) >= 60)


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.departs("none")
def test_21_10_tiny_segments(channel: Channel, connect: Connect, unique: Unique, size: int) -> None:
    # On RabbitMQ nothing is ever confirmed.
    stream = new_stream(channel, unique, (SEGMENT, "l", size))
    fill(connect, stream, *numbered(20))
    assert offsets(consumer(connect, stream, FIRST).deliveries(20)) == list(range(20))


def test_23_18_a_slow_consumer_goes_on_with_what_is_left(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique, (SEGMENT, "l", 1000), ("x-max-length-bytes", "l", 3000))
    fill(connect, stream, *[BODY] * 2)
    slow = consumer(connect, stream, FIRST, prefetch=1)
    found = [offset(slow.next_delivery())]
    fill(connect, stream, *[BODY] * 100)
    last = found[0]
    while last < 101:
        slow.send(commands.Basic.Ack, delivery_tag=0, multiple=True)
        last = offset(slow.next_delivery())
        found.append(last)
    assert found == sorted(set(found))
    assert len(found) < 50


def test_24_7_policies(channel: Channel, connect: Connect, unique: Unique, policy: SetPolicy, poll: Poll) -> None:
    stream = new_stream(channel, unique, SMALL, ("x-max-length-bytes", "l", 1_000_000))
    fill(connect, stream, *[BODY] * 400)
    policy(stream, {"max-length-bytes": 35_000})
    poll(lambda: 255 <= first_offset(connect, stream) < 365)
    policy(stream, {"max-length-bytes": 35_000, "max-length": 1})
    before = first_offset(connect, stream)
    # With a key that streams do not have, none of it applies.
    fill(connect, stream, *[BODY] * 100)
    assert first_offset(connect, stream) == before


def test_24_7_a_policy_beats_the_argument(
    channel: Channel, connect: Connect, unique: Unique, policy: SetPolicy
) -> None:
    stream = new_stream(channel, unique, SMALL, ("x-max-length-bytes", "l", 35_000))
    policy(stream, {"max-length-bytes": 1_000_000})
    fill(connect, stream, *[BODY] * 400)
    assert first_offset(connect, stream) == 0


def test_24_10_an_operator_policy_bounds_both(
    channel: Channel, connect: Connect, unique: Unique, management: Management, vhost: str, poll: Poll
) -> None:
    stream = new_stream(channel, unique, SMALL)
    fill(connect, stream, *[BODY] * 400)
    with PolicySet(management, vhost) as policies:
        policies.set(only(stream), {"max-length-bytes": 35_000}, kind=OPERATOR)
        poll(lambda: 255 <= first_offset(connect, stream) < 365)


def test_messages_are_counted_by_their_offsets(channel: Channel, connect: Connect, unique: Unique, poll: Poll) -> None:
    stream = new_stream(channel, unique, SMALL, ("x-max-length-bytes", "l", 35_000))
    fill(connect, stream, *[BODY] * 400)
    poll(lambda: 0 < counts(channel, stream)[0] < 150)
