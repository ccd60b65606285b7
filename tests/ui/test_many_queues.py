"""Ten thousand queues: pages stay small, and what they ask for holds nobody up.

Nothing here is measured by the clock on the wall, which other programs on the machine slow down.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from playwright.sync_api import Response, expect

from tests.integration.threaded_broker import ThreadedBroker
from tests.support.management import Management
from tests.ui.clients import Client, Publishing
from tests.ui.pages import Ui
from tests.ui.registered import PATHS, go

NewUi = Callable[..., Ui]
COUNT: Final = 10_000
PAGE: Final = 100
#: What a page may load at a time, in bytes, and show, in elements.
LARGEST_ANSWER: Final = 150_000
MOST_ELEMENTS: Final = 6_000
#: Seconds of the processor that the event loop may be busy at a stretch. A slice of a list takes 3 ms.
LONGEST_STRETCH: Final = 0.05
LISTS: Final = [path for path in PATHS if ":" not in path]


class Broker(ThreadedBroker):
    """A broker in this process, with many queues."""

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function from the loop, after a while; to be called in the loop."""
        asyncio.get_running_loop().call_later(seconds, function)


class Stretches:
    """How long an event loop has been busy at a stretch: processor time of its thread between two calls of a timer."""

    INTERVAL: Final = 0.001

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.longest = 0.0

    def __enter__(self) -> Stretches:
        self._is_running = True
        self._broker.call(self._begin)
        return self

    def __exit__(self, *error: object) -> None:
        self._is_running = False

    def _begin(self) -> None:
        self._last = time.thread_time()
        self._broker.later(self.INTERVAL, self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        if self._is_running:
            self._broker.later(self.INTERVAL, self._tick)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ten thousand queues, of which every tenth is limited by a policy, and one is full."""
    broker = Broker(tmp_path_factory.mktemp("crowded"))
    with broker:
        queue = {"vhost": "/", "durable": False, "auto_delete": False, "arguments": {}}
        limit = {"max-length": 100}
        policy = {
            "vhost": "/",
            "name": "tenth",
            "pattern": "0$",
            "definition": limit,
            "priority": 0,
            "apply-to": "queues",
        }
        queues = [{**queue, "name": f"many-{number:05}"} for number in range(COUNT)]
        Management(broker.http_url).request("POST", "definitions", body={"queues": queues, "policies": [policy]})
        with Client(broker.url) as client:
            for _ in range(80):
                client.channel.basic_publish("", "many-04560", b"x")
        yield broker


class Answers:
    """What a page has asked the API for."""

    def __init__(self, ui: Ui) -> None:
        self._answers: list[Response] = []
        ui.page.on("response", lambda answer: self._answers.append(answer) if "/api/" in answer.url else None)

    def urls(self, part: str) -> list[str]:
        """Of those with a certain part."""
        return [answer.url for answer in self._answers if part in answer.url]

    @property
    def large(self) -> list[tuple[str, int]]:
        """Those that were too much."""
        sizes = [(answer.url, answer.request.sizes()["responseBodySize"]) for answer in self._answers]
        assert sizes
        return [each for each in sizes if each[1] > LARGEST_ANSWER]


def test_the_list_is_a_page_at_a_time(crowded: Broker, new_ui: NewUi) -> None:
    ui = new_ui(url=crowded.http_url)
    ui.choose("refresh", "0")
    answers = Answers(ui)
    ui.go("#/queues")
    expect(ui.rows()).to_have_count(PAGE)
    expect(ui.main.get_by_text("10,000 queues")).to_be_visible()
    assert len(answers.urls("/api/queues")) == 1
    ui.refresh()
    expect(ui.rows()).to_have_count(PAGE)
    assert answers.large == []
    ui.main.get_by_role("columnheader", name="Fill").get_by_role("button").click()
    expect(ui.rows().first).to_contain_text("many-04560")
    expect(ui.rows().first).to_contain_text("80%")
    ui.main.get_by_role("searchbox").fill("many-0999")
    expect(ui.rows()).to_have_count(10)
    ui.main.get_by_role("searchbox").fill("")
    expect(ui.main.get_by_text("Page 1 of 100")).to_be_visible()
    ui.main.get_by_role("button", name="Next").click()
    expect(ui.main.get_by_text("Page 2 of 100")).to_be_visible()
    assert ui.page.evaluate("document.querySelectorAll('*').length") < MOST_ELEMENTS


def test_no_page_loads_or_shows_all_of_them(crowded: Broker, new_ui: NewUi) -> None:
    ui = new_ui(url=crowded.http_url)
    ui.choose("refresh", "0")
    answers = Answers(ui)
    counts = {}
    for path in [*LISTS, "queues/%2F/many-04560", "policies/%2F/tenth", "exchanges/%2F/amq.default", "vhosts/%2F"]:
        go(ui, f"#/{path}")
        counts[path] = ui.page.evaluate("document.querySelectorAll('*').length")
    assert answers.large == []
    assert {path: count for path, count in counts.items() if count > MOST_ELEMENTS} == {}


def test_messages_flow_while_the_list_is_watched(crowded: Broker, new_ui: NewUi) -> None:
    ui = new_ui(url=crowded.http_url, address="#/queues")
    ui.choose("refresh", "0")
    expect(ui.rows()).to_have_count(PAGE)
    numbers = itertools.count()
    received: list[int] = []
    with Client(crowded.url) as publisher, Client(crowded.url) as consumer:
        consumer.channel.basic_consume("many-00001", lambda *message: received.append(int(message[3])), auto_ack=True)
        publish = lambda: publisher.channel.basic_publish("", "many-00001", str(next(numbers)).encode())  # noqa: E731
        gc.disable()
        try:
            with Publishing(publish, pause=0.002), Stretches(crowded) as stretches:
                for heading in ("Name", "Fill", "Ready", "Deliver"):
                    ui.main.get_by_role("columnheader").get_by_role("button", name=heading, exact=True).click()
                    for _ in range(3):
                        ui.refresh()
                        consumer.pump()
        finally:
            gc.enable()
        sent = next(numbers)
        deadline = time.monotonic() + 120
        while len(received) < sent and time.monotonic() < deadline:
            consumer.connection.process_data_events(0.1)
    assert received == list(range(sent))
    assert 0 < stretches.longest < LONGEST_STRETCH
