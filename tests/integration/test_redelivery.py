"""Limits and delays of redeliveries: pika, HTTP API, leveretctl, Prometheus, and the page of the documentation."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from tests.integration.pika_messages import publish
from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

HOUR = 3600
KINDS = ("classic", "quorum")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    with ThreadedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def ctl(broker: ThreadedBroker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture
def channel(broker: ThreadedBroker) -> Iterator[BlockingChannel]:
    with connect(broker) as connection:
        yield connection.channel()


def connect(broker: ThreadedBroker) -> BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=0"))


def declare(channel: BlockingChannel, name: str, **arguments: Any) -> str:
    """Declare a durable queue; names without x-, underscores for dashes."""
    given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments=given)
    return name


def queue_of(broker: ThreadedBroker, name: str) -> dict[str, Any]:
    found: dict[str, Any] = Management(broker.http_url).request("GET", "queues", "/", name)
    return found


def figures(broker: ThreadedBroker, name: str) -> tuple[int, int, int]:
    """Messages, ready ones, delayed ones."""
    found = queue_of(broker, name)
    return found["messages"], found["messages_ready"], found["messages_delayed"]


def got(channel: BlockingChannel, queue: str) -> tuple[int, pika.BasicProperties, bool]:
    """Get a message: its delivery tag, properties and redelivered flag."""
    found: list[Any] = []

    def has_come() -> bool:
        found[:] = channel.basic_get(queue)
        return found[0] is not None

    wait_until(has_come, "a message")
    return found[0].delivery_tag, found[1], found[0].redelivered


@pytest.mark.parametrize("kind", KINDS)
def test_hours_of_delay_by_steps(broker: ThreadedBroker, channel: BlockingChannel, kind: str) -> None:
    letters = declare(channel, "failed")
    to = {"dead_letter_exchange": "", "dead_letter_routing_key": letters}
    queue = declare(channel, "steps", queue_type=kind, delayed_retry_steps="10m,1h", redelivery_limit=2, **to)
    publish(channel, queue, "a")
    for wait in (600, HOUR):
        tag, _, _ = got(channel, queue)
        channel.basic_nack(tag)
        wait_until(lambda: figures(broker, queue) == (1, 0, 1), "it waits")
        broker.advance(wait - 30)
        assert figures(broker, queue) == (1, 0, 1)
        broker.advance(31)
        wait_until(lambda: figures(broker, queue) == (1, 1, 0), "it is ready")
    tag, properties, redelivered = got(channel, queue)
    count = properties.headers["x-acquired-count" if kind == "quorum" else "x-delivery-count"]
    assert (count, redelivered) == (2, True)
    channel.basic_nack(tag)
    _, properties, _ = got(channel, letters)
    assert properties.headers["x-first-death-reason"] == "delivery_limit"
    assert not {"x-delivery-count", "x-acquired-count"} & properties.headers.keys()


def test_totals_have_what_waits(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    queue = declare(channel, "totals", delayed_retry_steps="10m")
    publish(channel, queue, "a", "b", "c")
    channel.basic_nack(got(channel, queue)[0])
    got(channel, queue)
    wait_until(lambda: figures(broker, queue) == (3, 1, 1), "one waits, one is unacknowledged")
    api = Management(broker.http_url)
    shown = api.request("GET", "queues")
    expected = {key: sum(each[key] for each in shown) for key in ("messages", "messages_ready")}
    totals = api.request("GET", "overview")["queue_totals"]
    assert {key: totals[key] for key in expected} == expected
    vhost = api.request("GET", "vhosts", "/")
    assert {key: vhost[key] for key in expected} == expected
    channel.queue_delete(queue)


def test_recover_and_a_timeout_are_no_failures(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    given = {"delayed_retry_type": "returned", "delayed_retry_min": 60_000, "consumer_timeout": 30_000}
    queue = declare(channel, "timeout", **given)
    publish(channel, queue, "a")
    got(channel, queue)
    channel.basic_recover(requeue=True)
    wait_until(lambda: figures(broker, queue) == (1, 0, 1), "it waits")
    broker.advance(61)
    wait_until(lambda: figures(broker, queue) == (1, 1, 0), "it is ready")
    taken: list[Any] = []
    channel.basic_consume(queue, lambda *delivery: taken.append(delivery))
    while not taken:
        channel.connection.process_data_events(0.1)
    broker.advance(40)
    wait_until(lambda: figures(broker, queue) == (1, 0, 1), "it waits")


def test_what_is_shown(broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl) -> None:
    given = {"delayed_retry_type": "all", "delayed_retry_min": 60_000, "delayed_retry_max": 7_200_000}
    queue = declare(channel, "shown", **given, max_length=10)
    shown = queue_of(broker, queue)
    assert (shown["delayed_retry"], shown["next_delayed_at"]) == ("all (min: 60000ms, max: 7200000ms)", None)
    publish(channel, queue, "abc", "d")
    now = broker.call(broker.app.broker.timers.now) // 1000
    for _ in range(2):
        channel.basic_nack(got(channel, queue)[0])
    wait_until(lambda: figures(broker, queue) == (2, 0, 2), "they wait")
    shown = queue_of(broker, queue)
    assert shown["message_bytes"] == shown["message_bytes_delayed"] == 4
    assert now + 60_000 <= shown["next_delayed_at"] <= shown["last_delayed_at"] < now + 90_000
    assert (shown["fill"]["messages_counted"], shown["fill"]["percent"]) == (2, 20.0)
    columns = ("name", "delayed_retry", "messages", "messages_delayed", "next_delayed_at")
    rows = [line.split("\t") for line in ctl.output("list_queues", "-s", *columns).splitlines()]
    (row,) = [row for row in rows if row[0] == queue]
    assert row[1:] == [shown["delayed_retry"], "2", "2", str(shown["next_delayed_at"])]
    rows = [line.split("\t") for line in ctl.output("browse", queue, "state", "due", "payload", "-s").splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("delayed", "abc"), ("delayed", "d")]
    assert rows[0][1] == str(shown["next_delayed_at"])
    port = broker.app.addresses["prometheus"][0][1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/detailed?family=queue_delayed") as response:
        lines = response.read().decode().splitlines()
    assert f'leveret_detailed_queue_messages_delayed{{queue="{queue}",vhost="/"}} 2.0' in lines
    assert channel.queue_purge(queue).method.message_count == 2
    assert figures(broker, queue) == (0, 0, 0)


def test_a_queue_in_which_messages_wait_is_not_empty(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    queue = declare(channel, "not.empty", delayed_retry_steps="1h")
    publish(channel, queue, "a")
    channel.basic_nack(got(channel, queue)[0])
    wait_until(lambda: figures(broker, queue) == (1, 0, 1), "it waits")
    other = channel.connection.channel()
    with pytest.raises(ChannelClosedByBroker, match=f"queue '{queue}' in vhost '/' not empty"):
        other.queue_delete(queue, if_empty=True)
    assert channel.queue_delete(queue).method.message_count == 1


def test_policies(broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl) -> None:
    queue = declare(channel, "by.policy")
    policy = '{"delayed-retry-type": "all"}'
    ran = ctl("set_policy", "retry", "^by", policy)
    assert ran.status
    assert "delayed-retry-min is required when delayed-retry-type is all" in ran.err
    policy = '{"delayed-retry-type": "all", "delayed-retry-min": 60000, "delayed-retry-max": 600000}'
    tried = ctl.output("set_policy", "--dry-run", "retry", "^by", policy)
    assert "delayed-retry-min" in tried
    assert queue_of(broker, queue)["delayed_retry"] == "disabled"
    ctl.output("set_policy", "retry", "^by", policy)
    ctl.output("set_operator_policy", "retry", "^by", '{"delayed-retry-min": 90000, "delayed-retry-max": 300000}')
    assert queue_of(broker, queue)["delayed_retry"] == "all (min: 90000ms, max: 300000ms)"
    assert "the larger one counts: 60000 in the policy, 90000 in the operator policy" in ctl.output(
        "explain_queue", queue
    )
    ctl.output("clear_operator_policy", "retry")
    ctl.output("clear_policy", "retry")


def let_wait(broker: ThreadedBroker, channel: BlockingChannel, queue: str, *bodies: str) -> None:
    """Publish messages, and return them, so that they wait."""
    publish(channel, queue, *bodies)
    for _ in bodies:
        channel.basic_nack(got(channel, queue)[0])
    wait_until(lambda: figures(broker, queue) == (len(bodies), 0, len(bodies)), "they wait")


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_is_shown_delivered_and_cancelled(
    broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl, kind: str
) -> None:
    queue = declare(channel, "looked", queue_type=kind, delayed_retry_steps="1h")
    api, below = Management(broker.http_url), ("queues", "/", "looked", "delayed")
    assert api.request("GET", *below) == {"messages_delayed": 0, "offset": 0, "messages": []}
    let_wait(broker, channel, queue, "a", "bb", "ccc")
    found = api.request("GET", *below)
    first, second, third = found["messages"]
    assert (found["messages_delayed"], [each["payload_bytes"] for each in found["messages"]]) == (3, [1, 2, 3])
    assert first["due"] == queue_of(broker, queue)["next_delayed_at"]
    assert (first["exchange"], first["routing_key"], "delay" in first) == ("", queue, False)
    count = "x-acquired-count" if kind == "quorum" else "x-delivery-count"
    assert first["properties"]["headers"][count] == 1
    assert api.request("GET", *below, str(third["id"]))["payload"] == "ccc"
    api.request("POST", *below, str(second["id"]), "deliver")
    assert figures(broker, queue) == (3, 1, 2)
    api.request("DELETE", *below, str(first["id"]))
    assert figures(broker, queue) == (2, 1, 1)
    tag, properties, redelivered = got(channel, queue)
    assert (properties.headers[count], redelivered) == (1, True)
    channel.basic_ack(tag)
    assert ctl("show_delayed_retry", queue, str(first["id"]), "-q").err == (
        f"Error:\nno message {first['id']} waits in queue 'looked' in vhost '/'\n"
    )
    rows = ctl.output("list_delayed_retries", queue, "-s").splitlines()
    assert [row.split("\t")[0] for row in rows] == [str(third["id"])]
    said = ctl.output("cancel_delayed_retry", queue, str(third["id"]), "-q")
    assert said == f"Message {third['id']} of queue 'looked' is cancelled\n"
    assert figures(broker, queue) == (0, 0, 0)


def test_looking_at_what_waits_needs_read_permission(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    queue, api = declare(channel, "guarded", delayed_retry_steps="1h"), Management(broker.http_url)
    let_wait(broker, channel, queue, "a")
    api.request("PUT", "users", "blind", body={"password": "x", "tags": "management"})
    api.request("PUT", "permissions", "/", "blind", body={"configure": ".*", "write": ".*", "read": "^$"})
    blind = Management(broker.http_url.replace("guest:guest", "blind:x"))
    for method, below in (("GET", ()), ("GET", ("1",)), ("DELETE", ("1",)), ("POST", ("1", "deliver"))):
        assert blind.refusal(method, "queues", "/", queue, "delayed", *below)[0] == 401
    assert figures(broker, queue) == (1, 0, 1)
