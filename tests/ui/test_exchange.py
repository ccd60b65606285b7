"""Adding an exchange, and the page of one: bindings, publishing, deleting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client, Publishing
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "exchanging"
HOSTILE: Final = """<img src=x onerror="alert(1)">'"&amp;%2F/🐇~"""
ROUTED: Final = re.compile("In: .* highest [1-9]")


@pytest.fixture
def vhost(api: Management) -> Iterator[str]:
    """A virtual host of the test's own, with a topic exchange and a queue."""
    api.request("PUT", "vhosts", VHOST)
    api.request("PUT", "exchanges", VHOST, "events", body={"type": "topic"})
    api.request("PUT", "queues", VHOST, "orders", body={})
    yield VHOST
    api.request("DELETE", "vhosts", VHOST)


def page_of(name: str, vhost: str = VHOST) -> str:
    return f"#/exchanges/{quote(vhost, safe='')}/{quote(name, safe='')}"


def opened(ui: Ui, title: str) -> Locator:
    """The form in a part of the page that is closed at first."""
    ui.main.locator("summary").get_by_text(title, exact=True).click()
    return ui.main.locator("details").filter(has_text=title).locator("form")


def test_adding_an_exchange(new_ui: NewUi, vhost: str, api: Management, console: Console) -> None:
    ui = new_ui(address="#/exchanges")
    ui.choose("vhost", vhost)
    form = opened(ui, "Add an exchange")
    expect(form.get_by_label("Virtual host")).to_have_value(vhost)
    form.get_by_role("button", name="Add exchange").click()
    expect(form.get_by_text("Name is missing.")).to_be_visible()
    name = form.get_by_role("textbox", name="Name").first
    name.fill("late")
    form.get_by_label("Type", exact=True).first.select_option("headers")
    form.get_by_label("Durability").select_option("transient")
    form.get_by_label("Auto-delete").check()
    form.get_by_label("Internal").check()
    form.get_by_role("button", name="Alternate exchange").click()
    ui.page.keyboard.type("amq.fanout")
    ui.refresh()
    expect(name).to_have_value("late")
    form.get_by_role("button", name="Add exchange").click()
    expect(form.get_by_text("Exchange late has been added.")).to_be_visible()
    badges = ui.row("late").locator("abbr")
    expect(badges).to_have_text(["AD", "I", "AE"])
    expect(badges.nth(2)).to_have_attribute("title", "alternate-exchange: amq.fanout")
    made = api.request("GET", "exchanges", vhost, "late")
    assert (made["type"], made["durable"], made["auto_delete"], made["internal"]) == ("headers", False, True, True)
    expect(form.get_by_label("Virtual host")).to_have_value(vhost)

    name.fill("spread")
    form.get_by_label("Type", exact=True).first.select_option("x-consistent-hash")
    form.get_by_role("button", name="Hash a header").click()
    ui.page.keyboard.type("customer")
    form.get_by_role("button", name="Add exchange").click()
    expect(form.get_by_text("Exchange spread has been added.")).to_be_visible()
    made = api.request("GET", "exchanges", vhost, "spread")
    assert (made["type"], made["arguments"]) == ("x-consistent-hash", {"hash-header": "customer"})

    console.allow(400)
    name.fill("late")
    form.get_by_role("button", name="Add exchange").click()
    expect(form.get_by_role("alert")).to_contain_text("inequivalent arg 'type' for exchange 'late'")
    expect(name).to_have_value("late")
    name.fill("x" * 256)
    form.get_by_role("button", name="Add exchange").click()
    expect(form.get_by_text("This must be 255 bytes or less.")).to_be_visible()


def test_what_an_exchange_has_done(new_ui: NewUi, vhost: str, broker: LeveretProcess, api: Management) -> None:
    api.request("PUT", "exchanges", vhost, "spare", body={"type": "fanout"})
    body = {"type": "direct", "arguments": {"alternate-exchange": "spare", "x-note": "kept"}}
    api.request("PUT", "exchanges", vhost, "counted", body=body)
    api.request(
        "PUT",
        "policies",
        vhost,
        "named",
        body={"pattern": "^counted$", "definition": {"alternate-exchange": "spare"}},
    )
    api.request("POST", "bindings", vhost, "e", "counted", "q", "orders", body={"routing_key": "k"})
    with Client(f"{broker.url}/{vhost}") as client:
        for key in ("k", "k", "k", "nobody"):
            client.channel.basic_publish("counted", key, b"x")
        client.channel.basic_publish("amq.direct", "nobody", b"x")
        client.channel.basic_publish("amq.direct", "nobody", b"x", mandatory=True)
        with Publishing(lambda: client.channel.basic_publish("counted", "k", b"x")):
            ui = new_ui(address=page_of("counted"))
            ui.choose("refresh", "1")
            expect(ui.main.get_by_role("img", name="Message rates")).to_have_attribute(
                "aria-label", ROUTED, timeout=120_000
            )
    facts = ui.main.locator("dl.properties").first
    expect(facts).to_contain_text("x-note:kept")
    expect(facts.get_by_role("link", name="spare")).to_have_attribute("href", page_of("spare"))
    expect(facts.get_by_role("link", name="named")).to_have_attribute("href", f"#/policies/{vhost}/named")
    ui.go(page_of("amq.direct"))
    expect(ui.main.get_by_text("Nothing is bound to this exchange.")).to_be_visible()
    expect(facts).to_contain_text("Unroutable, dropped1")
    expect(facts).to_contain_text("Unroutable, returned1")
    expect(ui.main.locator("figcaption").get_by_text("Unroutable")).to_be_visible()
    expect(ui.main.get_by_role("heading", name="Delete this exchange")).to_have_count(0)
    ui.go("#/exchanges")
    ui.choose("vhost", vhost)
    # The returned one is not lost.
    expect(ui.row("amq.direct").locator("td").last).to_have_text("1")


def test_binding_and_unbinding(new_ui: NewUi, vhost: str, api: Management, console: Console) -> None:
    ui = new_ui(address=page_of("events"))
    expect(ui.main.get_by_text("No other exchange is bound to this one.")).to_be_visible()
    form = opened(ui, "Add a binding")
    expect(form.get_by_text("# for any number of words")).to_be_visible()
    bind = form.get_by_role("button", name="Bind")
    name, key = form.get_by_role("textbox", name="Name").first, form.get_by_label("Routing key")
    console.allow(404, 400)
    name.fill("nowhere")
    bind.click()
    expect(form.get_by_role("alert")).to_have_text("no queue 'nowhere' in vhost 'exchanging'")
    name.fill("orders")
    key.fill("a/b.%2F~#")
    form.locator(".arguments-row").first.get_by_label("Name").fill("n")
    form.locator(".arguments-row").first.get_by_label("Value").fill("1")
    bind.click()
    expect(form.get_by_text("orders is bound.")).to_be_visible()
    expect(ui.row("a/b.%2F~#")).to_contain_text("n:1")
    expect(ui.row("orders").get_by_role("link")).to_have_attribute("href", f"#/queues/{vhost}/orders")
    form.get_by_label("To", exact=True).select_option("exchange")
    name.fill("amq.fanout")
    bind.click()
    link = ui.row("amq.fanout").get_by_role("link")
    expect(link).to_have_attribute("href", page_of("amq.fanout"))
    ui.row("orders").get_by_role("button", name="Unbind").click()
    dialog = ui.page.get_by_role("dialog", name="Remove binding")
    expect(dialog).to_contain_text("events → orders")
    expect(dialog).to_contain_text("Routing key: a/b.%2F~#")
    dialog.get_by_role("button", name="Cancel").click()
    expect(ui.row("orders")).to_have_count(1)
    ui.row("orders").get_by_role("button", name="Unbind").click()
    dialog.get_by_role("button", name="Unbind").click()
    expect(ui.row("orders")).to_have_count(0)
    assert [each["destination"] for each in api.request("GET", "bindings", vhost) if each["source"]] == ["amq.fanout"]
    link.click()
    expect(ui.main.get_by_role("heading", level=1)).to_contain_text("amq.fanout")
    expect(ui.row("events").get_by_role("link")).to_have_attribute("href", page_of("events"))


def test_publishing(new_ui: NewUi, vhost: str, api: Management, broker: LeveretProcess, console: Console) -> None:
    ui = new_ui(address=page_of("amq.default"))
    expect(ui.main.get_by_text("This cannot be changed.")).to_be_visible()
    expect(ui.main.get_by_role("heading", name="Delete this exchange")).to_have_count(0)
    form = opened(ui, "Publish a message")
    publish = form.get_by_role("button", name="Publish")
    publish.click()
    lost = ui.main.get_by_text("published, but not routed")
    expect(lost).to_be_visible()
    form.get_by_label("Routing key").fill("orders")
    form.get_by_label("Delivery mode").select_option("2")
    form.get_by_label("Payload", exact=True).fill("<b>line 1\nline 2</b> 🐇")
    headers = form.get_by_label("Headers")
    headers.get_by_label("Name").first.fill(HOSTILE)
    headers.get_by_label("Value").first.fill("7")
    headers.get_by_label("Type").first.select_option("Number")
    form.get_by_role("button", name="content_type").click()
    ui.page.keyboard.type("text/plain")
    form.get_by_role("button", name="priority").click()
    ui.page.keyboard.type("5")
    ui.refresh()
    expect(form.get_by_label("Payload", exact=True)).to_have_value("<b>line 1\nline 2</b> 🐇")
    publish.click()
    expect(form.get_by_text("The message was published and routed.")).to_be_visible()
    expect(lost).to_have_count(0)
    form.get_by_label("Payload is").select_option("base64")
    console.allow(400)
    publish.click()
    expect(form.get_by_role("alert")).to_contain_text("not_base64")
    form.get_by_label("Payload", exact=True).fill("AP8=")
    publish.click()
    expect(form.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_text("The message was published and routed.")).to_be_visible()
    with Client(f"{broker.url}/{vhost}") as client:
        _, properties, body = client.channel.basic_get("orders", auto_ack=True)
        assert body == "<b>line 1\nline 2</b> 🐇".encode()
        assert properties is not None
        assert properties.headers == {HOSTILE: 7}
        assert (properties.content_type, properties.priority, properties.delivery_mode) == ("text/plain", 5, 2)
        assert client.channel.basic_get("orders", auto_ack=True)[2] == b"\x00\xff"


def test_deleting(new_ui: NewUi, vhost: str, api: Management, console: Console) -> None:
    api.request("POST", "bindings", vhost, "e", "events", "q", "orders", body={"routing_key": "k"})
    console.allow(400, 404)
    ui = new_ui(address=page_of("events"))
    ui.main.get_by_label("Only if unused").check()
    ui.main.get_by_role("button", name="Delete").click()
    dialog = ui.page.get_by_role("dialog", name="Delete exchange")
    expect(dialog).to_contain_text("events")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("in use")
    dialog.get_by_role("button", name="Cancel").click()
    ui.main.get_by_label("Only if unused").uncheck()
    ui.main.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Exchanges")
    assert "events" not in [each["name"] for each in api.request("GET", "exchanges", vhost)]
