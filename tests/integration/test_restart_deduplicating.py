"""What exchanges and queues that drop duplicates know after a stop and after a crash."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.conformance.topology import drain
from tests.integration.restarts import Restarts, process, restart
from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection

__all__ = ["process", "restart"]

TYPE = "x-message-deduplication"
DISK: Triple = ("x-cache-persistence", "S", "disk")


def deduplicating(restart: Restarts, channel: Channel, *arguments: Triple, size: int = 100) -> tuple[str, str]:
    """Declare an exchange, and a durable queue that is bound to it."""
    exchange, queue = restart.new("x"), restart.queue(channel)
    channel.exchange_declare(exchange, TYPE, durable=True, arguments=[("x-cache-size", "I", size), *arguments])
    channel.queue_bind(queue, exchange)
    return exchange, queue


def publish(channel: Channel, exchange: str, *values: str, mode: int = 2, ttl: int | None = None) -> None:
    """Publish a message for each value, which is its body too, with confirms."""
    channel.confirm_select()
    for value in values:
        headers: list[Triple] = [("x-deduplication-header", "S", value)]
        if ttl is not None:
            headers.append(("x-cache-ttl", "I", ttl))
        key = exchange if exchange.startswith("q") else ""
        channel.publish("" if key else exchange, key, value.encode(), {"headers": headers, "delivery_mode": mode})


def test_2_9_disk_survives(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel, DISK, size=3)
    publish(channel, exchange, "a", "b", "c", "d")
    assert channel.wait_for_confirms(4) == [True] * 4
    channel = restart()
    publish(channel, exchange, "b", "c", "d", "a")
    assert channel.wait_for_confirms(4) == [True] * 4
    channel = restart()
    publish(channel, exchange, "c", "d", "a", "b")
    assert channel.wait_for_confirms(4) == [True] * 4
    assert drain(channel, queue) == [b"a", b"b", b"c", b"d", b"a", b"b"]


def test_2_9_memory_does_not(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel)
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    channel = restart()
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"a", b"a"]


def test_values_of_transient_messages_survive_too(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel, DISK)
    publish(channel, exchange, "a", mode=1)
    assert channel.wait_for_confirms(1) == [True]
    channel = restart()
    publish(channel, exchange, "a", "b")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"b"]


def test_values_expire_over_a_restart(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel, DISK)
    publish(channel, exchange, "short", ttl=1)
    publish(channel, exchange, "long", ttl=3_600_000)
    assert channel.wait_for_confirms(2) == [True] * 2
    channel = restart()
    publish(channel, exchange, "short", "long")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"short", b"long", b"short"]


def test_a_deleted_exchange_forgets(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel, DISK)
    publish(channel, exchange, "a")
    assert channel.wait_for_confirms(1) == [True]
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, TYPE, durable=True, arguments=[("x-cache-size", "I", 9), DISK])
    channel.queue_bind(queue, exchange)
    channel = restart()
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"a", b"a"]


def test_a_policy_moves_values_to_disk_and_back(restart: Restarts) -> None:
    channel = restart.channel()
    exchange, queue = deduplicating(restart, channel, size=2)
    publish(channel, exchange, "a", "b")
    assert channel.wait_for_confirms(2) == [True] * 2
    api = HttpApi(restart.management)
    policy = {"pattern": f"^{exchange}$", "apply-to": "exchanges"}
    definition = {"x-cache-persistence": "disk", "x-cache-size": 50}
    api.check("PUT", path("policies", "/", "p"), {**policy, "definition": definition}, 201)
    publish(channel, exchange, *[f"{number}" for number in range(10)])
    channel.sync(queue)
    channel = restart()
    publish(channel, exchange, "a", "b", *[f"{number}" for number in range(10)])
    assert channel.wait_for_confirms(12) == [True] * 12
    assert len(drain(channel, queue)) == 12
    HttpApi(restart.management).check("DELETE", path("policies", "/", "p"), None, 204)
    publish(channel, exchange, "9", "c")
    channel.sync(queue)
    assert drain(channel, queue) == [b"c"]
    channel = restart()
    publish(channel, exchange, "9", "c")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"9", b"c"]


@pytest.mark.parametrize("by_policy", [False, True])
def test_2_16_a_queue_knows_its_messages_after_a_restart(restart: Restarts, by_policy: bool) -> None:
    channel = restart.channel()
    queue = restart.new("q")
    arguments: list[Triple] = [] if by_policy else [("x-message-deduplication", "t", True)]
    channel.queue_declare(queue, durable=True, arguments=arguments)
    if by_policy:
        restart.policy(queue, {"x-message-deduplication": True})
    publish(channel, queue, *[f"{number}" for number in range(600)])
    assert channel.wait_for_confirms(600) == [True] * 600
    delivery = channel.get(queue)
    assert delivery is not None
    channel = restart()
    api = HttpApi(restart.management)

    deadline = time.monotonic() + 120
    while _entries(api, queue) != 600:
        assert time.monotonic() < deadline
    publish(channel, queue, *[f"{number}" for number in range(601)])
    assert channel.wait_for_confirms(601) == [True] * 601
    assert drain(channel, queue) == [b"%d" % number for number in range(601)]


def _entries(api: HttpApi, queue: str) -> int:
    status = api.get(path("queues", "/", queue))["backing_queue_status"]
    return int(status["message_deduplication_cache_info"]["entries"])


def test_values_are_no_messages_in_the_log(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        with Connection(process.url) as connection:
            channel = connection.channel()
            for queue in ("qa", "qb"):
                channel.queue_declare(queue, durable=True)
            channel.exchange_declare("x", TYPE, durable=True, arguments=[("x-cache-size", "I", 100), DISK])
            channel.queue_bind("qa", "x")
            publish(channel, "x", "a", "b", "c")
            delayed = [("x-delayed-type", "S", "fanout")]
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delayed)
            channel.publish("later", "", b"four", {"headers": [("x-delay", "I", 3_600_000)], "delivery_mode": 2})
            assert channel.wait_for_confirms(4) == [True] * 4
        process.stop()
        process.start()
        expected = (
            "recovered 2 durable queues and 1 delayed exchanges with 4 messages (7 bytes of bodies), 3 remembered"
        )
        assert f"{expected} values\n" in process.log_text()
