"""All pages that the UI has, as its registry lists them, and what may be expected of every one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote

from playwright.sync_api import expect

import leveret.broker.management
from tests.ui.pages import Ui
from tests.ui.scene import Scene

_REGISTRY: Final = Path(leveret.broker.management.__path__[0]) / "ui" / "pages" / "registry.js"
_ROW: Final = re.compile(r'^ +\{ path: "([^"]*)", tab: "[^"]+", load:', re.MULTILINE)
#: Counts the requests of the page that have not been read to their end.
_COUNTING: Final = """() => {
    if (window.underWay !== undefined) return;
    window.underWay = 0;
    const plain = window.fetch;
    window.fetch = async (...request) => {
        window.underWay += 1;
        try {
            const answer = await plain(...request);
            const text = await answer.text();
            return new Response(text === "" ? null : text, { status: answer.status, headers: answer.headers });
        } finally {
            window.underWay -= 1;
        }
    };
}"""
#: Loaded, and not waiting for anything; a page that has been left is marked. A page that is loaded by several requests,
#: one after the other, waits for none of them for a moment, but is busy.
_SHOWN: Final = """() => {
    const main = document.querySelector("main#main:not([aria-busy])");
    return main !== null && main.querySelector("[data-left]") === null && main.querySelector("h1") !== null
        && window.underWay === 0;
}"""
#: Opens what is closed; ends when the page has heard of it, and has sent the requests that it needs.
_OPENED: Final = """async () => {
    const opened = [...document.querySelectorAll("main details:not(.menu)")].filter((details) => !details.open);
    const heard = opened.map((details) => new Promise((resolve) => details.addEventListener("toggle", resolve)));
    opened.forEach((details) => { details.open = true; });
    await Promise.all(heard);
    await new Promise((resolve) => setTimeout(resolve));
}"""
#: What of the page stands out at the right, where one would have to scroll the whole page for it.
_OUTSIDE: Final = """() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    const isOutside = (each) => each.getBoundingClientRect().right > clientWidth
        && each.closest(".table-scroll, pre, .tabs ul, .menu-content") === null;
    const found = scrollWidth <= clientWidth ? [] : [...document.querySelectorAll("body *")].filter(isOutside);
    return found.map((each) => each.outerHTML.slice(0, 200));
}"""

#: Paths of all pages, for example ``queues/:vhost/:name``.
PATHS: Final = tuple(_ROW.findall(_REGISTRY.read_text()))


def address_of(path: str, scene: Scene) -> str:
    """The address of a page, of an object of the scene if it is about one."""
    kind = path.split("/", 1)[0]
    names = {":vhost": scene.vhost, ":name": scene.names.get(kind)}
    parts = []
    for part in path.split("/"):
        name = names.get(part) if part.startswith(":") else part
        assert name is not None, f"tests/ui/scene.py has nothing for {part} of the page {path}"
        parts.append(quote(name, safe=""))
    return f"#/{'/'.join(parts)}"


def visit(ui: Ui, path: str, scene: Scene) -> None:
    """Go to a page as a link does, and wait until it shows what it has."""
    go(ui, address_of(path, scene))


def go(ui: Ui, address: str) -> None:
    """Go to an address as a link does, and wait until the page shows what it has."""
    ui.page.evaluate(_COUNTING)
    if ui.page.evaluate("location.hash") != address:
        ui.page.evaluate("document.querySelector('main#main > *').dataset.left = 'yes'")
        ui.go(address)
    ui.page.wait_for_function(_SHOWN)


def open_all(ui: Ui) -> None:
    """Open all parts of a page that are closed at first, but not the choice of columns; wait for what they load."""
    ui.page.evaluate(_OPENED)
    ui.page.wait_for_function(_SHOWN)


def outside(ui: Ui) -> list[str]:
    """What stands out at the right of a page, so that all of it would have to be scrolled sideways."""
    found: list[str] = ui.page.evaluate(_OUTSIDE)
    return found


def expect_no_failure(ui: Ui) -> None:
    """Nothing that was asked for has been refused."""
    expect(ui.page.locator(".shell > .notice.error").locator("visible=true")).to_have_count(0)
