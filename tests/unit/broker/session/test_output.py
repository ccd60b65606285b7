from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from pamqp import commands

from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.queues.queue import QueueConsumer
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.session.output import Confirms, Output
from tests.support.manual_loop import ManualLoop
from tests.support.memory_broker import method
from tests.support.memory_transport import MemoryTransport


def one_confirm() -> Confirms:
    """Return confirms with one ack to send."""
    confirms = Confirms(1, ChannelCounters())
    confirms.accept_next(1)
    return confirms


ACK = method(1, commands.Basic.Ack, delivery_tag=1)


class FakeConsumer:
    """Counts how often it is unblocked.

    Args:
        output: Where it stalls again when it is unblocked; None if it does not.
    """

    def __init__(self, output: Output | None = None) -> None:
        self.unblocked = 0
        self._output = output

    def unblock(self) -> None:
        self.unblocked += 1
        if self._output is not None:
            stall(self._output, self)


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def transport(loop: ManualLoop) -> MemoryTransport:
    return MemoryTransport(loop)


@pytest.fixture
def output(loop: ManualLoop, transport: MemoryTransport) -> Output:
    return Output(Turn(loop.call_soon), transport)


def stall(output: Output, consumer: FakeConsumer) -> None:
    """Add a stalled consumer to the output."""
    output.stalled.append(cast("QueueConsumer", consumer))


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


def test_a_turn_is_one_flush(output: Output, loop: ManualLoop) -> None:
    consumer = FakeConsumer(output)
    stall(output, consumer)
    for turn in (1, 2):
        for _ in range(3):
            output.send(b"a")
            output.confirm(one_confirm())
            output.release()
        loop.run()
        assert consumer.unblocked == turn


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
    assert output.confirming == {}


@pytest.mark.parametrize("send", [Output.confirm, Output.confirm_synced], ids=["at once", "after a sync"])
def test_a_confirm_alone_causes_a_write(
    output: Output, loop: ManualLoop, transport: MemoryTransport, send: Callable[[Output, Confirms], None]
) -> None:
    for _ in range(2):
        send(output, one_confirm())
        loop.run()
        assert transport.take() == ACK


def test_half_a_mebibyte_in_a_turn_makes_consumers_wait_for_the_write(output: Output, loop: ManualLoop) -> None:
    output.sent(524_288)
    assert not output.congested
    output.sent(1)
    assert output.congested
    consumer = FakeConsumer()
    stall(output, consumer)
    loop.run()
    assert not output.congested
    assert consumer.unblocked == 1
    output.sent(524_288)
    assert not output.congested, "the count starts again each turn"


def test_consumers_wait_while_the_write_buffer_is_full(output: Output, loop: ManualLoop) -> None:
    output.pause()
    assert output.congested
    consumer = FakeConsumer()
    stall(output, consumer)
    output.send(b"close-ok")
    loop.run()
    assert output.congested
    assert consumer.unblocked == 0
    output.unpause()
    assert not output.congested
    assert consumer.unblocked == 1
    output.unpause()
    assert consumer.unblocked == 1


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
    consumer = FakeConsumer(output)
    stall(output, consumer)
    loop.run()
    assert consumer.unblocked == 1
    assert len(output.stalled) == 1


def test_all_consumers_that_stalled_are_unblocked(output: Output) -> None:
    first, second = FakeConsumer(), FakeConsumer()
    stall(output, first)
    stall(output, second)
    output.flush()
    assert (first.unblocked, second.unblocked) == (1, 1)


@pytest.mark.parametrize("is_held", [False, True])
def test_what_comes_after_the_end_of_the_connection_is_dropped(
    output: Output, loop: ManualLoop, transport: MemoryTransport, is_held: bool
) -> None:
    transport.set_protocol(asyncio.Protocol())
    transport.lose()
    loop.run()
    if is_held:
        output.hold()
    output.confirm(one_confirm())
    output.send(b"a")
    output.send_heartbeat(b"h")
    output.release()
    loop.run()
    assert (transport.writes, output.parts, output.confirming) == (0, [], {})
