"""Logging in and out, and what the browser is left with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


def add_user(api: Management, name: str, tags: str, password: str = "secret") -> str:
    api.request("PUT", "users", name, body={"password": password, "tags": tags})
    api.request("PUT", "permissions", "/", name, body={"configure": ".*", "write": ".*", "read": ".*"})
    return name


def test_logging_in_and_out(new_ui: NewUi, assert_accessible: Callable[[Page], None]) -> None:
    ui = new_ui(user=None, address="#/exchanges")
    expect(ui.page).to_have_title("Log in – Leveret")
    expect(ui.page.get_by_label("User name")).to_be_focused()
    assert_accessible(ui.page)
    ui.log_in()
    expect(ui.page).to_have_title("Exchanges – Leveret")
    ui.page.reload()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Exchanges")
    ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_label("User name")).to_be_visible()
    expect(ui.main.and_(ui.page.locator("#main"))).to_have_count(0)
    ui.page.reload()
    expect(ui.page.get_by_label("User name")).to_be_visible()


def test_logging_out_while_a_page_loads(ui: Ui) -> None:
    """The browser gives up the page's requests: none is refused, and the form does not say that the session ended."""
    held: list[Route] = []
    ui.page.route("**/api/exchanges?*", lambda route: held.append(route))
    with ui.page.expect_event("requestfailed", lambda request: "/api/exchanges?" in request.url):
        with ui.page.expect_request("**/api/exchanges?*"):
            ui.go("#/exchanges")
        ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_label("User name")).to_be_visible()
    expect(ui.page.get_by_role("alert").filter(has_text="session")).to_have_count(0)
    assert len(held) == 1


def test_a_log_out_that_fails_leaves_the_page(ui: Ui, console: Console) -> None:
    console.allow(503)
    refuse = partial(Route.fulfill, status=503, json={"error": "unavailable", "reason": "Try again later."})
    ui.page.route("**/api/session", refuse)
    ui.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_text("Try again later.")).to_be_visible()
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    ui.go("#/exchanges")
    expect(ui.row("amq.topic")).to_be_visible()


def test_a_wrong_password_is_said_in_the_words_of_the_api(new_ui: NewUi, console: Console) -> None:
    console.allow(401)
    ui = new_ui(user=None)
    ui.enter("guest", "wrong")
    expect(ui.page.get_by_role("alert")).to_have_text("Login failed")
    ui.log_in()


def test_the_cookie_is_out_of_reach(ui: Ui, broker: LeveretProcess) -> None:
    (cookie,) = ui.page.context.cookies()
    port = urlsplit(broker.http_url).port
    assert cookie["name"] == f"leveret_session_{port}"
    assert len(cookie["value"]) == 43
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["expires"]) == (True, "Strict", -1)
    assert ui.page.evaluate("document.cookie") == ""


def test_nothing_secret_is_kept_or_shown_in_an_address(new_ui: NewUi, api: Management) -> None:
    name, password = add_user(api, "keeper", "administrator", "a-very-secret-word"), "a-very-secret-word"
    asked: list[str] = []
    ui = new_ui(user=None)
    ui.page.on("request", lambda request: asked.append(request.url))
    ui.log_in(name, password)
    ui.choose("theme", "dark")
    kept = ui.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    (cookie,) = ui.page.context.cookies()
    for secret in (password, cookie["value"]):
        assert secret not in kept
        assert not any(secret in url for url in [*asked, ui.page.url])
    assert json.loads(kept)[1] == {}
    assert len(asked) > 2


def test_a_session_that_has_ended_asks_again_and_keeps_what_was_typed(
    new_ui: NewUi, console: Console, api: Management
) -> None:
    console.allow(401)
    ui = new_ui(user=add_user(api, "forgetful", "management"), password="secret", address="#/exchanges")
    ui.main.get_by_role("searchbox").fill("amq.t")
    expect(ui.rows()).to_have_count(1)
    add_user(api, "forgetful", "management", "another")
    ui.refresh()
    expect(ui.page.get_by_text("Your session has ended.")).to_be_visible()
    ui.log_in("forgetful", "another")
    expect(ui.main.get_by_role("searchbox")).to_have_value("amq.t")


def test_an_action_after_the_end_of_a_session_leads_to_the_form(
    new_ui: NewUi, console: Console, api: Management
) -> None:
    console.allow(401)
    api.request("PUT", "queues", "/", "late", body={})
    ui = new_ui(user=add_user(api, "late", "management"), password="secret", address="#/queues/%2F/late")
    ui.choose("refresh", "0")
    ui.main.get_by_role("button", name="Purge", exact=True).click()
    ui.main.get_by_role("button", name="Purge …").click()
    add_user(api, "late", "management", "another")
    ui.page.get_by_role("dialog").get_by_role("button", name="Purge").click()
    expect(ui.page.get_by_text("Your session has ended.")).to_be_visible()
    expect(ui.page.get_by_role("dialog")).to_have_count(0)
    # Another address asks once more, and finds the form there.
    for address in ("#/exchanges", "#/queues"):
        with ui.page.expect_response(lambda answer: answer.status == 401):
            ui.go(address)
    expect(ui.page.locator("form.login-form")).to_have_count(1)
    ui.log_in("late", "another")
    expect(ui.page).to_have_title("Queues – Leveret")
    expect(ui.row("late")).to_be_visible()
    api.request("DELETE", "queues", "/", "late")


def test_tabs_of_a_browser_have_one_user(ui: Ui, api: Management) -> None:
    ui.choose("refresh", "0")
    expect(ui.main).not_to_have_attribute("aria-busy", "true")
    other = Ui(ui.page.context.new_page(), ui.url)
    other.open("#/queues")
    other.page.get_by_role("button", name="Log out").click()
    expect(ui.page.get_by_text("You have been logged out in another tab.")).to_be_visible()
    expect(ui.main).to_have_count(0)
    other.log_in(add_user(api, "second", "management"), "secret")
    expect(ui.page.locator(".top .user")).to_have_text("second")
    expect(ui.page.locator("form.login-form")).to_have_count(0)
    expect(ui.tab("Overview")).to_have_attribute("aria-current", "page")


def test_the_policy_lets_nothing_else_run(ui: Ui, console: Console) -> None:
    for attempt in (
        "document.body.innerHTML = '<img src=x onerror=alert(1)>'",
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))",
        "setTimeout('window.ran = 1')",
    ):
        ui.page.evaluate(f"() => {{ try {{ {attempt} }} catch (error) {{}} }}")
    assert ui.page.evaluate("window.ran") is None
    assert ui.page.locator("img").count() == 0
    assert console.errors
    console.errors.clear()


def test_two_brokers_of_one_host_have_sessions_of_their_own(
    new_context: Callable[..., BrowserContext], broker: LeveretProcess, own_broker: LeveretProcess
) -> None:
    context = new_context()
    for each in (broker, own_broker, broker):
        ui = Ui(context.pages[0] if context.pages else context.new_page(), each.http_url)
        ui.open()
        if len(context.cookies()) < 2:
            ui.log_in()
        expect(ui.main.get_by_role("heading", level=1)).to_contain_text("Overview")
    assert len(context.cookies()) == 2
