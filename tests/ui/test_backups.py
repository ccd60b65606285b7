"""The page with the backups that the broker takes, and what the overview says about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.integration.test_backup import publish, settle
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


@pytest.fixture
def backed_up(tmp_path: Path, console: Console) -> Iterator[LeveretProcess]:
    """A broker that takes backups."""
    settings: dict[str, object] = {"backup.url": tmp_path / "backup", "backup.log_interval": "1s"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        yield process
        console.leave()


def test_backups_are_shown(new_ui: NewUi, backed_up: LeveretProcess, tmp_path: Path) -> None:
    api = Management(backed_up.http_url)
    api.request("PUT", "queues", "/", "q", body={"durable": True})
    wait_until(lambda: api.request("GET", "backups")["backups"], "a backup")
    ui = new_ui(url=backed_up.http_url, address="#/backups")
    facts = ui.main.locator("dl.properties").first
    expect(facts).to_contain_text(str(tmp_path / "backup"))
    rows = ui.main.get_by_role("region", name="backups").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text(" ago")
    expect(ui.main.locator(".notice").locator("visible=true")).to_have_count(0)


def test_a_queue_that_was_purged_is_restored(new_ui: NewUi, backed_up: LeveretProcess, console: Console) -> None:
    console.allow(400)
    api = Management(backed_up.http_url)
    api.request("PUT", "queues", "/", "orders", body={"durable": True})
    wait_until(lambda: api.request("GET", "backups")["backups"], "a backup")
    with Connection(backed_up.url) as connection:
        channel = connection.channel()
        publish(channel, "orders", [b"%d" % number for number in range(300)])
        moment = settle(backed_up)
        channel.queue_purge("orders")
    later = settle(backed_up) // 1000
    wait_until(lambda: any(each["to"] >= later for each in api.request("GET", "backups")["restorable"]), "the rest")
    ui = new_ui(url=backed_up.http_url, address="#/backups")
    ui.main.locator("input[name=name]").fill("orders")
    ui.main.locator("input[name=at]").fill("2001-01-01T00:00:00Z")
    ui.main.get_by_role("button", name="Restore …").click()
    expect(ui.main).to_contain_text("has no backup of 2001-01-01T00:00:00.000Z")
    at = datetime.fromtimestamp(moment / 1e6 + 0.001, UTC).isoformat(timespec="milliseconds")
    ui.main.locator("input[name=at]").fill(at)
    ui.main.locator("input[name=rate]").fill("100")
    ui.main.get_by_role("button", name="Restore …").click()
    dialog = ui.page.get_by_role("dialog", name="Restore a queue")
    expect(dialog).to_contain_text("300 messages will be published into the queue orders.restored.")
    dialog.get_by_role("button", name="Restore").click()
    expect(ui.page).to_have_title(re.compile("^Job .* – Leveret"))
    ui.choose("refresh", "1")
    expect(ui.main.get_by_role("progressbar")).to_have_attribute("aria-label", re.compile(r"Progress: \d+ of 300"))
    ui.main.get_by_role("button", name=re.compile("^Cancel job")).click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(ui.main.locator("dl.properties").first).to_contain_text("cancelled")
    restored = api.request("GET", "queues", "/", "orders.restored")
    assert 0 < restored["messages"] <= 300


def test_the_overview_warns_of_a_backup_that_is_old_or_failed(new_ui: NewUi, backed_up: LeveretProcess) -> None:
    changed: dict[str, object] = {}
    ui = new_ui(url=backed_up.http_url)

    def answer(route: Route) -> None:
        found = route.fetch()
        route.fulfill(response=found, json={**found.json(), **changed})

    ui.page.route(re.compile("/api/backups$"), answer)
    ui.choose("refresh", "1")
    problems = ui.main.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("No queue is full")
    changed |= {"error": "the bucket is away", "failures": 2}
    expect(problems.locator(".problem.warning")).to_contain_text("The last backup has failed")
    expect(problems).to_contain_text("the bucket is away")
    changed |= {"late": True, "age": 7200}
    expect(problems.locator(".problem.bad")).to_contain_text("The last backup is 2h old")
    problems.get_by_role("link", name="Backups").click()
    expect(ui.main.locator(".notice.error").locator("visible=true")).to_contain_text(
        "The last backup is 2h old. the bucket is away. 2 failures since the broker's start."
    )


def test_a_broker_without_backups(new_ui: NewUi) -> None:
    ui = new_ui(address="#/backups")
    expect(ui.main).to_contain_text("The broker takes no backups.")
