"""What users see and can do by their tags; what the pages do not offer, the API refuses, and its words are shown."""

from __future__ import annotations

import json
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
TABS: Final = ["Overview", "Connections", "Channels", "Exchanges", "Queues", "Policies", "Losses", "Jobs", "Admin"]
BELOW_ADMIN: Final = {
    "Users": "administrator",
    "Virtual hosts": "administrator",
    "Limits": "management",
    "Operator policies": "management",
}
#: What is offered on a page – the title of a part of it – and the tag that it takes.
OFFERED: Final = [
    ("#/", "Node", "monitoring"),
    ("#/", "Definitions", "administrator"),
    ("#/exchanges", "Add an exchange", "management"),
    ("#/queues", "Add a queue", "management"),
    ("#/policies", "Add a policy", "policymaker"),
    ("#/operator-policies", "Add an operator policy", "administrator"),
]
#: Pages that a user can have the address of, and the tag that they take.
GUARDED: Final = [("#/users", "administrator"), ("#/users/guest", "administrator")]
WORDS: Final = {
    "administrator": "Not administrator user",
    "monitoring": "Not monitor user",
    "policymaker": "User not authorised to access object",
}
LIMIT: Final = {"pattern": "^never$", "definition": {"max-length": 1}}
#: Requests that change nothing if they are refused, and the tag that they take.
REQUESTS: Final[list[tuple[str, str, Any, str]]] = [
    ("GET", "users", None, "administrator"),
    ("PUT", "users/made", {"password": "x", "tags": "administrator"}, "administrator"),
    ("PUT", "vhosts/made", {}, "administrator"),
    ("PUT", "permissions/%2F/guest", {"configure": "", "write": "", "read": ""}, "administrator"),
    ("PUT", "vhost-limits/%2F/max-queues", {"value": 0}, "administrator"),
    ("PUT", "operator-policies/%2F/made", LIMIT, "administrator"),
    ("POST", "definitions", {"vhosts": [{"name": "made"}]}, "administrator"),
    ("GET", "nodes", None, "monitoring"),
    ("PUT", "policies/%2F/made", LIMIT, "policymaker"),
]
ASK: Final = """async ([method, path, body]) => {
    const headers = {"X-Leveret-UI": "1", "Content-Type": "application/json"};
    const response = await fetch(`api/${path}`, {method, headers, body});
    return [response.status, await response.text()];
}"""


@pytest.fixture(scope="module")
def tagged(broker: Any) -> Iterator[None]:
    """A user for each tag, which may do anything in the virtual host."""
    api = Management(broker.http_url)
    for tag in (*GIVEN, ""):
        api.request("PUT", "users", f"has-{tag}", body={"password": PASSWORD, "tags": tag})
        api.request("PUT", "permissions", "/", f"has-{tag}", body={"configure": ".*", "write": ".*", "read": ".*"})
    yield
    for tag in (*GIVEN, ""):
        api.request("DELETE", "users", f"has-{tag}")


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize("tag", GIVEN)
def test_tabs_and_actions_are_those_of_the_tag(new_ui: NewUi, tag: str) -> None:
    ui = new_ui(user=f"has-{tag}", password=PASSWORD)
    expect(ui.page.get_by_role("navigation", name="Main").get_by_role("link")).to_have_text(TABS)
    ui.tab("Admin").click()
    below = [name for name, needed in BELOW_ADMIN.items() if needed in GIVEN[tag]]
    expect(ui.page.get_by_role("navigation", name="Admin").get_by_role("link")).to_have_text(below)
    expect(ui.main.get_by_role("heading", level=1)).to_have_text(below[0])
    for address, title, needed in OFFERED:
        ui.go(address)
        part = ui.main.locator("section h2, details summary").get_by_text(title, exact=True)
        # What the page asks the API for first has come when its last part is there.
        expect(ui.main.locator(".section, .empty, tbody").first).to_be_visible()
        expect(part).to_have_count(1 if needed in GIVEN[tag] else 0)
    expect(ui.page.locator(".shell > .notice.error").locator("visible=true")).to_have_count(0)


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize("tag", GIVEN)
def test_the_api_refuses_what_is_not_offered(new_ui: NewUi, tag: str, api: Management, console: Console) -> None:
    console.allow(401)
    ui = new_ui(user=f"has-{tag}", password=PASSWORD)
    for method, path, body, needed in REQUESTS:
        if needed in GIVEN[tag]:
            continue
        status, text = ui.page.evaluate(ASK, [method, path, None if body is None else json.dumps(body)])
        assert (status, json.loads(text)["reason"]) == (401, WORDS[needed]), (method, path)
    assert "made" not in [each["name"] for kind in ("users", "vhosts", "policies") for each in api.request("GET", kind)]
    for address, needed in GUARDED:
        ui.go(address)
        refused = ui.page.get_by_role("alert").filter(has_text=WORDS[needed])
        expect(refused.locator("visible=true")).to_have_count(0 if needed in GIVEN[tag] else 1)
        expect(ui.main.get_by_text("password_hash")).to_have_count(0)


@pytest.mark.usefixtures("tagged")
def test_without_a_tag_nobody_gets_in(new_ui: NewUi, console: Console) -> None:
    console.allow(401)
    ui = new_ui(user=None)
    ui.enter("has-", PASSWORD)
    expect(ui.page.get_by_role("alert")).to_have_text(WORDS["administrator"].replace("administrator", "management"))
    expect(ui.page.get_by_role("navigation")).to_have_count(0)


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
    expect(ui.page.get_by_role("alert").filter(has_text=WORDS["administrator"])).to_be_visible()
    expect(ui.rows()).to_have_count(0)
    api.request("DELETE", "users", "demoted")


def test_a_user_sees_only_its_virtual_hosts(new_ui: NewUi, api: Management, console: Console) -> None:
    console.allow(401)
    for vhost in ("his", "hers"):
        api.request("PUT", "vhosts", vhost)
        api.request("PUT", "queues", vhost, f"queue-of-{vhost}", body={})
    api.request("PUT", "users", "he", body={"password": PASSWORD, "tags": "policymaker"})
    api.request("PUT", "permissions", "his", "he", body={"configure": ".*", "write": ".*", "read": ".*"})
    ui = new_ui(user="he", password=PASSWORD, address="#/queues")
    expect(ui.rows()).to_have_count(1)
    expect(ui.row("queue-of-his")).to_be_visible()
    expect(ui.page.locator("#choose-vhost option")).to_have_text(["All", "his"])
    ui.go("#/queues/hers/queue-of-hers")
    expect(ui.page.get_by_role("alert").filter(has_text="User not authorised to access virtual host")).to_be_visible()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Queue queue-of-hers")
    expect(ui.main).not_to_contain_text("Settings")
    api.request("DELETE", "users", "he")
    for vhost in ("his", "hers"):
        api.request("DELETE", "vhosts", vhost)
