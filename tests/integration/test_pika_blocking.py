"""pika's BlockingConnection; `make matrix` tries its other adapters."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pika
import pytest
from pika.exceptions import (
    AuthenticationError,
    ChannelClosedByBroker,
    ChannelWrongStateError,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from tests.integration.fixtures import Names
from tests.integration.pika_messages import drain, publish
from tests.integration.waiting import PATIENCE, wait_until

_HEADERS: Final[dict[str, object]] = {
    "bool": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "long least": -(2**63),
    "decimal": Decimal("123.45"),
    "decimal whole": Decimal("-7"),
    "string": "grün ☂",
    "empty string": "",
    "bytes": b"\x00\xff\x80",
    "timestamp": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "void": None,
    "array": [1, "two", [True, None], {"x": 2**40}, []],
    "table": {"a": {"b": {"c": [1, 2, 3]}}, "d": None, "e": {}},
}


@pytest.fixture
def channel(blocking_connection: Any) -> Any:
    """An open channel of `blocking_connection`."""
    return blocking_connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """A server-named queue of `blocking_connection`."""
    return _queue(channel)


def _queue(channel: Any, **arguments: object) -> str:
    queue: str = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    return queue


def test_refused_connections(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.virtual_host = "nowhere"
    with pytest.raises((ConnectionClosedByBroker, ProbableAccessDeniedError), match="NOT_ALLOWED - vhost nowhere not"):
        pika.BlockingConnection(parameters)
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials(parameters.credentials.username, "wrong")
    with pytest.raises((AuthenticationError, ProbableAuthenticationError), match="ACCESS_REFUSED - Login was refused"):
        pika.BlockingConnection(parameters)


def test_an_idle_client_with_heartbeats_is_kept(url: str) -> None:
    """Both sides would have given up after three seconds without heartbeats."""
    with pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat=1")) as connection:
        connection.process_data_events(time_limit=4.5)
        connection.channel().queue_declare("", exclusive=True)


def test_what_is_agreed_and_a_large_body(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.frame_max = 4096
    body = bytes(range(256)) * 8192
    with pika.BlockingConnection(parameters) as small:
        assert small.basic_nack_supported
        assert small.consumer_cancel_notify_supported
        assert small.exchange_exchange_bindings_supported
        assert small.publisher_confirms_supported
        channel = small.channel()
        queue = _queue(channel)
        channel.basic_publish("", queue, body)
        assert channel.basic_get(queue, auto_ack=True)[2] == body
        small.update_secret("guest", "a test")
        assert channel.basic_get(queue) == (None, None, None)


def test_properties(channel: Any, queue: str) -> None:
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers=_HEADERS,
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
    channel.basic_publish("", queue, b"", sent)
    method, received, body = channel.basic_get(queue, auto_ack=True)
    assert (method.message_count, body) == (0, b"")
    assert received == sent
    for key, value in _HEADERS.items():
        # pika gives 64-bit integers a type of its own.
        assert isinstance(received.headers[key], type(value)), key


def test_confirms(channel: Any, queue: str) -> None:
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", queue, str(number), pika.BasicProperties(delivery_mode=2), mandatory=True)
    assert drain(channel, queue) == [str(number) for number in range(100)]
    bounded = _queue(channel, **{"x-max-length": 2, "x-overflow": "reject-publish"})
    publish(channel, bounded, "1", "2")
    with pytest.raises(NackError) as nacked:
        channel.basic_publish("", bounded, b"3", mandatory=True)
    # No basic.return came: the message was routable.
    assert nacked.value.messages == []
    assert drain(channel, bounded) == ["1", "2"]
    publish(channel, bounded, "4")
    assert drain(channel, bounded) == ["4"]


def test_returns(blocking_connection: Any, channel: Any, queue: str) -> None:
    returned: list[tuple[int, bytes]] = []
    channel.add_on_return_callback(lambda _, method, __, body: returned.append((method.reply_code, body)))
    channel.basic_publish("", "nobody", b"come back", mandatory=True)
    wait_until(lambda: _happened(blocking_connection, returned), "a return")
    assert returned == [(312, b"come back")]

    confirming = blocking_connection.channel()
    confirming.confirm_delivery()
    properties = pika.BasicProperties(message_id="42", headers={"answer": 42})
    with pytest.raises(UnroutableError) as unroutable:
        confirming.basic_publish("amq.direct", "nobody", b"come back", properties, mandatory=True)
    (message,) = unroutable.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.exchange, message.method.routing_key) == ("amq.direct", "nobody")
    assert (message.properties, message.body) == (properties, b"come back")
    # The channel stays open, and a message that is not mandatory is dropped.
    confirming.basic_publish("amq.direct", "nobody", b"dropped")
    confirming.basic_publish("", queue, b"kept", mandatory=True)
    assert drain(channel, queue) == ["kept"]


def _happened(connection: Any, events: list[Any]) -> bool:
    connection.process_data_events(time_limit=0.1)
    return bool(events)


def test_consuming(channel: Any, queue: str) -> None:
    received: list[tuple[int, str]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        received.append((method.delivery_tag, body.decode()))
        assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
        channel.basic_ack(method.delivery_tag)
        if len(received) == 20:
            channel.stop_consuming()

    publish(channel, queue, *map(str, range(20)))
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert received == [(number + 1, str(number)) for number in range(20)]

    # The generator gives back what it has not handed out.
    publish(channel, queue, "a", "b", "c")
    method, _, body = next(channel.consume(queue, inactivity_timeout=PATIENCE))
    assert body == b"a"
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    assert drain(channel, queue) == ["b", "c"]


def test_exceptions(blocking_connection: Any, channel: Any, queue: str, name: Names) -> None:
    failing, exchange = blocking_connection.channel(), name("exchange")
    failing.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as closed:
        failing.basic_publish(exchange, "", b"m")
    text = f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"
    assert (closed.value.reply_code, closed.value.reply_text) == (404, text)
    with pytest.raises(ChannelWrongStateError):
        failing.basic_publish("", "", b"m")
    # Its number may be used again at once; the new channel starts afresh, and others have gone on.
    again = blocking_connection.channel(failing.channel_number)
    again.basic_publish("", queue, b"m")
    assert drain(again, queue) == ["m"]

    again.basic_ack(7)
    with pytest.raises(ChannelClosedByBroker) as closed:
        again.queue_declare(queue, passive=True)
    text = "PRECONDITION_FAILED - unknown delivery tag 7"
    assert (closed.value.reply_code, closed.value.reply_text) == (406, text)

    channel.basic_consume(queue, lambda *_: None)
    with pytest.raises(ConnectionClosedByBroker) as ended:
        channel.basic_qos(prefetch_size=1)
    text = "NOT_IMPLEMENTED - prefetch_size!=0 (1)"
    assert (ended.value.reply_code, ended.value.reply_text) == (540, text)
    assert blocking_connection.is_closed
