from __future__ import annotations

from typing import cast

import pytest
from pamqp import commands

from leveret.broker.core.queues.queue import Consumer
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.stats.counters import ChannelCounters
from leveret.broker.session.confirms import Confirms
from leveret.broker.session.output import Output
from tests.support.manual_loop import ManualLoop
from tests.support.memory_broker import method
from tests.support.memory_transport import MemoryTransport


def one_confirm() -> Confirms:
    """Return confirms with one ack to send."""
    confirms = Confirms(1, ChannelCounters())
    confirms.accept_next(1)
    return confirms


ACK = method(1, commands.Basic.Ack, delivery_tag=1)


class FakeQueue:
    """Fake queue that records unblocked consumers."""

    def __init__(self) -> None:
        self.unblocked: list[object] = []

    def unblock(self, consumer: object) -> None:
        self.unblocked.append(consumer)


class FakeConsumer:
    def __init__(self, queue: FakeQueue) -> None:
        self.queue = queue


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def transport(loop: ManualLoop) -> MemoryTransport:
    return MemoryTransport(loop)


@pytest.fixture
def output(loop: ManualLoop, transport: MemoryTransport) -> Output:
    return Output(Turn(loop.call_soon), transport)


def stall(output: Output) -> FakeQueue:
    """Add a stalled consumer to the output."""
    queue = FakeQueue()
    output.stalled.append(cast("Consumer", FakeConsumer(queue)))
    return queue


def test_the_high_water_mark_is_set_on_the_transport(output: Output, transport: MemoryTransport) -> None:
    assert transport.high_water == 1_048_576


def test_a_turn_is_one_write(output: Output, loop: ManualLoop, transport: MemoryTransport) -> None:
    output.send(b"a")
    output.send(b"b")
    output.parts += [b"c", b"d"]
    output.sent(2)
    assert (transport.writes, output.wrote) == (0, False)
    loop.run()
    assert (transport.take(), transport.writes) == (b"abcd", 1)
    assert (output.wrote, output.parts) == (True, [])


def test_a_turn_without_output_writes_nothing(output: Output, transport: MemoryTransport) -> None:
    output.flush()
    assert (transport.writes, output.wrote) == (0, False)


def test_confirms_follow_earlier_output(output: Output, loop: ManualLoop, transport: MemoryTransport) -> None:
    confirms = one_confirm()
    output.send(b"return ")
    output.confirm(confirms)
    output.confirm(confirms)
    loop.run()
    assert transport.take() == b"return " + ACK
    assert output.confirming == set()


def test_a_confirm_alone_causes_a_write(output: Output, loop: ManualLoop, transport: MemoryTransport) -> None:
    output.confirm(one_confirm())
    loop.run()
    assert transport.take() == ACK


def test_half_a_mebibyte_in_a_turn_makes_consumers_wait_for_the_write(output: Output, loop: ManualLoop) -> None:
    output.sent(524_288)
    assert not output.congested
    output.sent(1)
    assert output.congested
    queue = stall(output)
    loop.run()
    assert not output.congested
    assert len(queue.unblocked) == 1
    output.sent(524_288)
    assert not output.congested, "the count starts again each turn"


def test_consumers_wait_while_the_write_buffer_is_full(output: Output, loop: ManualLoop) -> None:
    output.pause()
    assert output.congested
    queue = stall(output)
    output.send(b"close-ok")
    loop.run()
    assert output.congested
    assert queue.unblocked == []
    output.unpause()
    assert not output.congested
    assert len(queue.unblocked) == 1
    output.unpause()
    assert len(queue.unblocked) == 1


def test_requests_of_a_client_that_reads_nothing_wait(
    output: Output, loop: ManualLoop, transport: MemoryTransport
) -> None:
    resumed: list[bool] = []
    output.send(bytes(33_554_432))
    assert not output.overfull
    output.send(b"x")
    assert output.overfull
    output.resume = lambda: resumed.append(output.overfull)
    output.pause()
    transport.unread = 33_554_433
    loop.run()
    assert output.overfull
    assert resumed == []
    output.unpause()
    assert not output.overfull
    assert resumed == [False]
    output.unpause()
    assert resumed == [False], "once"


def test_unsent_bytes_in_the_transport_count_at_the_next_write(
    output: Output, loop: ManualLoop, transport: MemoryTransport
) -> None:
    output.pause()
    for unread, overfull in ((33_554_432, False), (33_554_433, True), (33_554_432, False)):
        transport.unread = unread
        output.send(b"x")
        loop.run()
        assert output.overfull is overfull


def test_flush_writes_even_if_the_write_buffer_is_full(
    output: Output, loop: ManualLoop, transport: MemoryTransport
) -> None:
    output.pause()
    output.send(b"heartbeat")
    loop.run()
    assert transport.take() == b"heartbeat"


def test_a_consumer_that_stalls_again_waits_for_the_next_write(output: Output, loop: ManualLoop) -> None:
    output.sent(1_000_000)
    queue = FakeQueue()
    consumer = FakeConsumer(queue)

    def stall_again(_: object) -> None:
        queue.unblocked.append(consumer)
        output.stalled.append(cast("Consumer", consumer))

    queue.unblock = stall_again  # type: ignore[method-assign,assignment]
    output.stalled.append(cast("Consumer", consumer))
    loop.run()
    assert len(queue.unblocked) == 1
    assert len(output.stalled) == 1


def test_a_consumer_that_stalled_is_served_by_its_own_queue(output: Output) -> None:
    first, second = stall(output), stall(output)
    output.flush()
    assert (len(first.unblocked), len(second.unblocked)) == (1, 1)
