"""Whatever is called like markup is shown as text, on every page; nothing leaves for anywhere but the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Dialog, expect

from tests.support.leveret_process import LeveretProcess
from tests.ui.pages import Ui
from tests.ui.registered import PATHS, expect_no_failure, go, open_all, outside, visit
from tests.ui.scene import HOSTILE, Scene

NewUi = Callable[..., Ui]
#: Elements that no page of ours has, and attributes that none has.
FOREIGN = """() => {
    const elements = [...document.querySelectorAll("img, iframe, object, embed, base, script:not([src]), style")];
    const handlers = [...document.querySelectorAll("*")].filter(
        ({ attributes }) => [...attributes].some(({ name }) => name.startsWith("on")));
    return [...elements, ...handlers].map(({ outerHTML }) => outerHTML);
}"""
#: The hostile text as it is, in what is shown or on hover.
SHOWN = """(text) => document.body.textContent.includes(text)
    || [...document.querySelectorAll("[title]")].some(({ title }) => title.includes(text))"""
#: Pages that are about the broker as a whole.
NAMELESS = {""}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LeveretProcess, Scene]]:
    """A broker on which everything has a hostile name."""
    with LeveretProcess(tmp_path_factory.mktemp("hostile")) as process, Scene(process, HOSTILE) as scene:
        yield process, scene


def test_names_and_values_are_text_on_every_page(hostile: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, scene = hostile
    ui = new_ui(url=process.http_url, viewport={"width": 360, "height": 740})
    asked: list[str] = []
    dialogs: list[str] = []
    ui.page.on("request", lambda request: asked.append(request.url))

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    ui.page.on("dialog", note)
    found = {}
    for path in PATHS:
        visit(ui, path, scene)
        open_all(ui)
        expect_no_failure(ui)
        found[path] = [*ui.page.evaluate(FOREIGN), *outside(ui)]
        assert path in NAMELESS or ui.page.evaluate(SHOWN, HOSTILE), path
    assert found == {path: [] for path in PATHS}
    assert ui.page.evaluate("window.hit") is None
    assert dialogs == []
    assert [url for url in asked if not url.startswith(ui.url)] == []


def test_actions_take_names_as_they_are(hostile: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, scene = hostile
    ui, api = new_ui(url=process.http_url), scene.api
    for name in (HOSTILE[:40], "%2F", "/", "ü" * 127 + "x"):
        for kind in ("queues", "exchanges"):
            api.request("PUT", kind, scene.vhost, name, body={"type": "topic"} if kind == "exchanges" else {})
        api.request("POST", "bindings", scene.vhost, "e", name, "q", name, body={"routing_key": name})
        for kind in ("exchanges", "queues"):
            go(ui, f"#/{kind}/{quote(scene.vhost, safe='')}/{quote(name, safe='')}")
            expect(ui.main.get_by_role("heading", level=1)).to_contain_text(name)
            open_all(ui)
            form = ui.main.locator("form").filter(has=ui.page.get_by_role("button", name="Publish", exact=True))
            form.get_by_label("Payload", exact=True).fill(name)
            if kind == "exchanges":
                form.get_by_label("Routing key").fill(name)
            form.get_by_role("button", name="Publish", exact=True).click()
            expect(form.get_by_role("status").locator("visible=true")).to_contain_text("published")
            for button in ("Unbind …" if kind == "exchanges" else "Purge …", "Delete …"):
                ui.main.get_by_role("button", name=button, exact=True).last.click()
                dialog = ui.page.get_by_role("dialog")
                expect(dialog).to_contain_text(name)
                dialog.get_by_role("button", name=button.removesuffix(" …")).click()
                expect(dialog).to_have_count(0)
            expect(ui.main.get_by_role("heading", level=1)).to_have_text(kind.capitalize())
    assert len(api.request("GET", "queues", scene.vhost)) == 2
    assert ui.page.evaluate("window.hit") is None


def test_messages_are_text(hostile: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, scene = hostile
    ui = new_ui(url=process.http_url)
    visit(ui, "queues/:vhost/:name", scene)
    open_all(ui)
    ui.main.locator("form").get_by_role("button", name="Get message").click()
    expect(ui.main.locator("pre").get_by_text(HOSTILE).first).to_be_visible()
    assert ui.page.evaluate(FOREIGN) == []
    assert ui.page.evaluate("window.hit") is None


def test_a_user_with_a_hostile_name_logs_in(hostile: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, _ = hostile
    ui = new_ui(url=process.http_url, user=HOSTILE, password=HOSTILE)
    expect(ui.page.locator(".top .user")).to_have_text(HOSTILE)
    assert ui.page.evaluate(FOREIGN) == []


def test_addresses_by_hand_do_no_harm(hostile: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, _ = hostile
    ui = new_ui(url=process.http_url)
    for address in ("#/<img src=x onerror=hit=1>", "#/queues/%", "#javascript:hit=1", "#/__proto__/constructor/x"):
        ui.go(address)
        expect(ui.main.get_by_role("heading", level=1)).to_have_text("No such page")
    assert ui.page.evaluate("window.hit") is None
