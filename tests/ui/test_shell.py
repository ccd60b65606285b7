"""What is around every page: refresh, lost connections, keyboard, themes, names with markup."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Route, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]


def test_a_refresh_leaves_focus_text_scroll_and_selection(new_ui: NewUi, api: Management) -> None:
    for number in range(60):
        api.request("PUT", "exchanges", "/", f"kept-{number:02}", body={"type": "fanout"})
    ui = new_ui(address="#/exchanges", viewport={"width": 900, "height": 500})
    ui.main.get_by_role("searchbox").fill("kept-")
    expect(ui.rows()).to_have_count(60)
    link = ui.main.get_by_role("link", name="kept-30", exact=True)
    link.focus()
    ui.page.evaluate("getSelection().selectAllChildren(document.querySelector('a[href*=kept-31]'))")
    before = ui.page.evaluate("scrollY")
    assert before > 100
    ui.page.evaluate("window.rowBefore = document.activeElement.closest('tr')")
    api.request("DELETE", "exchanges", "/", "kept-00")
    api.request("PUT", "exchanges", "/", "kept-30a", body={"type": "topic"})
    ui.refresh()
    expect(ui.row("kept-30a")).to_be_visible()
    expect(ui.row("kept-00")).to_have_count(0)
    expect(link).to_be_focused()
    assert ui.page.evaluate("rowBefore === document.activeElement.closest('tr')")
    assert ui.page.evaluate("String(getSelection())") == "kept-31"
    assert abs(ui.page.evaluate("scrollY") - before) < 40


def test_what_is_being_typed_survives(ui: Ui) -> None:
    ui.choose("refresh", "1")
    ui.go("#/exchanges")
    search = ui.main.get_by_role("searchbox")
    search.press_sequentially("amq", delay=20)
    with ui.page.expect_response(lambda response: "/api/exchanges" in response.url):
        pass
    expect(search).to_be_focused()
    expect(search).to_have_value("amq")


def test_refresh_off_asks_for_nothing(ui: Ui) -> None:
    ui.choose("refresh", "0")
    asked: list[str] = []
    ui.page.wait_for_load_state("networkidle")
    ui.page.on("request", lambda request: asked.append(request.url))
    ui.page.wait_for_timeout(1500)
    assert asked == []
    ui.refresh()
    assert len(asked) >= 1


def test_a_lost_connection_is_shown_and_recovers(new_ui: NewUi, own_broker: LeveretProcess, console: Console) -> None:
    console.allow_disconnection()
    console.allow(401)
    ui = new_ui(url=own_broker.http_url, address="#/exchanges", viewport={"width": 1280, "height": 300})
    ui.choose("refresh", "1")
    expect(ui.row("amq.topic")).to_be_visible()
    ui.page.evaluate("scrollTo(0, 1000)")
    own_broker.kill()
    banner = ui.page.get_by_role("alert").filter(has_text="The broker does not answer.")
    expect(banner).to_be_in_viewport()
    assert ui.page.evaluate("scrollY") > 0
    expect(ui.row("amq.topic")).to_be_visible()
    own_broker.start()
    # Sessions end with the broker.
    expect(ui.page.get_by_text("Your session has ended.")).to_be_visible()
    ui.log_in()
    expect(banner).to_have_count(0)
    expect(ui.row("amq.topic")).to_be_visible()


def test_a_page_that_does_not_come_keeps_nobody(new_ui: NewUi) -> None:
    ui = new_ui()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    ui.page.route("**/pages/exchanges.js", hold)
    ui.go("#/exchanges")
    expect(ui.main.get_by_role("heading", level=1)).to_have_count(0)
    ui.go("#/queues")
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Queues")
    for route in held:
        route.continue_()


def test_by_keyboard_alone(new_ui: NewUi) -> None:
    ui = new_ui(user=None)
    page = ui.page
    expect(page.get_by_label("User name")).to_be_focused()
    page.keyboard.type("guest")
    page.keyboard.press("Tab")
    page.keyboard.type("guest")
    page.keyboard.press("Enter")
    expect(ui.main.get_by_role("heading", level=1)).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    for _ in range(20):
        page.keyboard.press("Tab")
        if ui.tab("Exchanges").evaluate("link => link === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(ui.main).to_be_focused()
    expect(page).to_have_title("Exchanges – Leveret")
    page.keyboard.press("Tab")
    expect(ui.main.get_by_role("searchbox")).to_be_focused()


def test_back_and_forth(ui: Ui) -> None:
    ui.tab("Exchanges").click()
    expect(ui.page).to_have_title("Exchanges – Leveret")
    expect(ui.tab("Exchanges")).to_have_attribute("aria-current", "page")
    ui.page.go_back()
    expect(ui.page).to_have_title("Overview – Leveret")
    expect(ui.tab("Exchanges")).not_to_have_attribute("aria-current", "page")


def test_the_theme_is_chosen_and_remembered(ui: Ui) -> None:
    def background() -> str:
        shown: str = ui.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return shown

    light = background()
    ui.choose("theme", "dark")
    dark = background()
    assert dark != light
    ui.page.reload()
    expect(ui.main.get_by_role("heading", level=1)).to_be_visible()
    assert background() == dark
    ui.choose("theme", "light")
    assert background() == light
    ui.page.emulate_media(color_scheme="dark")
    assert background() == light
    ui.choose("theme", "auto")
    assert background() == dark
    ui.page.emulate_media(color_scheme="light")
    assert background() == light


def test_the_virtual_host_is_chosen_and_remembered(ui: Ui, api: Management) -> None:
    api.request("PUT", "vhosts", "chosen")
    ui.go("#/exchanges")
    choice = ui.page.locator("#choose-vhost")
    choice.select_option("chosen")
    expect(ui.rows()).to_have_count(7)
    ui.page.reload()
    expect(choice).to_have_value("chosen")
    expect(ui.rows()).to_have_count(7)
    api.request("DELETE", "vhosts", "chosen")
    ui.go("#/")
    expect(choice).to_have_value("")


def test_behind_a_prefix(new_ui: NewUi, tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings={"management.path_prefix": "/broker/one"}) as process:
        ui = new_ui(url=f"{process.http_url}/broker/one")
        ui.tab("Exchanges").click()
        expect(ui.row("amq.topic")).to_be_visible()
        ui.page.reload()
        expect(ui.row("amq.topic")).to_be_visible()
