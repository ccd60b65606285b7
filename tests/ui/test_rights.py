"""What users see and can do by their tags; what the pages do not offer, the API refuses, and its words are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
PASSWORD: Final = "secret"
#: The tags whose rights a tag gives.
GIVEN: Final = {
    "management": {"management"},
    "policymaker": {"management", "policymaker"},
    "monitoring": {"management", "monitoring"},
    "administrator": {"management", "policymaker", "monitoring", "administrator"},
}
TABS: Final = [
    *("Overview", "Connections", "Channels", "Exchanges", "Queues", "Policies", "Losses", "Jobs", "SQL", "Admin")
]
BELOW_ADMIN: Final = {
    "Users": "administrator",
    "Virtual hosts": "administrator",
    "Limits": "management",
    "Operator policies": "management",
    "Shovels": "monitoring",
    "Audit log": "monitoring",
    "Backups": "monitoring",
    "Replication": "monitoring",
}
#: What is offered on a page – a part of it, a button or a link – and the tag that it takes.
OFFERED: Final = [
    ("#/", "Node", "monitoring"),
    ("#/", "Definitions", "administrator"),
    ("#/exchanges", "Add an exchange", "management"),
    ("#/queues", "Add a queue", "management"),
    ("#/policies", "Add a policy", "policymaker"),
    ("#/operator-policies", "Add an operator policy", "administrator"),
    ("#/policies/%2F/ruled", "Delete …", "policymaker"),
    ("#/queues/%2F/ruled", "Add a policy for this queue", "policymaker"),
    ("#/jobs", "Cancel …", "administrator"),
    ("#/vhosts", "Add a virtual host", "administrator"),
    ("#/limits", "Set limit", "administrator"),
]
#: Pages that a user can have the address of, though they take the tag administrator.
GUARDED: Final = ("#/users", "#/users/guest", "#/vhosts/%2F")
REFUSAL: Final = "Not administrator user"


@pytest.fixture(scope="module")
def tagged(broker: Any) -> Iterator[None]:
    """A user for each tag, which may do anything in the virtual host; a queue with a policy and a job of guest."""
    api = Management(broker.http_url)
    for tag in GIVEN:
        api.request("PUT", "users", f"has-{tag}", body={"password": PASSWORD, "tags": tag})
        api.request("PUT", "permissions", "/", f"has-{tag}", body={"configure": ".*", "write": ".*", "read": ".*"})
    api.request("PUT", "policies", "/", "ruled", body={"pattern": "^ruled$", "definition": {"max-length": 9}})
    message = {"properties": {}, "routing_key": "ruled", "payload": "x", "payload_encoding": "string"}
    for queue in ("ruled", "target"):
        api.request("PUT", "queues", "/", queue, body={})
    for _ in range(4):
        api.request("POST", "exchanges", "/", "amq.default", "publish", body=message)
    api.request("POST", "queues", "/", "ruled", "move-messages", body={"to": "target", "job": True, "rate": 0.01})
    yield
    for queue in ("ruled", "target"):
        api.request("DELETE", "queues", "/", queue)
    api.request("DELETE", "policies", "/", "ruled")
    for tag in GIVEN:
        api.request("DELETE", "users", f"has-{tag}")


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize("tag", GIVEN)
def test_tabs_and_actions_are_those_of_the_tag(new_ui: NewUi, tag: str, console: Console) -> None:
    console.allow(401)
    ui = new_ui(user=f"has-{tag}", password=PASSWORD)
    expect(ui.page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_text(TABS)
    ui.tab("Admin").click()
    below = [name for name, needed in BELOW_ADMIN.items() if needed in GIVEN[tag]]
    expect(ui.page.get_by_role("navigation", name="Admin").get_by_role("link")).to_have_text(below)
    expect(ui.main.get_by_role("heading", level=1)).to_have_text(below[0])
    for address, title, needed in OFFERED:
        ui.go(address)
        part = ui.main.locator("section h2, details summary, button, a").get_by_text(title, exact=True)
        # What the page asks the API for first has come when its last part is there.
        expect(ui.main.locator(".section, .empty, tbody").first).to_be_visible()
        if needed in GIVEN[tag]:
            expect(part.first).to_be_visible()
        else:
            expect(part).to_have_count(0)
    expect(ui.page.locator(".shell > .notice.error").locator("visible=true")).to_have_count(0)
    for address in GUARDED:
        ui.go(address)
        refused = ui.page.get_by_role("alert").filter(has_text=REFUSAL).locator("visible=true")
        expect(refused).to_have_count(0 if tag == "administrator" else 1)
        assert tag == "administrator" or ui.main.locator("form, table").count() == 0


@pytest.mark.usefixtures("tagged")
def test_rights_that_are_taken_away_are_gone_at_once(new_ui: NewUi, api: Management, console: Console) -> None:
    console.allow(401)
    api.request("PUT", "users", "demoted", body={"password": PASSWORD, "tags": "administrator"})
    ui = new_ui(user="demoted", password=PASSWORD, address="#/users")
    expect(ui.row("demoted")).to_be_visible()
    api.request("PUT", "users", "demoted", body={"password": PASSWORD, "tags": "management"})
    ui.refresh()
    expect(ui.page.get_by_text("Your session has ended. Please log in again.")).to_be_visible()
    ui.enter("demoted", PASSWORD)
    expect(ui.page.get_by_role("alert").filter(has_text=REFUSAL)).to_be_visible()
    expect(ui.rows()).to_have_count(0)
    api.request("DELETE", "users", "demoted")


def test_a_refusal_stands_where_the_action_is(new_ui: NewUi, api: Management, console: Console) -> None:
    console.allow(400, 401, 403)
    api.request("PUT", "queues", "/", "closed", body={})
    api.request("PUT", "users", "reader", body={"password": PASSWORD, "tags": "management"})
    api.request("PUT", "permissions", "/", "reader", body={"configure": "", "write": "", "read": "^amq"})
    ui = new_ui(user="reader", password=PASSWORD, address="#/exchanges")
    for address, title, button in (
        ("#/exchanges/%2F/amq.topic", "Publish a message", "Publish"),
        ("#/queues", "Add a queue", "Add queue"),
        ("#/queues/%2F/closed", "Get messages", "Get messages"),
    ):
        ui.go(address)
        ui.main.locator("summary").get_by_text(title, exact=True).click()
        form = ui.main.locator("details[open] form")
        if title == "Add a queue":
            form.get_by_label("Name").first.fill("forbidden")
        form.get_by_role("button", name=button, exact=True).click()
        expect(form.get_by_role("alert").locator("visible=true")).to_contain_text("refused", ignore_case=True)
    ui.main.locator("summary").get_by_text("Delete", exact=True).click()
    ui.main.get_by_role("button", name="Delete …").click()
    dialog = ui.page.get_by_role("dialog", name="Delete queue")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("refused")
    dialog.get_by_role("button", name="Cancel").click()
    api.request("DELETE", "queues", "/", "closed")
    api.request("DELETE", "users", "reader")
