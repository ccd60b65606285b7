"""Samples over time: rates, levels of detail, and what is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters, ExchangeCounters
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


NOW = 1_795_230_000


def test_where_nothing_happens_there_is_no_history() -> None:
    counters = ExchangeCounters()
    counters.sample(NOW, counters.row())
    counters.sample(NOW + STEP, counters.row())
    assert counters.history is None
    assert counters.idle_since == NOW - STEP


def test_what_happens_starts_one() -> None:
    counters = ExchangeCounters()
    counters.publish_in = 10
    counters.sample(NOW, counters.row())
    assert counters.history is not None
    assert counters.history.rates(NOW) == [2.0, 0.0]
    assert (counters.idle_since, counters.is_detailed) == (0, True)


def test_idle_since_the_last_look_that_found_something() -> None:
    counters = ExchangeCounters()
    counters.publish_in = 1
    counters.sample(NOW, counters.row())
    counters.sample(NOW + STEP, counters.row())
    counters.sample(NOW + 2 * STEP, counters.row())
    assert counters.idle_since == NOW
    counters.publish_in = 2
    counters.sample(NOW + 3 * STEP, counters.row())
    assert counters.idle_since == 0


def test_beyond_the_number_that_may_be_detailed_there_are_rates() -> None:
    counters = ExchangeCounters()
    counters.publish_in = 10
    counters.sample(NOW, counters.row(), detailed=False)
    assert not counters.is_detailed
    assert counters.history is not None
    assert counters.history.rates(NOW) == [2.0, 0.0]


def test_numbers_that_were_there_before_have_no_rate() -> None:
    counters = ExchangeCounters()
    counters.publish_in = 10
    counters.sample(NOW, counters.row(), from_zero=False)
    assert counters.history is not None
    assert counters.history.rates(NOW) == [0.0, 0.0]


def test_rows_hold_the_fields_in_their_order() -> None:
    for counters in (ChannelCounters(), ExchangeCounters()):
        for number, field in enumerate(counters.FIELDS):
            setattr(counters, field, number)
        assert counters.row() == tuple(range(len(counters.FIELDS)))


def test_counters_of_what_has_gone_are_added() -> None:
    kept, gone = ChannelCounters(), ChannelCounters()
    for counters in (kept, gone):
        for field in (*ChannelCounters.FIELDS, "publish_confirm"):
            setattr(counters, field, 2)
    kept.absorb(gone)
    assert kept.row() == (4,) * len(ChannelCounters.FIELDS)
    assert kept.publish_confirm == 4
    connection, other = ConnectionCounters(), ConnectionCounters()
    other.recv_oct, other.recv_cnt, other.send_oct, other.send_cnt = 1, 2, 3, 4
    connection.absorb(other)
    connection.absorb(other)
    assert connection.row() == (2, 6)
    assert (connection.recv_cnt, connection.send_cnt) == (4, 8)
