"""Exchanges and queues that drop duplicates, over HTTP: declared, counted, exported and imported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.integration.management.scrapes import scrape, value
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Channel, Connection

ARGUMENTS = {"x-cache-size": 5, "x-cache-ttl": 3_600_000, "x-cache-persistence": "disk"}


@pytest.fixture
def channel(process: LeveretProcess, api: HttpApi) -> Iterator[Channel]:
    """A channel, an exchange `once` that drops duplicates, and a queue `unique` of its own that does."""
    with Connection(process.url) as connection:
        made = connection.channel()
        made.exchange_delete("once")
        made.queue_delete("unique")
        body = {"type": "x-message-deduplication", "durable": True, "arguments": ARGUMENTS}
        api.check("PUT", path("exchanges", "/", "once"), body, 201)
        unique = {"durable": True, "arguments": {"x-message-deduplication": True}}
        api.check("PUT", path("queues", "/", "unique"), unique, 201)
        yield made
        made.exchange_delete("once")
        made.queue_delete("unique")


def publish(channel: Channel, *values: int) -> None:
    for each in values:
        headers = {"headers": [("x-deduplication-header", "I", each)]}
        channel.publish("once", "", b"1", headers)
        channel.publish("", "unique", b"1", headers)
    channel.sync("unique")


def test_what_the_exchange_and_the_queue_say(api: HttpApi, channel: Channel, process: LeveretProcess) -> None:
    publish(channel, 1, 1, 2, 3, 4, 5, 6, 6)
    exchange = api.get(path("exchanges", "/", "once"))
    info = exchange["cache_info"]
    assert (info["entries"], info["size"], exchange["deduplicated"]) == (5, 5, 2)
    queue = api.get(path("queues", "/", "unique"))
    assert (queue["deduplicated"], queue["messages_ready"]) == (2, 6)
    assert queue["backing_queue_status"]["message_deduplication_cache_info"]["entries"] == 6
    assert queue["effective_arguments"] == {"x-message-deduplication": True}
    listed = api.get(f"{path('exchanges', '/')}?columns=name,deduplicated")
    assert {"name": "once", "deduplicated": 2} in listed
    assert {"name": "amq.fanout"} in listed
    text = scrape(process, "metrics/per-object")
    assert value(text, "leveret_exchange_deduplicated_total", vhost="/", exchange="once") == 2
    assert value(text, "leveret_exchange_remembered_values", vhost="/", exchange="once") == 5
    assert value(text, "leveret_queue_deduplicated_total", vhost="/", queue="unique") == 2


def test_duplicates_are_no_losses(api: HttpApi, channel: Channel) -> None:
    channel.queue_bind("unique", "once")
    publish(channel, 1, 1, 1)
    assert "loss_stats" not in api.get(path("exchanges", "/", "once"))
    queue = api.get(path("queues", "/", "unique"))
    assert queue.get("loss_stats", {}).get("lost", 0) == 0
    # What is bound gets the message of the exchange first; the queue has its value then.
    assert (queue["messages_ready"], queue["deduplicated"]) == (1, 3)


def test_over_http_a_duplicate_counts_as_routed(api: HttpApi, channel: Channel) -> None:
    channel.queue_bind("unique", "once")
    headers = {"x-deduplication-header": "a"}
    body = {"routing_key": "", "payload": "p", "payload_encoding": "string", "properties": {"headers": headers}}
    for _ in range(2):
        api.check("POST", path("exchanges", "/", "once", "publish"), body, 200, {"routed": True})
    assert api.get(path("queues", "/", "unique"))["messages_ready"] == 1


def test_definitions(api: HttpApi, channel: Channel) -> None:
    policy = {"pattern": "^o", "definition": {"x-cache-size": 7}, "apply-to": "exchanges"}
    api.ask("PUT", path("policies", "/", "seven"), policy)
    try:
        exported = api.get(path("definitions", "/"))
        (exchange,) = [each for each in exported["exchanges"] if each["name"] == "once"]
        assert (exchange["type"], exchange["arguments"]) == ("x-message-deduplication", ARGUMENTS)
        (kept,) = [each for each in exported["policies"] if each["name"] == "seven"]
        assert kept["definition"] == {"x-cache-size": 7}
        assert api.get(path("exchanges", "/", "once"))["cache_info"]["size"] == 7
        channel.exchange_delete("once")
        assert api.ask("POST", path("definitions", "/"), exported).status in (200, 204)
        shown = api.get(path("exchanges", "/", "once"))
        assert (shown["arguments"], shown["cache_info"]["size"]) == (ARGUMENTS, 7)
    finally:
        api.ask("DELETE", path("policies", "/", "seven"))
    assert api.get(path("exchanges", "/", "once"))["cache_info"]["size"] == 5
