"""A definitions file that RabbitMQ exported, loaded at start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.program import Program, running
from tests.integration.waiting import wait_until
from tests.support.management import Management
from tests.support.wire import Channel, Connection, ConnectionClosed

_EXPORT = Path(__file__).parent / "definitions" / "rabbitmq-3.10.8.json"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A broker that has loaded the export."""
    with running(tmp_path_factory.mktemp("leveret"), "--set", f"load_definitions={_EXPORT}") as started:
        yield started


@pytest.fixture
def channel(program: Program) -> Iterator[Channel]:
    """A channel of user guest on vhost shop."""
    with Connection(program.url, vhost="shop") as connection:
        yield connection.channel()


def _drain(channel: Channel, queue: str) -> list[bytes]:
    bodies = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        bodies.append(delivery.body)
    return bodies


def _arrivals(channel: Channel, queue: str, count: int) -> list[bytes]:
    """Wait until this many messages are in the queue and take them."""
    wait_until(lambda: int(channel.queue_declare(queue, passive=True).message_count) == count, f"{count} in {queue}")
    return _drain(channel, queue)


def test_users_log_in_with_their_passwords(program: Program) -> None:
    with Connection(program.url, user="reports", password="report-only", vhost="shop"):
        pass
    with pytest.raises(ConnectionClosed) as refused:
        Connection(program.url, user="clerk", password="report-only", vhost="shop")
    assert refused.value.code == 403


def test_permissions(program: Program) -> None:
    with Connection(program.url, user="clerk", password="change-me", vhost="shop") as connection:
        text = "ACCESS_REFUSED - access to queue 'strays' in vhost 'shop' refused for user 'clerk'"
        channel = connection.channel()
        with channel.expect_channel_close(403, text):
            channel.get("strays")
        text = "ACCESS_REFUSED - access to topic 'other' in exchange 'orders' in vhost 'shop' refused for user 'clerk'"
        channel = connection.channel()
        with channel.expect_channel_close(403, text):
            channel.publish("orders", "other", b"m")
        channel = connection.channel()
        channel.publish("orders", "order.eu.1", b"m")
        assert _drain(channel, "orders.eu") == [b"m"]


def test_limits_of_the_vhost(channel: Channel, program: Program) -> None:
    with Connection(program.url, vhost="shop"), pytest.raises(ConnectionClosed) as refused:
        Connection(program.url, vhost="shop")
    assert "connection limit (2) is reached" in refused.value.text
    channel.queue_declare("fifth", exclusive=True)
    text = "PRECONDITION_FAILED - cannot declare queue 'sixth': queue limit in vhost 'shop' (5) is reached"
    with channel.expect_channel_close(406, text):
        channel.queue_declare("sixth", exclusive=True)


def test_queues_and_exchanges_are_the_declared_ones(channel: Channel) -> None:
    channel.exchange_declare("orders", "topic", durable=True)
    channel.exchange_declare("dead", "fanout", durable=True, internal=True)
    arguments = [("x-max-length", "I", 2), ("x-overflow", "S", "reject-publish"), ("x-queue-type", "S", "classic")]
    channel.queue_declare("orders.us", durable=True, arguments=arguments)
    channel.queue_declare("letters", durable=True, arguments=[("x-queue-type", "S", "quorum")])
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'strays' in vhost 'shop':"
        " received 'false' but current is 'true'"
    )
    with channel.expect_channel_close(406, text):
        channel.queue_declare("strays")


def test_bindings_and_arguments(channel: Channel) -> None:
    publisher = channel.connection.channel()
    publisher.confirm_select()
    for body in (b"1", b"2", b"3"):
        publisher.publish("orders", "order.us.new", body)
    assert publisher.wait_for_confirms(3) == [True, True, False]
    assert _drain(channel, "orders.us") == [b"1", b"2"]


def test_alternate_exchange_by_policy(channel: Channel) -> None:
    channel.publish("orders", "order.jp.new", b"m")
    assert _drain(channel, "strays") == [b"m"]


def test_operator_policy_and_policy_together(channel: Channel, program: Program) -> None:
    """The smaller length counts, the operator's; the dead-letter exchange is the user's policy's."""
    for number in range(5):
        channel.publish("orders", "order.eu.new", b"%d" % number)
    assert _arrivals(channel, "letters", 2) == [b"0", b"1"]
    assert _drain(channel, "orders.eu") == [b"2", b"3", b"4"]
    management = Management(program.http_url)
    assert management.request("GET", "policies", "shop", "bounded")["priority"] == 5
    shown = management.request("GET", "queues", "shop", "orders.eu")
    assert (shown["policy"], shown["operator_policy"]) == ("bounded", "ceiling")
    assert shown["effective_policy_definition"] == {"max-length": 3, "dead-letter-exchange": "dead"}
