"""basic.get of a message behind which very many have expired."""

from __future__ import annotations

from pamqp import commands

from tests.support.memory_broker import MemoryBroker, kinds, method, publish
from tests.support.stepping_clock import SteppingClock

COUNT = 6000
#: Dead letters have to be made, so messages leave one by one.
LETTERS = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "letters")]


def test_other_clients_are_served_before_all_are_gone() -> None:
    broker = MemoryBroker(slice_clock=SteppingClock())
    client, other = broker.open(), broker.open()
    client.call(1, commands.Queue.Declare, queue="q", arguments=LETTERS)
    for name in ("letters", "o"):
        client.call(1, commands.Queue.Declare, queue=name)
    expiring = [publish(1, "q", b"%d" % number, expiration="100") for number in range(COUNT)]
    client.send(publish(1, "q", b"head"), *expiring)
    broker.loop.advance(1)
    queue, served = broker.vhost.queues["q"], broker.vhost.queues["o"]
    assert queue.store.ready_count == COUNT + 1
    get = method(1, commands.Basic.Get, queue="q", no_ack=True)
    client.feed(get + publish(1, "o", b"later"))
    other.feed(publish(1, "o", b"first"))
    assert 0 < queue.store.ready_count < COUNT
    assert served.store.ready_count == 1
    broker.loop.run()
    (answer,) = client.methods()
    assert kinds([answer]) == [commands.Basic.GetOk]
    assert answer.message_count == 0
    # The client's later methods wait for the answer.
    assert served.store.ready_count == 2
