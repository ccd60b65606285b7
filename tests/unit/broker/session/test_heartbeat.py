from __future__ import annotations

import pytest

from leveret.broker.core.turn import Turn
from leveret.broker.session.heartbeat import HEARTBEAT_FRAME, Heartbeat
from leveret.broker.session.output import Output
from tests.support.manual_loop import ManualLoop
from tests.support.memory_transport import MemoryTransport

INTERVAL = 10


class Peer:
    """One heartbeat with all that is around it."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.transport = MemoryTransport(self.loop)
        self.output = Output(Turn(self.loop.call_soon), self.transport)
        self.dead_at: list[float] = []
        self.start = self.loop.now
        self.heartbeat = Heartbeat(self.loop.loop, INTERVAL, self.output, self.note_death)

    def note_death(self) -> None:
        self.dead_at.append(self.loop.now - self.start)

    def beats(self) -> int:
        """Heartbeats sent since last asked."""
        written = self.transport.take()
        assert written == HEARTBEAT_FRAME * (len(written) // 8)
        return len(written) // 8


@pytest.fixture
def peer() -> Peer:
    return Peer()


def test_the_frame_is_the_specs() -> None:
    assert bytes.fromhex("08 0000 00000000 ce") == HEARTBEAT_FRAME


def test_one_is_sent_each_half_interval_of_silence(peer: Peer) -> None:
    peer.loop.advance(INTERVAL / 2 - 0.1)
    assert peer.beats() == 0
    peer.loop.advance(0.2)
    assert peer.beats() == 1
    peer.loop.advance(INTERVAL)
    assert peer.beats() == 2


def test_other_traffic_stands_for_it(peer: Peer) -> None:
    for _ in range(6):
        peer.output.send(b"x")
        peer.loop.run()
        peer.transport.take()
        peer.loop.advance(INTERVAL / 2)
        assert peer.beats() == 0
        peer.heartbeat.received = True
    peer.loop.advance(INTERVAL / 2)
    assert peer.beats() == 1


def test_a_heartbeat_of_ours_does_not_stand_for_the_next(peer: Peer) -> None:
    peer.loop.advance(INTERVAL)
    assert peer.beats() == 2


def test_a_peer_silent_from_the_start_is_dead_at_the_second_look(peer: Peer) -> None:
    """RabbitMQ drops it 2 to 3 intervals after the last byte."""
    peer.loop.advance(INTERVAL * 10)
    assert len(peer.dead_at) == 1
    assert INTERVAL * 2 <= peer.dead_at[0] <= INTERVAL * 3


@pytest.mark.parametrize("last_byte", [0.5, 4.9, 5.1, 9.9, 10.1, 14.9, 19.9])
def test_it_takes_two_to_three_intervals_from_the_last_byte(peer: Peer, last_byte: float) -> None:
    peer.loop.advance(last_byte)
    peer.heartbeat.received = True
    peer.loop.advance(INTERVAL * 5)
    assert len(peer.dead_at) == 1
    assert INTERVAL * 2 <= peer.dead_at[0] - last_byte <= INTERVAL * 3


def test_a_byte_in_each_interval_keeps_it_alive(peer: Peer) -> None:
    for _ in range(20):
        peer.loop.advance(INTERVAL * 0.95)
        peer.heartbeat.received = True
    assert peer.dead_at == []


def test_one_missed_look_is_forgiven(peer: Peer) -> None:
    for _ in range(10):
        peer.loop.advance(INTERVAL * 1.9)
        peer.heartbeat.received = True
    assert peer.dead_at == []


def test_a_connection_that_is_not_read_is_not_looked_at(peer: Peer) -> None:
    """While an alarm holds it, only sending goes on."""
    peer.heartbeat.paused = True
    peer.loop.advance(INTERVAL * 10)
    assert peer.dead_at == []
    assert peer.beats() == 20
    peer.heartbeat.paused = False
    peer.loop.advance(INTERVAL * 3)
    assert len(peer.dead_at) == 1


def test_stopped_it_does_nothing(peer: Peer) -> None:
    peer.loop.advance(INTERVAL)
    peer.transport.take()
    peer.heartbeat.stop()
    peer.loop.advance(INTERVAL * 10)
    assert (peer.beats(), peer.dead_at, peer.loop.pending_timers) == (0, [], 0)


def test_the_dead_get_no_more_heartbeats(peer: Peer) -> None:
    peer.loop.advance(INTERVAL * 3)
    peer.transport.take()
    peer.loop.advance(INTERVAL * 3)
    assert (peer.beats(), peer.loop.pending_timers) == (0, 0)
