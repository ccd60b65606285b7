"""Looking at queues and at what was published, without a client."""

from __future__ import annotations

import threading
import time

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError

from leveret import Leveret, LeveretThread
from leveret.broker.testing import messages as messages_module
from leveret.broker.testing.environment import NotRunningError
from tests.integration.embedding.clients import channel_of, publish_durably, ready
from tests.support.management import Management


def test_messages_of_a_queue(broker: LeveretThread) -> None:
    properties = pika.BasicProperties(delivery_mode=2, message_id="m", headers={"kind": "gift", "n": [1, {"a": True}]})
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b'{"number": 2}', properties)
        publish_durably(channel, "q", b"second", b"third")
        channel.basic_get("q")
        first, second, third = broker.messages("q")
        assert (first.exchange, first.routing_key, first.text, first.json()) == ("", "q", first.text, {"number": 2})
        assert first.headers == {"kind": "gift", "n": [1, {"a": True}]}
        assert first.properties == {"delivery_mode": 2, "message_id": "m"}
        assert [each.is_ready for each in (first, second, third)] == [False, True, True]
        assert (second.body, second.redelivered, third.body) == (b"second", False, b"third")
        assert repr(second) == "<QueuedMessage b'second' exchange='' routing_key='q' delivery_mode=2>"
        assert repr(first).endswith("headers={'kind': 'gift', 'n': [1, {'a': True}]} unacked>")
        assert ready(channel, "q") == 2, "nothing has been taken"
    with channel_of(broker.url) as channel:
        channel.queue_delete("q")
        channel.queue_declare("long")
        channel.basic_publish("", "long", bytes(1000))
        assert "… (1000 bytes)" in repr(broker.messages("long"))


def test_very_many_messages(broker: LeveretThread) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", arguments={"x-max-priority": 2})
        for number in range(3000):
            channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(priority=number % 2))
        assert ready(channel, "q") == 3000
    bodies = [int(each.body) for each in broker.messages("q")]
    assert bodies == [*range(1, 3000, 2), *range(0, 3000, 2)]


def test_what_is_not_there(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("there")
    with pytest.raises(LookupError, match=r"no queue 'q' in virtual host '/'; there are \['there'\]"):
        broker.messages("q")
    with pytest.raises(LookupError, match=r"no virtual host 'v'; there are \['/'\]"):
        broker.messages("q", vhost="v")
    broker.kill()
    with pytest.raises(NotRunningError):
        broker.messages("q")
    assert broker.published() == [], "what was published is known to the dead"


def test_published_messages(broker: LeveretThread) -> None:
    """Routed or not, in order, also those with headers of their own; not those that ended in an error."""
    with channel_of(broker.url) as channel:
        channel.exchange_declare("x", "fanout")
        for number in range(3):
            channel.basic_publish("x", f"k{number}", b"%d" % number, pika.BasicProperties(message_id=str(number)))
        channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.basic_publish("", "q", b"taken")
        with pytest.raises(NackError):
            channel.basic_publish("", "q", b"refused")
        with pytest.raises(ChannelClosedByBroker):
            channel.basic_publish("nowhere", "", b"error")
    found = broker.published("x")
    assert [(each.routing_key, each.body) for each in found] == [("k0", b"0"), ("k1", b"1"), ("k2", b"2")]
    assert found[2].properties["message_id"] == "2"
    assert [each.body for each in broker.published("")] == [b"taken", b"refused"]
    assert len(broker.published()) == 5
    broker.restart()
    assert len(broker.published()) == 5
    broker.reset()
    assert broker.published() == []


def test_published_runs_and_other_virtual_hosts(broker: LeveretThread) -> None:
    http = Management(broker.http_url)
    http.request("PUT", "vhosts", "v")
    http.request("PUT", "permissions", "v", "guest", body={"configure": ".*", "write": ".*", "read": ".*"})
    with pika.BlockingConnection(pika.URLParameters(broker.url.replace("%2F", "v"))) as connection:
        channel = connection.channel()
        for number in range(500):
            channel.basic_publish("amq.fanout", "", b"%d" % number)
        channel.queue_declare("q")
    assert [each.body for each in broker.published("amq.fanout", vhost="v")] == [b"%d" % each for each in range(500)]
    assert broker.published() == []


def test_transactions_count_when_they_are_committed(broker: LeveretThread) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("amq.fanout", "", b"one")
        channel.tx_rollback()
        channel.basic_publish("amq.fanout", "", b"two")
        channel.queue_declare("q")
        assert broker.published() == []
        channel.tx_commit()
        assert [each.body for each in broker.published()] == [b"two"]


def test_only_the_newest_are_kept(broker: LeveretThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_module, "_MESSAGES_MAX", 3)
    monkeypatch.setattr(messages_module, "_BYTES_MAX", 10)
    with channel_of(broker.url) as channel:
        for body in (b"1", b"2", b"3", b"4"):
            channel.basic_publish("amq.fanout", "", body)
        assert [each.body for each in broker.published()] == [b"2", b"3", b"4"]
        channel.basic_publish("amq.fanout", "", bytes(9))
        assert [each.body for each in broker.published()] == [b"4", bytes(9)]


def test_waiting(broker: LeveretThread) -> None:
    def publish() -> None:
        with channel_of(broker.url) as channel:
            channel.basic_publish("amq.fanout", "", b"late")

    client = threading.Timer(0.05, publish)
    client.start()
    (message,) = broker.wait_until(broker.published)
    client.join()
    assert message.body == b"late"
    before = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not within 0.05 s; the condition was \[\] at last"):
        broker.wait_until(lambda: broker.published("other"), timeout=0.05)
    assert time.monotonic() - before < 30


async def test_in_the_loop() -> None:
    async with Leveret() as broker:
        assert broker.published() == []
        assert await broker.wait_until(lambda: 5) == 5
        with pytest.raises(LookupError):
            broker.messages("q")
