"""Failed logins are counted: a flood is a few lines of the audit log, with who, from where, how many and when."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.events import Actor, Event
from leveret.broker.operations.audit import ADDRESSES_MAX, FAILED_LOGIN, PERIOD, USERS_MAX, FailedLogins, record_of
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers


class Log:
    """Fails logins at the time of a clock that tests set, and has the records."""

    def __init__(self, loop: ManualLoop) -> None:
        self.records: list[dict[str, Any]] = []
        self.loop = loop
        self.failed_logins = FailedLogins(ManualTimers(loop), self._log)

    def _log(self, event: Event) -> None:
        self.records.append(record_of(event))

    def fail(self, user: str, host: str = "10.0.0.1", why: str = "wrong") -> None:
        about = {"name": user, "error": why, "peer_port": 7}
        event = Event(FAILED_LOGIN, round(self.loop.now * 1000), Actor(user, host), False, about)
        if not self.failed_logins.count(event):
            self._log(event)

    def taken(self) -> list[tuple[str, str | None, int | None]]:
        """Return user, address and number of the records since the last time."""
        taken, self.records = self.records, []
        return [(each["user"], each.get("host"), each.get("count")) for each in taken]


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def log(loop: ManualLoop) -> Log:
    return Log(loop)


def test_the_first_is_logged_at_once_and_the_others_when_the_minute_ends(log: Log, loop: ManualLoop) -> None:
    log.fail("ann")
    log.fail("ann", "10.0.0.2")
    assert log.taken() == [("ann", "10.0.0.1", None), ("ann", "10.0.0.2", None)]
    loop.advance(5)
    log.fail("ann", why="first")
    loop.advance(10)
    for _ in range(99):
        log.fail("ann", why="last")
    assert not log.records
    start = loop.now - 15
    loop.advance(PERIOD - 15)
    assert log.records == [
        {
            "at": round(start + 15) * 1_000_000,
            "kind": "user.authentication.failure",
            "user": "ann",
            "host": "10.0.0.1",
            "object": "ann",
            "count": 100,
            "details": {
                "name": "ann",
                "error": "last",
                "peer_port": 7,
                "first": round(start + 5) * 1000,
                "last": round(start + 15) * 1000,
            },
        }
    ]


def test_a_flood_is_counted_until_it_ends(log: Log, loop: ManualLoop) -> None:
    for _ in range(3 * 60):
        log.fail("ann")
        loop.advance(1)
    assert log.taken() == [("ann", "10.0.0.1", None), *[("ann", "10.0.0.1", count) for count in (59, 60, 60)]]
    loop.advance(2 * PERIOD)
    log.fail("ann")
    assert log.taken() == [("ann", "10.0.0.1", None)]


def test_a_single_further_failure_is_an_ordinary_line(log: Log, loop: ManualLoop) -> None:
    log.fail("ann")
    log.fail("ann", why="again")
    loop.advance(PERIOD)
    assert [each["details"]["error"] for each in log.records] == ["wrong", "again"]
    assert log.taken() == [("ann", "10.0.0.1", None)] * 2


def test_of_very_many_users_only_the_addresses_are_counted(log: Log, loop: ManualLoop) -> None:
    for number in range(USERS_MAX + 500):
        log.fail(f"u{number}")
    # The first that is counted by its address alone is a line by itself.
    assert len(log.taken()) == USERS_MAX + 1
    log.fail("u0")
    for _ in range(3):
        log.fail("x" * 256)
    loop.advance(PERIOD)
    assert log.records[-1]["details"].keys() == {"first", "last"}
    assert log.taken() == [("u0", "10.0.0.1", None), ("", "10.0.0.1", 502)]


def test_of_very_many_addresses_all_are_counted_together(log: Log, loop: ManualLoop) -> None:
    for number in range(ADDRESSES_MAX + 500):
        log.fail("ann", f"fe80::{number}")
    assert len(log.taken()) == ADDRESSES_MAX + 1
    loop.advance(PERIOD)
    assert log.taken() == [("", None, 499)]


def test_what_is_counted_is_logged_at_the_end(log: Log) -> None:
    for _ in range(3):
        log.fail("ann")
    log.failed_logins.close()
    assert log.taken() == [("ann", "10.0.0.1", None), ("ann", "10.0.0.1", 2)]
