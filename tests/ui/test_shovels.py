"""The page with the shovels."""

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


def test_shovels_are_shown_restarted_and_deleted(new_ui: NewUi, broker: LeveretProcess) -> None:
    api = Management(broker.http_url)
    ui = new_ui(url=broker.http_url, address="#/shovels")
    expect(ui.main).to_contain_text("There are no shovels.")
    value = {"src-uri": "amqp://", "src-queue": "here", "dest-uri": "amqp://", "dest-queue": "there"}
    api.request("PUT", "parameters", "shovel", "/", "move", body={"value": value})
    ui.page.reload()
    row = ui.main.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("queue here")
    expect(row).to_contain_text("queue there")
    row.get_by_role("button", name="Restart shovel move").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Restart", exact=True).click()
    expect(ui.page.get_by_text("Shovel move has been restarted.")).to_be_visible()
    row.get_by_role("button", name="Delete shovel move").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(ui.main).to_contain_text("There are no shovels.")
    assert api.request("GET", "parameters", "shovel") == []
