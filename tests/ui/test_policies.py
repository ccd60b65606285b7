"""Policies and operator policies: the lists, adding with a dry run, the page of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.management import Management
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "policed"


@pytest.fixture
def set_policy(api: Management, vhost: str) -> Callable[..., None]:
    """Set a policy: name, pattern, definition, and how it differs from what is usual."""

    def put(name: str, pattern: str, definition: dict[str, Any], kind: str = "policies", **more: object) -> None:
        api.request("PUT", kind, vhost, name, body={"pattern": pattern, "definition": definition, **more})

    return put


def open_list(new_ui: NewUi, kind: str = "policies", **options: object) -> Ui:
    ui = new_ui(address=f"#/{kind}", **options)
    ui.choose("vhost", VHOST)
    return ui


def open_form(ui: Ui, title: str = "Add a policy") -> Locator:
    ui.main.get_by_text(title, exact=True).click()
    return ui.main.locator("form")


def fill_in(form: Locator, name: str, pattern: str, **keys: object) -> None:
    form.get_by_label("Virtual host").select_option(VHOST)
    form.get_by_role("textbox", name="Name").fill(name)
    form.get_by_role("textbox", name="Pattern").fill(pattern)
    for key, value in keys.items():
        label = key.replace("_", "-")
        form.get_by_role("button", name=label, exact=True).click()
        form.get_by_label(label, exact=True).fill(str(value))


def preview(form: Locator) -> Locator:
    form.get_by_role("button", name="Preview and save").click()
    return form.page.get_by_role("dialog")


def test_the_list_says_where_policies_are_in_force(
    new_ui: NewUi, declare: Callable[..., None], set_policy: Callable[..., None]
) -> None:
    declare("work.1")
    declare("work.2")
    set_policy("short", "^work", {"max-length": 20, "message-ttl": 86_400_000}, priority=2)
    set_policy("weak", "^work", {"max-length": 5})
    ui = open_list(new_ui)
    expect(ui.rows()).to_have_count(2)
    row = ui.row("short")
    expect(row.locator("code")).to_have_text("^work")
    expect(row).to_contain_text("message-ttl:86400000 (1d)")
    expect(row).to_contain_text("Exchanges and queues")
    cells = row.locator("td.numeric")
    expect(cells).to_have_text(["2", "2", "none"])
    expect(ui.row("weak").locator("td.numeric")).to_have_text(["0", "none", "none"])
    search = ui.main.get_by_role("searchbox")
    search.fill("WEA")
    expect(ui.rows()).to_have_count(1)
    search.fill("^(short|weak)$")
    expect(ui.main.get_by_text("No rows match the filter.")).to_be_visible()
    ui.main.get_by_label("regex").check()
    expect(ui.rows()).to_have_count(2)
    search.fill("(short")
    expect(ui.main.get_by_role("alert")).to_contain_text("check the regular expression")
    search.fill("")
    heading = ui.main.get_by_role("columnheader", name="Priority")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    expect(ui.rows().first).to_contain_text("short")
    heading.get_by_role("button").click()
    expect(ui.rows().first).to_contain_text("weak")
    ui.main.get_by_role("link", name="short").click()
    expect(ui.page).to_have_title("Policy short – Leveret")


def test_the_page_of_a_policy_explains_it_and_says_where_it_loses_and_why(
    new_ui: NewUi, declare: Callable[..., None], set_policy: Callable[..., None]
) -> None:
    declare("work.1", 3)
    declare("work.2")
    set_policy("short", "work", {"max-length": 4, "overflow": "drop-head"})
    set_policy("strong", "2$", {"max-length": 9}, priority=5)
    ui = new_ui(address=f"#/policies/{VHOST}/short")
    keys = ui.main.get_by_role("region", name="Definition").locator("tbody tr")
    expect(keys).to_have_count(2)
    expect(keys.first).to_contain_text("4 messages")
    expect(keys.first).to_contain_text("Maximum number of ready messages")
    expect(keys.first).to_contain_text("the smaller one counts")
    expect(ui.main.locator(".properties")).to_contain_text("1 queue, 0 exchanges")
    winner, loser = ui.row("work.1"), ui.row("work.2")
    expect(winner.get_by_title("this one is in force")).to_be_visible()
    expect(winner.get_by_role("img")).to_have_attribute("aria-label", "Fill: 75%")
    expect(winner.get_by_role("link")).to_have_attribute("href", f"#/queues/{VHOST}/work.1")
    expect(loser).to_contain_text("'strong' has the higher priority (5 against 0)")
    ui.choose("coverage", "true")
    expect(loser).to_have_count(0)
    expect(winner).to_be_visible()
    ui.choose("coverage", "false")
    expect(winner).to_have_count(0)
    loser.get_by_role("link", name="strong").click()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Policy strong")
    expect(ui.main.get_by_text("The pattern matches no exchanges.")).to_be_visible()


def test_what_would_be_dropped_is_shown_before_it_is_saved(
    new_ui: NewUi, api: Management, declare: Callable[..., None], assert_accessible: Callable[[Page], None]
) -> None:
    declare("work.1", 8)
    declare("work.2", 3)
    declare("work.3", 6, dead_letter_exchange="amq.fanout")
    declare("other", 5)
    ui = open_list(new_ui)
    form = open_form(ui)
    fill_in(form, "short", "^work", max_length=2, message_ttl=86_400_000)
    dialog = preview(form)
    expect(dialog).to_contain_text("It matches 3 queues, and would be in force on all of them.")
    expect(dialog).to_contain_text("11 messages (110 B) would leave their queues at once.")
    expect(dialog).to_contain_text(
        "Of these, 4 go to a dead-letter exchange; the others are lost. In all, 11 messages are lost."
    )
    rows = dialog.locator("tbody tr")
    expect(rows.locator("td:first-child")).to_have_text(["work.1", "work.3", "work.2"])
    expect(rows.first).to_contain_text("6 lost")
    expect(rows.nth(1)).to_contain_text("4 to amq.fanout")
    expect(rows.first).to_contain_text("max-length: none → 2")
    expect(rows.first).to_contain_text("message-ttl: none → 86400000 (1d)")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    assert_accessible(ui.page)
    ui.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert api.request("GET", "policies", VHOST) == []
    expect(form.get_by_label("max-length", exact=True)).to_have_value("2")
    preview(form)
    dialog.get_by_role("button", name="Save, and lose 11 messages").click()
    expect(ui.page.get_by_text("Policy short is saved, and in force on 3 queues.")).to_be_visible()
    expect(ui.row("short")).to_contain_text("max-length:2")
    expect(form.get_by_role("textbox", name="Pattern")).to_have_value("")
    (policy,) = api.request("GET", "policies", VHOST)
    assert (policy["pattern"], policy["definition"], policy["apply-to"], policy["priority"]) == (
        "^work",
        {"max-length": 2, "message-ttl": 86_400_000},
        "all",
        0,
    )


def test_hints_come_from_the_registry(new_ui: NewUi, vhost: str) -> None:
    ui = open_list(new_ui)
    form = open_form(ui)
    chip = form.get_by_role("button", name="max-length-bytes", exact=True)
    expect(chip).to_have_attribute("title", re.compile("^Maximum size of the bodies of ready messages;"))
    chip.click()
    expect(chip).to_have_count(0)
    value = form.get_by_label("max-length-bytes", exact=True)
    expect(value).to_be_focused()
    value.fill("1048576")
    expect(form.get_by_text("= 1 MiB")).to_be_visible()
    form.get_by_role("button", name="Preview and save").click()
    expect(form.get_by_text("Name is missing.")).to_be_visible()
    value.fill("-1")
    form.get_by_role("button", name="expires", exact=True).click()
    form.get_by_role("button", name="Preview and save").click()
    expect(form.get_by_text("max-length-bytes: 0 is the minimum.")).to_be_visible()
    form.get_by_role("button", name="Remove max-length-bytes").click()
    form.get_by_role("button", name="Preview and save").click()
    expect(form.get_by_text("expires: This must be a number.")).to_be_visible()
    form.get_by_role("button", name="Remove expires").click()
    form.get_by_role("button", name="Preview and save").click()
    expect(form.get_by_text("At least one key is required")).to_be_visible()


def test_an_address_opens_the_form_filled(new_ui: NewUi, declare: Callable[..., None]) -> None:
    pattern = r"^a+b?\.100%$"
    wanted = {"vhost": VHOST, "pattern": pattern, "apply-to": "queues", "definition": '{"max-length": 7}'}
    ui = new_ui(address=f"#/policies?{urlencode(wanted)}")
    form = ui.main.locator("form")
    expect(form.get_by_role("textbox", name="Name")).to_be_focused()
    expect(form.get_by_role("textbox", name="Pattern")).to_have_value(pattern)
    expect(form.get_by_label("Virtual host")).to_have_value(VHOST)
    expect(form.get_by_label("Applies to")).to_have_value("queues")
    expect(form.get_by_label("max-length", exact=True)).to_have_value("7")
    form.get_by_role("textbox", name="Name").fill("typed")
    ui.refresh()
    ui.refresh()
    expect(form.get_by_role("textbox", name="Name")).to_have_value("typed")


def test_change_begins_with_what_is_in_force(
    new_ui: NewUi, api: Management, declare: Callable[..., None], set_policy: Callable[..., None]
) -> None:
    declare("work.1", 3)
    definition = {"max-length": 4, "overflow": "reject-publish"}
    set_policy("short", "work", definition, priority=3, **{"apply-to": "queues"})
    ui = new_ui(address=f"#/policies/{VHOST}/short")
    ui.main.get_by_role("button", name="Change …").click()
    form = ui.main.locator("form")
    expect(form.get_by_role("textbox", name="Pattern")).to_have_value("work")
    expect(form.get_by_role("textbox", name="Priority")).to_have_value("3")
    expect(form.get_by_label("Applies to")).to_have_value("queues")
    expect(form.get_by_label("overflow", exact=True)).to_have_value("reject-publish")
    length = form.get_by_label("max-length", exact=True)
    expect(length).to_be_focused()
    length.fill("40")
    ui.refresh()
    expect(length).to_have_value("40")
    dialog = preview(form)
    expect(dialog.get_by_role("heading")).to_have_text("Change policy")
    expect(dialog).to_contain_text("max-length: 4 → 40")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(ui.main.get_by_role("region", name="Definition")).to_contain_text("40 messages")
    expect(form).to_be_hidden()
    assert api.request("GET", "policies", VHOST, "short")["definition"] == {**definition, "max-length": 40}


def test_deleting_asks_and_says_what_it_touches(
    new_ui: NewUi, api: Management, declare: Callable[..., None], set_policy: Callable[..., None]
) -> None:
    declare("work.1")
    set_policy("short", "^work", {"max-length": 4})
    ui = new_ui(address=f"#/policies/{VHOST}/short")
    ui.main.get_by_role("button", name="Delete …").click()
    dialog = ui.page.get_by_role("dialog", name="Delete policy")
    expect(dialog).to_contain_text("short")
    expect(dialog).to_contain_text("It is in force on 1 queue, 0 exchanges.")
    # A question goes with its page.
    ui.go("#/policies")
    expect(dialog).to_have_count(0)
    ui.page.go_back()
    ui.main.get_by_role("button", name="Delete …").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(ui.page).to_have_title("Policies – Leveret")
    expect(ui.page.get_by_text("Policy short is deleted.")).to_be_visible()
    assert api.request("GET", "policies", VHOST) == []


def test_operator_policies_offer_their_own_keys(new_ui: NewUi, api: Management, declare: Callable[..., None]) -> None:
    declare("work.1", 3)
    ui = open_list(new_ui, "operator-policies")
    form = open_form(ui, "Add an operator policy")
    expect(form.get_by_role("button", name="max-length", exact=True)).to_be_visible()
    for key in ("queue-mode", "alternate-exchange", "dead-letter-exchange"):
        expect(form.get_by_role("button", name=key, exact=True)).to_have_count(0)
    fill_in(form, "cap", ".*", max_length=2)
    dialog = preview(form)
    dialog.get_by_role("button", name="Save, and lose 1 message").click()
    ui.main.get_by_role("link", name="cap").click()
    expect(ui.page).to_have_title("Operator policy cap – Leveret")
    expect(ui.row("work.1")).to_be_visible()
    expect(ui.main.locator(".properties")).to_contain_text("1 queue")
    ui.main.get_by_role("button", name="Change …").click()
    expect(ui.main.locator("form").get_by_label("max-length", exact=True)).to_have_value("2")
    ui.main.get_by_role("button", name="Delete …").click()
    ui.page.get_by_role("dialog", name="Delete operator policy").get_by_role("button", name="Delete").click()
    expect(ui.main.get_by_text("There are no operator policies here.")).to_be_visible()
    assert api.request("GET", "operator-policies", VHOST) == []
