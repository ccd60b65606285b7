"""Input has the same effect whether it arrives in one turn or in several."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from leveret.protocol.field_table import plain_values
from tests.support import methods
from tests.support.examples import examples
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish
from tests.support.transport import BODY, METHOD

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")

#: What a client may do: publish a number of messages of one size; settle its oldest or its newest message, or all up
#: to the middle one; get.
ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4), st.sampled_from((0, 1, 3))),
    st.tuples(st.sampled_from(("ack", "nack", "requeue")), st.sampled_from(("oldest", "newest", "half"))),
    st.tuples(st.just("get")),
)
ARGUMENTS = st.fixed_dictionaries(
    {"x-overflow": st.sampled_from(OVERFLOWS)},
    optional={"x-max-length": st.integers(0, 3), "x-max-length-bytes": st.integers(0, 6)},
)


class Client:
    """A client that consumes from a bounded queue with dead-letter queue, and publishes to it.

    Args:
        arguments: Of the queue.
        prefetch: Of the consumer; 0 for no limit.
    """

    def __init__(self, arguments: dict[str, Any], prefetch: int) -> None:
        self.broker = MemoryBroker()
        self.client: MemoryClient = self.broker.open()
        self.outstanding: list[int] = []
        self.received: list[tuple[Any, ...]] = []
        self.confirms: dict[int, str] = {}
        self._published = 0
        given = arguments | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
        table = [(key, "S" if isinstance(value, str) else "l", value) for key, value in given.items()]
        self.client.send(
            method(1, commands.Queue.Declare, queue="letters"),
            method(1, commands.Queue.Declare, queue="q", arguments=table),
            method(1, commands.Basic.Qos, prefetch_count=prefetch),
            method(1, commands.Confirm.Select),
            method(1, commands.Basic.Consume, queue="q", consumer_tag="c"),
        )
        self.client.frames()

    def frames(self, actions: list[tuple[Any, ...]]) -> list[bytes]:
        """Return the frames of a number of actions, which settle only messages delivered before the first one."""
        frames = []
        for name, *how in actions:
            if name == "publish":
                for _ in range(how[0]):
                    self._published += 1
                    frames.append(publish(1, "q", str(self._published % 10).encode() * how[1]))
            elif name == "get":
                frames.append(method(1, commands.Basic.Get, queue="q", no_ack=True))
            elif self.outstanding:
                frames.append(self._settle(name, how[0]))
        return frames

    def _settle(self, name: str, which: str) -> bytes:
        at = {"oldest": 0, "newest": len(self.outstanding) - 1, "half": len(self.outstanding) // 2}[which]
        tag = self.outstanding[at]
        multiple = which == "half"
        del self.outstanding[0 if multiple else at : at + 1]
        if name == "ack":
            return method(1, commands.Basic.Ack, delivery_tag=tag, multiple=multiple)
        return method(1, commands.Basic.Nack, delivery_tag=tag, multiple=multiple, requeue=name == "requeue")

    def look(self) -> None:
        """Record received messages in order, and the outcome of each publish."""
        for each in self.client.frames():
            if each.type == BODY:
                self.received[-1] += (each.payload,)
            if each.type != METHOD:
                continue
            came = methods.parse(each.payload)
            if came.kind in (commands.Basic.Ack, commands.Basic.Nack):
                self._confirm(came)
                continue
            if came.kind is commands.Basic.Deliver:
                self.outstanding.append(came.delivery_tag)
            self.received.append((came.kind.name, came.arguments))

    def _confirm(self, came: methods.Method) -> None:
        tags = range(1, came.delivery_tag + 1) if came.multiple else (came.delivery_tag,)
        for tag in tags:
            self.confirms.setdefault(tag, came.kind.name)

    def rest(self) -> list[tuple[Any, ...]]:
        """Return the messages in both queues, and the unacked ones."""
        self.received.clear()
        self.client.send(method(1, commands.Basic.Cancel, consumer_tag="c"))
        gets = [
            method(1, commands.Basic.Get, queue=queue, no_ack=True) for queue in ("q", "letters") for _ in range(60)
        ]
        self.client.send(*gets)
        self.look()
        return self.received


@settings(max_examples=examples(150))
@given(ARGUMENTS, st.integers(0, 3), st.lists(st.lists(ACTIONS, min_size=1, max_size=6), max_size=8))
def test_one_read_and_several_reads_have_the_same_effect(
    arguments: dict[str, Any], prefetch: int, bursts: list[list[tuple[Any, ...]]]
) -> None:
    at_once, by_piece = Client(arguments, prefetch), Client(arguments, prefetch)
    for burst in bursts:
        at_once.client.send(*at_once.frames(burst))
        for frame in by_piece.frames(burst):
            by_piece.client.send(frame)
        for client in (at_once, by_piece):
            client.look()
        assert at_once.received == by_piece.received
        assert at_once.confirms == by_piece.confirms
    assert at_once.rest() == by_piece.rest()


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
