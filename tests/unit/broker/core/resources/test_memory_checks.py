"""Memory is checked once a second, and after much input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.broker.core.resources import memory
from leveret.broker.core.resources.memory_checks import MemoryChecks
from tests.support.memory_broker import MemoryBroker

MIB = 1024 * 1024
LIMIT = 400 * MIB


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Memory in use, in bytes: the last entry."""
    values = [LIMIT - 40 * MIB]
    monkeypatch.setattr(memory, "used_memory", lambda: values[-1])
    return values


@pytest.fixture
def checks(broker: MemoryBroker, used: list[int]) -> Iterator[MemoryChecks]:
    checks = broker.memory_checks
    checks.set_limits(LIMIT, LIMIT)
    checks.start()
    yield checks
    checks.stop()


def test_memory_is_checked_every_second(broker: MemoryBroker, checks: MemoryChecks, used: list[int]) -> None:
    for megabytes, alarm in ((410, True), (390, False), (500, True)):
        used.append(megabytes * MIB)
        assert broker.broker.alarms.any is not alarm
        broker.loop.advance(1)
        assert broker.broker.alarms.any is alarm
    checks.stop()
    used.append(0)
    broker.loop.advance(10)
    assert broker.broker.alarms.any


def test_memory_is_checked_once_a_quarter_of_what_is_free_has_been_received(
    broker: MemoryBroker, checks: MemoryChecks, used: list[int]
) -> None:
    used.append(LIMIT + 1)
    checks.count_received(10 * MIB - 1)
    broker.loop.run()
    assert not broker.broker.alarms.any
    checks.count_received(1)
    assert not broker.broker.alarms.any, "at the end of the turn"
    broker.loop.run()
    assert broker.broker.alarms.any


@pytest.mark.parametrize(("free", "expected"), [(0, 2), (4 * MIB, 2), (100 * MIB, 25), (LIMIT, 64)])
def test_the_bytes_between_two_checks_are_bounded(
    broker: MemoryBroker, checks: MemoryChecks, used: list[int], free: int, expected: int
) -> None:
    used.append(LIMIT - free)
    broker.loop.advance(1)
    used.append(LIMIT + 1)
    checks.count_received(expected * MIB - 1)
    broker.loop.run()
    assert not broker.broker.alarms.any
    checks.count_received(1)
    broker.loop.run()
    assert broker.broker.alarms.any


def test_received_bytes_of_connections_are_counted(broker: MemoryBroker) -> None:
    before = broker.memory_checks.received
    broker.open()
    assert broker.memory_checks.received > before
