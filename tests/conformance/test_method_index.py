"""Rule 12.34: what each method is answered with, and that nowait asks for no answer."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import base, commands

from tests.conformance.fixtures import Unique
from tests.support.methods import MethodType
from tests.support.wire import Channel

X, Q = "EXCHANGE", "QUEUE"
BINDING = {"queue": Q, "exchange": X, "routing_key": "k"}
E2E = {"destination": X, "source": "amq.fanout", "routing_key": "k"}


@pytest.fixture
def names(channel: Channel, unique: Unique) -> dict[str, str]:
    """An exchange and a queue that exist, by the placeholders of the tables here."""
    found = {X: unique("x"), Q: unique("q")}
    channel.exchange_declare(found[X], "direct")
    channel.queue_declare(found[Q])
    return found


def name_of(value: Any) -> str:
    """Name a method class among the parameters of a test."""
    return value.name if isinstance(value, type) and issubclass(value, base.Frame) else ""


def filled(arguments: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {key: names.get(value, value) if isinstance(value, str) else value for key, value in arguments.items()}


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (commands.Exchange.Declare, {"exchange": X, "exchange_type": "direct"}),
        (commands.Exchange.Delete, {"exchange": X}),
        (commands.Exchange.Bind, E2E),
        (commands.Exchange.Unbind, E2E),
        (commands.Queue.Declare, {"queue": Q}),
        (commands.Queue.Bind, BINDING),
        (commands.Queue.Purge, {"queue": Q}),
        (commands.Queue.Delete, {"queue": Q}),
        (commands.Basic.Consume, {"queue": Q, "consumer_tag": "t"}),
        (commands.Basic.Cancel, {"consumer_tag": "t"}),
        (commands.Confirm.Select, {}),
    ],
    ids=name_of,
)
def test_12_34_nowait_is_not_answered(
    channel: Channel, names: dict[str, str], kind: MethodType, arguments: dict[str, Any]
) -> None:
    channel.send(kind, nowait=True, **filled(arguments, names))
    # The next reply is that of the next request.
    channel.sync()
    assert not channel.replies


def test_12_34_methods_without_answer(channel: Channel, names: dict[str, str]) -> None:
    queue = names[Q]
    for _ in range(3):
        channel.publish("", queue, b"x")
    channel.sync(queue)
    tags = [delivery.delivery_tag for delivery in (channel.get(queue) for _ in range(3)) if delivery]
    channel.ack(tags[0])
    channel.reject(tags[1], requeue=False)
    channel.nack(tags[2], requeue=False)
    channel.send(commands.Basic.RecoverAsync, requeue=True)
    channel.sync(queue)
    assert not channel.replies
    assert channel.queue_delete(queue).message_count == 0
