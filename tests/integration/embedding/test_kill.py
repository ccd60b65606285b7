"""A broker that dies inside a test, and starts again on the same data."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from pika.exceptions import AMQPConnectionError, StreamLostError

from leveret import LeveretThread
from tests.integration.embedding.clients import channel_of, publish_durably, ready


def test_what_was_confirmed_is_there_again(broker: LeveretThread) -> None:
    url = broker.url
    with channel_of(url) as channel:
        channel.queue_declare("q", durable=True)
        channel.queue_declare("transient")
        publish_durably(channel, "q", *[b"%d" % number for number in range(500)])
        channel.basic_publish("", "q", b"transient")
        channel.basic_get("q")
        broker.restart()
        with pytest.raises((AMQPConnectionError, StreamLostError)):
            ready(channel, "q")
        channel.connection.close = lambda *_: None
    assert broker.url == url
    with channel_of(url) as channel:
        assert ready(channel, "q") == 500
        method, _, body = channel.basic_get("q")
        assert (body, method.redelivered) == (b"0", True)
        assert channel.queue_declare("transient").method.message_count == 0


def test_while_it_is_dead_clients_are_refused_and_the_port_is_kept(broker: LeveretThread) -> None:
    url = urlsplit(broker.url)
    assert url.hostname is not None
    assert url.port is not None
    broker.kill()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError), socket.create_connection((url.hostname, url.port)):
            pass
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((url.hostname, url.port))
    broker.start()
    with channel_of(broker.url) as channel:
        channel.queue_declare("q")


def test_the_clock_goes_on(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-message-ttl": 3_600_000})
        publish_durably(channel, "q", b"1")
    broker.clock.advance(3000)
    before = broker.clock.now()
    broker.restart()
    assert (broker.clock.now() - before).total_seconds() < 60
    broker.clock.advance(300)
    with channel_of(broker.url) as channel:
        assert ready(channel, "q") == 1
    broker.clock.advance(600)
    with channel_of(broker.url) as channel:
        assert ready(channel, "q") == 0


def test_a_dead_broker_can_be_reset_and_stopped(broker: LeveretThread) -> None:
    with channel_of(broker.url) as channel:
        channel.queue_declare("q", durable=True)
    broker.kill()
    broker.reset()
    with channel_of(broker.url) as channel:
        assert channel.queue_declare("q").method.message_count == 0
    with LeveretThread() as other:
        other.kill()
        parent = other.data_dir.parent
    assert not parent.exists()
