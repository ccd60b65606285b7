"""What exchanges and queues that drop duplicates know after a stop and after a crash."""

from __future__ import annotations

import time

from tests.conformance.http_api import HttpApi, path
from tests.conformance.topology import drain
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import Restarts
from tests.support.tables import Triple
from tests.support.wire import Channel

TYPE = "x-message-deduplication"
DISK: Triple = ("x-cache-persistence", "S", "disk")


def deduplicating(place: Restarts, channel: Channel, *arguments: Triple, size: int = 100) -> tuple[str, str]:
    """Declare an exchange, and a durable queue that is bound to it."""
    exchange, queue = place.new("x"), place.queue(channel)
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


@row()
def disk_survives(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel, DISK, size=3)
    publish(channel, exchange, "a", "b", "c", "d")
    assert channel.wait_for_confirms(4) == [True] * 4
    channel = yield
    publish(channel, exchange, "b", "c", "d", "a")
    assert channel.wait_for_confirms(4) == [True] * 4
    channel = yield
    publish(channel, exchange, "c", "d", "a", "b")
    assert channel.wait_for_confirms(4) == [True] * 4
    assert drain(channel, queue) == [b"a", b"b", b"c", b"d", b"a", b"b"]


@row()
def memory_does_not(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel)
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    channel = yield
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"a", b"a"]


@row()
def values_of_transient_messages_survive_too(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel, DISK)
    publish(channel, exchange, "a", mode=1)
    assert channel.wait_for_confirms(1) == [True]
    channel = yield
    publish(channel, exchange, "a", "b")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"b"]


@row()
def values_expire_over_a_restart(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel, DISK)
    publish(channel, exchange, "short", ttl=1)
    publish(channel, exchange, "long", ttl=3_600_000)
    assert channel.wait_for_confirms(2) == [True] * 2
    channel = yield
    publish(channel, exchange, "short", "long")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"short", b"long", b"short"]


@row()
def a_deleted_exchange_forgets(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel, DISK)
    publish(channel, exchange, "a")
    assert channel.wait_for_confirms(1) == [True]
    channel.exchange_delete(exchange)
    channel.exchange_declare(exchange, TYPE, durable=True, arguments=[("x-cache-size", "I", 9), DISK])
    channel.queue_bind(queue, exchange)
    channel = yield
    publish(channel, exchange, "a", "a")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"a", b"a"]


@row()
def a_policy_moves_values_to_disk_and_back(place: Restarts) -> Steps:
    channel = place.channel()
    exchange, queue = deduplicating(place, channel, size=2)
    publish(channel, exchange, "a", "b")
    assert channel.wait_for_confirms(2) == [True] * 2
    api = HttpApi(place.management)
    policy = {"pattern": f"^{exchange}$", "apply-to": "exchanges"}
    definition = {"x-cache-persistence": "disk", "x-cache-size": 50}
    api.check("PUT", path("policies", "/", exchange), {**policy, "definition": definition}, 201)
    publish(channel, exchange, *[f"{number}" for number in range(10)])
    channel.sync(queue)
    channel = yield
    publish(channel, exchange, "a", "b", *[f"{number}" for number in range(10)])
    assert channel.wait_for_confirms(12) == [True] * 12
    assert len(drain(channel, queue)) == 12
    HttpApi(place.management).check("DELETE", path("policies", "/", exchange), None, 204)
    publish(channel, exchange, "9", "c")
    channel.sync(queue)
    assert drain(channel, queue) == [b"c"]
    channel = yield
    publish(channel, exchange, "9", "c")
    assert channel.wait_for_confirms(2) == [True] * 2
    assert drain(channel, queue) == [b"9", b"c"]


@row(False, True)
def a_queue_knows_its_messages_after_a_restart(place: Restarts, by_policy: bool) -> Steps:
    channel = place.channel()
    queue = place.new("q")
    arguments: list[Triple] = [] if by_policy else [("x-message-deduplication", "t", True)]
    channel.queue_declare(queue, durable=True, arguments=arguments)
    if by_policy:
        place.policy(queue, {"x-message-deduplication": True})
    publish(channel, queue, *[f"{number}" for number in range(600)])
    assert channel.wait_for_confirms(600) == [True] * 600
    delivery = channel.get(queue)
    assert delivery is not None
    channel = yield
    api = HttpApi(place.management)

    deadline = time.monotonic() + 120
    while _entries(api, queue) != 600:
        assert time.monotonic() < deadline
    publish(channel, queue, *[f"{number}" for number in range(601)])
    assert channel.wait_for_confirms(601) == [True] * 601
    assert drain(channel, queue) == [b"%d" % number for number in range(601)]


def _entries(api: HttpApi, queue: str) -> int:
    status = api.get(path("queues", "/", queue))["backing_queue_status"]
    return int(status["message_deduplication_cache_info"]["entries"])
