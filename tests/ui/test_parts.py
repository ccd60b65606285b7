"""The shared parts on their own: forms, arguments, dialogs, formatters, patching."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, expect

from tests.ui.pages import Ui

#: Loads modules of the UI into the open page, on whose place the script puts what it makes.
_LOADING = """async (names) => {
    const base = document.querySelector("script[type=module]").src.replace("app.js", "parts/");
    const modules = await Promise.all(names.map((name) => import(`${base}${name}.js`)));
    window.parts = Object.assign({}, ...modules);
    window.place = document.querySelector("main .page");
    window.place.replaceChildren();
}"""


@pytest.fixture
def parts(new_ui: Callable[..., Ui]) -> Ui:
    """A page that asks for nothing, with the parts at hand as ``parts``."""
    ui = new_ui(address="#/no-such-page")
    names = ["element", "form", "dialog", "format", "badge", "layout", "address", "series", "chart"]
    ui.page.evaluate(_LOADING, names)
    return ui


def make_form(ui: Ui) -> Locator:
    ui.page.evaluate(
        """() => {
            const form = new parts.Form({
                fields: [
                    { name: "name", label: "Name", required: true },
                    { name: "count", label: "Count", kind: "number", hint: "how many" },
                    { name: "kind", label: "Kind", kind: "select", options: ["classic", "quorum"], value: "quorum" },
                    { name: "durable", label: "Durable", kind: "checkbox", value: true },
                    { name: "even", label: "Even", kind: "number", check: (value) => (value % 2 ? "not even" : null) },
                    { name: "arguments", label: "Arguments", kind: "arguments",
                      suggestions: [{ key: "x-max-length", label: "Max length", type: "Number" }] },
                ],
                submit: "Send",
                action: async (values) => {
                    if (values.name === "refused") throw new Error("the API says no");
                    window.sent = values;
                    return "It is done.";
                },
            });
            place.append(form.element);
        }"""
    )
    return ui.main.locator("form")


def test_a_form_reads_its_fields(parts: Ui) -> None:
    form = make_form(parts)
    form.get_by_label("Name", exact=False).first.fill("<b>")
    form.get_by_label("Count").fill("1,000")
    form.get_by_role("button", name="Max length").click()
    expect(form.get_by_role("textbox", name="Value").first).to_be_focused()
    parts.page.keyboard.type("12")
    rows = form.locator(".arguments-row")
    expect(rows).to_have_count(2)
    rows.nth(1).get_by_label("Name").fill("list")
    rows.nth(1).get_by_label("Value").fill("a, b")
    rows.nth(1).get_by_label("Type").select_option("List")
    # What objects of JavaScript have by themselves.
    rows.nth(2).get_by_label("Name").fill("constructor")
    rows.nth(2).get_by_label("Value").fill("c")
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("status")).to_have_text("It is done.")
    assert parts.page.evaluate("sent") == {
        "name": "<b>",
        "count": 1000,
        "kind": "quorum",
        "durable": True,
        "even": None,
        "arguments": {"x-max-length": 12, "list": ["a", "b"], "constructor": "c"},
    }
    expect(form.get_by_label("Count")).to_have_value("")
    expect(rows).to_have_count(1)


def test_a_form_says_what_is_wrong(parts: Ui) -> None:
    form = make_form(parts)
    send = form.get_by_role("button", name="Send")
    form.get_by_label("Count").fill("many")
    form.get_by_label("Even").fill("3")
    send.click()
    name = form.get_by_label("Name").first
    expect(name).to_be_focused()
    expect(name).to_have_attribute("aria-invalid", "true")
    for text in ("Name is missing.", "This must be a number.", "not even"):
        expect(form.get_by_text(text)).to_be_visible()
    name.fill("refused")
    form.get_by_label("Count").fill("9007199254740993")
    send.click()
    expect(form.get_by_text("This is too large to be sent exactly.")).to_be_visible()
    form.get_by_label("Count").fill("")
    form.get_by_label("Even").fill("4")
    rows = form.locator(".arguments-row")
    rows.first.get_by_label("Name").fill("broken")
    rows.first.get_by_label("Type").select_option("JSON")
    send.click()
    expect(form.get_by_text("broken: This is not JSON.")).to_be_visible()
    rows.first.get_by_label("Value").fill('{"a": 1}')
    send.click()
    expect(form.get_by_role("alert")).to_have_text("the API says no")
    expect(name).to_have_value("refused")


def test_a_dialog_asks_with_the_name_and_stays_when_it_is_refused(parts: Ui) -> None:
    parts.page.evaluate(
        """() => {
            window.tries = 0;
            const action = async () => { tries += 1; if (tries === 1) throw new Error("not yet"); };
            const question = { title: "Delete queue", name: "<i>q</i>", text: "All is lost.", verb: "Delete", action };
            const ask = async () => { place.dataset.outcome = await parts.confirmAction(question); };
            place.append(parts.h("button", { on: { click: ask } }, "Ask"));
        }"""
    )
    opener = parts.main.get_by_role("button", name="Ask")
    opener.click()
    dialog = parts.page.get_by_role("dialog", name="Delete queue")
    expect(dialog.get_by_text("<i>q</i>", exact=True)).to_be_visible()
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    for _ in range(3):
        parts.page.keyboard.press("Tab")
        assert not opener.evaluate("button => button === document.activeElement")
    parts.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(opener).to_be_focused()
    expect(parts.main.locator(".page")).to_have_attribute("data-outcome", "false")
    assert parts.page.evaluate("tries") == 0
    opener.click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_have_text("not yet")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_have_count(0)
    expect(parts.main.locator(".page")).to_have_attribute("data-outcome", "true")
    assert parts.page.evaluate("tries") == 2


def test_a_dialog_stays_until_what_is_under_way_is_over(parts: Ui) -> None:
    parts.page.evaluate(
        """() => {
            const action = () => new Promise((done) => { window.done = done; });
            parts.confirmAction({ title: "Delete queue", name: "q", verb: "Delete", action });
        }"""
    )
    dialog = parts.page.get_by_role("dialog", name="Delete queue")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
    expect(dialog.get_by_role("button", name="Cancel")).to_be_disabled()
    parts.page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    parts.page.evaluate("done()")
    expect(dialog).to_have_count(0)


TEXTS: Final = [
    ("shortNumber(9999)", "9,999"),
    ("shortNumber(10000)", "10.0k"),
    ("shortNumber(999999)", "1.00M"),
    ("shortNumber(0.123456)", "0.123"),
    ("shortNumber(undefined)", "–"),
    ("exactNumber(1234567)", "1,234,567"),
    ("shortBytes(0)", "0 B"),
    ("shortBytes(1536)", "1.5 KiB"),
    ("shortBytes(1048575)", "1 MiB"),
    ("shortRate(12.34)", "12/s"),
    ("shortRate(0.25)", "0.25/s"),
    ("span(0)", "0s"),
    ("span(59)", "59s"),
    ("span(3600)", "1h"),
    ("span(93784)", "1d 2h"),
    ("plain([1, {}])", "[1,{}]"),
    ("plain('a')", "a"),
    ("address('queues', '/', 'a b/ü')", "#/queues/%2F/a%20b%2F%C3%BC"),
    ("exchangeAddress('/', '')", "#/exchanges/%2F/amq.default"),
    ("number(1234567).title", "1,234,567"),
    ("bytes(2048).title", "2,048 bytes"),
    ("fillBar(96, 100, String).getAttribute('aria-label')", "Used: 96 of 100, 96%"),
    ("fillBar(96, 100, String).className", "fill nearly"),
    ("fillBar(0, 0, String).className", "fill full"),
    ("fillBar(1, null, String).textContent", "no limit"),
]
VALUES: Final[list[tuple[str, Any]]] = [
    ("valueTicks(0, 3)", [0, 1]),
    ("valueTicks(360, 3)", [0, 200, 400]),
    ("valueTicks(3 * 1024 * 1024, 3, 1024)", [0, 1048576, 2097152, 3145728]),
    ("match('queues/:vhost/:name', ['queues', '/', 'q'])", {"vhost": "/", "name": "q"}),
    ("match('queues', ['queues', '/'])", None),
    ("parse('#/queues/%2F/50%?a=b').segments", ["queues", "/", "50%"]),
    (
        "rates({samples: [{sample: 30, timestamp: 10000}, {sample: 10, timestamp: 5000}]})",
        [{"at": 10000, "value": 4}],
    ),
    ("rates(undefined)", []),
]


def test_formatters(parts: Ui) -> None:
    assert {call: parts.page.evaluate(f"parts.{call}") for call, _ in TEXTS} == dict(TEXTS)


def test_scales_and_addresses(parts: Ui) -> None:
    found = {call: json.loads(parts.page.evaluate(f"JSON.stringify(parts.{call})")) for call, _ in VALUES}
    assert found == dict(VALUES)


def test_patching_keeps_nodes_by_key_and_listeners_up_to_date(parts: Ui) -> None:
    found = parts.page.evaluate(
        """() => {
            const { h, patch } = parts;
            const heard = [];
            const kept = h("div", { own: true }, h("input"));
            const show = (names) => patch(place, kept, h("ul", null, names.map((name, index) =>
                h("li", { key: name, title: `${index}`, style: { "--x": index },
                          on: { click: () => heard.push(`${name}${index}`) } }, name))),
                names.length > 2 && h("p", null, "many"));
            show(["a", "b", "c"]);
            const before = Object.fromEntries([...place.querySelectorAll("li")].map((row) => [row.textContent, row]));
            kept.firstChild.value = "typed";
            kept.firstChild.focus();
            show(["c", "d", "a"]);
            const rows = [...place.querySelectorAll("li")];
            const order = rows.map((row) => row.textContent + row.title);
            before.a.click();
            show(["a"]);
            before.a.click();
            return {
                same: [rows[0] === before.c, rows[2] === before.a, before.b.isConnected],
                order,
                heard, typed: kept.firstChild.value, focused: document.activeElement === kept.firstChild,
                left: place.textContent, children: place.children.length,
            };
        }"""
    )
    assert found == {
        "same": [True, True, False],
        "order": ["c0", "d1", "a2"],
        "heard": ["a2", "a0"],
        "typed": "typed",
        "focused": True,
        "left": "a",
        "children": 2,
    }


def test_addresses_of_others_and_inline_listeners_are_mistakes(parts: Ui) -> None:
    for call in ("h('a', {href: 'javascript:alert(1)'})", "h('a', {href: '//evil'})", "h('a', {onclick: 'x()'})"):
        assert parts.page.evaluate(f"() => {{ try {{ parts.{call}; }} catch (e) {{ return e.name; }} }}") == "TypeError"
