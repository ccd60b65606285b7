"""The list of channels, and the page of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "channelled"


@pytest.fixture
def client(api: Management, broker: LeveretProcess) -> Iterator[Client]:
    """A client in a virtual host of its own."""
    api.request("PUT", "vhosts", VHOST)
    with Client(f"{broker.url}/{VHOST}") as connected:
        yield connected
    api.request("DELETE", "vhosts", VHOST)


@pytest.fixture
def channels(client: Client, new_ui: NewUi) -> Ui:
    """The list, of that virtual host."""
    ui = new_ui(address="#/channels")
    ui.choose("vhost", VHOST)
    expect(ui.rows()).to_have_count(1)
    return ui


def test_what_channels_do(channels: Ui, client: Client) -> None:
    client.channel.queue_declare("work")
    client.channel.confirm_delivery()
    for _ in range(20):
        client.channel.basic_publish("", "work", b"x")
    consuming = client.connection.channel()
    consuming.basic_qos(prefetch_count=7)
    consuming.basic_consume("work", lambda *_: None)
    client.connection.channel().tx_select()
    client.pump()
    channels.choose("refresh", "1")
    expect(channels.rows()).to_have_count(3)
    row = channels.rows().nth(0)
    expect(row.locator("abbr").first).to_have_attribute("title", re.compile("^confirm: "))
    expect(row).to_contain_text(re.compile("running|idle"))
    expect(channels.rows().nth(1).locator("td").nth(6)).to_have_text("7")
    expect(channels.rows().nth(1).locator("td").nth(7)).to_have_text("7")
    expect(channels.rows().nth(2).locator("abbr").first).to_have_text("T")
    channels.main.get_by_role("columnheader", name="Unacked").get_by_role("button").click()
    expect(channels.rows().first.locator("td").nth(6)).to_have_text("7")
    channels.main.get_by_role("searchbox").fill("(3)")
    expect(channels.rows()).to_have_count(1)


def test_what_a_channel_is(channels: Ui, client: Client) -> None:
    client.channel.queue_declare("work")
    client.channel.basic_qos(prefetch_count=3)
    client.channel.basic_consume("work", lambda *_: None, consumer_tag="reader", arguments={"x-priority": 5})
    for _ in range(9):
        client.channel.basic_publish("", "work", b"x")
    client.pump()
    channels.choose("refresh", "1")
    channels.rows().get_by_role("link").click()
    facts = channels.main.locator("dl.properties").first
    expect(facts).to_contain_text("3 per consumer")
    expect(facts).to_contain_text("neither confirms nor transactions")
    expect(facts).to_contain_text("Published9")
    row = channels.row("reader")
    for text in ("yes", "no", "3", "active", "x-priority:5"):
        expect(row).to_contain_text(text)
    expect(row.get_by_role("link", name="work")).to_have_attribute("href", f"#/queues/{VHOST}/work")
    expect(channels.main.get_by_role("img", name="Message rates")).to_have_attribute(
        "aria-label", re.compile(r"Publish: .* highest [1-9]"), timeout=120_000
    )
    connection = facts.get_by_role("link")
    name = connection.inner_text()
    expect(connection).to_have_attribute("href", f"#/connections/{quote(name, safe='')}")
    client.channel.basic_cancel("reader")
    expect(channels.main.get_by_text("The channel has no consumer.")).to_be_visible()


def test_the_one_that_waits_for_the_active_consumer(channels: Ui, client: Client) -> None:
    client.channel.queue_declare("single", arguments={"x-single-active-consumer": True})
    for tag in ("first", "second"):
        client.channel.basic_consume("single", lambda *_: None, consumer_tag=tag)
    channels.rows().get_by_role("link").click()
    expect(channels.row("first")).to_contain_text("active")
    expect(channels.row("second")).to_contain_text("waiting")
