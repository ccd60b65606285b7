"""The page with the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


@pytest.fixture
def broker(tmp_path: Path, console: Console) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path) as process:
        yield process
        console.leave()


def test_the_log_is_searched_and_turned_over(new_ui: NewUi, broker: LeveretProcess, console: Console) -> None:
    console.allow(400)
    api = Management(broker.http_url)
    for number in range(101):
        api.request("PUT", "queues", "/", f"q{number}", body={})
    api.request("DELETE", "queues", "/", "q7", "contents")
    ui = new_ui(url=broker.http_url, address="#/audit")
    rows = ui.main.locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text("queue.purged")
    expect(rows.first).to_contain_text("127.0.0.1")
    ui.main.get_by_role("button", name="Older").click()
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("q0")
    ui.main.get_by_label("What").fill("queue.created")
    ui.main.get_by_label("Object").fill("q7")
    ui.main.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("guest")
    ui.main.get_by_label("User").fill("nobody")
    ui.main.get_by_role("button", name="Search").click()
    expect(ui.main).to_contain_text("Nothing was found.")
    ui.main.get_by_label("Since").fill("yesterday")
    ui.main.get_by_role("button", name="Search").click()
    expect(ui.main).to_contain_text("Invalid since: yesterday")
