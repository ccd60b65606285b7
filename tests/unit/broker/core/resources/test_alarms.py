from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from leveret.broker.core.resources.alarms import Alarms


@pytest.fixture
def alarms() -> Alarms:
    return Alarms()


def test_no_alarm_is_set_at_first(alarms: Alarms) -> None:
    assert not alarms.any


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


def test_clearing_what_is_not_set_is_fine(alarms: Alarms) -> None:
    alarms.clear("disk")
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
