"""Rule 15.27: basic.recover and basic.recover-async."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.reply_texts import unknown_tag
from tests.conformance.topology import bodies, drain, got, new_queue, numbered
from tests.support.wire import Channel

RECOVER = commands.Basic.Recover
RECOVER_ASYNC = commands.Basic.RecoverAsync


def test_15_27_recover_ok_comes_before_the_redeliveries(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    channel.consume(queue)
    channel.deliveries(3)
    channel.recover()
    assert not channel.pending
    again = channel.deliveries(3)
    assert [(each.body, each.delivery_tag, each.redelivered) for each in again] == [
        (b"1", 4, True),
        (b"2", 5, True),
        (b"3", 6, True),
    ]


def test_15_27_recover_async_has_no_reply(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(2))
    channel.consume(queue)
    channel.deliveries(2)
    channel.send(RECOVER_ASYNC, requeue=True)
    assert [(each.body, each.delivery_tag) for each in channel.deliveries(2)] == [(b"1", 3), (b"2", 4)]
    channel.sync()


@pytest.mark.parametrize("kind", [RECOVER, RECOVER_ASYNC])
def test_15_27_gets_are_requeued_too(channel: Channel, unique: Unique, kind: type[Any]) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    for _ in range(3):
        got(channel, queue)
    channel.ack(2)
    channel.send(kind, requeue=True)
    if kind is RECOVER:
        channel.reply(commands.Basic.RecoverOk)
    again = [got(channel, queue) for _ in range(2)]
    assert bodies(again) == [b"1", b"3"]
    assert [each.redelivered for each in again] == [True, True]


def test_15_27_old_tags_become_unknown(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1")
    tag = got(channel, queue).delivery_tag
    channel.recover()
    with channel.expect_channel_close(406, unknown_tag(tag), commands.Basic.Ack):
        channel.ack(tag)


def test_15_27_other_channels_keep_theirs(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    other = channel.connection.channel()
    got(channel, queue)
    tag = got(other, queue).delivery_tag
    channel.recover()
    assert drain(channel, queue) == [b"1"]
    other.ack(tag)
    other.sync(queue)
    assert drain(channel, queue) == []


def test_15_27_nothing_outstanding(channel: Channel) -> None:
    channel.recover()
    channel.recover()


@pytest.mark.parametrize("kind", [RECOVER, RECOVER_ASYNC])
def test_15_27_without_requeue(channel: Channel, kind: type[Any]) -> None:
    with channel.expect_connection_close(540, "NOT_IMPLEMENTED - requeue=false", kind):
        channel.send(kind, requeue=False)
