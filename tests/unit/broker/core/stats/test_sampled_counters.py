"""Looking at counters: a history only where something happens."""

from __future__ import annotations

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters, ExchangeCounters
from leveret.broker.core.counters.history import STEP

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
