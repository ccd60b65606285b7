"""The list of queues, and adding one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from playwright.sync_api import Locator, expect

from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "queues listed"


def open_list(new_ui: NewUi, **options: object) -> Ui:
    ui = new_ui(address="#/queues", **options)
    ui.choose("vhost", VHOST)
    return ui


def bar(row: Locator) -> Locator:
    return row.get_by_role("img")


def test_a_row_says_what_a_queue_is(new_ui: NewUi, api: Management, vhost: str, declare: Callable[..., None]) -> None:
    definition = {
        "max-length": 20,
        "dead-letter-exchange": "late",
        "dead-letter-routing-key": "k",
        "queue-mode": "lazy",
    }
    policy = {"pattern": "^full$", "definition": definition, "apply-to": "queues", "priority": 0}
    api.request("PUT", "policies", vhost, "bounded", body=policy)
    cap = {"pattern": "", "definition": {"max-length-bytes": 1000, "expires": 9_000_000}, "apply-to": "queues"}
    api.request("PUT", "operator-policies", vhost, "cap", body=cap)
    declare("full", 10, message_ttl=60_000, max_priority=3, single_active_consumer=True, overflow="drop-head", other=1)
    declare("q", 0, queue_type="quorum")
    ui = open_list(new_ui)
    row = ui.row("full")
    marks = row.locator("td").filter(has_text="Lazy").locator("abbr.badge")
    expect(marks).to_have_text(["D", "Lazy", "Lim", "Lim B", "Ovfl", "DLX", "DLK", "TTL", "Exp", "Pri", "SAC", "Args"])
    expect(marks.nth(2)).to_have_attribute("title", re.compile(r"^max-length: 20, by policy – .+"))
    expect(marks.nth(7)).to_have_attribute("title", re.compile(r"^message-ttl: 60000 – .+"))
    expect(marks.nth(11)).to_have_attribute("title", "x-other: 1")
    expect(row.get_by_role("link", name="full")).to_have_attribute("href", "#/queues/queues%20listed/full")
    bounded = "#/policies/queues%20listed/bounded"
    expect(row.get_by_role("link", name="bounded")).to_have_attribute("href", bounded)
    cap_page = "#/operator-policies/queues%20listed/cap"
    expect(row.get_by_role("link", name="cap")).to_have_attribute("href", cap_page)
    expect(bar(row)).to_have_attribute("aria-label", "Messages: 10 of 20, 50%")
    expect(bar(row)).to_have_attribute("title", re.compile("limit by policy; when it is full, the oldest messages are"))
    expect(row).to_contain_text("100 B")
    expect(ui.row("q")).to_contain_text("quorum")


def test_the_fullest_queue_is_one_click_away(new_ui: NewUi, declare: Callable[..., None]) -> None:
    declare("a", 8)
    declare("b", 4, max_length=5)
    declare("c", 1, max_length_bytes=10)
    ui = open_list(new_ui)
    expect(ui.row("a")).to_contain_text("no limit")
    ui.main.get_by_role("columnheader", name="Fill").get_by_role("button").click()
    expect(ui.main.locator("tbody td.name")).to_have_text(["c", "b", "a"])
    expect(bar(ui.row("c"))).to_have_attribute("aria-label", "Bytes: 10 B of 10 B, 100%")


#: The names of a page that are broken inside a word, at another place than after a separator.
BROKEN: Final = """() => [...document.querySelectorAll(".name-text")].filter((name) => {
    const words = [...name.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    return words.some((word) => {
        const range = document.createRange();
        range.selectNodeContents(word);
        return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
    });
}).map((name) => name.textContent)"""


def test_a_phone_shows_first_what_matters(new_ui: NewUi, declare: Callable[..., None]) -> None:
    name = "payments.settlement_retries.after-the-timeout:of/the-provider"
    declare(name, 5, max_length=5)
    ui = open_list(new_ui, viewport={"width": 390, "height": 844})
    row = ui.row(name)
    expect(bar(row)).to_be_in_viewport(ratio=1)
    for column, text in (("Ready", "5"), ("State", "running")):
        heading = ui.main.get_by_role("columnheader", name=column, exact=True)
        expect(heading).to_be_in_viewport(ratio=0.99)
        expect(row.get_by_text(text, exact=True).first).to_be_in_viewport(ratio=1)
    assert ui.page.evaluate(BROKEN) == []
    row.get_by_role("link", name=name).click()
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text(name)
    assert ui.page.locator("header.top").evaluate("head => head.clientHeight") < 60
    menu = ui.page.get_by_role("button", name="Menu")
    expect(ui.page.get_by_role("button", name="Log out")).to_be_hidden()
    menu.click()
    expect(ui.page.get_by_role("button", name="Log out")).to_be_in_viewport(ratio=1)
    ui.page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    expect(ui.page.get_by_role("button", name="Log out")).to_be_hidden()


def test_adding_a_queue(new_ui: NewUi, api: Management, vhost: str, console: Console) -> None:
    console.allow(400)
    ui = open_list(new_ui)
    expect(ui.main.get_by_text("There are no queues here.")).to_be_visible()
    ui.main.get_by_text("Add a queue").click()
    form = ui.main.locator("form")
    form.get_by_label("Name").first.fill("made")
    form.get_by_role("button", name="max-length", exact=True).click()
    value = form.get_by_role("textbox", name="Value").first
    expect(value).to_be_focused()
    expect(value).to_have_attribute("placeholder", "0 or more messages")
    value.fill("-1")
    form.get_by_role("button", name="Add queue").click()
    expect(form.get_by_role("alert")).to_contain_text("{value_negative,-1}")
    value.fill("12")
    form.get_by_label("Auto-delete").check()
    form.get_by_role("button", name="Add queue").click()
    expect(form.get_by_role("status")).to_have_text("Queue made has been added.")
    expect(ui.row("made")).to_be_visible()
    made = api.request("GET", "queues", vhost, "made")
    assert (made["durable"], made["auto_delete"], made["arguments"]) == (True, True, {"x-max-length": 12})


def test_adding_a_classic_queue_where_queues_are_quorum_queues(new_ui: NewUi, api: Management, vhost: str) -> None:
    api.request("PUT", "vhosts", vhost, body={"default_queue_type": "quorum"})
    ui = open_list(new_ui)
    ui.main.get_by_text("Add a queue").click()
    form = ui.main.locator("form")
    form.get_by_label("Name").first.fill("classic after all")
    form.get_by_role("button", name="Add queue").click()
    expect(ui.row("classic after all")).to_be_visible()
    assert api.request("GET", "queues", vhost, "classic after all")["type"] == "classic"
