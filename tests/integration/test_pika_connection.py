"""pika's BlockingConnection: opening, channels, secrets, properties, direct reply-to."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AuthenticationError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE

_REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def channel(blocking_connection: Any) -> Any:
    """An open channel of `blocking_connection`."""
    return blocking_connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """A server-named queue of `blocking_connection`."""
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    return queue


# --- opening ----------------------------------------------------------------------------------------------


def test_wrong_password(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials(parameters.credentials.username, "wrong")
    with pytest.raises((AuthenticationError, ProbableAuthenticationError)) as refused:
        pika.BlockingConnection(parameters)
    assert "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN" in str(refused.value)


def test_missing_vhost(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.virtual_host = "nowhere"
    with pytest.raises((ConnectionClosedByBroker, ProbableAccessDeniedError)) as refused:
        pika.BlockingConnection(parameters)
    assert "NOT_ALLOWED - vhost nowhere not found" in str(refused.value)


def test_what_the_server_can_do(blocking_connection: Any) -> None:
    assert blocking_connection.basic_nack_supported
    assert blocking_connection.consumer_cancel_notify_supported
    assert blocking_connection.exchange_exchange_bindings_supported
    assert blocking_connection.publisher_confirms_supported


def test_smallest_frames(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.frame_max = 4096
    with pika.BlockingConnection(parameters) as small:
        channel = small.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        body = bytes(range(250)) * 100
        channel.basic_publish("", queue, body)
        assert channel.basic_get(queue, auto_ack=True)[2] == body


def test_new_secret(blocking_connection: Any, channel: Any, queue: str) -> None:
    blocking_connection.update_secret("guest", "a test")
    channel.basic_publish("", queue, b"m")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"m"


# --- channels ---------------------------------------------------------------------------------------------


def test_twenty_channels(blocking_connection: Any) -> None:
    channels = [blocking_connection.channel() for _ in range(20)]
    queues = [channel.queue_declare("", exclusive=True).method.queue for channel in channels]
    for number in range(10):
        for channel, queue in zip(channels, queues, strict=True):
            channel.basic_publish("", queue, f"{queue} {number}")
    for channel, queue in zip(channels, queues, strict=True):
        got = [channel.basic_get(queue, auto_ack=True)[2].decode() for _ in range(10)]
        assert got == [f"{queue} {number}" for number in range(10)]
    for channel in channels:
        channel.close()


def test_channel_error_leaves_the_others(blocking_connection: Any, channel: Any, queue: str, name: Names) -> None:
    failing = blocking_connection.channel()
    for _ in range(3):
        with pytest.raises(ChannelClosedByBroker) as closed:
            failing.queue_declare(name("missing"), passive=True)
        assert closed.value.reply_code == 404
        failing = blocking_connection.channel(failing.channel_number)
    channel.basic_publish("", queue, b"m")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"m"


# --- properties -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="bool"),
        pytest.param(0, id="int"),
        pytest.param(-(2**31), id="int least"),
        pytest.param(2**63 - 1, id="long"),
        pytest.param(-(2**63), id="long least"),
        pytest.param(Decimal("123.45"), id="decimal"),
        pytest.param(Decimal("-7"), id="decimal whole"),
        pytest.param("grün ☂", id="string"),
        pytest.param("", id="empty string"),
        pytest.param(b"\x00\xff\x80", id="bytes"),
        pytest.param(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), id="timestamp"),
        pytest.param(None, id="void"),
        pytest.param([1, "two", [True, None], {"x": 2**40}], id="array"),
        pytest.param([], id="empty array"),
        pytest.param({"a": {"b": {"c": [1, 2, 3]}}, "d": None}, id="table"),
        pytest.param({}, id="empty table"),
    ],
)
def test_header_value(channel: Any, queue: str, value: object) -> None:
    channel.basic_publish("", queue, b"m", pika.BasicProperties(headers={"value": value}))
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    received = properties.headers["value"]
    assert properties.headers == {"value": value}
    # pika gives 64-bit integers a type of its own.
    assert isinstance(received, type(value))
    assert isinstance(received, bool) == isinstance(value, bool)


def test_every_property(channel: Any, queue: str) -> None:
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"a": 1},
        delivery_mode=2,
        priority=9,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="type",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", queue, b"m", sent)
    assert channel.basic_get(queue, auto_ack=True)[1] == sent


def test_no_property(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"")
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    assert properties == pika.BasicProperties()
    assert body == b""


# --- direct reply-to --------------------------------------------------------------------------------------


def test_calls_by_direct_reply_to(url: str, blocking_connection: Any, channel: Any, name: Names) -> None:
    requests = name("rpc")
    channel.queue_declare(requests)
    replies: list[tuple[str, bytes]] = []
    channel.basic_consume(
        _REPLY_TO,
        lambda _, __, properties, body: replies.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    with pika.BlockingConnection(pika.URLParameters(url)) as serving_connection:
        serving = serving_connection.channel()
        serving.basic_qos(prefetch_count=1)
        served = serving.consume(requests, inactivity_timeout=PATIENCE)
        for number in range(10):
            request = pika.BasicProperties(reply_to=_REPLY_TO, correlation_id=str(number))
            channel.basic_publish("", requests, f"call {number}", request)
            method, properties, body = next(served)
            assert properties.reply_to.startswith(_REPLY_TO + ".")
            answer = pika.BasicProperties(correlation_id=properties.correlation_id)
            serving.basic_publish("", properties.reply_to, body.upper(), answer)
            serving.basic_ack(method.delivery_tag)
            while len(replies) <= number:
                before = len(replies)
                blocking_connection.process_data_events(time_limit=PATIENCE)
                assert len(replies) > before, "no reply in time"
    assert replies == [(str(number), f"CALL {number}".encode()) for number in range(10)]


def test_direct_reply_to_needs_auto_ack(channel: Any) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_consume(_REPLY_TO, lambda *_: None)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - reply consumer cannot acknowledge",
    )


def test_direct_reply_to_needs_its_consumer(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"ping", pika.BasicProperties(reply_to=_REPLY_TO))
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - fast reply consumer does not exist",
    )
