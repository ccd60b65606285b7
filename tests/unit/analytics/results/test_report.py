from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.report import compose
from leveret.analytics.results.report_page import SERIES_MAX, curves, horizontal_bars, label, lines_over_time
from leveret.analytics.results.report_sections import grain_for

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
RESULTS = ("queues", "backlog", "sizes", "overflow", "throughput", "latency", "capacity", "deadletters", "duplicates")
HOSTILE = "</script><script>alert(1)</script><b>"


def queue_row(name: str, messages: int = 1) -> dict[str, Any]:
    return {
        "vhost": "/",
        "queue": name,
        "messages": messages,
        "body_bytes": 10,
        "file_bytes": 20,
        "oldest_at": NOON - timedelta(hours=3),
        "as_of": NOON,
    }


def composed(asked: datetime, *queues: dict[str, Any], as_of: str | None = None) -> str:
    rows: dict[str, Any] = {name: [] for name in RESULTS} | {"queues": list(queues)}
    return compose(rows, asked, grain_for(MINUTE), JobOptions("/data", as_of))


def test_an_age_is_counted_up_to_the_moment_that_is_asked_for() -> None:
    page = composed(NOON + timedelta(hours=5), queue_row("q"))
    assert "<b>8 h</b>" in page
    assert "As of 2026-03-04 17:00:00 UTC, /data. Nothing has happened since 2026-03-04 12:00:00 UTC" in page
    # A moment has passed between asking and looking, in which a message came.
    page = composed(NOON - timedelta(hours=3, seconds=1), queue_row("q"))
    assert "As of 2026-03-04 12:00:00 UTC, /data</p>" in page
    page = composed(NOON - timedelta(hours=1), queue_row("q"), as_of="2026-03-04T11:00:00Z")
    assert "<b>2 h</b>" in page


def test_brokers_are_named_where_there_are_several() -> None:
    queues = [{"broker": name, **queue_row("q")} for name in ("first-broker", "second-broker")]
    page = composed(NOON, *queues)
    assert "first-broker: q" in page
    assert "second-broker: q" in page
    assert "<th>broker</th>" in page
    page = composed(NOON, queues[0], {**queues[0], "queue": "r"})
    assert "first-broker" not in page


def test_names_do_nothing_to_the_page() -> None:
    page = composed(NOON, queue_row(HOSTILE))
    assert HOSTILE not in page
    assert "<script>alert" not in page
    assert label("<b>" * 100).startswith("&lt;b&gt;")
    assert len(label("x" * 100)) == 60


def test_an_empty_broker() -> None:
    page = composed(NOON)
    assert "There is no queue." in page
    assert "Plotly.newPlot(" not in page


def test_of_many_queues_the_longest_are_drawn() -> None:
    page = composed(NOON, *(queue_row(f"q{number}", number) for number in range(1, 201)))
    assert "The chart shows the 20 longest, and all others together." in page
    assert "180 others, together" in page
    assert f"{sum(range(1, 181))}]" in page, "their sum is the last bar"
    assert "The first 50 of 200 rows." in page


@pytest.mark.parametrize(
    ("span", "name"),
    [
        (timedelta(0), "minute"),
        (timedelta(hours=24), "minute"),
        (timedelta(days=7), "hour"),
        (timedelta(days=90), "day"),
    ],
)
def test_what_a_chart_counts_by(span: timedelta, name: str) -> None:
    assert grain_for(span).name == name


def test_many_queues_are_counted_by_longer_spans() -> None:
    day = timedelta(hours=24)
    assert [grain_for(day, queues).name for queues in (60, 200, 3000, 50_000)] == ["minute", "hour", "hour", "day"]
    assert grain_for(timedelta(hours=4), 200).name == "minute"


def series(row: Any) -> str:
    return str(row["queue"])


def test_shares_and_percentiles_are_not_added_up() -> None:
    rows = [
        {"queue": f"q{number}", "minute": NOON + at * MINUTE, "value": 10.0, "limit": at}
        for number in range(SERIES_MAX + 5)
        for at in range(5)
    ]
    for chart in (
        lines_over_time(rows, {"value": "v"}, series, "ms", MINUTE),
        curves(rows, "limit", "value", series, ("x", "y")),
    ):
        assert "others" not in chart
    counts = lines_over_time(rows, {"value": "v"}, series, "messages", MINUTE, sums=True)
    # They would press the others flat on the axis.
    assert "5 others: v (hidden; click)" in counts
    assert counts.count('"visible":"legendonly"') == 1


def test_nothing_is_drawn_where_nothing_was() -> None:
    rows = [{"queue": "q", "minute": NOON + at * MINUTE, "value": 7} for at in (0, 1, 2, 5)]
    drawn = lines_over_time(rows, {"value": "v"}, series, "messages", MINUTE, sums=True)
    assert '"y":[7,7,7,0,0,7]' in drawn
    drawn = lines_over_time(rows, {"value": "v"}, series, "ms", MINUTE)
    assert '"y":[7,7,7,null,null,7]' in drawn


def test_names_that_are_shortened_to_the_same_keep_their_bars() -> None:
    rows = [{"queue": f"{'a' * 50}{number}{'z' * 50}", "messages": number} for number in range(3)]
    drawn = horizontal_bars(rows, series)
    assert '"y":[0,1,2]' in drawn
    assert drawn.count("…") == 3 or drawn.count("\\u2026") == 3
