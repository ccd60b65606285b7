"""How long messages have been in their queues: HTTP API, leveretctl, Prometheus, and the check for cron."""

from __future__ import annotations

import json
import shlex
import urllib.request
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.pika_messages import publish
from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until
from tests.support.documentation import block
from tests.support.leveretctl import Leveretctl
from tests.support.management import Management

HOUR = 3600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    with ThreadedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def ctl(broker: ThreadedBroker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture
def channel(broker: ThreadedBroker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=0")) as connection:
        yield connection.channel()


def queue_of(broker: ThreadedBroker, name: str) -> dict[str, Any]:
    found: dict[str, Any] = Management(broker.http_url).request("GET", "queues", "/", name)
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "durable", "within"),
    [
        ("ages.classic", {}, True, 5),
        ("ages.lazy", {"x-queue-mode": "lazy"}, True, 5),
        ("ages.priority", {"x-max-priority": 5}, True, 5),
        ("ages.quorum", {"x-queue-type": "quorum"}, True, 5),
        ("ages.memory", {}, False, 15),
        ("ages.memory.priority", {"x-max-priority": 5}, False, 15),
    ],
)
def test_ages_of_ready_and_unacked(
    broker: ThreadedBroker, channel: BlockingChannel, name: str, arguments: dict[str, Any], durable: bool, within: int
) -> None:
    channel.queue_declare(name, durable=durable, arguments=arguments)
    assert (queue_of(broker, name)["oldest_ready_age"], queue_of(broker, name)["oldest_unacked_age"]) == (None, None)
    broker.advance(10)
    publish(channel, name, "first")
    channel.queue_declare(name, passive=True)
    broker.advance(2 * HOUR)
    publish(channel, name, "second")
    channel.queue_declare(name, passive=True)
    broker.advance(60)
    assert queue_of(broker, name)["oldest_ready_age"] == pytest.approx(2 * HOUR + 60, abs=within)
    assert queue_of(broker, name)["oldest_unacked_age"] is None
    method, _, body = channel.basic_get(name)
    assert (method is not None, body) == (True, b"first")
    shown = queue_of(broker, name)
    assert shown["oldest_ready_age"] == pytest.approx(60, abs=within)
    assert shown["oldest_unacked_age"] == pytest.approx(2 * HOUR + 60, abs=within)
    channel.basic_ack(method.delivery_tag)
    wait_until(lambda: queue_of(broker, name)["oldest_unacked_age"] is None, "the message is gone")
    channel.queue_delete(name)


def test_unacked_messages_of_a_cancelled_consumer(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    channel.queue_declare("held")
    broker.advance(10)
    publish(channel, "held", "a", "b")
    channel.queue_declare("held", passive=True)
    broker.advance(HOUR)
    taken: list[int] = []
    tag = channel.basic_consume("held", lambda _, method, *__: taken.append(method.delivery_tag))
    while len(taken) < 2:
        channel.connection.process_data_events(1)
    assert queue_of(broker, "held")["oldest_unacked_age"] == pytest.approx(HOUR, abs=15)
    channel.basic_cancel(tag)
    channel.basic_ack(taken[0])
    channel.queue_declare("held", passive=True)
    assert queue_of(broker, "held")["oldest_unacked_age"] == pytest.approx(HOUR, abs=15)
    channel.queue_delete("held")


def test_columns_and_metrics(broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl) -> None:
    channel.queue_declare("shown", durable=True)
    publish(channel, "shown", "a")
    channel.queue_declare("shown", passive=True)
    broker.advance(HOUR)
    listed = ctl.output("list_queues", "-s", "name", "oldest_ready_age", "oldest_unacked_age").splitlines()
    [(ready, unacked)] = [fields for name, *fields in (line.split("\t") for line in listed) if name == "shown"]
    assert unacked == ""
    assert float(ready) == pytest.approx(HOUR, abs=30)
    port = broker.app.addresses["prometheus"][0][1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/detailed?family=queue_ages") as response:
        lines = response.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith("leveret_detailed_queue_oldest") and '"shown"' in line]
    assert line.startswith('leveret_detailed_queue_oldest_ready_age_seconds{queue="shown",vhost="/"} 36')
    channel.queue_delete("shown")


def test_check_backlog(broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl) -> None:
    channel.queue_declare("work.a", durable=True)
    channel.queue_declare("work.b", durable=True, arguments={"x-max-length": 1})
    channel.queue_declare("other", durable=True)
    publish(channel, "work.a", "1", "2", "3")
    publish(channel, "work.b", "1", "2")
    channel.queue_declare("work.b", passive=True)
    fine = ("--max-oldest", "1h", "--max-messages", "3", "--max-lost", "1", "--within", "24h")
    ran = ctl("check_backlog", "work.*", *fine)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.endswith("2 queues are within bounds\n")
    ran = ctl("check_backlog", "work.*", "--max-messages", "2", "--max-lost", "0", "--within", "24h", "-q")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        "Error:\nqueue 'work.a' has 3 messages, more than 2\n"
        "queue 'work.b' has lost 1 messages within 24h, more than 0\n"
    )
    broker.advance(HOUR + 60)
    ran = ctl("check_backlog", "^work", "--max-oldest", "1h", "--formatter", "json")
    assert ran.status == 1
    found = json.loads(ran.err)
    assert [(each["queue"], each["bound"]) for each in found["broken"]] == [
        ("work.a", "max-oldest"),
        ("work.b", "max-oldest"),
    ]
    assert ctl("check_backlog", "nothing", "--max-messages", "0").status == 1
    for queue in ("work.a", "work.b", "other"):
        channel.queue_delete(queue)
    # What a deleted queue has lost counts for a day, too.
    assert "deleted queue 'work.b' has lost 1 messages" in ctl("check_backlog", "work", "--max-lost", "0").err


def test_the_documented_check(broker: ThreadedBroker, channel: BlockingChannel, ctl: Leveretctl) -> None:
    program, *words = shlex.split(block("sh", "check_backlog"))
    assert program == "leveretctl"
    channel.queue_declare("payments.documented", durable=True)
    broker.advance(24 * HOUR + 60)
    assert ctl(*words).status == 0
    channel.queue_delete("payments.documented")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--max-oldest", "soon"),
        ("--max-messages", "many"),
        ("--max-lost", "-1"),
        ("--max-lost", "0", "--within", "2d"),
        ("--within", "1h", "--max-messages", "3"),
        ("--max-lost", "0", "--within", "1x"),
    ],
)
def test_check_backlog_misused(ctl: Leveretctl, options: tuple[str, ...]) -> None:
    assert ctl("check_backlog", "work.*", *options).status == 64


def test_check_backlog_of_a_bad_pattern_or_virtual_host(ctl: Leveretctl) -> None:
    ran = ctl("check_backlog", "work(", "--max-messages", "1")
    assert ran.status == 64
    assert "'work(' is not a valid regular expression" in ran.err
    assert ctl("check_backlog", "work", "--max-messages", "1", "-p", "nowhere").status == 65
