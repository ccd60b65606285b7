"""Rules 16.18 to 16.22: direct reply-to."""

from __future__ import annotations

import re

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.reply_texts import no_queue, unknown_tag
from tests.conformance.topology import bodies, drain, fill, got, new_queue
from tests.support.methods import MethodType
from tests.support.wire import Channel, Connection

NAME = "amq.rabbitmq.reply-to"
CONSUME = commands.Basic.Consume
PUBLISH = commands.Basic.Publish
VOLATILE = "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"


@pytest.fixture
def requester(connect: Connect) -> Channel:
    """A channel with a reply consumer, on a connection of its own."""
    channel = connect().channel()
    channel.consume(NAME, "replies", no_ack=True)
    return channel


def opaque(requester: Channel, unique: Unique) -> str:
    """Publish a request and return the name that its receiver is to answer to."""
    queue = new_queue(requester, unique)
    requester.publish("", queue, properties={"reply_to": NAME})
    found: str = got(requester, queue, no_ack=True).properties["reply_to"]
    return found


def test_16_18_acknowledgement_is_refused(channel: Channel) -> None:
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    with channel.expect_channel_close(406, text, CONSUME):
        channel.consume(NAME)


def test_16_18_one_a_channel(requester: Channel) -> None:
    text = "PRECONDITION_FAILED - reply consumer already set"
    with requester.expect_channel_close(406, text, CONSUME):
        requester.consume(NAME, no_ack=True)


def test_16_18_each_channel_may_have_one(connection: Connection, unique: Unique) -> None:
    channels = [connection.channel() for _ in range(2)]
    for channel in channels:
        channel.consume(NAME, "tag", no_ack=True)
    names = [opaque(channel, unique) for channel in channels]
    assert len(set(names)) == 2


def test_16_18_generated_tag(channel: Channel) -> None:
    assert re.fullmatch(r"amq\.ctag-[A-Za-z0-9_-]{22}", channel.consume(NAME, no_ack=True).consumer_tag)


def test_16_18_a_used_tag(channel: Channel, unique: Unique) -> None:
    channel.consume(new_queue(channel, unique), "tag")
    text = "NOT_ALLOWED - attempt to reuse consumer tag 'tag'"
    with channel.expect_connection_close(530, text, CONSUME):
        channel.consume(NAME, "tag", no_ack=True)


def test_16_18_its_tag_is_not_taken(requester: Channel, unique: Unique) -> None:
    name, queue = opaque(requester, unique), new_queue(requester, unique)
    requester.consume(queue, "replies", no_ack=True)
    fill(requester, queue, b"from the queue")
    requester.publish("", name, b"reply")
    assert sorted(bodies(requester.deliveries(2))) == [b"from the queue", b"reply"]


def test_16_18_no_permission_is_needed(connect: Connect, accounts: Accounts) -> None:
    channel = connect(**accounts.login("nobody")).channel()
    channel.consume(NAME, no_ack=True)


def test_16_18_cancel_removes_it(requester: Channel, unique: Unique) -> None:
    queue = new_queue(requester, unique)
    assert requester.cancel("replies").consumer_tag == "replies"
    requester.consume(NAME, "again", no_ack=True)
    requester.cancel("again")
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    with requester.expect_channel_close(406, text, PUBLISH):
        requester.publish("", queue, properties={"reply_to": NAME})


def test_16_19_the_opaque_name(requester: Channel, unique: Unique) -> None:
    first, second = opaque(requester, unique), opaque(requester, unique)
    assert first == second
    assert re.fullmatch(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=_-]+\.[A-Za-z0-9+/=_-]+", first)
    assert len(first) <= 255


@pytest.mark.parametrize("name", [NAME + ".", NAME.upper(), NAME[:-1], NAME + ".bogus"])
def test_16_19_only_the_exact_name_is_replaced(channel: Channel, unique: Unique, name: str) -> None:
    queue = new_queue(channel, unique)
    channel.publish("", queue, properties={"reply_to": name})
    assert got(channel, queue).properties == {"reply_to": name}


def test_16_19_other_properties_stay(requester: Channel, unique: Unique) -> None:
    queue = new_queue(requester, unique)
    properties = {"headers": [("k", "l", 1)], "correlation_id": "c", "type": "t"}
    requester.publish("", queue, b"body", {**properties, "reply_to": NAME})
    found = got(requester, queue)
    assert found.body == b"body"
    assert {key: value for key, value in found.properties.items() if key != "reply_to"} == properties


@pytest.mark.parametrize("elsewhere", [False, True])
def test_16_19_without_a_consumer_on_this_channel(connection: Connection, unique: Unique, elsewhere: bool) -> None:
    channel = connection.channel()
    if elsewhere:
        connection.channel().consume(NAME, no_ack=True)
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    with channel.expect_channel_close(406, text, PUBLISH):
        channel.publish("", unique(), properties={"reply_to": NAME})


def test_16_20_the_reply(requester: Channel, channel: Channel, unique: Unique) -> None:
    name = opaque(requester, unique)
    channel.publish("", name, b"answer", {"correlation_id": "c"})
    reply = requester.next_delivery()
    assert (reply.consumer_tag, reply.body, reply.properties) == ("replies", b"answer", {"correlation_id": "c"})
    assert (reply.exchange, reply.routing_key, reply.redelivered) == ("", name, False)


def test_16_20_replies_take_no_tag(requester: Channel, channel: Channel, unique: Unique) -> None:
    name = opaque(requester, unique)
    queue = new_queue(requester, unique, b"first")
    tag = got(requester, queue).delivery_tag
    for body in (b"1", b"2"):
        channel.publish("", name, body)
    replies = requester.deliveries(2)
    assert bodies(replies) == [b"1", b"2"]
    assert [reply.delivery_tag for reply in replies] == [tag + 1] * 2
    with requester.expect_channel_close(406, unknown_tag(tag + 1), commands.Basic.Ack):
        requester.ack(tag + 1)


def test_16_20_a_reply_with_a_large_body(requester: Channel, channel: Channel, unique: Unique) -> None:
    body = bytes(range(256)) * 1500
    channel.publish("", opaque(requester, unique), body)
    assert requester.next_delivery().body == body


def test_16_20_through_cc(requester: Channel, channel: Channel, unique: Unique) -> None:
    name, queue = opaque(requester, unique), new_queue(channel, unique)
    channel.publish("", queue, b"both", {"headers": [("CC", "A", [("S", name)])]})
    assert requester.next_delivery().body == b"both"
    assert drain(channel, queue) == [b"both"]


@pytest.mark.parametrize("mandatory", [False, True])
def test_16_21_bogus_names(channel: Channel, mandatory: bool) -> None:
    channel.confirm_select()
    channel.publish("", NAME + ".bogus", b"lost", mandatory=mandatory)
    assert channel.wait_for_confirms(1) == [True]
    assert [each.body for each in channel.returns] == [b"lost"] * mandatory


@pytest.mark.parametrize("end", ["cancel", "channel", "connection"])
def test_16_21_a_vanished_requester(requester: Channel, channel: Channel, unique: Unique, end: str) -> None:
    name = opaque(requester, unique)
    if end == "cancel":
        requester.cancel("replies")
    elif end == "channel":
        requester.close()
    else:
        requester.connection.close()
    channel.confirm_select()
    channel.publish("", name, b"lost")
    assert channel.wait_for_confirms(1) == [True]
    if end == "cancel":
        requester.sync()
        assert not requester.pending


def test_16_21_a_mandatory_reply_is_returned_even_when_delivered(
    requester: Channel, channel: Channel, unique: Unique
) -> None:
    name = opaque(requester, unique)
    channel.publish("", name, b"answer", mandatory=True)
    returned = channel.next_return()
    assert (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", name)
    assert requester.next_delivery().body == b"answer"


@pytest.mark.parametrize("passive", [False, True])
def test_16_22_declaring_the_opaque_name(
    requester: Channel, channel: Channel, unique: Unique, vhost: str, passive: bool
) -> None:
    name = opaque(requester, unique)
    declared = channel.queue_declare(name, passive=passive)
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 1)
    requester.close()
    with channel.expect_channel_close(404, no_queue(name, vhost), commands.Queue.Declare):
        channel.queue_declare(name, passive=passive)


@pytest.mark.parametrize("passive", [False, True])
def test_16_22_declaring_the_bare_name(channel: Channel, passive: bool) -> None:
    declared = channel.queue_declare(NAME, passive=passive)
    assert (declared.queue, declared.message_count, declared.consumer_count) == (NAME, 0, 1)


@pytest.mark.parametrize("method", [commands.Basic.Get, commands.Queue.Purge])
@pytest.mark.parametrize("is_bare", [True, False])
def test_16_22_get_and_purge(
    requester: Channel, channel: Channel, unique: Unique, vhost: str, method: MethodType, is_bare: bool
) -> None:
    name = NAME if is_bare else opaque(requester, unique)
    with channel.expect_channel_close(404, no_queue(name, vhost), method):
        channel.send(method, queue=name)


@pytest.mark.parametrize("is_bare", [True, False])
def test_16_22_delete_changes_nothing(requester: Channel, channel: Channel, unique: Unique, is_bare: bool) -> None:
    name = opaque(requester, unique)
    assert channel.queue_delete(NAME if is_bare else name).message_count == 0
    channel.publish("", name, b"answer")
    assert requester.next_delivery().body == b"answer"


@pytest.mark.departs("4.2")
@pytest.mark.parametrize("method", [commands.Queue.Bind, commands.Queue.Unbind], ids=["bind", "unbind"])
@pytest.mark.parametrize("is_bare", [True, False])
def test_16_22_it_cannot_be_bound(requester: Channel, unique: Unique, method: MethodType, is_bare: bool) -> None:
    # 3.10.8 says 404; a bound reply queue would never get a message.
    name = NAME if is_bare else opaque(requester, unique)
    with requester.expect_channel_close(403, VOLATILE, method):
        requester.send(method, queue=name, exchange="amq.direct", routing_key=unique("key"))
