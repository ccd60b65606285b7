"""The report of the analytics with 200 queues, in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from leveret.analytics.jobs.job_options import JobOptions
from leveret.analytics.jobs.report import compose
from leveret.analytics.results.report_sections import Grain, grain_for

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
QUEUES = [f"department-{number % 17}.service-{number}.work-items" for number in range(200)]
DAY = timedelta(days=1)


def results(grain: Grain) -> dict[str, Any]:
    """What the jobs find about a day, in which all queues were busy."""
    times = [NOON - grain.length * step for step in range(DAY // grain.length)]
    each = [{"vhost": "/", "queue": queue, "messages": number + 1} for number, queue in enumerate(QUEUES)]
    then = [{**row, "minute": at} for at in times for row in each]
    rows: dict[str, Any] = {"deadletters": [], "duplicates": []}
    queue = {"body_bytes": 1000, "file_bytes": 2000, "oldest_at": NOON - DAY, "as_of": NOON}
    rows["queues"] = [row | queue for row in each]
    rows["backlog"] = [{**row, "routing_key": row["queue"], "body_bytes": 1, "oldest_at": NOON} for row in each]
    rows["sizes"] = [{**row, "from_bytes": 1 << bits, "to_bytes": (2 << bits) - 1} for row in each for bits in range(9)]
    waits = {"body_bytes": 1, "mean_wait_ms": 1.0, "max_wait_ms": 2}
    rows["overflow"] = [{**row, **waits, "reason": reason} for row in then for reason in ("maxlen", "expired")]
    moves = {"messages_out": 3, "body_bytes_in": 1, "body_bytes_out": 1}
    rows["throughput"] = [{**row, **moves, "messages_in": row["messages"]} for row in then]
    rows["latency"] = [{**row, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": row["messages"], "max_ms": 300} for row in then]
    rows["capacity"] = [
        {**row, "max_length": limit, "messages_in": 9, "dropped": 1, "dropped_percent": 50.0 - limit}
        for row in each
        for limit in (10, 20)
    ]
    return rows


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """The page, without errors on its console."""
    grain = grain_for(DAY, len(QUEUES))
    rows = results(grain)
    before = time.process_time()
    text = compose(rows, NOON, grain, JobOptions("/data"))
    assert time.process_time() - before < 30
    # Most of it draws the charts.
    assert len(text) < 6_500_000
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text))
    opened.goto(f"file://{tmp_path}/report.html")
    yield opened
    opened.close()
    assert errors == []


def section(page: Page, title: str) -> Locator:
    return page.locator("section", has=page.get_by_role("heading", name=title))


def test_charts_of_many_queues_can_be_read(page: Page) -> None:
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_have_count(7)
    queues = section(page, "Queues now")
    expect(queues.locator(".yaxislayer-above text")).to_have_count(21)
    expect(queues.get_by_text("180 others, together")).to_be_visible()
    for title, others in (("What was dropped", "392 others"), ("Arrivals and departures", "192 others: arrived")):
        entries = section(page, title).locator(".legendtext")
        expect(entries).to_have_count(9)
        expect(entries.last).to_contain_text(others)
    for title in ("How long messages waited", "What a length limit"):
        expect(section(page, title).locator(".legendtext")).to_have_count(8)
    for chart in page.locator(".js-plotly-plot").all():
        texts = chart.locator(".legendtext").all()
        boxes = [box for box in (each.bounding_box() for each in texts) if box is not None]
        plot = chart.locator("rect.nsewdrag").first.bounding_box()
        assert plot is not None
        lowest = max([box["y"] + box["height"] for box in boxes], default=plot["y"])
        assert lowest <= plot["y"] + 2, "the legend is above the chart"
        places = sorted((round(box["y"]), box["x"], box["x"] + box["width"]) for box in boxes)
        for one, other in pairwise(places):
            assert one[0] != other[0] or one[2] <= other[1], "no entry is above another one"
    arrivals = section(page, "Arrivals and departures")
    lines = arrivals.locator(".scatterlayer .trace")
    expect(lines).to_have_count(16)
    arrivals.locator(".legendtoggle").last.click()
    expect(lines).to_have_count(18)
