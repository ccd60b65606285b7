from __future__ import annotations

import pytest

from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.session.output import HEARTBEAT_FRAME, Heartbeat, Output
from tests.support.manual_loop import ManualLoop
from tests.support.memory_transport import MemoryTransport

INTERVAL = 10


class Peer:
    """A heartbeat timer with a manual loop and a transport in memory."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.transport = MemoryTransport(self.loop)
        self.output = Output(Turn(self.loop.call_soon), self.transport)
        self.dead_at: list[float] = []
        self.start = self.loop.now
        self.heartbeat = Heartbeat(self.loop.loop, self.output, "client")
        self.heartbeat.start(INTERVAL, self.note_death)

    def note_death(self) -> None:
        self.dead_at.append(self.loop.now - self.start)

    def beats(self) -> int:
        """Return the number of heartbeats sent since the last call."""
        written = self.transport.take()
        assert written == HEARTBEAT_FRAME * (len(written) // 8)
        return len(written) // 8


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.mark.parametrize("last_byte", [0.5, 4.9, 5.1, 9.9, 10.1, 14.9, 19.9])
def test_it_takes_two_to_three_intervals_from_the_last_byte(peer: Peer, last_byte: float) -> None:
    peer.loop.advance(last_byte)
    peer.heartbeat.received = True
    peer.loop.advance(INTERVAL * 5)
    assert len(peer.dead_at) == 1
    assert INTERVAL * 2 <= peer.dead_at[0] - last_byte <= INTERVAL * 3


def test_one_missed_check_does_not_drop_the_peer(peer: Peer) -> None:
    for _ in range(10):
        peer.loop.advance(INTERVAL * 1.9)
        peer.heartbeat.received = True
    assert peer.dead_at == []


def test_input_is_not_checked_while_reading_is_paused(peer: Peer) -> None:
    """While an alarm blocks the connection, only sending continues."""
    peer.heartbeat.paused = True
    peer.loop.advance(INTERVAL * 10)
    assert peer.dead_at == []
    assert peer.beats() == 20
    peer.heartbeat.paused = False
    peer.loop.advance(INTERVAL * 3)
    assert len(peer.dead_at) == 1


def test_after_stop_nothing_is_sent_or_checked(peer: Peer) -> None:
    peer.loop.advance(INTERVAL)
    peer.transport.take()
    peer.heartbeat.stop()
    peer.loop.advance(INTERVAL * 10)
    assert (peer.beats(), peer.dead_at, peer.loop.pending_timers) == (0, [], 0)


def test_no_heartbeats_are_sent_after_a_missed_peer(peer: Peer) -> None:
    peer.loop.advance(INTERVAL * 3)
    peer.transport.take()
    peer.loop.advance(INTERVAL * 3)
    assert (peer.beats(), peer.loop.pending_timers) == (0, 0)
