"""The page of a queue, but for its messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import Locator, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "queue shown"
#: A minute may end between the first and the last one.
DROPPED: Final = re.compile(r"Dropped over the limit: .* highest [1-3]")


@pytest.fixture
def connection(broker: LeveretProcess, vhost: str) -> Iterator[pika.BlockingConnection]:
    """A client in the virtual host."""
    made = pika.BlockingConnection(pika.URLParameters(f"{broker.url}/{quote(vhost, safe='')}"))
    yield made
    made.close()


def policy(api: Management, kind: str, name: str, pattern: str, priority: int = 0, **definition: Any) -> None:
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    body = {"pattern": pattern, "definition": keys, "priority": priority, "apply-to": "queues"}
    api.request("PUT", kind, VHOST, name, body=body)


def page_of(name: str) -> str:
    return f"#/queues/{quote(VHOST, safe='')}/{quote(name, safe='')}"


def open_queue(new_ui: NewUi, name: str, **options: object) -> Ui:
    return new_ui(address=page_of(name), **options)


def part(ui: Ui, title: str) -> Locator:
    return ui.main.locator(".section").filter(has=ui.page.get_by_role("heading", name=title, exact=True))


def folded(ui: Ui, title: str) -> Locator:
    """A part that is closed at first, opened by its button on top of the page."""
    ui.main.get_by_role("navigation", name="On this page").get_by_role("button", name=title, exact=True).click()
    return ui.main.locator("details.section[open]").filter(has=ui.page.locator("summary", has_text=title))


def part_of(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text))


def cells(section: Locator, key: str) -> list[str]:
    row = section.locator("tbody tr").filter(has=section.page.get_by_text(key, exact=True))
    expect(row).to_have_count(1)
    return [text.strip() for text in row.locator("td").all_inner_texts()]


def test_every_setting_has_its_value_its_source_and_the_reason(
    new_ui: NewUi, api: Management, declare: Callable[..., None]
) -> None:
    policy(api, "policies", "strong", "^explained$", 5, max_length=50, message_ttl=120_000)
    policy(api, "policies", "weak", "^exp", 1, max_length=10)
    policy(api, "operator-policies", "cap", "", max_length=70, max_length_bytes=2048)
    declare("explained", 0, max_length=60, message_ttl=90_000, max_priority=2)
    ui = open_queue(new_ui, "explained")
    settings = part(ui, "Settings")
    smaller = "the smaller one counts: 60 in the argument, 50 in the policy"
    assert cells(settings, "max-length") == ["max-length", "50", "policy strong", "60", "50", "70", smaller]
    only = "only the operator policy sets it"
    expected = ["max-length-bytes", "2 KiB", "operator policy cap", "", "", "2 KiB", only]
    assert cells(settings, "max-length-bytes") == expected
    assert cells(settings, "message-ttl")[1:5] == ["1m 30s", "argument", "1m 30s", "2m"]
    assert cells(settings, "max-priority")[1:4] == ["2", "argument", "2"]
    assert cells(settings, "overflow") == ["overflow", "drop-head", "default", "", "", "", "not set"]
    assert cells(settings, "expires")[1:3] == ["never", "default"]
    expect(settings).to_contain_text("Policy weak – 'strong' has the higher priority (5 against 1)")
    href = f"#/policies/{quote(VHOST, safe='')}/strong"
    expect(settings.get_by_role("link", name="strong").first).to_have_attribute("href", href)


def test_how_full_it_is_and_what_would_raise_the_limit(
    new_ui: NewUi, api: Management, declare: Callable[..., None]
) -> None:
    policy(api, "policies", "p", "^f", 3, max_length=12)
    declare("f.1+1", 9, max_length_bytes=1000)
    ui = open_queue(new_ui, "f.1+1")
    fill = part(ui, "Fill and storage")
    expect(fill.get_by_role("img", name="Messages: 9 of 12, 75%")).to_be_visible()
    expect(fill.get_by_role("img", name="Bytes: 90 B of 1000 B, 9%")).to_be_visible()
    expect(fill).to_contain_text("9 of 12, limit by policy p")
    expect(fill).to_contain_text("90 B of 1000 B, limit by an argument")
    expect(fill).to_contain_text("the oldest messages are dropped")
    expect(fill).to_contain_text("To raise max-length: change policy p.")
    expect(fill).to_contain_text("To raise max-length-bytes: it is an argument")
    add = fill.get_by_role("link", name="Add a policy for this queue")
    definition = "%7B%22max-length%22%3A12%7D"
    query = f"pattern=%5Ef%5C.1%5C%2B1%24&apply-to=queues&priority=4&definition={definition}"
    expect(add).to_have_attribute("href", f"#/policies?vhost=queue+shown&{query}")
    add.click()
    expect(ui.main.get_by_role("textbox", name="Pattern")).to_have_value(r"^f\.1\+1$")
    expect(ui.main.get_by_role("textbox", name="Priority")).to_have_value("4")


def test_why_messages_vanished(new_ui: NewUi, api: Management, declare: Callable[..., None]) -> None:
    api.request("PUT", "exchanges", VHOST, "late", body={"type": "fanout"})
    policy(api, "policies", "short", "^over$", max_length=2, dead_letter_exchange="late")
    declare("over", 5)
    declare("refusing", 1, max_length=1, overflow="reject-publish")
    message = {"properties": {}, "routing_key": "refusing", "payload": "x", "payload_encoding": "string"}
    for _ in range(3):
        with pytest.raises(HTTPError) as refused:
            api.request("POST", "exchanges", VHOST, "amq.default", "publish", body=message)
        refused.value.close()
    declare("calm", 1)
    declare("letters", 3, max_length=1, dead_letter_exchange="absent")
    ui = open_queue(new_ui, "over")
    losses = part(ui, "Losses")
    expect(losses).to_contain_text("3 messages permanently lost")
    row = cells(losses, "Dropped over the limit")
    assert row[1:4] == ["3", "3", "3"]
    assert row[4].startswith(
        "The limit is max-length 2; overflow drop-head drops the oldest messages. Dead letters go to"
    )
    expect(losses.get_by_role("img")).to_have_attribute("aria-label", DROPPED)
    with ui.page.expect_response(lambda answer: "msg_rates_age=86400" in answer.url):
        ui.choose("losses-range", "86400")
    expect(losses.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"Dead letters lost: .* highest [1-3]")
    )
    ui.go(page_of("refusing"))
    expect(part(ui, "Losses")).to_contain_text("overflow is reject-publish. The publishers were told, by confirms")
    assert cells(part(ui, "Losses"), "Refused: the queue was full")[1] == "3"
    ui.go(page_of("letters"))
    expect(part(ui, "Losses")).to_contain_text("There is no exchange absent for dead letters, so they are lost.")
    expect(part(ui, "Settings")).to_contain_text("There is no exchange absent, which is the dead-letter-exchange")
    ui.go(page_of("calm"))
    expect(part(ui, "Losses")).to_contain_text("No message was dropped")
    expect(part(ui, "Losses").get_by_role("link")).to_have_attribute("href", "#/losses")


def test_consumers(new_ui: NewUi, declare: Callable[..., None], connection: pika.BlockingConnection) -> None:
    declare("worked", 2)
    ui = open_queue(new_ui, "worked")
    expect(part(ui, "Consumers")).to_contain_text("This queue has no consumers.")
    channel = connection.channel()
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("worked", lambda *_: None, consumer_tag="<b>tag</b>", exclusive=True)
    ui.refresh()
    consumers = part(ui, "Consumers")
    row = consumers.locator("tbody tr")
    expect(row.locator("td").nth(1)).to_contain_text("<b>tag</b>")
    assert row.locator("td").all_inner_texts()[2:5] == ["yes", "7", "yes"]
    link = consumers.get_by_role("link")
    expect(link).to_have_attribute("href", part_of("#/channels/127.0.0.1"))
    expect(ui.main.locator(".tiles")).to_contain_text("2Unacked")


def test_bindings(new_ui: NewUi, api: Management, declare: Callable[..., None], console: Console) -> None:
    console.allow(404)
    declare("bound")
    ui = open_queue(new_ui, "bound")
    bindings = part(ui, "Bindings")
    expect(bindings.locator("tbody tr")).to_have_count(1)
    expect(bindings.get_by_text("1 binding", exact=True)).to_be_visible()
    expect(bindings).to_contain_text("implicit")
    ui.main.get_by_text("Add a binding").click()
    form = ui.main.locator("form").filter(has_text="From exchange")
    form.get_by_label("From exchange").fill("nowhere")
    form.get_by_role("button", name="Bind").click()
    expect(form.get_by_role("alert")).to_contain_text("no exchange 'nowhere'")
    form.get_by_label("From exchange").fill("amq.topic")
    form.get_by_label("Routing key").fill("a/%2F.#")
    form.get_by_role("button", name="Bind").click()
    expect(bindings.locator("tbody tr")).to_have_count(2)
    expect(bindings.get_by_text("2 bindings", exact=True)).to_be_visible()
    expect(bindings.get_by_role("link", name="amq.topic")).to_have_attribute("href", part_of("/amq.topic"))
    bindings.get_by_role("button", name="Unbind …").click()
    dialog = ui.page.get_by_role("dialog", name="Remove binding")
    expect(dialog).to_contain_text("amq.topic → bound")
    expect(dialog).to_contain_text("a/%2F.#")
    dialog.get_by_role("button", name="Unbind").click()
    expect(bindings.locator("tbody tr")).to_have_count(1)
    assert len(api.request("GET", "queues", VHOST, "bound", "bindings")) == 1


def test_purging_and_deleting(
    new_ui: NewUi, api: Management, declare: Callable[..., None], connection: pika.BlockingConnection, console: Console
) -> None:
    console.allow(400, 404)
    declare("doomed", 3)
    connection.channel().basic_consume("doomed", lambda *_: None)
    declare("doomed.too", 3)
    ui = open_queue(new_ui, "doomed.too")
    folded(ui, "Purge").get_by_role("button", name="Purge …").click()
    dialog = ui.page.get_by_role("dialog", name="Purge queue")
    expect(dialog.get_by_text("doomed.too", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Purge").click()
    expect(ui.main.get_by_text("The queue has been purged.")).to_be_visible()
    expect(ui.main.locator(".tiles")).to_contain_text("0Ready")
    ui.go(page_of("doomed"))
    form = folded(ui, "Delete")
    form.get_by_label("Only if unused").check()
    form.get_by_role("button", name="Delete …").click()
    dialog = ui.page.get_by_role("dialog", name="Delete queue")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("in use")
    dialog.get_by_role("button", name="Cancel").click()
    form.get_by_label("Only if unused").uncheck()
    form.get_by_role("button", name="Delete …").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(ui.main.get_by_role("heading", level=1)).to_have_text("Queues")
    expect(ui.page.get_by_text("Queue doomed has been deleted.")).to_be_visible()
    with pytest.raises(HTTPError, match="404"):
        api.request("GET", "queues", VHOST, "doomed")


def test_a_queue_that_is_gone(new_ui: NewUi, api: Management, declare: Callable[..., None], console: Console) -> None:
    console.allow(404)
    declare("fleeting")
    ui = open_queue(new_ui, "fleeting")
    expect(part(ui, "Settings")).to_be_visible()
    api.request("DELETE", "queues", VHOST, "fleeting")
    ui.refresh()
    expect(ui.main.get_by_text("This queue has been deleted.")).to_be_visible()
    expect(ui.main.get_by_role("link", name="All queues")).to_be_visible()
    declare("fleeting")
    ui.refresh()
    expect(part(ui, "Settings")).to_be_visible()
    ui.go(page_of("never"))
    expect(ui.main.get_by_text(f"There is no queue of this name in virtual host {VHOST}.")).to_be_visible()
