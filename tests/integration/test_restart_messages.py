"""Rule 4.6.1: what of the messages is there after a stop and after a crash."""

from __future__ import annotations

import time

import pytest

from tests.conformance.bounded import refill
from tests.conformance.deaths import arrival, dead_letter_to, deaths, history
from tests.conformance.topology import bodies, drain, exists, got, numbered
from tests.integration.restarts import PERSISTENT, TRANSIENT, Restarts, process, restart
from tests.integration.waiting import wait_until
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

__all__ = ["process", "restart"]

MODES: list[tuple[Triple, ...]] = [(), (("x-queue-mode", "S", "lazy"),)]
modes = pytest.mark.parametrize("mode", MODES, ids=["default", "lazy"])


def taken(channel: Channel, queue: str, count: int) -> list[Delivery]:
    return [got(channel, queue) for _ in range(count)]


def everything(channel: Channel, queue: str) -> list[tuple[bytes, bool]]:
    """All messages with their redelivered flags."""
    found = []
    while (delivery := channel.get(queue)) is not None:
        found.append((delivery.body, delivery.redelivered))
    return found


@modes
def test_4_6_1_durable_and_persistent(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    durable, other = restart.queue(channel, *mode), restart.queue(channel, *mode, durable=False)
    for queue in (durable, other):
        refill(channel, queue, b"p1", **PERSISTENT)
        refill(channel, queue, b"t2", **TRANSIENT)
        refill(channel, queue, b"none")
        refill(channel, queue, b"p3", **PERSISTENT)
    channel = restart()
    assert drain(channel, durable) == [b"p1", b"p3"]
    assert not exists(restart.connect, other)


@modes
def test_4_6_1_unacked_messages_come_back_redelivered(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *mode)
    refill(channel, queue, *numbered(6), **PERSISTENT)
    channel.ack(taken(channel, queue, 3)[1].delivery_tag)
    channel.sync(queue)
    channel = restart()
    # After a crash it is not known what had been delivered; all of it may have been.
    rest = [(body, restart.killed) for body in (b"4", b"5", b"6")]
    assert everything(channel, queue) == [(b"1", True), (b"3", True), *rest]


@modes
def test_4_6_1_what_a_consumer_has_comes_back(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *mode)
    channel.qos(3)
    channel.consume(queue)
    refill(channel, queue, *numbered(5), **PERSISTENT)
    assert bodies(channel.deliveries(3)) == numbered(3)
    channel = restart()
    rest = [(body, restart.killed) for body in (b"4", b"5")]
    assert everything(channel, queue) == [*((body, True) for body in numbered(3)), *rest]


@modes
def test_messages_keep_their_places_after_a_requeue(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *mode)
    refill(channel, queue, *numbered(6), **PERSISTENT)
    unacked = taken(channel, queue, 5)
    for place in (2, 0):
        channel.nack(unacked[place].delivery_tag)
    channel.ack(unacked[3].delivery_tag)
    channel.sync(queue)
    channel = restart()
    assert bodies(taken(channel, queue, 5)) == [b"1", b"2", b"3", b"5", b"6"]
    assert channel.get(queue) is None


def test_what_went_is_gone_and_what_comes_stands_behind(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel)
    refill(channel, queue, *numbered(4), **PERSISTENT)
    assert got(channel, queue, no_ack=True).body == b"1"
    channel.ack(got(channel, queue).delivery_tag)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    channel = restart()
    refill(channel, queue, b"5", **PERSISTENT)
    channel = restart()
    assert drain(channel, queue) == [b"4", b"5"]


@modes
def test_4_6_2_priorities(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, ("x-max-priority", "I", 3), *mode)
    for body, priority in ((b"a0", 0), (b"b3", 3), (b"c1", 1), (b"d3", 200), (b"e0", 0)):
        refill(channel, queue, body, priority=priority, **PERSISTENT)
    assert got(channel, queue).body == b"b3"
    channel = restart()
    refill(channel, queue, b"f1", priority=1, **PERSISTENT)
    found = taken(channel, queue, 6)
    assert bodies(found) == [b"b3", b"d3", b"c1", b"f1", b"a0", b"e0"]
    assert [each.properties["priority"] for each in found] == [3, 200, 1, 1, 0, 0]


def test_properties_and_route(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel)
    channel.queue_bind(queue, "amq.topic", "some.#")
    headers = [("int", "I", -5), ("octets", "x", b"\0\xff"), ("list", "A", [("S", b"\xfe")])]
    given = {"headers": headers, "timestamp": 1, "content_type": "t", "app_id": "", **PERSISTENT}
    channel.confirm_select()
    channel.publish("amq.topic", "some.key", b"", given)
    channel.wait_for_confirms(1)
    found = got(restart(), queue)
    assert (found.exchange, found.routing_key, found.body) == ("amq.topic", "some.key", b"")
    assert found.raw_properties == got_again(restart, queue, given)


def got_again(restart: Restarts, queue: str, given: dict[str, object]) -> bytes:
    """The same message through the running broker."""
    channel = restart.channel()
    channel.queue_purge(queue)
    refill(channel, queue, b"", **given)
    return got(channel, queue).raw_properties


# --- time to live -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
def test_4_1_3_the_deadline_goes_on(restart: Restarts) -> None:
    # A busy machine may take longer for a restart than a short time to live leaves.
    assert any(expires_in_time(restart, seconds) for seconds in (5, 15, 60))


def expires_in_time(restart: Restarts, seconds: float) -> bool:
    """Whether a message expires when it should, though the broker is restarted shortly before."""
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *dead_letter_to("", letters))
    published = time.monotonic()
    refill(channel, queue, b"soon", expiration=str(round(seconds * 1000)), **PERSISTENT)
    stopped = published + 0.9 * seconds
    channel = restart(at=stopped)
    assert arrival(channel, letters, timeout=seconds + 30).body == b"soon"
    expired = time.monotonic()
    assert expired >= published + seconds
    # It would take until then if the time to live began again with the restart.
    return expired < stopped + seconds


@modes
@pytest.mark.parametrize("ttl", ["argument", "message", "policy"])
def test_what_has_expired_meanwhile_is_dead_lettered(restart: Restarts, ttl: str, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    # Its name comes first, so that the queue with the dead letters is restored later.
    queue, letters, exchange = restart.new("a"), restart.new("z"), restart.new("x")
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(letters, durable=True)
    channel.queue_bind(letters, exchange, "a.#")
    arguments = [*dead_letter_to(exchange), *mode]
    if ttl == "argument":
        arguments.append(("x-message-ttl", "I", 500))
    channel.queue_declare(queue, durable=True, arguments=arguments)
    if ttl == "policy":
        restart.policy(queue, {"message-ttl": 500})
    own = {"expiration": "500"} if ttl == "message" else {}
    refill(channel, queue, *numbered(3), **PERSISTENT, **own)
    if ttl == "message":
        refill(channel, queue, b"late", expiration="100000", **PERSISTENT)
    channel = restart(at=time.monotonic() + 0.5)
    found = [arrival(channel, letters) for _ in range(3)]
    assert bodies(found) == numbered(3)
    assert [history(each) for each in found] == [[(queue, "expired", 1)]] * 3
    assert drain(channel, queue) == ([b"late"] if ttl == "message" else [])


def test_4_1_7_an_unacked_message_expires_when_it_is_back(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *dead_letter_to("", letters), ("x-message-ttl", "I", 300))
    # Delivered on arrival: on a busy machine they may have expired before a basic.get.
    channel.consume(queue)
    refill(channel, queue, b"held", b"held too", **PERSISTENT)
    assert bodies(channel.deliveries(2)) == [b"held", b"held too"]
    channel = restart(at=time.monotonic() + 0.3)
    assert [arrival(channel, letters).body for _ in range(2)] == [b"held", b"held too"]
    assert channel.get(queue) is None


# --- dead letters -------------------------------------------------------------------------------------------------


def test_x_death_survives_and_goes_on(restart: Restarts) -> None:
    """Also that it is the broker's own, which counts on, and not one that a publisher made up."""
    channel = restart.channel()
    queue, letters = restart.new(), restart.new("letters")
    channel.queue_declare(queue, durable=True, arguments=dead_letter_to("", letters))
    channel.queue_declare(letters, durable=True, arguments=dead_letter_to("", queue))
    refill(channel, queue, b"m", **PERSISTENT)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    before = got(channel, letters)
    assert history(before) == [(queue, "rejected", 1)]
    channel = restart()
    letter = got(channel, letters)
    assert deaths(letter) == deaths(before)
    assert letter.raw_properties == before.raw_properties
    channel.reject(letter.delivery_tag, requeue=False)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    assert history(got(channel, letters)) == [(queue, "rejected", 2), (letters, "rejected", 1)]


def test_an_x_death_that_was_made_up_stays_one(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *dead_letter_to("", letters))
    entry = ("F", [("queue", "S", queue), ("reason", "S", "rejected"), ("count", "l", 7)])
    refill(channel, queue, b"m", headers=[("x-death", "A", [entry])], **PERSISTENT)
    channel = restart()
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    assert history(got(channel, letters)) == [(queue, "rejected", 1)]


def test_dead_letters_keep_what_they_were_published_as(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *dead_letter_to("", letters))
    refill(channel, queue, b"persistent", **PERSISTENT)
    refill(channel, queue, b"transient")
    for _ in range(2):
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    assert drain(restart(), letters) == [b"persistent"]


def test_blind_copies_are_dead_lettered_by_their_own_keys(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, key = restart.new("x"), restart.new("key")
    channel.exchange_declare(exchange, durable=True)
    queue = restart.queue(channel, *dead_letter_to(exchange))
    letters = {hint: restart.queue(channel, hint=hint) for hint in ("own", "cc", "bcc")}
    for hint, each in letters.items():
        channel.queue_bind(each, exchange, queue if hint == "own" else f"{key}.{hint}")
    copies = [("CC", "A", [("S", f"{key}.cc")]), ("BCC", "A", [("S", f"{key}.bcc")])]
    refill(channel, queue, b"m", headers=copies, **PERSISTENT)
    channel = restart()
    delivery = got(channel, queue)
    assert [each[0] for each in delivery.headers] == ["CC"]
    channel.reject(delivery.delivery_tag, requeue=False)
    assert [arrival(channel, each).body for each in letters.values()] == [b"m"] * 3


def test_the_expiry_of_a_dead_letter_was_its_own(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *dead_letter_to("", letters))
    refill(channel, queue, b"m", expiration="600000", **PERSISTENT)
    channel = restart()
    assert got(channel, queue).properties["expiration"] == "600000"
    channel.recover()
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    channel = restart()
    letter = arrival(channel, letters)
    assert "expiration" not in letter.properties
    assert deaths(letter)[0]["original-expiration"] == "600000"


# --- transactions -------------------------------------------------------------------------------------------------


def test_what_was_committed_holds(restart: Restarts) -> None:
    channel = restart.channel()
    queue, other = restart.queue(channel), restart.queue(channel)
    refill(channel, queue, *numbered(3), **PERSISTENT)
    channel.tx_select()
    acked, kept = taken(channel, queue, 2)
    channel.publish("", other, b"published", PERSISTENT)
    channel.ack(acked.delivery_tag)
    channel.tx_commit()
    channel.publish("", other, b"not committed", PERSISTENT)
    channel.ack(kept.delivery_tag)
    channel = restart()
    assert drain(channel, other) == [b"published"]
    assert drain(channel, queue) == [b"2", b"3"]


# --- a backlog ----------------------------------------------------------------------------------------------------


@modes
def test_a_backlog_over_many_restarts(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *mode)
    expected: list[bytes] = []
    for turn in range(3):
        more = [b"%d-%d:" % (turn, number) + bytes(number % 5000) for number in range(400)]
        refill(channel, queue, *more, **PERSISTENT)
        expected += more
        unacked = taken(channel, queue, 150)
        assert bodies(unacked) == expected[:150]
        channel.ack(unacked[99].delivery_tag, multiple=True)
        channel.sync(queue)
        del expected[:100]
        channel = restart()
    channel.consume(queue, no_ack=True)
    wait_until(lambda: restart.channel().queue_declare(queue, passive=True).message_count == 0, "all are delivered")
    assert bodies(channel.deliveries(len(expected))) == expected


@modes
def test_bodies_that_are_longer_than_a_segment(restart: Restarts, mode: tuple[Triple, ...]) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *mode)
    expected = [b"%d:" % number + bytes(length) for number, length in enumerate((20_000_000, 1, 17_000_000))]
    channel.confirm_select()
    for body in expected:
        channel.publish("", queue, body, PERSISTENT)
    assert channel.wait_for_confirms(3) == [True] * 3
    channel = restart()
    for body in expected:
        # Not compared in an assertion: nobody wants to read the difference.
        is_same = got(channel, queue, no_ack=True).body == body
        assert is_same
