"""Every page: for screen readers, by keyboard, light and dark, wide and narrow, without an error on the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.support.leveret_process import LeveretProcess
from tests.ui.pages import Ui
from tests.ui.registered import PATHS, expect_no_failure, open_all, outside, visit
from tests.ui.scene import Scene

NewUi = Callable[..., Ui]
NARROW: Final = 360
#: What one can act on.
CONTROLS: Final = "a[href], button, input, select, textarea, summary, [tabindex='0']"
#: Numbers the controls that can be seen, in their order, counts them, and puts the focus on the first one.
NUMBERED: Final = """(controls) => {
    for (const each of document.querySelectorAll("[data-control]")) delete each.dataset.control;
    const seen = [...document.querySelectorAll(controls)].filter(
        (each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled);
    seen.forEach((each, index) => { each.dataset.control = index; });
    seen[0].focus();
    return seen.length;
}"""
#: The number of the control with the focus, "end" behind the last one; and whether one can see where the focus is.
FOCUSED: Final = """() => {
    const focused = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(focused);
    const isEnd = focused === document.body || focused.dataset.control === "0";
    return [isEnd ? "end" : focused.dataset.control ?? "", outlineStyle !== "none" && outlineWidth !== "0px"];
}"""
#: More than any page has; a page that never ends has a trap.
MOST_CONTROLS: Final = 400
ATTEMPTS: Final = 5


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LeveretProcess, Scene]]:
    """A broker with something to see on every page."""
    with LeveretProcess(tmp_path_factory.mktemp("accessible")) as process, Scene(process) as made:
        yield process, made


def violations(page: Page) -> list[str]:
    """What axe has against a page."""
    results = Axe().run(page, options={"resultTypes": ["violations"]})
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in results.response["violations"]]


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", NARROW)])
def test_for_screen_readers_in_light_and_dark(
    scene: tuple[LeveretProcess, Scene], new_ui: NewUi, scheme: str, width: int
) -> None:
    process, objects = scene
    ui = new_ui(url=process.http_url, color_scheme=scheme, viewport={"width": width, "height": 740})
    ui.choose("refresh", "0")
    found = {}
    for path in PATHS:
        visit(ui, path, objects)
        expect_no_failure(ui)
        closed = outside(ui)
        open_all(ui)
        found[path] = [*violations(ui.page), *closed, *outside(ui)]
    assert found == {path: [] for path in PATHS}


def test_everything_is_reached_by_keyboard(scene: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, objects = scene
    ui = new_ui(url=process.http_url)
    ui.choose("refresh", "0")
    missed = {}
    for path in PATHS:
        visit(ui, path, objects)
        open_all(ui)
        # What arrives late may replace controls that have been numbered.
        for _ in range(ATTEMPTS):
            count, missed[path] = _missed(ui, path)
            if ui.page.locator("[data-control]").count() == count:
                break
        else:
            pytest.fail(f"controls are replaced again and again on {path}")
    assert missed == {path: [] for path in PATHS}


def _missed(ui: Ui, path: str) -> tuple[int, list[str]]:
    """Go through a page by keyboard; return how many controls there were, and those not reached or not seen."""
    count: int = ui.page.evaluate(NUMBERED, CONTROLS)
    reached, missed = {"0"}, list[str]()
    for _ in range(MOST_CONTROLS):
        ui.page.keyboard.press("Tab")
        number, is_seen = ui.page.evaluate(FOCUSED)
        if number == "end":
            break
        reached.add(number)
        if not is_seen:
            missed.append(ui.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    else:
        pytest.fail(f"the focus goes round on {path}")
    numbers = [number for number in map(str, range(count)) if number not in reached]
    return count, missed + [text for number in numbers for text in _html(ui, number)]


def _html(ui: Ui, number: str) -> list[str]:
    """Return the beginning of a control; nothing if it has been replaced."""
    found = ui.page.locator(f"[data-control='{number}']")
    return [str(each.evaluate("each => each.outerHTML.slice(0, 200)")) for each in found.all()]


def test_every_page_has_a_title_and_says_where_one_is(scene: tuple[LeveretProcess, Scene], new_ui: NewUi) -> None:
    process, objects = scene
    ui = new_ui(url=process.http_url)
    titles = []
    for path in PATHS:
        visit(ui, path, objects)
        titles.append(ui.page.title())
        assert ui.main.locator("h1").count() == 1, path
        assert ui.page.locator("nav [aria-current=page]").count() >= 1, path
    assert all(title.endswith(" – Leveret") for title in titles)
    assert len(set(titles)) == len(PATHS)
