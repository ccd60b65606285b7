"""The list of exchanges, and with it what all lists can."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST = "listed"


@pytest.fixture
def listed(api: Management, new_ui: NewUi) -> Iterator[Ui]:
    """A virtual host with 32 exchanges."""
    api.request("PUT", "vhosts", VHOST)
    for number in range(25):
        kind = "topic" if number % 2 else "fanout"
        api.request("PUT", "exchanges", VHOST, f"x{number:02}", body={"type": kind, "durable": number < 10})
    ui = new_ui(address="#/exchanges")
    ui.choose("vhost", VHOST)
    expect(ui.rows()).to_have_count(32)
    yield ui
    api.request("DELETE", "vhosts", VHOST)


def names(ui: Ui) -> list[str]:
    return ui.main.locator("tbody td.name").all_inner_texts()


def test_the_filter_takes_text_and_regular_expressions(listed: Ui, console: Console) -> None:
    search = listed.main.get_by_role("searchbox")
    search.fill("X0")
    expect(listed.rows()).to_have_count(10)
    expect(listed.main.get_by_text("10 of 32 exchanges")).to_be_visible()
    search.fill("x0[1-3]")
    expect(listed.main.get_by_text("No rows match the filter.")).to_be_visible()
    listed.main.get_by_label("regex").check()
    expect(listed.rows()).to_have_count(3)
    console.allow(400)
    search.fill("x0[1-")
    expect(listed.main.get_by_role("alert")).to_contain_text("check the regular expression")
    expect(listed.rows()).to_have_count(3)
    search.fill("x0[1-2]")
    expect(listed.rows()).to_have_count(2)
    expect(listed.main.get_by_role("alert")).to_have_count(0)


def test_sorting_by_a_heading(listed: Ui) -> None:
    heading = listed.main.get_by_role("columnheader", name="Name")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    assert names(listed)[:2] == ["(AMQP default)", "amq.direct"]
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(listed.main.locator("tbody td.name").first).to_have_text("x24")


def test_pages(listed: Ui) -> None:
    pager = listed.main.get_by_role("navigation", name="Pages")
    pager.get_by_role("combobox").select_option("20")
    expect(listed.rows()).to_have_count(20)
    expect(pager).to_contain_text("Page 1 of 2")
    pager.get_by_role("button", name="Next").click()
    expect(listed.rows()).to_have_count(12)
    expect(pager.get_by_role("button", name="Next")).to_be_disabled()
    listed.main.get_by_role("searchbox").fill("x")
    expect(pager).to_contain_text("Page 1 of 2")


def test_columns_are_chosen_and_remembered(listed: Ui) -> None:
    headings = listed.main.get_by_role("columnheader")
    expect(headings.filter(has_text="Type")).to_have_count(1)
    listed.main.get_by_text("Columns").click()
    listed.main.locator(".menu").get_by_label("Type").uncheck()
    expect(headings.filter(has_text="Type")).to_have_count(0)
    listed.page.reload()
    expect(listed.rows()).to_have_count(32)
    expect(headings.filter(has_text="Type")).to_have_count(0)
    listed.main.get_by_text("Columns").click()
    listed.main.get_by_role("button", name="Restore the default").click()
    expect(headings.filter(has_text="Type")).to_have_count(1)
    listed.page.keyboard.press("Escape")
    expect(listed.main.get_by_role("button", name="Restore the default")).to_be_hidden()
