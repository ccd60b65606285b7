"""The page of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import pika
import pytest
from playwright.sync_api import expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.conftest import Console
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "streams shown"


@pytest.fixture
def stream(api: Management, broker: LeveretProcess) -> Iterator[str]:
    """A stream with messages and a consumer, alone in its virtual host."""
    api.request("PUT", "vhosts", VHOST)
    connection = pika.BlockingConnection(pika.URLParameters(f"{broker.url}/{quote(VHOST, safe='')}"))
    channel = connection.channel()
    arguments = {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 5_000_000}
    channel.queue_declare("log", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for _ in range(7):
        channel.basic_publish("", "log", b"x")
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume("log", lambda *_: None, consumer_tag="reader", arguments={"x-stream-offset": "first"})
    connection.process_data_events(0)
    channel.queue_declare("copy", durable=True)
    yield "log"
    connection.close()
    api.request("DELETE", "vhosts", VHOST)


def test_a_stream(new_ui: NewUi, stream: str) -> None:
    ui = new_ui(address=f"#/queues/{quote(VHOST, safe='')}/{stream}")
    expect(ui.main).to_contain_text("0 to 6")
    expect(ui.main).to_contain_text("4.77 MiB, limit by an argument")
    expect(ui.main).to_contain_text("reader")
    text = ui.main.inner_text()
    # What takes messages out of a queue is not offered.
    assert "Browse messages" in text
    assert "Get messages" not in text
    assert "Purge" not in text
    for wrong in ("NaN", "undefined", "[object"):
        assert wrong not in text


def test_consumer_names(new_ui: NewUi, stream: str, api: Management, console: Console) -> None:
    console.allow(400)
    ui = new_ui(address=f"#/queues/{quote(VHOST, safe='')}/{stream}")
    section = ui.main.locator("section.section").filter(has=ui.page.locator("h2", has_text="Consumer names"))
    expect(section).to_contain_text("No consumer of this stream has a name.")
    section.get_by_label("Consumer name").fill("billing")
    section.get_by_label("Goes on with").fill("soon")
    section.get_by_role("button", name="Set", exact=True).click()
    expect(section).to_contain_text("next takes first, last, next, an offset such as 1200")
    section.get_by_label("Goes on with").fill("4")
    section.get_by_role("button", name="Set", exact=True).click()
    row = section.get_by_role("row").filter(has_text="billing")
    expect(row.get_by_role("cell").nth(1)).to_have_text("4")
    expect(row.get_by_role("cell").nth(2)).to_have_text("3")
    assert api.request("GET", "queues", VHOST, stream, "consumer-names", "billing")["next_offset"] == 4
    row.get_by_role("button", name="Delete …").click()
    ui.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(section).to_contain_text("No consumer of this stream has a name.")
    assert api.request("GET", "queues", VHOST, stream, "consumer-names") == []


def test_replaying(new_ui: NewUi, stream: str, api: Management, console: Console) -> None:
    console.allow(400)
    ui = new_ui(address=f"#/queues/{quote(VHOST, safe='')}/{stream}")
    contents = ui.main.get_by_role("navigation", name="On this page")
    contents.get_by_role("button", name="Replay messages", exact=True).click()
    section = ui.main.locator("details.section[open]").filter(
        has=ui.page.locator("summary", has_text="Replay messages")
    )
    section.get_by_label("Messages go into").select_option("into_queue")
    section.get_by_label("Its name").fill("copy")
    section.get_by_label("From", exact=True).fill("2")
    section.get_by_label("Up to").fill("soon")
    section.get_by_role("button", name="Replay …").click()
    expect(section).to_contain_text("to takes first, last, next, an offset such as 1200")
    section.get_by_label("Up to").fill("6")
    section.get_by_role("button", name="Replay …").click()
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text("4 messages will be replayed; 0 will be left.")
    expect(section.get_by_role("table", name="Messages by routing key")).to_contain_text("queue 'copy'")
    dialog.get_by_role("button", name="Replay").click()
    expect(section).to_contain_text("The job is completed: 4 messages replayed.")
    shown = [api.request("GET", "queues", VHOST, name)["messages"] for name in ("log", "copy")]
    assert shown == [7, 4]
    section.get_by_label("From", exact=True).fill("7")
    section.get_by_label("Up to").fill("")
    section.get_by_role("button", name="Replay …").click()
    expect(section).to_contain_text("There is nothing to replay.")
