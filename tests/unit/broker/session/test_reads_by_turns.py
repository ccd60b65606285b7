"""Connections whose bytes come by turns, in pieces: nothing of one is in what another has sent."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from leveret.protocol.field_table import plain_values
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.transport import BODY, METHOD

_BODY = bytes(range(256)) * 20
_PROPERTIES: dict[str, Any] = {"message_id": "id", "headers": [("key", "S", "value")], "reply_to": "somewhere"}


def send_in_turns(broker: MemoryBroker, sent: dict[MemoryClient, bytes], size: int) -> None:
    """Let clients send pieces of this many bytes by turns."""
    for at in range(0, max(map(len, sent.values())), size):
        for client, octets in sent.items():
            client.feed(octets[at : at + size])
    broker.loop.run()


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("confirms", [False, True])
def test_messages_are_what_their_publishers_sent(broker: MemoryBroker, size: int, confirms: bool) -> None:
    clients = [broker.open() for _ in range(3)]
    sent: dict[MemoryClient, bytes] = {}
    for number, client in enumerate(clients):
        client.call(1, commands.Queue.Declare, queue=f"q{number}")
        if confirms:
            client.call(1, commands.Confirm.Select)
        sent[client] = b"".join(
            publish(1, f"q{number}", b"%d.%d " % (number, message) + _BODY, correlation_id=str(kind), **_PROPERTIES)
            for message in range(3)
            for kind in range(2)
        )
    send_in_turns(broker, sent, size)
    for number, client in enumerate(clients):
        client.frames()
        for message in (0, 0, 1, 1, 2, 2):
            client.send(method(1, commands.Basic.Get, queue=f"q{number}", no_ack=True))
            got = client.frames()
            assert [each.type for each in got] == [METHOD, 2, BODY]
            assert b"key" in got[1].payload
            assert got[2].payload == b"%d.%d " % (number, message) + _BODY


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_names_and_arguments_are_what_their_clients_sent(broker: MemoryBroker, size: int) -> None:
    clients = [broker.open() for _ in range(2)]
    arguments = [("x-dead-letter-exchange", "S", "amq.topic"), ("x-max-length", "l", 7)]
    sent = {
        client: method(1, commands.Queue.Declare, queue=f"named-{number}" * 9, arguments=arguments)
        for number, client in enumerate(clients)
    }
    send_in_turns(broker, sent, size)
    for number, client in enumerate(clients):
        assert client.only(commands.Queue.DeclareOk).queue == f"named-{number}" * 9
        assert plain_values(broker.vhost.queues[f"named-{number}" * 9].arguments) == {
            "x-dead-letter-exchange": "amq.topic",
            "x-max-length": 7,
        }
