from __future__ import annotations

from leveret.broker.core.node import Node
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers


def test_uptime_does_not_follow_the_system_clock() -> None:
    loop = ManualLoop()
    timers = ManualTimers(loop)
    node = Node(timers)
    loop.advance(60)
    timers.set_by = -500
    assert (node.started_at, node.uptime()) == (1_000_000, 60_000)
