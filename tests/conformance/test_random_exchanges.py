"""Rules 31.3 and 33.1 to 33.23: the exchange types x-random and x-local-random."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Poll, Unique
from tests.conformance.topology import bound_queue, counts, drain, fill, got, new_exchange, new_queue
from tests.support.wire import Channel

LOCAL = "x-local-random"
plugin = pytest.mark.plugin("x-random")
#: The types, and the binding key for their bindings.
TYPES = [pytest.param("x-random", marks=plugin), pytest.param(LOCAL, marks=pytest.mark.departs("4.0"))]


@pytest.mark.parametrize("kind", TYPES)
def test_33_11_every_message_gets_a_queue_of_its_own(channel: Channel, unique: Unique, kind: str) -> None:
    exchange = new_exchange(channel, unique, kind)
    queues = [bound_queue(channel, unique, exchange, "") for _ in range(3)]
    channel.confirm_select()
    for _ in range(900):
        channel.publish(exchange, "same", b"same")
    assert channel.wait_for_confirms(900) == [True] * 900
    found = [counts(channel, queue)[0] for queue in queues]
    assert sum(found) == 900
    assert [200 < count < 400 for count in found] == [True] * 3


@plugin
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("x-random", "fanout", "received 'fanout' but current is ''x-random''"),
        ("fanout", "x-random", "received ''x-random'' but current is 'fanout'"),
    ],
)
def test_31_3_types_of_plugins_are_quoted_twice(
    channel: Channel, unique: Unique, vhost: str, first: str, second: str, words: str
) -> None:
    exchange = new_exchange(channel, unique, first)
    text = f"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{exchange}' in vhost '{vhost}': {words}"
    with channel.expect_channel_close(406, text, commands.Exchange.Declare):
        channel.exchange_declare(exchange, second)


@plugin
def test_33_11_a_binding_is_a_share(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "x-random")
    often, once = bound_queue(channel, unique, exchange, "a", "b", "c"), bound_queue(channel, unique, exchange, "a")
    for _ in range(800):
        channel.publish(exchange, "a")
    channel.sync(often, once)
    assert counts(channel, often)[0] + counts(channel, once)[0] == 800
    assert 500 < counts(channel, often)[0] < 700
    channel.queue_unbind(often, exchange, "b")
    channel.queue_unbind(often, exchange, "a")
    channel.queue_unbind(often, exchange, "c")
    before = counts(channel, once)[0]
    for _ in range(50):
        channel.publish(exchange, "a")
    channel.sync(once)
    assert counts(channel, once)[0] == before + 50


@plugin
def test_33_11_a_bound_exchange_is_one_of_them(channel: Channel, unique: Unique) -> None:
    exchange, fanout = new_exchange(channel, unique, "x-random"), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, exchange, "")
    pair = [bound_queue(channel, unique, fanout, "") for _ in range(2)]
    channel.exchange_bind(fanout, exchange, "")
    for number in range(100):
        channel.publish(exchange, "", b"%d" % number, {"headers": [("CC", "A", [("S", "copy")])]})
    channel.sync(queue, *pair)
    alone, one, other = (drain(channel, each) for each in (queue, *pair))
    assert one == other
    assert len(alone) + len(one) == 100
    assert alone
    assert one


@pytest.mark.parametrize("kind", TYPES)
def test_33_11_behind_another_exchange_and_in_a_transaction(channel: Channel, unique: Unique, kind: str) -> None:
    exchange, direct = new_exchange(channel, unique, kind), new_exchange(channel, unique, "direct")
    queues = [bound_queue(channel, unique, exchange, "") for _ in range(2)]
    channel.exchange_bind(exchange, direct, "key")
    channel.tx_select()
    for _ in range(200):
        channel.publish(direct, "key")
    channel.tx_commit()
    channel.sync(*queues)
    found = [counts(channel, queue)[0] for queue in queues]
    assert sum(found) == 200
    assert all(count > 20 for count in found)


@pytest.mark.parametrize("kind", TYPES)
def test_33_11_dead_letters(channel: Channel, unique: Unique, poll: Poll, kind: str) -> None:
    exchange = new_exchange(channel, unique, kind)
    letters = [bound_queue(channel, unique, exchange, "") for _ in range(2)]
    source = new_queue(channel, unique, arguments=[("x-dead-letter-exchange", "S", exchange)])
    fill(channel, source, *[b"m"] * 200)
    tags = [got(channel, source).delivery_tag for _ in range(200)]
    channel.nack(tags[-1], multiple=True, requeue=False)
    poll(lambda: sum(counts(channel, queue)[0] for queue in letters) == 200)
    assert all(counts(channel, queue)[0] > 20 for queue in letters)


@pytest.mark.departs("4.0")
def test_33_23_local_bindings_have_no_key(channel: Channel, unique: Unique) -> None:
    exchange, queue = new_exchange(channel, unique, LOCAL), new_queue(channel, unique)
    text = "PRECONDITION_FAILED - Non empty binding 'k' key not permitted"
    with channel.expect_channel_close(406, text, commands.Queue.Bind):
        channel.queue_bind(queue, exchange, "k")


@pytest.mark.departs("4.0")
def test_33_23_local_takes_classic_queues_only(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, LOCAL)
    queue = new_queue(channel, unique, durable=True, arguments=[("x-queue-type", "S", "quorum")])
    text = "PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type"
    with channel.expect_channel_close(406, text, commands.Queue.Bind):
        channel.queue_bind(queue, exchange)


@pytest.mark.departs("4.0")
def test_33_23_local_takes_no_exchanges(channel: Channel, unique: Unique) -> None:
    exchange, destination = new_exchange(channel, unique, LOCAL), new_exchange(channel, unique, "fanout")
    with channel.expect_channel_close(406, "PRECONDITION_FAILED - Destination not found", commands.Exchange.Bind):
        channel.exchange_bind(destination, exchange)
