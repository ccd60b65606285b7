"""A long history, which a new binding gets in time slices."""

from __future__ import annotations

from pamqp import commands

from tests.support.memory_broker import MemoryBroker, kinds, method, publish
from tests.support.queue_content import contents
from tests.support.stepping_clock import SteppingClock

COUNT = 600


def test_other_clients_are_served_in_between() -> None:
    broker = MemoryBroker(slice_clock=SteppingClock())
    client, other = broker.open(), broker.open()
    length = [("x-recent-history-length", "I", COUNT)]
    client.call(1, commands.Exchange.Declare, exchange="h", exchange_type="x-recent-history", arguments=length)
    for name in ("q", "o"):
        client.call(1, commands.Queue.Declare, queue=name)
    client.send(*[publish(1, "", b"%d" % number, exchange="h") for number in range(COUNT)])
    client.methods()
    bind = method(1, commands.Queue.Bind, queue="q", exchange="h", routing_key="")
    client.feed(bind + publish(1, "q", b"later"))
    other.feed(publish(1, "o", b"served"))
    queues = broker.vhost.queues
    assert 0 < queues["q"].store.ready_count < COUNT
    assert queues["o"].store.ready_count == 1
    broker.loop.run()
    # The client's own methods wait until it has the whole history.
    assert kinds(client.methods()) == [commands.Queue.BindOk]
    assert contents(queues["q"]) == [*map(str, range(COUNT)), "later"]
