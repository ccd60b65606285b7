"""The largest and smallest numbers of each field of a method: they mean what they say, or are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.support.memory_broker import MemoryBroker, MemoryClient, kinds, method, publish
from tests.support.transport import HEADER, frame

_U16, _I32, _I64, _U64 = (1 << 16) - 1, (1 << 31) - 1, (1 << 63) - 1, (1 << 64) - 1
#: What no queue of a test reaches.
_LARGE = [1 << 30, _I32, 1 << 31, 1 << 32, (1 << 62) - 1, 1 << 62, _I64]


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("tag", [1 << 31, 1 << 32, 1 << 62, _I64, 1 << 63, _U64])
@pytest.mark.parametrize("kind", [commands.Basic.Ack, commands.Basic.Nack])
def test_delivery_tags(client: MemoryClient, kind: Any, tag: int, multiple: bool) -> None:
    client.send(publish(1, "q", b"x"), method(1, commands.Basic.Consume, queue="q"))
    client.frames()
    client.send(method(1, kind, delivery_tag=tag, multiple=multiple))
    closed = client.only(commands.Channel.Close)
    assert (closed.reply_code, closed.reply_text) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


@pytest.mark.parametrize("value", _LARGE)
@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
def test_limits(broker: MemoryBroker, client: MemoryClient, name: str, value: int) -> None:
    client.call(1, commands.Queue.Declare, queue="limited", arguments=[(name, "l", value)])
    client.send(*(publish(1, "limited", b"x" * 100) for _ in range(3)))
    assert broker.vhost.queues["limited"].store.ready_count == 3


@pytest.mark.parametrize("value", [-(1 << 63), -(1 << 62), -1, _I32, 1 << 32, 1 << 62, _I64])
def test_consumer_priorities(client: MemoryClient, value: int) -> None:
    for tag, priority in (("plain", 0), ("given", value)):
        arguments = [("x-priority", "l", priority)]
        client.call(1, commands.Basic.Consume, queue="q", consumer_tag=tag, no_ack=True, arguments=arguments)
    client.send(publish(1, "q", b"x"))
    assert client.only(commands.Basic.Deliver).consumer_tag == ("given" if value > 0 else "plain")


def test_the_largest_prefetch(client: MemoryClient) -> None:
    client.call(1, commands.Basic.Qos, prefetch_count=_U16)
    client.send(*(publish(1, "q", b"x") for _ in range(_U16 + 10)))
    client.send(method(1, commands.Basic.Consume, queue="q"))
    assert kinds(client.methods()).count(commands.Basic.Deliver) == _U16
    client.send(method(1, commands.Basic.Ack, delivery_tag=_U16, multiple=True))
    assert kinds(client.methods()) == [commands.Basic.Deliver] * 10


@pytest.mark.parametrize("size", [(1 << 29) + 1, 1 << 31, 1 << 32, 1 << 62, 1 << 63, _U64])
def test_sizes_of_a_body(broker: MemoryBroker, client: MemoryClient, size: int) -> None:
    route = method(1, commands.Basic.Publish, exchange="", routing_key="q")
    client.send(route, frame(HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + b"\0\0"))
    assert client.only(commands.Connection.Close).reply_code == 501
    assert broker.vhost.queues["q"].store.ready_count == 0


@pytest.mark.parametrize("value", [1 << 31, 1 << 32, 1 << 62, 1 << 63, _U64])
def test_times_of_a_message(client: MemoryClient, value: int) -> None:
    client.send(publish(1, "q", b"x", timestamp=value), method(1, commands.Basic.Get, queue="q", no_ack=True))
    _, header, _ = client.frames()
    assert header.payload.endswith(value.to_bytes(8, "big"))


@pytest.mark.parametrize("digits", ["315360000001", str(1 << 62), str(1 << 64), "9" * 250, "-1", "-" + "9" * 100])
def test_expirations_out_of_range(client: MemoryClient, digits: str) -> None:
    client.send(publish(1, "q", b"x", expiration=digits))
    assert client.only(commands.Channel.Close).reply_code == 406
