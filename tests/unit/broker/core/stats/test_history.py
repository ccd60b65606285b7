"""Samples over time: rates, levels of detail, and what is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.counters.history import BASIC, GLOBAL, RATES_ONLY, STEP, History

#: A full hour, so that all levels have a sample there.
START = 1_795_230_000 // 86_400 * 86_400


def history(*values: int, retention: tuple[object, ...] = BASIC) -> History:
    """A history of one number, with a sample every step; equal samples are omitted, as the sampler does it."""
    made = History(1, retention)  # type: ignore[arg-type]
    before: int | None = None
    for place, value in enumerate(values):
        if value != before:
            made.add(START + place * STEP, (value,))
        before = value
    return made


def values(made: History, age: int, *times: int) -> list[int]:
    return [row[0] for row in made.samples(age, times)]


def test_the_rate_is_the_change_over_the_last_step() -> None:
    made = history(10, 40)
    assert made.rates(START + STEP) == [6.0]


def test_the_first_sample_counts_from_0() -> None:
    assert history(10).rates(START) == [2.0]


def test_what_stands_still_has_no_rate() -> None:
    made = history(10, 40)
    assert made.rates(START + 2 * STEP) == [0.0]


def test_a_rate_after_a_pause_is_that_of_the_last_step() -> None:
    made = history(10, 10, 10, 15)
    assert made.rates(START + 3 * STEP) == [1.0]


def test_a_gauge_may_fall() -> None:
    assert history(10, 0).rates(START + STEP) == [-2.0]


def test_samples_hold_until_the_next_one() -> None:
    made = history(1, 2, 2, 2, 5)
    times = [START + place * STEP for place in range(-1, 6)]
    assert values(made, 60, *times) == [0, 1, 2, 2, 2, 5, 5]


def test_coarse_samples_are_what_was_at_their_time() -> None:
    made = history(*range(1, 26))
    assert values(made, 3600, START, START + 60, START + 120) == [1, 13, 25]


def test_a_coarse_sample_that_is_not_due_yet_is_not_shown() -> None:
    made = history(1, 2)
    assert values(made, 3600, START, START + 59) == [1, 1]


def test_a_long_age_takes_the_coarse_level() -> None:
    made = History(1, GLOBAL)
    for hour in range(30):
        made.add(START + hour * 3600, (hour,))
    now = START + 29 * 3600
    assert values(made, 86_400, now, now - 3600, now - 86_400) == [29, 28, 5]


def test_old_samples_are_forgotten() -> None:
    made = history(*range(1, 1000))
    now = START + 998 * STEP
    assert values(made, 600, now - 600, now) == [879, 999]
    assert len(made._levels[0]._times) < 160


def test_rates_only_keeps_next_to_nothing() -> None:
    made = history(*range(1, 100), retention=RATES_ONLY)
    assert made.rates(START + 98 * STEP) == [0.2]
    assert values(made, 600, START + 98 * STEP - 600) == [97]
    assert len(made._levels[0]._times) <= 4
    assert not made.is_detailed


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=120), st.integers(0, 120))
def test_samples_are_what_was_added(numbers: list[int], back: int) -> None:
    made = history(*numbers)
    last = len(numbers) - 1
    place = max(0, last - back)
    assert values(made, 600, START + place * STEP) == [numbers[place]]
    before = numbers[last - 1] if last else 0
    assert made.rates(START + last * STEP) == [pytest.approx((numbers[last] - before) / STEP)]
