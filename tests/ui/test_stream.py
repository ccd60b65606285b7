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
