from __future__ import annotations

import re

import pytest
from pamqp import commands

from tests.support import content
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.methods import Method, parse
from tests.support.transport import BODY, HEADER, METHOD

REPLY_QUEUE = "amq.rabbitmq.reply-to"
#: The name of one consumer of replies: two base64 parts.
OPAQUE = re.compile(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=]+\.[A-Za-z0-9+/=]+")


@pytest.fixture
def requester(broker: MemoryBroker) -> MemoryClient:
    """A client with channels 1 and 2; channel 1 consumes replies."""
    client = broker.open(channels=2)
    client.send(consume_replies(1))
    client.only(commands.Basic.ConsumeOk)
    return client


@pytest.fixture
def responder(broker: MemoryBroker) -> MemoryClient:
    client = broker.open()
    client.call(1, commands.Queue.Declare, queue="requests")
    return client


def consume_replies(channel: int, tag: str = "replies", no_ack: bool = True) -> bytes:
    return method(channel, commands.Basic.Consume, queue=REPLY_QUEUE, consumer_tag=tag, no_ack=no_ack)


def request(requester: MemoryClient, responder: MemoryClient, channel: int = 1) -> str:
    """Send a request; return the reply-to with which it arrives."""
    requester.send(publish(channel, "requests", b"?", reply_to=REPLY_QUEUE))
    responder.send(method(1, commands.Basic.Get, queue="requests", no_ack=True))
    _, header, _ = responder.frames()
    reply_to: str = content.Content(header.payload, b"").properties["reply_to"]
    return reply_to


def fault(client: MemoryClient) -> str:
    """Return the reply text of the received channel.close."""
    text: str = client.only(commands.Channel.Close).reply_text
    return text


def deliveries(client: MemoryClient) -> list[tuple[Method, bytes]]:
    """Return the deliveries: methods and bodies."""
    frames = client.frames()
    assert [each.type for each in frames] == [METHOD, HEADER, BODY] * (len(frames) // 3)
    return [(parse(frames[at].payload), frames[at + 2].payload) for at in range(0, len(frames), 3)]


def test_a_request_carries_a_generated_reply_to(requester: MemoryClient, responder: MemoryClient) -> None:
    name = request(requester, responder)
    assert OPAQUE.fullmatch(name)
    assert request(requester, responder) == name, "it is fixed per consumer"


def test_every_consumer_has_a_unique_name(
    broker: MemoryBroker, requester: MemoryClient, responder: MemoryClient
) -> None:
    requester.call(2, commands.Basic.Consume, queue=REPLY_QUEUE, consumer_tag="other", no_ack=True)
    assert request(requester, responder, 1) != request(requester, responder, 2)
    assert len(broker.vhost.replies) == 2


def test_a_reply_goes_to_the_channel_that_asked(requester: MemoryClient, responder: MemoryClient) -> None:
    name = request(requester, responder)
    responder.send(publish(1, name, b"one", correlation_id="7"), publish(1, name, b"two"))
    delivered = deliveries(requester)
    assert [body for _, body in delivered] == [b"one", b"two"]
    for each, _ in delivered:
        assert (each.consumer_tag, each.exchange, each.routing_key) == ("replies", "", name)
        assert (each.delivery_tag, each.redelivered) == (1, False), "the tag is not used up"


def test_large_replies_are_split_to_the_receivers_frame_max(broker: MemoryBroker, responder: MemoryClient) -> None:
    client = broker.open(frame_max=4096)
    client.send(consume_replies(1))
    client.frames()
    name = request(client, responder)
    body = bytes(range(256)) * 40
    responder.send(publish(1, name, body))
    _, _, *rest = client.frames()
    assert [len(each.payload) for each in rest] == [4088, 4088, len(body) - 2 * 4088]
    assert b"".join(each.payload for each in rest) == body


def test_replies_cannot_be_acknowledged(requester: MemoryClient) -> None:
    requester.send(method(1, commands.Basic.Ack, delivery_tag=1))
    assert fault(requester) == "PRECONDITION_FAILED - unknown delivery tag 1"


def test_replies_come_without_acknowledgement_only(requester: MemoryClient) -> None:
    requester.send(consume_replies(2, no_ack=False))
    assert fault(requester) == "PRECONDITION_FAILED - reply consumer cannot acknowledge"


def test_a_channel_has_one_consumer_of_replies(requester: MemoryClient) -> None:
    requester.send(consume_replies(1, "more"))
    assert fault(requester) == "PRECONDITION_FAILED - reply consumer already set"


def test_a_request_needs_a_consumer_on_its_own_channel(requester: MemoryClient) -> None:
    requester.send(publish(2, "requests", b"?", reply_to=REPLY_QUEUE))
    assert fault(requester) == "PRECONDITION_FAILED - fast reply consumer does not exist"


def test_a_reply_to_an_unknown_name_is_dropped_or_returned(responder: MemoryClient) -> None:
    responder.send(publish(1, f"{REPLY_QUEUE}.bogus", b"!"))
    assert responder.frames() == []
    responder.send(publish(1, f"{REPLY_QUEUE}.bogus", b"!", mandatory=True))
    assert responder.only(commands.Basic.Return).reply_text == "NO_ROUTE"


@pytest.mark.parametrize("how", ["cancel", "close", "fault", "lost"])
def test_no_replies_after_the_consumer_ends(
    broker: MemoryBroker, requester: MemoryClient, responder: MemoryClient, how: str
) -> None:
    name = request(requester, responder)
    if how == "cancel":
        requester.call(1, commands.Basic.Cancel, consumer_tag="replies")
    elif how == "close":
        requester.call(1, commands.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
    elif how == "fault":
        requester.call(1, commands.Basic.Ack, delivery_tag=99)
    else:
        requester.abort()
    assert broker.vhost.replies == {}
    responder.send(publish(1, name, b"late"))
    assert requester.frames() == []
    assert responder.frames() == []


def test_cancelled_it_can_be_consumed_again_under_another_name(
    requester: MemoryClient, responder: MemoryClient
) -> None:
    name = request(requester, responder)
    requester.call(1, commands.Basic.Cancel, consumer_tag="replies")
    requester.send(consume_replies(1))
    requester.only(commands.Basic.ConsumeOk)
    assert request(requester, responder) != name


def test_the_pseudo_queue_looks_like_a_queue(requester: MemoryClient, responder: MemoryClient) -> None:
    name = request(requester, responder)
    for queue in (REPLY_QUEUE, name):
        responder.send(method(1, commands.Queue.Declare, queue=queue, passive=True))
        declared = responder.only(commands.Queue.DeclareOk)
        assert (declared.queue, declared.message_count, declared.consumer_count) == (queue, 0, 1)
    requester.abort()
    responder.send(method(1, commands.Queue.Declare, queue=name, passive=True))
    assert fault(responder) == f"NOT_FOUND - no queue '{name}' in vhost '/'"
