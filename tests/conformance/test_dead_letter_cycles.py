"""Rules 2.4.1 to 2.4.6: messages that would die in a circle."""

from __future__ import annotations

import pytest

from tests.conformance.deaths import after, arrival, dead_letter_to, dead_lettering, history, reject
from tests.conformance.fixtures import Unique
from tests.conformance.topology import bodies, bound_queue, counts, drain, fill, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel

SHORT: Triple = ("x-message-ttl", "I", 50)


def circle(channel: Channel, unique: Unique, *arguments: list[Triple]) -> list[str]:
    """Declare queues by their arguments, each of which dead-letters to the next one and the last to the first."""
    queues = [unique() for _ in arguments]
    for queue, target, given in zip(queues, queues[1:] + queues[:1], arguments, strict=True):
        channel.queue_declare(queue, arguments=[*dead_letter_to("", target), *given])
    return queues


@pytest.mark.parametrize("reason", ["expired", "maxlen"])
def test_2_4_1_only_the_cycling_queue_is_left_out(channel: Channel, unique: Unique, reason: str) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    others = [bound_queue(channel, unique, exchange, "") for _ in range(2)]
    bound: Triple = SHORT if reason == "expired" else ("x-max-length", "I", 0)
    queue = new_queue(channel, unique, arguments=[*dead_letter_to(exchange), bound])
    channel.queue_bind(queue, exchange)
    fill(channel, queue, b"one")
    for other in others:
        letter = arrival(channel, other)
        assert (letter.body, history(letter)) == (b"one", [(queue, reason, 1)])
    after(channel, unique, 50)
    assert counts(channel, queue) == (0, 0)
    assert drain(channel, others[0]) == []


def test_2_4_2_rejected_messages_go_round_freely(channel: Channel, unique: Unique) -> None:
    (queue,) = circle(channel, unique, [])
    fill(channel, queue, b"one")
    for _ in range(10):
        reject(channel, queue)
    assert history(arrival(channel, queue)) == [(queue, "rejected", 10)]


def test_2_4_3_a_rejection_since_the_last_visit_allows_it(channel: Channel, unique: Unique) -> None:
    expiring, rejecting = circle(channel, unique, [SHORT], [])
    fill(channel, expiring, b"one")
    after(channel, unique, 50)
    reject(channel, rejecting)
    # Back to where it expired first, and on from there.
    letter = arrival(channel, rejecting)
    assert history(letter) == [(expiring, "expired", 2), (rejecting, "rejected", 1)]


@pytest.mark.departs("4.0")
def test_2_4_3_nor_do_visits_before_the_rejection_forbid_it(channel: Channel, unique: Unique) -> None:
    # As older entries turn round there (2.3.9), 3.10.8 finds the first visit behind the last death.
    first, rejecting, last = circle(channel, unique, [SHORT], [], [SHORT])
    fill(channel, first, b"one")
    after(channel, unique, 50)
    reject(channel, rejecting)
    # It expires in `last`, comes back to where it expired first, and expires there again.
    letter = arrival(channel, rejecting)
    assert history(letter) == [(first, "expired", 2), (last, "expired", 1), (rejecting, "rejected", 1)]


def test_2_4_3_the_last_visit_may_end_by_rejection(channel: Channel, unique: Unique) -> None:
    rejecting, expiring = circle(channel, unique, [], [SHORT])
    fill(channel, rejecting, b"one")
    reject(channel, rejecting)
    letter = arrival(channel, rejecting)
    assert history(letter) == [(expiring, "expired", 1), (rejecting, "rejected", 1)]


def test_2_4_3_a_rejection_before_the_last_visit_does_not_help(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    expiring = new_queue(channel, unique, arguments=[*dead_letter_to(exchange), SHORT])
    channel.queue_bind(expiring, exchange)
    witness = bound_queue(channel, unique, exchange, "")
    rejecting = new_queue(channel, unique, b"one", arguments=dead_letter_to("", expiring))
    reject(channel, rejecting)
    assert history(arrival(channel, witness)) == [(expiring, "expired", 1), (rejecting, "rejected", 1)]
    after(channel, unique, 150)
    assert counts(channel, expiring) == (0, 0)
    assert drain(channel, witness) == []


@pytest.mark.departs("4.0")
def test_2_4_3_a_rejection_before_the_first_visit_does_not_count(channel: Channel, unique: Unique) -> None:
    # As older entries turn round there (2.3.9), 3.10.8 lets these messages go round for ever.
    exchange = new_exchange(channel, unique, "fanout")
    witness = bound_queue(channel, unique, exchange, "")
    two = new_queue(channel, unique, arguments=[*dead_letter_to(exchange), SHORT])
    one = new_queue(channel, unique, arguments=[*dead_letter_to("", two), SHORT])
    channel.queue_bind(one, exchange)
    rejecting = new_queue(channel, unique, b"one", arguments=dead_letter_to("", one))
    reject(channel, rejecting)
    assert history(arrival(channel, witness)) == [(two, "expired", 1), (one, "expired", 1), (rejecting, "rejected", 1)]
    assert [counts(channel, queue) for queue in (one, two)] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_2_4_4_expired_messages_make_one_round(channel: Channel, unique: Unique, length: int) -> None:
    queues = circle(channel, unique, *[[SHORT]] * length)
    fill(channel, queues[0], b"one")
    after(channel, unique, 50 * length + 150)
    assert [counts(channel, queue) for queue in queues] == [(0, 0)] * length


@pytest.mark.parametrize("length", [1, 2, 3])
def test_2_4_4_evicted_messages_make_one_round(channel: Channel, unique: Unique, length: int) -> None:
    arguments: list[list[Triple]] = [[("x-max-length", "I", 2)]] * length
    queues = circle(channel, unique, *arguments)
    fill(channel, queues[0], *(b"%d" % number for number in range(1, 21)))
    found = [drain(channel, queue) for queue in queues]
    assert found == [[b"%d" % (19 - 2 * turn), b"%d" % (20 - 2 * turn)] for turn in range(length)]


def test_2_4_4_a_retry_queue_is_allowed_for_ever(channel: Channel, unique: Unique) -> None:
    work, retry = circle(channel, unique, [], [("x-message-ttl", "I", 10)])
    channel.consume(work)
    channel.publish("", work, b"one")
    for attempt in range(5):
        delivery = channel.next_delivery()
        expected = [(retry, "expired", attempt), (work, "rejected", attempt)] if attempt else []
        assert (history(delivery) if attempt else []) == expected
        channel.reject(delivery.delivery_tag, requeue=False)
    assert bodies([channel.next_delivery()]) == [b"one"]


@pytest.mark.departs("4.0")
@pytest.mark.parametrize("reason", ["expired", "maxlen"])
def test_2_4_5_what_clients_make_up_is_no_cycle(channel: Channel, unique: Unique, reason: str) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-max-length", "I", 0))
    table: list[Triple] = [("queue", "S", letters), ("reason", "S", reason), ("count", "l", 1)]
    channel.publish("", queue, b"one", {"headers": [("x-death", "A", [("F", table)])]})
    letter = arrival(channel, letters)
    assert (letter.body, history(letter)) == (b"one", [(queue, "maxlen", 1)])


def test_2_4_6_the_drop_is_silent(channel: Channel, unique: Unique) -> None:
    (queue,) = circle(channel, unique, [("x-max-length", "I", 0)])
    channel.confirm_select()
    channel.publish("", queue, b"one", mandatory=True)
    assert channel.wait_for_confirms(1) == [True]
    channel.sync(queue)
    assert not channel.returns
    assert counts(channel, queue) == (0, 0)
