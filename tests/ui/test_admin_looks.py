"""How the pages of policies, losses and administration look: light and dark, wide and narrow, for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "looked at"
USER: Final = "looked at, too"
#: Addresses, and what is there when the page is.
PAGES: Final = {
    "#/policies": "link=short",
    "#/policies/looked%20at/short": "link=work.0",
    "#/operator-policies": "link=cap",
    "#/operator-policies/looked%20at/cap": "link=work.0",
    "#/losses": "link=work.0",
    "#/users": f"link={USER}",
    "#/users/looked%20at%2C%20too": "heading=Limits",
    "#/vhosts": f"link={VHOST}",
    "#/vhosts/looked%20at": "heading=Limits",
    "#/limits": f"link={VHOST}",
}


@pytest.fixture(scope="module")
def filled(broker: LeveretProcess) -> Iterator[None]:
    """Something of everything."""
    api = Management(broker.http_url)
    api.request("PUT", "vhosts", VHOST, body={"description": "Something of everything", "tracing": True})
    api.request("PUT", "users", USER, body={"password": "secret", "tags": "management,policymaker"})
    api.request("PUT", "permissions", VHOST, USER, body={"configure": "", "write": "^orders$", "read": ".*"})
    body = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    api.request("PUT", "topic-permissions", VHOST, USER, body=body)
    api.request("PUT", "user-limits", USER, "max-channels", body={"value": 100_000})
    api.request("PUT", "vhost-limits", VHOST, "max-queues", body={"value": 100_000})
    for number in range(25):
        api.request("PUT", "queues", VHOST, f"work.{number}", body={})
    definition = {
        "max-length": 4,
        "max-length-bytes": 1_048_576,
        "overflow": "drop-head",
        "dead-letter-exchange": "late",
    }
    api.request("PUT", "policies", VHOST, "short", body={"pattern": "^work", "definition": definition})
    api.request("PUT", "policies", VHOST, "strong", body={"pattern": "1", "definition": definition, "priority": 3})
    api.request("PUT", "operator-policies", VHOST, "cap", body={"pattern": "", "definition": {"expires": 86_400_000}})
    message = {"properties": {}, "routing_key": "work.0", "payload": "x", "payload_encoding": "string"}
    for _ in range(6):
        api.request("POST", "exchanges", VHOST, "amq.default", "publish", body=message)
    yield
    api.request("DELETE", "vhosts", VHOST)
    api.request("DELETE", "users", USER)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_every_page_is_for_everybody(
    filled: None,
    new_ui: NewUi,
    width: int,
    scheme: str,
    assert_accessible: Callable[[Page], None],
    screenshot: Callable[[Page, str], Path],
) -> None:
    ui = new_ui(viewport={"width": width, "height": 740}, color_scheme=scheme)
    ui.choose("vhost", VHOST)
    for address, sign in PAGES.items():
        ui.go(address)
        role, _, name = sign.partition("=")
        there = ui.main.get_by_role("link" if role == "link" else "heading", name=name, exact=True)
        expect(there).to_be_visible()
        ui.main.locator("details.folded").evaluate_all("all => all.forEach((each) => { each.open = true; })")
        assert ui.page.evaluate("document.documentElement.scrollWidth") <= width, address
        assert_accessible(ui.page)
        screenshot(ui.page, address.strip("#/").replace("/", "-") or "overview")


def test_the_preview_is_for_everybody(
    filled: None, new_ui: NewUi, assert_accessible: Callable[[Page], None], screenshot: Callable[[Page, str], Path]
) -> None:
    ui = new_ui(
        address=f"#/policies/{VHOST.replace(' ', '%20')}/short",
        viewport={"width": 360, "height": 740},
        color_scheme="dark",
    )
    ui.main.get_by_role("button", name="Change …").click()
    form = ui.main.locator("form")
    form.get_by_label("max-length", exact=True).fill("1")
    form.get_by_role("button", name="Preview and save").click()
    expect(ui.page.get_by_role("dialog")).to_contain_text("3 messages")
    assert ui.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert_accessible(ui.page)
    screenshot(ui.page, "")


def test_by_keyboard_alone(filled: None, new_ui: NewUi, api: Management) -> None:
    """A policy is changed without the pointer, and the focus is back where it was."""
    ui = new_ui(address=f"#/policies/{VHOST.replace(' ', '%20')}/strong")
    keyboard = ui.page.keyboard
    change = ui.main.get_by_role("button", name="Change …")
    change.focus()
    keyboard.press("Enter")
    expect(ui.main.locator("form").get_by_label("max-length", exact=True)).to_be_focused()
    keyboard.press("Control+a")
    keyboard.type("5000")
    keyboard.press("Enter")
    dialog = ui.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Save", exact=True)).to_be_focused()
    keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(ui.main.get_by_text("5,000 messages")).to_be_visible()
    assert api.request("GET", "policies", VHOST, "strong")["definition"]["max-length"] == 5000
