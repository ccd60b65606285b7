"""Memory is checked once a second, and after much input."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leveret.broker.core.resources import memory
from leveret.broker.core.resources import sockets as socket_budget
from leveret.broker.core.resources.alarms import Alarms
from leveret.broker.core.resources.memory import MemoryMonitor, available_memory, release_free_memory, used_memory
from leveret.broker.core.resources.memory_checks import MemoryChecks
from leveret.broker.core.resources.sockets import SocketBudget
from tests.support.memory_broker import MemoryBroker


@pytest.fixture
def alarms() -> Alarms:
    return Alarms()


@pytest.mark.parametrize(
    ("resources", "reason"),
    [(["memory"], "low on memory"), (["disk"], "low on disk"), (["memory", "disk"], "low on disk & memory")],
)
def test_the_reason_names_what_is_low(alarms: Alarms, resources: list[str], reason: str) -> None:
    for resource in resources:
        alarms.set(resource)
    assert alarms.any
    assert alarms.reason == reason


def test_setting_twice_is_setting_once(alarms: Alarms) -> None:
    alarms.set("memory")
    alarms.set("memory")
    alarms.clear("memory")
    assert not alarms.any


def test_the_last_alarm_to_clear_lets_everyone_go_on_once(alarms: Alarms) -> None:
    resumed: list[str] = []
    first, second = object(), object()
    alarms.set("memory")
    alarms.set("disk")
    alarms.wait(first, lambda: resumed.append("first"))
    alarms.wait(second, lambda: resumed.append("second"))
    alarms.clear("memory")
    assert (resumed, alarms.any) == ([], True)
    alarms.clear("disk")
    assert resumed == ["first", "second"]
    alarms.set("memory")
    alarms.clear("memory")
    assert resumed == ["first", "second"]


def test_a_connection_waits_once(alarms: Alarms) -> None:
    resumed: list[str] = []
    connection = object()
    alarms.set("memory")
    alarms.wait(connection, lambda: resumed.append("old"))
    alarms.wait(connection, lambda: resumed.append("new"))
    alarms.clear("memory")
    assert resumed == ["new"]


def test_a_connection_that_is_gone_is_not_called(alarms: Alarms) -> None:
    resumed: list[str] = []
    connection = object()
    alarms.set("memory")
    alarms.wait(connection, lambda: resumed.append("gone"))
    alarms.forget(connection)
    alarms.forget(connection)
    alarms.clear("memory")
    assert resumed == []


def test_who_is_let_go_may_run_into_the_next_alarm(alarms: Alarms) -> None:
    """What a connection does when it continues can set the alarm again, for itself and those behind it."""
    resumed: list[str] = []

    def resume(name: str) -> Callable[[], None]:
        def go_on() -> None:
            resumed.append(name)
            alarms.set("memory")
            alarms.wait(name, resume(name))

        return go_on

    alarms.set("memory")
    alarms.wait("a", resume("a"))
    alarms.wait("b", resume("b"))
    alarms.clear("memory")
    assert resumed == ["a", "b"]
    assert alarms.any
    alarms.clear("memory")
    assert resumed == ["a", "b", "a", "b"]


def test_a_connection_that_fails_to_resume_takes_no_other_with_it(
    alarms: Alarms, caplog: pytest.LogCaptureFixture
) -> None:
    resumed: list[str] = []
    alarms.set("disk")
    alarms.wait(one := object(), partial(divmod, 1, 0))
    alarms.wait(other := object(), partial(resumed.append, "other"))
    alarms.clear("disk")
    assert resumed == ["other"]
    assert one is not other
    assert len(caplog.records) == 1


def test_available_memory_is_the_machines_or_less() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_memory() <= total


@pytest.mark.parametrize(
    ("written", "expected"), [("104857600\n", 104857600), ("max\n", None), ("9223372036854771712", None)]
)
def test_a_containers_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, expected: int | None
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(written)
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", (tmp_path / "absent", limit))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert available_memory() == (expected or total)


def test_used_memory_is_this_processes() -> None:
    # Mapped on its own: the allocator of a process that has run many tests may have as much that is free.
    with mmap.mmap(-1, 64_000_000) as ballast:
        before = used_memory()
        ballast.write(bytes(64_000_000))
        assert used_memory() - before > 48_000_000


def test_a_system_that_does_not_tell_counts_as_using_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_STATM", tmp_path / "absent")
    assert used_memory() == 0


def test_the_alarm_follows_the_memory_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [100]
    monkeypatch.setattr(memory, "used_memory", lambda: used[0])
    alarms = Alarms()
    monitor = MemoryMonitor(alarms, 100, time.monotonic)
    seen = []
    for used[0] in (100, 101, 500, 100, 99, 101):
        changed = monitor.check()
        seen.append((changed, alarms.any))
    assert seen == [(False, False), (True, True), (False, True), (True, False), (False, False), (True, True)]
    assert alarms.reason == "low on memory"


def test_the_log_tells_of_this_alarm_whatever_others_are_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    used = [100]
    monkeypatch.setattr(memory, "used_memory", lambda: used[0])
    alarms = Alarms()
    alarms.set("disk")
    monitor = MemoryMonitor(alarms, 100, time.monotonic)
    for used[0] in (100, 101, 102, 100):
        monitor.check()
    assert caplog.messages == ["memory alarm set (limit 100 bytes)", "memory alarm cleared (limit 100 bytes)"]
    assert alarms.reason == "low on disk"


def test_garbage_is_collected_before_the_alarm_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    used, now, collections = [150], [0.0], list[float]()

    def collect() -> None:
        collections.append(now[0])
        used[0] = 90 if len(collections) == 1 else used[0]

    monkeypatch.setattr(memory, "used_memory", lambda: used[0])
    alarms = Alarms()
    monitor = MemoryMonitor(alarms, 100, lambda: now[0], collect)
    assert (monitor.check(), alarms.any, monitor.used) == (False, False, 90)
    used[0] = 150
    seen = []
    for now[0] in (59.0, 60.0, 119.0, 121.0):
        monitor.check()
        seen.append((alarms.any, collections.copy()))
    assert seen == [(True, [0.0]), (True, [0.0, 60.0]), (True, [0.0, 60.0]), (True, [0.0, 60.0, 121.0])]


def test_memory_that_is_free_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [150]
    monkeypatch.setattr(memory, "used_memory", lambda: used[0])
    monkeypatch.setattr(memory, "release_free_memory", lambda: used.insert(0, 90))
    alarms = Alarms()
    monitor = MemoryMonitor(alarms, 100, time.monotonic)
    assert not monitor.check()
    assert (monitor.used, alarms.any) == (90, False)


def test_free_memory_is_given_back() -> None:
    # Small enough to come from the heap; every tenth piece stays, so that the others leave holes.
    pieces = [bytes(100_000) + b"%d" % number for number in range(1000)]
    before = used_memory()
    pieces = pieces[::10]
    release_free_memory()
    assert before - used_memory() > 60_000_000
    assert len(pieces) == 100


@pytest.mark.parametrize("keeps", [False, True])
def test_free_memory_is_kept_for_the_next_buffers(keeps: bool) -> None:
    program = f"""
import resource
from leveret.broker.core.resources.memory import keep_free_memory
if {keeps}:
    keep_free_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
buffers = [bytes(100_000) + b"." for _ in range(20)]
del buffers
before = faults()
for _ in range(50):
    buffers = [bytes(100_000) + b"." for _ in range(20)]
    del buffers
print(faults() - before)
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MALLOC_", "GLIBC_"))}
    faults = int(
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
    )
    assert (faults < 5_000) is keeps, faults


def test_the_limit_can_be_changed_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "used_memory", lambda: 50)
    alarms = Alarms()
    monitor = MemoryMonitor(alarms, 100, time.monotonic)
    assert not monitor.check()
    monitor.limit = 10
    assert monitor.check()
    assert alarms.any


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


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> SocketBudget:
    """Of 1,024 files 540 are for clients."""
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 1024)
    return SocketBudget(384)


def test_the_store_has_its_files_and_clients_at_least_half(
    budget: SocketBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert budget.total == 540
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 200)
    assert budget.total == 100


def test_http_has_a_quarter(budget: SocketBudget) -> None:
    budget.http.count(range(134))
    assert not budget.http.is_full
    budget.http.count(range(1))
    assert budget.http.is_full
    assert not budget.amqp.is_full


def test_http_never_has_more_than_rabbitmq_allows(budget: SocketBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_budget, "open_files_max", lambda: 1_000_000)
    budget.http.count(range(1024))
    assert budget.http.is_full


def test_amqp_has_what_http_leaves(budget: SocketBudget) -> None:
    budget.http.count(range(40))
    budget.amqp.count(range(499))
    assert not budget.amqp.is_full
    budget.amqp.count(range(1))
    assert budget.amqp.is_full
    assert budget.used == 540


def test_somebody_can_always_look_what_is_wrong(budget: SocketBudget) -> None:
    budget.amqp.count(range(540))
    budget.http.count(range(15))
    assert not budget.http.is_full
    budget.http.count(range(1))
    assert budget.http.is_full


def test_handshakes_count_twice_and_have_half(budget: SocketBudget) -> None:
    budget.http.handshakes = 33
    assert budget.http.used == 66
    assert not budget.http.refuse(with_handshake=True)
    budget.http.handshakes = 34
    assert budget.http.refuse(with_handshake=True)
    assert not budget.http.refuse()


def test_a_refusal_is_logged_once_until_there_is_room(budget: SocketBudget, caplog: pytest.LogCaptureFixture) -> None:
    connections: list[None] = []
    budget.amqp.count(connections)
    for number in (540, 541, 539, 540):
        connections[:] = [None] * number
        assert budget.amqp.refuse() is (number >= 540)
    assert len(caplog.messages) == 2
    assert "540 of 1024 file descriptors (ulimit -n)" in caplog.text
