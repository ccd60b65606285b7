"""Numbers with their rates and samples."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.counters.history import STEP
from leveret.broker.management.http.statistics import Rates, numbers
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_broker

NOW = 1_795_230_000
NUMBERS = numbers(ExchangeCounters.FIELDS, "publish_in", both=("publish_in", "publish_out"))


@pytest.fixture
def counters() -> ExchangeCounters:
    """Return counters: 5 in and 10 out at the first sample, 15 and 20 at the second, 16 and 20 now."""
    made = ExchangeCounters()
    for now, come, gone in ((NOW - STEP, 5, 10), (NOW, 15, 20)):
        made.publish_in, made.publish_out = come, gone
        made.sample(now, made.row())
    made.publish_in = 16
    return made


def rates(query: str = "") -> Rates:
    loop = ManualLoop()
    broker = new_broker(loop)
    broker.last_sample = NOW
    return Rates(make_mocked_request("GET", f"/api/x?{query}"), broker)


def show(made: Rates, counters: ExchangeCounters) -> dict[str, Any]:
    return made.add_to({}, NUMBERS, counters.row(), counters, "msg_rates")


def test_current_numbers_and_rates_of_the_last_step(counters: ExchangeCounters) -> None:
    assert show(rates(), counters) == {
        "publish_in": 16,
        "publish_in_details": {"rate": 2.0},
        "both": 36,
        "both_details": {"rate": 4.0},
    }


def test_samples_newest_first(counters: ExchangeCounters) -> None:
    shown = show(rates("msg_rates_age=10&msg_rates_incr=5"), counters)
    assert shown["publish_in_details"] == {
        "avg": pytest.approx(20 / 3),
        "avg_rate": 1.5,
        "rate": 2.0,
        "samples": [
            {"sample": 15, "timestamp": NOW * 1000},
            {"sample": 5, "timestamp": (NOW - 5) * 1000},
            {"sample": 0, "timestamp": (NOW - 10) * 1000},
        ],
    }
    assert [each["sample"] for each in shown["both_details"]["samples"]] == [35, 15, 0]


def test_without_history() -> None:
    shown = show(rates("msg_rates_age=5&msg_rates_incr=5"), ExchangeCounters())
    assert shown["both_details"]["samples"] == [
        {"sample": 0, "timestamp": NOW * 1000},
        {"sample": 0, "timestamp": (NOW - 5) * 1000},
    ]
    assert show(rates(), ExchangeCounters())["both_details"] == {"rate": 0.0}
