"""State shared by all connections: memory checks after a number of received bytes."""

from __future__ import annotations

from tests.support.memory_broker import MemoryBroker


def test_memory_is_checked_after_a_number_of_bytes() -> None:
    broker = MemoryBroker()
    server = broker.server
    looks: list[int] = []
    server.check_memory = lambda: looks.append(server.received)
    server.check_memory_after(1000)
    for _ in range(3):
        server.count_received(400)
    # At the end of the turn, and once.
    assert looks == []
    broker.loop.run()
    assert looks == [1200]
    server.count_received(10_000)
    broker.loop.run()
    assert looks == [1200]
    server.check_memory_after(500)
    server.count_received(499)
    broker.loop.run()
    assert looks == [1200]
    server.count_received(1)
    broker.loop.run()
    assert looks == [1200, 11_700]


def test_received_bytes_are_counted() -> None:
    broker = MemoryBroker()
    before = broker.server.received
    broker.open()
    assert broker.server.received > before
