"""A definitions file that RabbitMQ exported, loaded at start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.topology import drain
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


def _arrivals(channel: Channel, queue: str, count: int) -> list[bytes]:
    """Wait until this many messages are in the queue and take them."""
    wait_until(lambda: int(channel.queue_declare(queue, passive=True).message_count) == count, f"{count} in {queue}")
    return drain(channel, queue)


def test_users_log_in_with_their_passwords(program: Program) -> None:
    with Connection(program.url, user="reports", password="report-only", vhost="shop"):
        pass
    with pytest.raises(ConnectionClosed) as refused:
        Connection(program.url, user="clerk", password="report-only", vhost="shop")
    assert refused.value.code == 403


def test_bindings_and_arguments(channel: Channel) -> None:
    publisher = channel.connection.channel()
    publisher.confirm_select()
    for body in (b"1", b"2", b"3"):
        publisher.publish("orders", "order.us.new", body)
    assert publisher.wait_for_confirms(3) == [True, True, False]
    assert drain(channel, "orders.us") == [b"1", b"2"]


def test_operator_policy_and_policy_together(channel: Channel, program: Program) -> None:
    """The smaller length counts, the operator's; the dead-letter exchange is the user's policy's."""
    for number in range(5):
        channel.publish("orders", "order.eu.new", b"%d" % number)
    assert _arrivals(channel, "letters", 2) == [b"0", b"1"]
    assert drain(channel, "orders.eu") == [b"2", b"3", b"4"]
    management = Management(program.http_url)
    assert management.request("GET", "policies", "shop", "bounded")["priority"] == 5
    shown = management.request("GET", "queues", "shop", "orders.eu")
    assert (shown["policy"], shown["operator_policy"]) == ("bounded", "ceiling")
    assert shown["effective_policy_definition"] == {"max-length": 3, "dead-letter-exchange": "dead"}
