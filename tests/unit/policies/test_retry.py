"""Which returned messages wait, and how long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.queue_settings import DelayedRetry, QueueSettings, effective_settings, read_retry
from leveret.policies.value_checks import format_delay, parse_steps


def read(**values: Any) -> DelayedRetry | None:
    return read_retry(QueueSettings(**{f"delayed_retry_{name}": value for name, value in values.items()}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"type": "all", "min": 1000, "max": 30000}, "all (min: 1000ms, max: 30000ms)"),
        ({"type": "failed", "min": 1000}, "failed (min: 1000ms, max: 1000ms)"),
        ({"type": "returned", "min": 1000, "max": "x"}, "returned (min: 1000ms, max: 1000ms)"),
        ({"type": "all", "min": 10, "max": 5}, "all (min: 10ms, max: 5ms)"),
        ({"type": "failed", "steps": "1s,90s,2h"}, "failed (steps: 1s, 90s, 2h)"),
        ({"steps": "1500ms", "min": 7}, "all (steps: 1500ms)"),
        ({"type": "all", "min": 7, "steps": "bad"}, "all (min: 7ms, max: 7ms)"),
        ({"type": "disabled", "steps": "1s"}, "None"),
        ({"type": "disabled", "min": 1}, "None"),
        ({"type": "all"}, "None"),
        ({"type": "all", "min": True}, "None"),
        ({"type": "all", "min": 0}, "None"),
        ({"type": "other", "min": 1}, "None"),
        ({"type": 5, "min": 1}, "None"),
        ({"min": 1, "max": 2}, "None"),
        ({}, "None"),
    ],
)
def test_what_is_in_force(values: dict[str, Any], text: str) -> None:
    assert str(read(**values)) == text


@given(
    st.sampled_from(["all", "failed", "returned"]),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.booleans(),
    st.integers(0, 50),
)
def test_the_formula(kind: str, least: int, most: int, failed: bool, count: int) -> None:
    delay = DelayedRetry(kind, least, most).delay(failed, count, 7)
    applies = kind == "all" or (kind == "failed") == failed
    assert delay == (min(least * max(1, count), most) if applies else 0)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=100), st.integers(1, 200))
def test_steps(steps: list[int], returns: int) -> None:
    text = ",".join(map(format_delay, steps))
    assert parse_steps(text) == tuple(steps)
    retry = read(steps=text)
    assert retry is not None
    assert retry.delay(False, 0, returns) == steps[min(returns, len(steps)) - 1]


def test_how_policies_and_arguments_meet() -> None:
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 10, "x-delayed-retry-max": 100}
    policy = {"delayed-retry-type": "failed", "delayed-retry-min": 20, "delayed-retry-max": 50}
    for kind in ("classic", "quorum"):
        assert str(read_retry(effective_settings(kind, arguments, policy))) == "failed (min: 10ms, max: 50ms)"
    assert str(read_retry(effective_settings("quorum", {**arguments, "x-delayed-retry-min": "x"}, policy))) == (
        "failed (min: 20ms, max: 50ms)"
    )
