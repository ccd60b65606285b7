"""Rule 4.6.1: what of the messages is there after a stop and after a crash."""

from __future__ import annotations

import itertools
import time

from tests.conformance.bounded import refill
from tests.conformance.deaths import arrival, dead_letter_to, deaths, history
from tests.conformance.topology import bodies, drain, exists, got, numbered
from tests.crash.rows.table import LAZY, Steps, row
from tests.integration.restarts import PERSISTENT, TRANSIENT, Restarts
from tests.integration.waiting import wait_until
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

modes = row(((),), ((LAZY,),))


def taken(channel: Channel, queue: str, count: int) -> list[Delivery]:
    return [got(channel, queue) for _ in range(count)]


def everything(channel: Channel, queue: str) -> list[tuple[bytes, bool]]:
    """All messages with their redelivered flags."""
    found = []
    while (delivery := channel.get(queue)) is not None:
        found.append((delivery.body, delivery.redelivered))
    return found


@modes
def durable_and_persistent(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    durable, other = place.queue(channel, *mode), place.queue(channel, *mode, durable=False)
    for queue in (durable, other):
        refill(channel, queue, b"p1", **PERSISTENT)
        refill(channel, queue, b"t2", **TRANSIENT)
        refill(channel, queue, b"none")
        refill(channel, queue, b"p3", **PERSISTENT)
    channel = yield
    assert drain(channel, durable) == [b"p1", b"p3"]
    assert not exists(place.connect, other)


@modes
def unacked_messages_come_back_redelivered(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *mode)
    refill(channel, queue, *numbered(6), **PERSISTENT)
    channel.ack(taken(channel, queue, 3)[1].delivery_tag)
    channel.sync(queue)
    channel = yield
    # After a crash it is not known what had been delivered; all of it may have been.
    rest = [(body, place.killed) for body in (b"4", b"5", b"6")]
    assert everything(channel, queue) == [(b"1", True), (b"3", True), *rest]


@modes
def what_a_consumer_has_comes_back(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *mode)
    channel.qos(3)
    channel.consume(queue)
    refill(channel, queue, *numbered(5), **PERSISTENT)
    assert bodies(channel.deliveries(3)) == numbered(3)
    channel = yield
    rest = [(body, place.killed) for body in (b"4", b"5")]
    assert everything(channel, queue) == [*((body, True) for body in numbered(3)), *rest]


@modes
def messages_keep_their_places_after_a_requeue(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *mode)
    refill(channel, queue, *numbered(6), **PERSISTENT)
    unacked = taken(channel, queue, 5)
    for number in (2, 0):
        channel.nack(unacked[number].delivery_tag)
    channel.ack(unacked[3].delivery_tag)
    channel.sync(queue)
    channel = yield
    assert bodies(taken(channel, queue, 5)) == [b"1", b"2", b"3", b"5", b"6"]
    assert channel.get(queue) is None


@row()
def what_went_is_gone_and_what_comes_stands_behind(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel)
    refill(channel, queue, *numbered(4), **PERSISTENT)
    assert got(channel, queue, no_ack=True).body == b"1"
    channel.ack(got(channel, queue).delivery_tag)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    channel = yield
    refill(channel, queue, b"5", **PERSISTENT)
    channel = yield
    assert drain(channel, queue) == [b"4", b"5"]


@modes
def priorities(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, ("x-max-priority", "I", 3), *mode)
    for body, priority in ((b"a0", 0), (b"b3", 3), (b"c1", 1), (b"d3", 200), (b"e0", 0)):
        refill(channel, queue, body, priority=priority, **PERSISTENT)
    assert got(channel, queue).body == b"b3"
    channel = yield
    refill(channel, queue, b"f1", priority=1, **PERSISTENT)
    found = taken(channel, queue, 6)
    assert bodies(found) == [b"b3", b"d3", b"c1", b"f1", b"a0", b"e0"]
    assert [each.properties["priority"] for each in found] == [3, 200, 1, 1, 0, 0]


@row()
def properties_and_route(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel)
    channel.queue_bind(queue, "amq.topic", "some.#")
    headers = [("int", "I", -5), ("octets", "x", b"\0\xff"), ("list", "A", [("S", b"\xfe")])]
    given = {"headers": headers, "timestamp": 1, "content_type": "t", "app_id": "", **PERSISTENT}
    channel.confirm_select()
    channel.publish("amq.topic", "some.key", b"", given)
    channel.wait_for_confirms(1)
    found = got((yield), queue)
    assert (found.exchange, found.routing_key, found.body) == ("amq.topic", "some.key", b"")
    assert found.raw_properties == got_again(place, queue, given)


def got_again(place: Restarts, queue: str, given: dict[str, object]) -> bytes:
    """The same message through the running broker."""
    channel = place.channel()
    channel.queue_purge(queue)
    refill(channel, queue, b"", **given)
    return got(channel, queue).raw_properties


# --- time to live -------------------------------------------------------------------------------------------------


@row(late=True)
def the_deadline_goes_on(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters))
    other = place.queue(channel, *dead_letter_to("", letters))
    published = time.monotonic()
    refill(channel, queue, b"first", expiration="6000", **PERSISTENT)
    channel = yield published + 4
    # If its time to live had begun again, this one would come first.
    left = max(0, round((published + 8 - time.monotonic()) * 1000))
    refill(channel, other, b"second", expiration=str(left), **PERSISTENT)
    assert arrival(channel, letters).body == b"first"
    assert time.monotonic() >= published + 6
    assert arrival(channel, letters).body == b"second"


@row(*itertools.product(("argument", "message", "policy"), ((), (LAZY,))), late=True)
def what_has_expired_meanwhile_is_dead_lettered(place: Restarts, ttl: str, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    # Its name comes first, so that the queue with the dead letters is restored later.
    queue, letters, exchange = place.new("a"), place.new("z"), place.new("x")
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(letters, durable=True)
    channel.queue_bind(letters, exchange, "a.#")
    arguments = [*dead_letter_to(exchange), *mode]
    if ttl == "argument":
        arguments.append(("x-message-ttl", "I", 1500))
    channel.queue_declare(queue, durable=True, arguments=arguments)
    if ttl == "policy":
        place.policy(queue, {"message-ttl": 1500})
    own = {"expiration": "1500"} if ttl == "message" else {}
    refill(channel, queue, *numbered(3), **PERSISTENT, **own)
    if ttl == "message":
        refill(channel, queue, b"late", expiration="3600000", **PERSISTENT)
    channel = yield time.monotonic() + 1.5
    found = [arrival(channel, letters) for _ in range(3)]
    assert bodies(found) == numbered(3)
    assert [history(each) for each in found] == [[(queue, "expired", 1)]] * 3
    assert drain(channel, queue) == ([b"late"] if ttl == "message" else [])


@row(late=True)
def an_unacked_message_expires_when_it_is_back(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters), ("x-message-ttl", "I", 300))
    # Delivered on arrival: on a busy machine they may have expired before a basic.get.
    channel.consume(queue)
    refill(channel, queue, b"held", b"held too", **PERSISTENT)
    assert bodies(channel.deliveries(2)) == [b"held", b"held too"]
    channel = yield time.monotonic() + 0.3
    assert [arrival(channel, letters).body for _ in range(2)] == [b"held", b"held too"]
    assert channel.get(queue) is None


# --- dead letters -------------------------------------------------------------------------------------------------


@row()
def x_death_survives_and_goes_on(place: Restarts) -> Steps:
    """Also that it is the broker's own, which counts on, and not one that a publisher made up."""
    channel = place.channel()
    queue, letters = place.new(), place.new("letters")
    channel.queue_declare(queue, durable=True, arguments=dead_letter_to("", letters))
    channel.queue_declare(letters, durable=True, arguments=dead_letter_to("", queue))
    refill(channel, queue, b"m", **PERSISTENT)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    before = got(channel, letters)
    assert history(before) == [(queue, "rejected", 1)]
    channel = yield
    letter = got(channel, letters)
    assert deaths(letter) == deaths(before)
    assert letter.raw_properties == before.raw_properties
    channel.reject(letter.delivery_tag, requeue=False)
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    assert history(got(channel, letters)) == [(queue, "rejected", 2), (letters, "rejected", 1)]


@row()
def an_x_death_that_was_made_up_stays_one(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters))
    entry = ("F", [("queue", "S", queue), ("reason", "S", "rejected"), ("count", "l", 7)])
    refill(channel, queue, b"m", headers=[("x-death", "A", [entry])], **PERSISTENT)
    channel = yield
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    assert history(got(channel, letters)) == [(queue, "rejected", 1)]


@row()
def dead_letters_keep_what_they_were_published_as(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters))
    refill(channel, queue, b"persistent", **PERSISTENT)
    refill(channel, queue, b"transient")
    for _ in range(2):
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    assert drain((yield), letters) == [b"persistent"]


@row()
def blind_copies_are_dead_lettered_by_their_own_keys(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, key = place.new("x"), place.new("key")
    channel.exchange_declare(exchange, durable=True)
    queue = place.queue(channel, *dead_letter_to(exchange))
    letters = {hint: place.queue(channel, hint=hint) for hint in ("own", "cc", "bcc")}
    for hint, each in letters.items():
        channel.queue_bind(each, exchange, queue if hint == "own" else f"{key}.{hint}")
    copies = [("CC", "A", [("S", f"{key}.cc")]), ("BCC", "A", [("S", f"{key}.bcc")])]
    refill(channel, queue, b"m", headers=copies, **PERSISTENT)
    channel = yield
    delivery = got(channel, queue)
    assert [each[0] for each in delivery.headers] == ["CC"]
    channel.reject(delivery.delivery_tag, requeue=False)
    assert [arrival(channel, each).body for each in letters.values()] == [b"m"] * 3


@row()
def the_expiry_of_a_dead_letter_was_its_own(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *dead_letter_to("", letters))
    refill(channel, queue, b"m", expiration="600000", **PERSISTENT)
    channel = yield
    assert got(channel, queue).properties["expiration"] == "600000"
    channel.recover()
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)
    channel = yield
    letter = arrival(channel, letters)
    assert "expiration" not in letter.properties
    assert deaths(letter)[0]["original-expiration"] == "600000"


# --- transactions -------------------------------------------------------------------------------------------------


@row()
def what_was_committed_holds(place: Restarts) -> Steps:
    channel = place.channel()
    queue, other = place.queue(channel), place.queue(channel)
    refill(channel, queue, *numbered(3), **PERSISTENT)
    channel.tx_select()
    acked, kept = taken(channel, queue, 2)
    channel.publish("", other, b"published", PERSISTENT)
    channel.ack(acked.delivery_tag)
    channel.tx_commit()
    channel.publish("", other, b"not committed", PERSISTENT)
    channel.ack(kept.delivery_tag)
    channel = yield
    assert drain(channel, other) == [b"published"]
    assert drain(channel, queue) == [b"2", b"3"]


# --- a backlog ----------------------------------------------------------------------------------------------------


@modes
def a_backlog_over_many_restarts(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *mode)
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
        channel = yield
    channel.consume(queue, no_ack=True)
    wait_until(lambda: place.channel().queue_declare(queue, passive=True).message_count == 0, "all are delivered")
    assert bodies(channel.deliveries(len(expected))) == expected


@modes
def bodies_that_are_longer_than_a_segment(place: Restarts, mode: tuple[Triple, ...]) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *mode)
    expected = [b"%d:" % number + bytes(length) for number, length in enumerate((20_000_000, 1, 17_000_000))]
    channel.confirm_select()
    for body in expected:
        channel.publish("", queue, body, PERSISTENT)
    assert channel.wait_for_confirms(3) == [True] * 3
    channel = yield
    for body in expected:
        # Not compared in an assertion: nobody wants to read the difference.
        is_same = got(channel, queue, no_ack=True).body == body
        assert is_same
