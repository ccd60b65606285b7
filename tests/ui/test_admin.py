"""Users, permissions, virtual hosts and limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "managed"
USER: Final = "managed clerk"
ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
MARKUP: Final = """<img src=x onerror="document.title='hit'">"""


@pytest.fixture
def vhost(api: Management) -> Iterator[str]:
    """A virtual host with nothing in it."""
    api.request("PUT", "vhosts", VHOST, body={"description": "The shop", "tags": "prod,eu"})
    yield VHOST
    api.request("DELETE", "vhosts", VHOST)


@pytest.fixture
def user(api: Management) -> Iterator[str]:
    """A user that may log in, and nothing else."""
    api.request("PUT", "users", USER, body={"password": "secret", "tags": "management,mine"})
    yield USER
    if USER in names(api, "users"):
        api.request("DELETE", "users", USER)


def names(api: Management, *path: str) -> list[str]:
    return [each["name"] for each in api.request("GET", *path)]


def open_form(ui: Ui, title: str) -> Locator:
    ui.main.get_by_text(title, exact=True).click()
    return ui.main.locator("details[open] form")


def submit(form: Locator, button: str, **fields: str) -> None:
    for label, value in fields.items():
        # Behind the label stands an asterisk if it is required.
        name = re.compile(f"^{label.replace('_', ' ')}( \\*)?$")
        form.get_by_role("textbox", name=name).fill(value)
    form.get_by_role("button", name=button).click()


def confirm(ui: Ui, title: str, verb: str) -> str:
    """Answer a question; return what it said."""
    dialog = ui.page.get_by_role("dialog", name=title)
    said = dialog.inner_text()
    dialog.get_by_role("button", name=verb).click()
    expect(dialog).to_have_count(0)
    return said


def log_in(api: Management, name: str, password: str) -> Any:
    """What the API says about a user who logs in."""
    url = api.base.replace("://", f"://{quote(name)}:{password}@")
    return Management(url).request("GET", "whoami")


# -- users ------------------------------------------------------------------------------------------------


def test_the_list_of_users(new_ui: NewUi, api: Management, user: str, broker: LeveretProcess) -> None:
    api.request("PUT", "user-limits", user, "max-channels", body={"value": 7})
    api.request("PUT", "permissions", "/", user, body=ALL)
    api.request("PUT", "users", "nobody", body={"password_hash": "", "tags": ""})
    with Client(broker.url.replace("guest:guest", "managed%20clerk:secret")):
        ui = new_ui(address="#/users")
        cells = ui.row(user).locator("td")
        expect(cells).to_have_text([user, "management, mine", "/", "max-channels: 7", "1", "set"])
    expect(ui.row("nobody").locator("td")).to_have_text(["nobody", "none", "none", "", "0", "none"])
    api.request("DELETE", "users", "nobody")
    ui.main.get_by_role("link", name=user).click()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text(f"User {user}")


def test_adding_a_user(new_ui: NewUi, api: Management) -> None:
    ui = new_ui(address="#/users")
    form = open_form(ui, "Add a user")
    submit(form, "Add user", User_name=MARKUP, Password="one", Password_again="other")
    expect(form.get_by_text("The passwords do not match.")).to_be_visible()
    form.get_by_label("policymaker").check()
    submit(form, "Add user", Password_again="one", Other_tags="a, b")
    expect(ui.main.get_by_role("heading", level=1)).to_have_text(f"User {MARKUP}")
    expect(ui.main.get_by_text("this user cannot open any virtual host")).to_be_visible()
    assert api.request("GET", "users", MARKUP)["tags"] == ["policymaker", "a", "b"]
    assert ui.page.locator("img").count() == 0
    ui.main.get_by_role("button", name="Delete …").click()
    assert MARKUP in confirm(ui, "Delete user", "Delete")
    expect(ui.page).to_have_title("Users – Leveret")
    assert MARKUP not in names(api, "users")


def test_tags_and_passwords_are_changed_one_without_the_other(new_ui: NewUi, api: Management, user: str) -> None:
    ui = new_ui(address=f"#/users/{user}")
    form = open_form(ui, "Change password or tags")
    expect(form.get_by_label("management", exact=True)).to_be_checked()
    expect(form.get_by_label("Other tags")).to_have_value("mine")
    form.get_by_label("monitoring").check()
    form.get_by_role("button", name="Save").click()
    expect(ui.main.locator(".properties")).to_contain_text("monitoring, management, mine")
    assert log_in(api, user, "secret")["name"] == user
    form.get_by_label("Log-in").select_option("set")
    submit(form, "Save", Password="changed", Password_again="changed")
    expect(form.get_by_role("status")).to_have_text(f"User {user} is saved.")
    expect(form.get_by_label("Password again")).to_have_value("")
    assert log_in(api, user, "changed")["name"] == user
    with pytest.raises(HTTPError, match="401"):
        log_in(api, user, "secret")
    assert api.request("GET", "users", user)["tags"] == ["monitoring", "management", "mine"]


def test_permissions_of_a_user(new_ui: NewUi, api: Management, user: str, vhost: str, console: Console) -> None:
    console.allow(400)
    ui = new_ui(address=f"#/users/{user}")
    form = ui.main.locator("form").filter(has=ui.page.get_by_role("button", name="Set permissions"))
    form.get_by_label("Virtual host").select_option(vhost)
    submit(form, "Set permissions", Configure="", Write="(", Read="^orders$")
    expect(form.get_by_role("alert")).not_to_be_empty()
    submit(form, "Set permissions", Write=".*")
    row = ui.main.get_by_role("region", name="Permissions", exact=True).locator("tbody tr")
    expect(row.locator("td")).to_have_text([vhost, "nothing", ".*", "^orders$", "Clear …"])
    expect(row.get_by_role("link")).to_have_attribute("href", f"#/vhosts/{vhost}")
    assert api.request("GET", "permissions", vhost, user)["write"] == ".*"
    row.get_by_role("button").click()
    assert "will no longer be able to open" in confirm(ui, "Clear permissions", "Clear")
    expect(row).to_have_count(0)
    assert api.request("GET", "users", user, "permissions") == []


def test_why_a_user_may_or_may_not(new_ui: NewUi, api: Management, user: str) -> None:
    api.request("PUT", "permissions", "/", user, body={**ALL, "write": "^orders"})
    ui = new_ui(address=f"#/users/{user}")
    form = open_form(ui, "Why may it, or not?")
    form.get_by_label("Permission").select_option("write")
    submit(form, "Explain", Name="orders/new")
    expect(ui.main.get_by_text(f"User {user} may write queue/orders/new in virtual host /.")).to_be_visible()
    row = ui.main.get_by_role("table", name="What the backends say").locator("tbody tr")
    expect(row.locator("td")).to_have_text(
        ["internal", "allows it", "the write pattern '^orders' matches 'orders/new'"]
    )
    submit(form, "Explain", Name=MARKUP)
    expect(row.locator("td").nth(2)).to_have_text(f"the write pattern '^orders' does not match '{MARKUP}'")


def test_a_user_is_thrown_out_and_deleted(
    new_ui: NewUi, api: Management, user: str, broker: LeveretProcess, console: Console
) -> None:
    api.request("PUT", "permissions", "/", user, body=ALL)
    url = broker.url.replace("guest:guest", "managed%20clerk:secret")
    with Client(url) as first:
        ui = new_ui(address=f"#/users/{user}")
        ui.main.get_by_role("button", name="Close connections").click()
        assert "1 connection will be closed" in confirm(ui, "Close connections of user", "Close them")
        expect(ui.main.get_by_text("This user has no connections open.")).to_be_visible()
        with pytest.raises(Exception, match="CONNECTION_FORCED - Closed via the management UI"):
            first.connection.process_data_events(5)
    ui.main.get_by_role("button", name="Delete …").click()
    confirm(ui, "Delete user", "Delete")
    assert user not in names(api, "users")


# -- virtual hosts ----------------------------------------------------------------------------------------


def test_the_list_of_virtual_hosts(new_ui: NewUi, api: Management, vhost: str) -> None:
    api.request("PUT", "queues", vhost, "q", body={})
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    for _ in range(3):
        api.request("POST", "exchanges", vhost, "amq.default", "publish", body=message)
    api.request("PUT", "vhosts", vhost, body={"description": "The shop", "tags": "prod,eu", "tracing": True})
    ui = new_ui(address="#/vhosts")
    cells = ui.row(vhost).locator("td")
    expect(cells.nth(6)).to_have_text("3")
    assert cells.all_inner_texts()[:7] == [vhost, "The shop", "prod, eu", "on", "3", "0", "3"]
    ui.main.get_by_role("searchbox").fill("MANAG")
    expect(ui.rows()).to_have_count(1)


def test_a_virtual_host_is_added_changed_and_deleted(new_ui: NewUi, api: Management) -> None:
    ui = new_ui(address="#/vhosts")
    form = open_form(ui, "Add a virtual host")
    submit(form, "Add virtual host", Name=MARKUP, Description="<b>bold</b>", Tags="one, two")
    expect(ui.main.get_by_role("heading", level=1)).to_have_text(f"Virtual host {MARKUP}")
    expect(ui.main.get_by_text("<b>bold</b>")).to_be_visible()
    expect(ui.page.locator("#choose-vhost option", has_text=MARKUP)).to_have_count(1)
    api.request("PUT", "queues", MARKUP, "q", body={"durable": True})
    form = open_form(ui, "Change description, tags, default queue type or tracing")
    expect(form.get_by_label("Tags")).to_have_value("one, two")
    form.get_by_label("Default queue type").select_option("quorum")
    form.get_by_label("Tracing").check()
    submit(form, "Save", Description="changed")
    expect(ui.main.locator(".properties")).to_contain_text("changed")
    found = api.request("GET", "vhosts", MARKUP)
    assert (found["description"], found["tags"], found["tracing"], found["default_queue_type"]) == (
        "changed",
        ["one", "two"],
        True,
        "quorum",
    )
    ui.main.get_by_role("button", name="Delete …").click()
    said = confirm(ui, "Delete virtual host", "Delete")
    assert MARKUP in said
    assert "1 queue with 0 messages will be deleted" in said
    expect(ui.page).to_have_title("Virtual hosts – Leveret")
    expect(ui.page.locator("#choose-vhost option", has_text=MARKUP)).to_have_count(0)
    assert MARKUP not in names(api, "vhosts")
    assert ui.page.locator("img").count() == 0


def test_who_may_use_a_virtual_host(new_ui: NewUi, api: Management, vhost: str, user: str) -> None:
    ui = new_ui(address=f"#/vhosts/{vhost}")
    table = ui.main.get_by_role("region", name="Permissions", exact=True)
    expect(table.locator("tbody tr")).to_have_count(1)
    form = ui.main.locator("form").filter(has=ui.page.get_by_role("button", name="Set permissions"))
    form.get_by_label("User").select_option(user)
    submit(form, "Set permissions", Configure="^mine")
    row = table.locator("tbody tr").filter(has_text=user)
    expect(row.locator("td")).to_have_text([user, "^mine", ".*", ".*", "Clear …"])
    row.get_by_role("button").click()
    confirm(ui, "Clear permissions", "Clear")
    expect(row).to_have_count(0)
    topics = open_form(ui, "Topic permissions")
    topics.get_by_label("User").select_option(user)
    submit(topics, "Set topic permissions", Exchange="prices", Read="^b")
    expect(ui.main.get_by_role("region", name="Topic permissions").locator("tbody tr")).to_contain_text("prices")
    assert api.request("GET", "topic-permissions", vhost, user)[0]["read"] == "^b"


# -- limits -----------------------------------------------------------------------------------------------


def limit_form(ui: Ui, section: str) -> Locator:
    return ui.main.locator("section").filter(has=ui.page.get_by_role("heading", name=section)).locator("form")


@pytest.mark.parametrize(
    ("section", "label", "fixture", "limit"),
    [("Virtual hosts", "Virtual host", "vhost", "max-queues"), ("Users", "User", "user", "max-channels")],
)
def test_limits_are_set_and_cleared(
    new_ui: NewUi,
    api: Management,
    console: Console,
    request: pytest.FixtureRequest,
    section: str,
    label: str,
    fixture: str,
    limit: str,
) -> None:
    console.allow(400)
    name, kind = request.getfixturevalue(fixture), f"{fixture}-limits"
    ui = new_ui(address="#/limits")
    form = limit_form(ui, section)
    form.get_by_label(label).select_option(name)
    form.get_by_label("Limit", exact=True).select_option(limit)
    submit(form, "Set limit", Value="2.5")
    expect(form.get_by_role("alert")).to_contain_text(f"{limit} should be a number")
    submit(form, "Set limit", Value="1,000")
    row = ui.row(name)
    expect(row.locator("td")).to_have_text([name, limit, "1,000", "Clear …"])
    assert api.request("GET", kind, name)[0]["value"] == {limit: 1000}
    row.get_by_role("link").click()
    own = limit_form(ui, "Limits")
    own.get_by_label("Limit", exact=True).select_option("max-connections")
    submit(own, "Set limit", Value="0")
    table = ui.main.get_by_role("region", name=f"{label} limits")
    expect(table.locator("tbody tr")).to_have_count(2)
    table.get_by_role("button", name=f"Clear {limit} of {name}").click()
    confirm(ui, f"Clear {limit}", "Clear")
    expect(table.locator("tbody tr")).to_have_count(1)
    assert api.request("GET", kind, name)[0]["value"] == {"max-connections": 0}


# -- tags -------------------------------------------------------------------------------------------------
