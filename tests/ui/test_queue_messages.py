"""Messages on the page of a queue: publishing, getting and moving them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from playwright.sync_api import Locator, Route, expect

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.pages import Ui

NewUi = Callable[..., Ui]
VHOST: Final = "queue messages"
MARKUP: Final = """<img src=x onerror="document.title='hit'">"""


@pytest.fixture
def channel(api: Management, broker: LeveretProcess) -> Iterator[BlockingChannel]:
    """A client's channel in a virtual host of its own."""
    api.request("PUT", "vhosts", VHOST)
    connection = pika.BlockingConnection(pika.URLParameters(f"{broker.url}/{quote(VHOST, safe='')}"))
    yield connection.channel()
    connection.close()
    api.request("DELETE", "vhosts", VHOST)


def fill(channel: BlockingChannel, name: str, count: int, key: str = "", **arguments: Any) -> None:
    """Declare a queue with arguments, and publish numbers to it: with a routing key through an exchange."""
    given = {f"x-{argument.replace('_', '-')}": value for argument, value in arguments.items()}
    channel.queue_declare(name, durable=True, arguments=given)
    if key:
        channel.exchange_declare("in", "topic")
        channel.queue_bind(name, "in", "#")
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("in" if key else "", key or name, str(number).encode())


def open_part(new_ui: NewUi, name: str, title: str, **options: object) -> tuple[Ui, Locator]:
    """A page with one of its closed parts opened."""
    ui = new_ui(address=f"#/queues/{quote(VHOST, safe='')}/{quote(name, safe='')}", **options)
    contents = ui.main.get_by_role("navigation", name="On this page")
    contents.get_by_role("button", name=title, exact=True).click()
    return ui, ui.main.locator("details.section[open]").filter(has=ui.page.locator("summary", has_text=title))


def get(section: Locator, count: int = 1, mode: str = "ack_requeue_true") -> Locator:
    section.get_by_label("Mode").select_option(mode)
    section.get_by_label("Messages").fill(str(count))
    section.get_by_role("button", name="Get messages").click()
    return section.get_by_role("article")


def ready(api: Management, name: str) -> int:
    count: int = api.request("GET", "queues", VHOST, name)["messages_ready"]
    return count


def test_a_json_payload_is_laid_out_and_not_changed(new_ui: NewUi, channel: BlockingChannel) -> None:
    channel.queue_declare("json")
    payload = '{"big":12345678901234567890,"a":[],"t":"a, {\\"b\\": 1}","l":[1,{"x":1.50}]}'
    headers = {"id": 2**53 + 1, "ids": [2**62 + 1, {"lowest": -(2**63)}]}
    properties = pika.BasicProperties(delivery_mode=2, timestamp=0, headers=headers, message_id=MARKUP)
    channel.basic_publish("", "json", payload.encode(), properties)
    ui, section = open_part(new_ui, "json", "Get messages")
    message = get(section)
    laid_out = """{
  "big": 12345678901234567890,
  "a": [],
  "t": "a, {\\"b\\": 1}",
  "l": [
    1,
    {
      "x": 1.50
    }
  ]
}"""
    assert message.locator("pre").text_content() == laid_out
    expect(message.get_by_role("button", name="JSON")).to_have_attribute("aria-pressed", "true")
    message.get_by_role("button", name="Text").click()
    expect(message.locator("pre")).to_have_text(payload)
    message.get_by_role("button", name="Hex").click()
    expect(message.locator("pre")).to_contain_text("000000  7b 22 62 69 67 22 3a 31")
    expect(message.get_by_role("button", name="JSON")).to_have_attribute("aria-pressed", "false")
    expect(message).to_contain_text("delivery_mode:2 (persistent)")
    expect(message).to_contain_text(f"message_id:{MARKUP}")
    expect(message).to_contain_text("9007199254740993")
    expect(message).to_contain_text('[4611686018427387905,{"lowest":-9223372036854775808}]')
    assert ui.page.locator("img").count() == 0
    expect(section.get_by_role("status")).to_contain_text("1 message, 0 more in the queue.")
    get(section)
    expect(message).to_contain_text("yes: it has been delivered or got before")


def test_an_empty_payload_and_an_empty_queue(new_ui: NewUi, channel: BlockingChannel) -> None:
    channel.queue_declare("few")
    channel.basic_publish("", "few", b"")
    _, section = open_part(new_ui, "few", "Get messages")
    message = get(section, 5)
    expect(message).to_contain_text("The payload is empty")
    expect(message.locator("pre")).to_have_count(0)
    channel.basic_get("few", auto_ack=True)
    section.get_by_role("button", name="Get messages").click()
    expect(section.get_by_role("status")).to_have_text("The queue had no ready messages.")
    expect(message).to_have_count(0)


def test_where_a_message_died(new_ui: NewUi, channel: BlockingChannel) -> None:
    channel.queue_declare("dead")
    for source, target in (("first", "second"), ("second", "dead")):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        channel.queue_declare(source, arguments={**arguments, **({"x-max-length": 0} if source == "second" else {})})
    channel.basic_publish("", "first", b"x", pika.BasicProperties(expiration="0"))
    _, section = open_part(new_ui, "dead", "Get messages")
    deaths = get(section).get_by_role("region", name="x-death").locator("tbody tr")
    expect(deaths).to_have_count(2)
    assert deaths.nth(0).locator("td").all_inner_texts()[:3] == ["second", "maxlen", "1"]
    assert deaths.nth(1).locator("td").all_inner_texts()[:3] == ["first", "expired (expiration was 0 ms)", "1"]
    expect(deaths.nth(1).get_by_role("link")).to_have_attribute("href", "#/queues/queue%20messages/first")


def test_origins_and_reasons_of_dead_letters_are_shown_at_once(new_ui: NewUi, channel: BlockingChannel) -> None:
    channel.queue_declare("letters", durable=True)
    to_letters = {"dead_letter_exchange": "", "dead_letter_routing_key": "letters"}
    fill(channel, "full", 5, **to_letters, max_length=2)
    fill(channel, "short", 2, **to_letters, message_ttl=0)
    channel.basic_publish("", "letters", b"no dead letter")
    ui = new_ui(address=f"#/queues/{quote(VHOST, safe='')}/letters", viewport={"width": 390, "height": 844})
    ui.choose("refresh", "1")
    rows = ui.main.get_by_role("region", name="dead letters by origin").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("fullmaxlen – the queue was full3")
    expect(rows.nth(1)).to_contain_text("shortexpired2")
    expect(rows.nth(0).get_by_role("link").first).to_have_attribute("href", "#/queues/queue%20messages/full")
    expect(rows.nth(1)).to_be_in_viewport(ratio=0.9)
    section = ui.main.locator("section.section").filter(has_text="5 dead letters; 1 other message.")
    section.get_by_role("button", name="Return dead letters").click()
    expect(ui.main.get_by_role("button", name="Return …")).to_be_visible()
    ui.go(f"#/queues/{quote(VHOST, safe='')}/full")
    expect(ui.main.locator(".tiles")).to_contain_text("2Ready")
    expect(ui.main.get_by_role("heading", name="Dead letters")).to_have_count(0)


def test_taking_messages_away_is_asked_first(new_ui: NewUi, channel: BlockingChannel, api: Management) -> None:
    fill(channel, "taken", 3)
    ui, section = open_part(new_ui, "taken", "Get messages")
    message = get(section, 2, "ack_requeue_false")
    dialog = ui.page.get_by_role("dialog", name="Get and remove messages")
    expect(dialog.get_by_text("taken", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(message).to_have_count(0)
    section.get_by_role("button", name="Get messages").click()
    dialog.get_by_role("button", name="Get and remove").click()
    expect(message).to_have_count(2)
    assert ready(api, "taken") == 1


def start_move(ui: Ui, section: Locator, target: str) -> None:
    section.get_by_label("To queue").fill(target)
    section.get_by_role("button", name="Move …").click()
    dialog = ui.page.get_by_role("dialog", name="Move messages")
    expect(dialog).to_contain_text(f"moved to queue {target}.")
    dialog.get_by_role("button", name="Move").click()


def test_moving_all_in_steps(new_ui: NewUi, channel: BlockingChannel, api: Management) -> None:
    channel.queue_declare("target")
    channel.queue_declare("source")
    for number in range(2500):
        channel.basic_publish("", "source", str(number).encode())
    ui, section = open_part(new_ui, "source", "Move messages")
    steps: list[Any] = []
    ui.page.on("request", lambda request: steps.append(request) if "move-messages" in request.url else None)
    expect(section.locator("datalist option")).to_have_attribute("value", "target")
    start_move(ui, section, "target")
    expect(section.get_by_role("status").first).to_contain_text("2,500 messages moved to target.")
    expect(section).to_contain_text("2,500 of 2,500 moved")
    assert [step.post_data_json["limit"] for step in steps] == [1000, 1000, 500]
    assert (ready(api, "source"), ready(api, "target")) == (0, 2500)
    expect(ui.main.locator(".tiles")).to_contain_text("0Ready")


def test_a_move_can_be_stopped(new_ui: NewUi, channel: BlockingChannel, api: Management) -> None:
    channel.queue_declare("target")
    channel.queue_declare("source")
    for number in range(1500):
        channel.basic_publish("", "source", str(number).encode())
    ui, section = open_part(new_ui, "source", "Move messages")
    held: list[Route] = []
    ui.page.route("**/move-messages", lambda route: held.append(route))
    start_move(ui, section, "target")
    section.get_by_role("button", name="Stop").click()
    held[0].continue_()
    expect(section).to_contain_text("1,000 of 1,500 moved: it was stopped.")
    assert (ready(api, "source"), ready(api, "target")) == (500, 1000)


def test_browsing_changes_nothing(channel: BlockingChannel, new_ui: NewUi) -> None:
    fill(channel, "browsed", 7)
    method, _, _ = channel.basic_get("browsed")
    assert method is not None
    _, section = open_part(new_ui, "browsed", "Browse messages")
    section.get_by_label("Messages").fill("3")
    section.get_by_role("button", name="Show messages").click()
    articles = section.get_by_role("article")
    expect(articles).to_have_count(3)
    expect(articles.nth(0).get_by_role("heading")).to_contain_text("Message 1, unacked")
    expect(articles.nth(1).get_by_role("heading")).to_contain_text("Message 2, ready")
    section.get_by_role("button", name="Next messages").click()
    expect(articles.nth(0).get_by_role("heading")).to_contain_text("Message 4, ready")
    section.get_by_label("Only with").fill("body.$=5")
    section.get_by_role("button", name="Show messages").click()
    expect(articles).to_have_count(1)
    expect(section).to_contain_text("1 message of 7 that were read; there are no more.")
    channel.basic_nack(method.delivery_tag)
    again = channel.basic_get("browsed")[0]
    assert again is not None
    following = channel.basic_get("browsed")[0]
    assert following is not None
    assert not following.redelivered


def test_returning_dead_letters(channel: BlockingChannel, new_ui: NewUi) -> None:
    channel.queue_declare("letters", durable=True)
    fill(channel, "origin", 5, dead_letter_exchange="", dead_letter_routing_key="letters")
    for _ in range(5):
        method, _, _ = channel.basic_get("origin")
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
    ui, section = open_part(new_ui, "letters", "Return dead letters")
    section.get_by_label("Messages", exact=True).fill("3")
    section.get_by_role("button", name="Return …").click()
    expect(section.get_by_role("table", name="Dead letters by origin")).to_contain_text("queue 'origin'")
    dialog = ui.page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages will be returned; 0 will be left.")
    dialog.get_by_role("button", name="Return").click()
    expect(section).to_contain_text("The job is completed: 3 messages returned.")
    assert channel.queue_declare("origin", passive=True).method.message_count == 3
    channel.queue_delete("origin")
    section.get_by_role("button", name="Return …").click()
    expect(section).to_contain_text("There is nothing to return.")
    expect(section.get_by_role("table", name="Left where they are")).to_contain_text("the queue does not exist")
