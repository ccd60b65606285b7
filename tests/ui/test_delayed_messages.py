"""Delayed messages on the page of their exchange or queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pika
import pytest
from playwright.sync_api import expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "delaying"
PAGE: Final = f"#/exchanges/{VHOST}/late"
HOUR: Final = 3_600_000


@pytest.fixture
def api_with_exchange(api: Management) -> Iterator[Management]:
    """A virtual host with a delayed exchange, which a queue is bound to."""
    api.request("PUT", "vhosts", VHOST)
    api.request(
        "PUT", "exchanges", VHOST, "late", body={"type": "x-delayed-message", "arguments": {"x-delayed-type": "topic"}}
    )
    api.request("PUT", "queues", VHOST, "orders", body={})
    api.request("POST", "bindings", VHOST, "e", "late", "q", "orders", body={"routing_key": "#"})
    yield api
    api.request("DELETE", "vhosts", VHOST)


def publish(api: Management, key: str, hours: int) -> None:
    body = {"routing_key": key, "payload": f"payload of {key}", "payload_encoding": "string"}
    properties = {"headers": {"x-delay": hours * HOUR}}
    assert api.request("POST", "exchanges", VHOST, "late", "publish", body={**body, "properties": properties})["routed"]


def test_looking_cancelling_and_delivering(new_ui: NewUi, api_with_exchange: Management, console: Console) -> None:
    api = api_with_exchange
    ui = new_ui(address=PAGE)
    expect(ui.main.get_by_text("No message waits in this exchange.")).to_be_visible()
    for key, hours in (("third", 30), ("first", 1), ("second", 2)):
        publish(api, key, hours)
    ui.refresh()
    expect(ui.main.get_by_text("3 messages:")).to_be_visible()
    table = ui.main.get_by_role("region", name="delayed messages")
    rows = table.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("first")
    expect(rows.nth(0)).to_contain_text("1h")
    expect(rows.nth(2)).to_contain_text("1d 6h")
    expect(ui.main.locator("dl.properties").first).to_contain_text("Delayed3, 49 B")
    rows.nth(1).get_by_role("button", name="Show").click()
    expect(ui.main.get_by_role("article", name="Message 3")).to_contain_text("payload of second")

    rows.nth(0).get_by_role("button", name="Cancel").click()
    ui.page.get_by_role("dialog", name="Cancel a message").get_by_role("button", name="Cancel the message").click()
    expect(ui.main.get_by_text("2 messages:")).to_be_visible()
    rows.nth(0).get_by_role("button", name="Deliver now").click()
    ui.page.get_by_role("dialog", name="Deliver a message now").get_by_role("button", name="Deliver now").click()
    expect(ui.main.get_by_text("1 message:")).to_be_visible()
    expect(rows.nth(0)).to_contain_text("third")
    (message,) = api.request(
        "POST", "queues", VHOST, "orders", "get", body={"count": 9, "ackmode": "ack_requeue_true", "encoding": "auto"}
    )
    assert message["payload"] == "payload of second"


def test_what_waits_for_its_retry_in_a_queue(
    new_ui: NewUi, api_with_exchange: Management, broker: LeveretProcess
) -> None:
    arguments = {"x-delayed-retry-steps": "1h"}
    api_with_exchange.request("PUT", "queues", VHOST, "work", body={"durable": True, "arguments": arguments})
    with pika.BlockingConnection(pika.URLParameters(f"{broker.url}/{VHOST}")) as connection:
        channel = connection.channel()
        for body in (b"one", b"two"):
            channel.basic_publish("", "work", body)
            method, _, _ = channel.basic_get("work")
            assert method is not None
            channel.basic_nack(method.delivery_tag)
    ui = new_ui(address=f"#/queues/{VHOST}/work")
    rows = ui.main.get_by_role("region", name="delayed messages").locator("tbody tr")
    expect(rows).to_have_count(2)
    rows.nth(0).get_by_role("button", name="Show").click()
    expect(ui.main.get_by_role("article", name="Message 1")).to_contain_text("one")
    rows.nth(0).get_by_role("button", name="Cancel").click()
    ui.page.get_by_role("dialog", name="Cancel a message").get_by_role("button", name="Cancel the message").click()
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("button", name="Deliver now").click()
    ui.page.get_by_role("dialog", name="Deliver a message now").get_by_role("button", name="Deliver now").click()
    expect(ui.main.get_by_text("No message waits in this queue.")).to_be_visible()
    found = api_with_exchange.request("GET", "queues", VHOST, "work")
    assert (found["messages"], found["messages_ready"]) == (1, 1)
