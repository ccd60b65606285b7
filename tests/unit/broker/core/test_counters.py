"""What the counters of a queue add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters, ExchangeCounters, QueueCounters
from leveret.broker.core.counters.history import BASIC, GLOBAL, RATES_ONLY, STEP, History
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from tests.support.messages import message

#: Those that count by reason.
BY_REASON = ("dropped", "dead_lettered", "dead_letters_lost")
#: The others that only rise.
RISING = (
    "published", "refused", "delivered", "delivered_no_ack", "got", "got_no_ack", "got_empty", "redelivered",
    "acknowledged", "requeued", "dead_letters_arrived", "dead_letters_confirmed", "deduplicated", "deleted", "outlived",
    "refused_told",
)  # fmt: skip


def counted(factor: int) -> QueueCounters:
    """Counters with a number of its own in each."""
    counters = QueueCounters()
    for number, name in enumerate(RISING, 1):
        setattr(counters, name, factor * number)
    for number, name in enumerate(BY_REASON, 100):
        for step, reason in enumerate((MAXLEN, EXPIRED, REJECTED, DELIVERY_LIMIT, "purged")):
            getattr(counters, name)[reason] = factor * (number + 10 * step)
    return counters


def test_a_sum_has_all_counters_of_both() -> None:
    total, both = counted(1), counted(3)
    total.absorb(counted(2))
    for name in (*RISING, *BY_REASON):
        assert getattr(total, name) == getattr(both, name), name


def test_a_row_has_the_counters_of_its_fields() -> None:
    row = dict(zip(QueueCounters.FIELDS, counted(1).row(1000, 2000), strict=True))
    assert row == {
        "messages_ready": 1000,
        "messages_unacknowledged": 2000,
        "publish": 1,
        "deliver": 3 - 4,
        "deliver_no_ack": 4,
        "get": 5 - 6,
        "get_no_ack": 6,
        "get_empty": 7,
        "redeliver": 8,
        "ack": 9,
        "drop": 100 + 110 + 120 + 130 + 140,
        "refuse": 2,
    }
    assert QueueCounters().row(0, 0) == (0,) * len(QueueCounters.FIELDS)


def test_a_row_of_losses_has_the_counters_of_its_fields() -> None:
    row = dict(zip(QueueCounters.LOSS_FIELDS, counted(1).current_loss_row(7), strict=True))
    assert row == {
        # All that was dropped but purged, and refused without word, without what has arrived elsewhere or may yet.
        "lost": 100 + 110 + 120 + 130 + 2 - 16 - 11 - 7,
        "drop_maxlen": 100,
        "drop_expired": 110,
        "drop_rejected": 120,
        "drop_delivery_limit": 130,
        "drop_purged": 140,
        "drop_deleted": 14,
        "refuse": 2,
        "dead_letter_maxlen": 101,
        "dead_letter_expired": 111,
        "dead_letter_rejected": 121,
        "dead_letter_delivery_limit": 131,
        "dead_letter_lost_maxlen": 102,
        "dead_letter_lost_expired": 112,
        "dead_letter_lost_rejected": 122,
        "dead_letter_lost_delivery_limit": 132,
        "refuse_told": 16,
    }


@pytest.mark.parametrize("name", ["refused", "deleted"])
def test_what_may_be_a_loss(name: str) -> None:
    counters = QueueCounters()
    assert not counters.has_losses
    setattr(counters, name, 1)
    assert counters.has_losses


def test_redelivered_messages_are_counted_among_the_delivered_ones() -> None:
    counters = QueueCounters()
    entries = [(1, message("a"), True), (2, message("b"), False)]
    # Before anything has been requeued, none is looked at.
    counters.count_delivery(entries[1:])
    counters.requeued = 1
    counters.count_delivery(entries)
    assert (counters.delivered, counters.redelivered) == (3, 1)


def test_the_capacity_follows_the_newest_samples_by_half() -> None:
    counters = QueueCounters()
    found = []
    for can_deliver in (False, False, True):
        counters.sample_capacity(can_deliver)
        found.append(counters.capacity)
    assert found == [0.5, 0.25, 0.625]


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
