"""Rules 4.2.1 to 4.2.3: queues that expire."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.deaths import dead_lettering
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.leases import Gaps, alive_in_time, gone
from tests.conformance.operator_policies import PolicySet, only
from tests.conformance.reply_texts import no_queue
from tests.conformance.topology import drain, fill, got, new_queue
from tests.support.events import ChannelClosed
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel


def expires(milliseconds: int) -> list[Triple]:
    return [("x-expires", "l", milliseconds)]


def outlast(channel: Channel, unique: Unique, poll: Poll, lease: int, renew: Callable[[], object]) -> None:
    """Renew a lease again and again until a queue that is declared now, with a lease as long, has expired."""
    witness = new_queue(channel, unique, arguments=expires(lease))

    def expired() -> bool:
        renew()
        return gone(channel, witness)

    poll(expired)


def outlives(
    channel: Channel, unique: Unique, poll: Poll, queue: str, lease: int, gaps: Gaps, renew: Callable[[], object]
) -> bool:
    """Return whether a queue is there for longer than its lease while that is renewed; wait until it is gone."""
    channel.queue_bind(queue, "amq.direct", queue)
    try:
        outlast(channel, unique, poll, lease, lambda: gaps.ask(renew))
    except ChannelClosed:
        return False
    alive = not gaps.ask(lambda: gone(channel, queue, "amq.direct"))
    poll(lambda: gone(channel, queue))
    return alive


@pytest.mark.parametrize("letter", ["b", "B", "s", "u", "I", "i", "l", "L"])
def test_4_2_1_any_integer_type(channel: Channel, unique: Unique, poll: Poll, letter: str) -> None:
    queue = new_queue(channel, unique, arguments=[("x-expires", letter, 100)])
    poll(lambda: gone(channel, queue))


def test_4_2_1_the_shortest_lease(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = new_queue(channel, unique, arguments=expires(1))
    poll(lambda: gone(channel, queue))


@pytest.mark.parametrize(
    "renew",
    [
        lambda channel, queue, lease: channel.queue_declare(queue, arguments=expires(lease)),
        lambda channel, queue, _: channel.queue_declare(queue, passive=True),
        lambda channel, queue, _: channel.get(queue),
        lambda channel, queue, _: channel.get(queue, no_ack=True),
        lambda channel, queue, _: channel.cancel(channel.consume(queue).consumer_tag),
    ],
    ids=["declare", "passive declare", "get", "get without ack", "consume"],
)
def test_4_2_2_what_renews_the_lease(
    channel: Channel, unique: Unique, poll: Poll, renew: Callable[[Channel, str, int], object]
) -> None:
    def attempt(lease: int, gaps: Gaps) -> bool:
        queue = gaps.ask(lambda: new_queue(channel, unique, arguments=expires(lease)))
        user = channel.connection.channel()
        return outlives(channel, unique, poll, queue, lease, gaps, lambda: renew(user, queue, lease))

    assert alive_in_time(attempt)


@pytest.mark.parametrize("change", [{"priority": 1}, {"definition": {"max-length": 6}}])
def test_4_2_2_a_change_of_its_policy_renews_the_lease(
    channel: Channel, unique: Unique, poll: Poll, policies: PolicySet, change: dict[str, Any]
) -> None:
    forms = cycle([{"definition": {"max-length": 5}}, {"definition": {"max-length": 5}, **change}])

    def attempt(lease: int, gaps: Gaps) -> bool:
        queue = gaps.ask(lambda: new_queue(channel, unique, arguments=expires(lease)))
        return outlives(
            channel, unique, poll, queue, lease, gaps, lambda: policies.set(only(queue), name=queue, **next(forms))
        )

    assert alive_in_time(attempt)


@pytest.mark.parametrize("passive", [False, True])
def test_4_2_2_a_declaration_without_an_answer_does_not(
    channel: Channel, unique: Unique, poll: Poll, passive: bool
) -> None:
    lease = 500
    queue = new_queue(channel, unique, arguments=expires(lease))
    channel.queue_bind(queue, "amq.direct", queue)

    def declare() -> None:
        user = channel.connection.channel()
        arguments = [] if passive else expires(lease)
        user.queue_declare(queue, passive=passive, nowait=True, arguments=arguments)
        if not passive:
            user.close()

    def ended() -> bool:
        declare()
        return gone(channel, queue, "amq.direct")

    poll(ended)


def test_4_2_2_a_declaration_over_http_does(
    channel: Channel, unique: Unique, poll: Poll, management: Management, vhost: str
) -> None:
    def attempt(lease: int, gaps: Gaps) -> bool:
        queue = gaps.ask(lambda: new_queue(channel, unique, arguments=expires(lease)))
        body = {"durable": False, "arguments": {"x-expires": lease}}

        def put() -> None:
            management.request("PUT", "queues", vhost, queue, body=body)

        return outlives(channel, unique, poll, queue, lease, gaps, put)

    assert alive_in_time(attempt)


def test_4_2_2_a_refused_declaration_does_not(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = new_queue(channel, unique, arguments=expires(500))
    channel.queue_bind(queue, "amq.direct", queue)

    def ended() -> bool:
        user = channel.connection.channel()
        try:
            user.queue_declare(queue, arguments=expires(501))
        except ChannelClosed:
            pass
        return gone(channel, queue, "amq.direct")

    poll(ended)


def test_4_2_2_publishing_does_not(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = new_queue(channel, unique, arguments=expires(300))
    poll(lambda: gone(channel, queue))


def leave(consumers: list[Channel], way: str) -> None:
    """End consumers: themselves, their channels or their connections."""
    for consumer in consumers:
        if way == "cancel":
            consumer.cancel("tag")
        elif way == "channel":
            consumer.close()
        else:
            consumer.connection.close()


@pytest.mark.parametrize("way", ["cancel", "channel", "connection"])
def test_4_2_2_a_consumer_suspends_it(channel: Channel, connect: Connect, unique: Unique, poll: Poll, way: str) -> None:
    def attempt(lease: int, gaps: Gaps) -> bool:
        queue = new_queue(channel, unique, arguments=expires(lease))
        consumers = [connect().channel() for _ in range(2)]
        for consumer in consumers:
            consumer.consume(queue, "tag", no_ack=True)
        outlast(channel, unique, poll, lease, lambda: None)
        assert not gone(channel, queue)
        gaps.start()
        gaps.ask(lambda: leave(consumers, way))
        # Its first period is long over: it is there because another one has begun.
        alive = not gaps.ask(lambda: gone(channel, queue))
        poll(lambda: gone(channel, queue))
        return alive

    assert alive_in_time(attempt)


def test_4_2_2_unacked_messages_do_not_suspend_it(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = new_queue(channel, unique, b"one", arguments=expires(300))
    delivery = got(channel, queue)
    poll(lambda: gone(channel, queue))
    channel.ack(delivery.delivery_tag)
    channel.sync()


def test_4_2_3_no_dead_letters(channel: Channel, unique: Unique, vhost: str, poll: Poll) -> None:
    queue, letters = dead_lettering(channel, unique, *expires(300))
    fill(channel, queue, b"one")
    poll(lambda: gone(channel, queue))
    assert drain(channel, letters) == []
    with channel.expect_channel_close(404, no_queue(queue, vhost), commands.Basic.Get):
        channel.get(queue)


@pytest.mark.parametrize("durable", [False, True])
def test_4_2_3_a_new_queue_of_the_name(channel: Channel, unique: Unique, poll: Poll, durable: bool) -> None:
    queue = new_queue(channel, unique, b"one", arguments=expires(300), durable=durable)
    poll(lambda: gone(channel, queue))
    declared = channel.queue_declare(queue, durable=not durable)
    assert (declared.message_count, declared.consumer_count) == (0, 0)
