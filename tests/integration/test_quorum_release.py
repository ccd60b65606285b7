"""The option compat.quorum_queues: quorum queues with the rules of RabbitMQ 4.3, which stay what they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.bounded import QUORUM, take_dead_letters
from tests.conformance.topology import counts, drain, got
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple, plain
from tests.support.wire import Channel, Connection

OPTION = {"compat.quorum_queues": "4.3"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    with LeveretProcess(tmp_path_factory.mktemp("leveret"), settings=OPTION) as process:
        yield process


@pytest.fixture
def channel(broker: LeveretProcess) -> Iterator[Channel]:
    with Connection(broker.url) as connection:
        yield connection.channel()


def declare(channel: Channel, name: str, *arguments: Triple) -> str:
    channel.queue_declare(name, durable=True, arguments=[QUORUM, *arguments])
    return name


def fill(channel: Channel, queue: str, *priorities: int | None) -> None:
    """Publish messages whose bodies are their priorities, each with a number of its own behind it."""
    channel.confirm_select()
    for number, priority in enumerate(priorities):
        given = {} if priority is None else {"priority": priority}
        channel.publish("", queue, f"{priority}/{number}".encode(), given)
    assert all(channel.wait_for_confirms(len(priorities)))


def taken(channel: Channel, queue: str) -> list[str]:
    channel.sync(queue)
    return [body.decode() for body in drain(channel, queue)]


def release(broker: LeveretProcess, queue: str) -> Any:
    return Management(broker.http_url).request("GET", "queues", "/", queue)["release"]


def limit(broker: LeveretProcess, queue: str) -> Any:
    return Management(broker.http_url).request("GET", "queues", "/", queue)["delivery_limit"]


def test_priorities_are_strict(channel: Channel) -> None:
    queue = declare(channel, "strict")
    fill(channel, queue, 0, None, 4, 5, 31, 200, 3, None)
    assert taken(channel, queue) == ["31/4", "200/5", "5/3", "None/1", "4/2", "None/7", "3/6", "0/0"]


def test_a_consumer_gets_the_highest_first(channel: Channel, broker: LeveretProcess) -> None:
    queue = declare(channel, "consumed")
    fill(channel, queue, 1, 2, None, 9)
    with Connection(broker.url) as connection:
        consuming = connection.channel()
        consuming.qos(1)
        consuming.consume(queue)
        found = []
        for _ in range(4):
            delivery = consuming.next_delivery()
            found.append(delivery.body)
            consuming.ack(delivery.delivery_tag)
    assert found == [b"9/3", b"None/2", b"2/1", b"1/0"]


def test_max_priority_is_ignored(channel: Channel) -> None:
    queue = declare(channel, "ignored", ("x-max-priority", "I", 2))
    declare(channel, "ignored")
    fill(channel, queue, 1, 9)
    assert taken(channel, queue) == ["9/1", "1/0"]


def test_nack_does_not_count_and_reject_does(channel: Channel) -> None:
    channel.queue_declare("letters", durable=True)
    to: list[Triple] = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", "letters")]
    queue = declare(channel, "limited", ("x-delivery-limit", "I", 2), *to)
    fill(channel, queue, None)
    for _ in range(30):
        channel.nack(got(channel, queue).delivery_tag)
    delivery = got(channel, queue)
    assert plain(delivery.headers) == {"x-acquired-count": 30}
    channel.reject(delivery.delivery_tag)
    channel.reject(got(channel, queue).delivery_tag)
    delivery = got(channel, queue)
    assert plain(delivery.headers) == {"x-acquired-count": 32, "x-delivery-count": 2}
    channel.reject(delivery.delivery_tag)
    assert take_dead_letters(channel, "letters") == [(b"None/0", "delivery_limit")]


def test_the_end_of_a_channel_counts(channel: Channel, broker: LeveretProcess) -> None:
    queue = declare(channel, "abandoned", ("x-delivery-limit", "I", 1))
    fill(channel, queue, None)
    for left in (1, 0):
        with Connection(broker.url) as connection:
            got(connection.channel(), queue)
        assert counts(channel, queue)[0] == left


def test_no_limit(channel: Channel) -> None:
    queue = declare(channel, "unlimited", ("x-delivery-limit", "I", -1))
    fill(channel, queue, None)
    for _ in range(30):
        channel.reject(got(channel, queue).delivery_tag)
    assert got(channel, queue).body == b"None/0"


def test_a_policy_without_limit(broker: LeveretProcess, channel: Channel) -> None:
    api = Management(broker.http_url)
    queue = declare(channel, "by-policy")
    policy: dict[str, Any] = {"pattern": "^by-policy", "definition": {"delivery-limit": -1}, "apply-to": "queues"}
    api.request("PUT", "policies", "/", "unlimited", body=policy)
    assert limit(broker, queue) == "unlimited"
    operator = {**policy, "definition": {"delivery-limit": 7}}
    api.request("PUT", "operator-policies", "/", "limited", body=operator)
    assert limit(broker, queue) == 7
    api.request("PUT", "operator-policies", "/", "limited", body=policy)
    assert limit(broker, queue) == "unlimited"
    assert limit(broker, declare(channel, "by-policy-too", ("x-delivery-limit", "I", 3))) == 3


def test_a_message_expires_when_it_is_the_oldest_of_the_highest_priority(channel: Channel) -> None:
    queue, witness = declare(channel, "expiring"), declare(channel, "witness")
    fill(channel, queue, 9)
    channel.publish("", queue, b"low", {"priority": 1, "expiration": "20"})
    channel.publish("", witness, b"witness", {"expiration": "40"})
    deadline = time.monotonic() + 60
    while counts(channel, witness)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counts(channel, queue)[0] == 2
    assert taken(channel, queue) == ["9/0"]
    assert counts(channel, queue)[0] == 0


def test_what_returns_comes_first_in_the_order_of_its_return(channel: Channel) -> None:
    queue = declare(channel, "returned")
    fill(channel, queue, 1, 9)
    for tag in reversed([got(channel, queue).delivery_tag for _ in range(2)]):
        channel.nack(tag)
    channel.publish("", queue, b"31", {"priority": 31})
    assert taken(channel, queue) == ["1/0", "9/1", "31"]


def test_a_queue_stays_what_it_is(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path, settings=OPTION) as broker:
        with Connection(broker.url) as connection:
            channel = connection.channel()
            declare(channel, "new")
            fill(channel, "new", 0, None, 9, 3)
        broker.kill()
    with LeveretProcess(tmp_path) as broker, Connection(broker.url) as connection:
        channel = connection.channel()
        declare(channel, "new")
        declare(channel, "old")
        assert (release(broker, "new"), release(broker, "old")) == ("4.3", "3.10.8")
        channel.nack(got(channel, "new").delivery_tag)
        channel.publish("", "new", b"31", {"priority": 31})
        assert taken(channel, "new") == ["9/2", "31", "None/1", "3/3", "0/0"]
        fill(channel, "old", 1, 9)
        assert taken(channel, "old") == ["1/0", "9/1"]
    with LeveretProcess(tmp_path, settings=OPTION) as broker:
        assert (release(broker, "new"), release(broker, "old")) == ("4.3", "3.10.8")
