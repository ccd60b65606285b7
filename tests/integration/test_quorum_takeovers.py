"""What a takeover does to a quorum queue: returned and unacknowledged messages are ready again, where they were.

A message that returns goes behind those that have returned before, as in RabbitMQ. So messages that no client has seen
may change their order while one node leads, if their consumers end one after the other; a takeover changes nothing.
"""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from leveret import LeveretCluster
from tests.integration.confirmed import publish_numbers
from tests.integration.test_browse import Api
from tests.support.wire import Channel, Connection

ARGUMENTS = [("x-queue-type", "S", "quorum"), ("x-delivery-limit", "l", 1_000_000)]


def publish(url: str, numbers: range) -> None:
    """Publish numbers; when they are confirmed, all that was done before is on all nodes, acknowledgements too."""
    publish_numbers(url, "q", numbers, ARGUMENTS)


def consume(connection: Connection, rng: random.Random) -> Channel:
    """Take messages, and settle, return or keep each."""
    channel = connection.channel()
    channel.qos(prefetch := rng.choice((5, 50, 600)))
    channel.consume("q")
    kept = 0
    # Those that are ready come, and no more than the prefetch if all are kept.
    for _ in range(rng.randrange(1, 60)):
        if kept == prefetch or not (channel.pending or channel.queue_declare("q", passive=True).message_count):
            break
        (delivery,) = channel.deliveries(1)
        what = rng.random()
        if what < 0.3:
            channel.ack(delivery.delivery_tag, multiple=rng.random() < 0.2)
        elif what < 0.5:
            channel.nack(delivery.delivery_tag, multiple=rng.random() < 0.3)
        else:
            kept += 1
    # What was sent has arrived.
    channel.queue_declare("q", passive=True)
    return channel


def contents(url: str) -> list[int]:
    """All messages by their places: those that have not returned, then those that have, in the order of each."""
    return [int(each["payload"]) for each in Api(url).all("q", count=1000)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_takeover_changes_no_order(leveret_cluster: LeveretCluster, seed: int) -> None:
    rng, cluster = random.Random(seed), leveret_cluster
    published = 0
    for _ in range(10):
        leader = cluster.leader
        publish(leader.url, range(published, published := published + rng.randrange(20, 400)))
        with ExitStack() as stack:
            for _ in range(rng.randrange(1, 4)):
                connection = Connection(rng.choice(cluster.urls), timeout=60)
                stack.callback(connection.abort)
                consume(connection, rng)
                if rng.random() < 0.5:
                    connection.close()
            publish(leader.url, range(published, published := published + 1))
            before = contents(leader.http_url)
            cluster.kill(leader)
            cluster.wait_for_leader(leader)
            cluster.start(leader)
        cluster.wait_for_copies(3)
        assert contents(cluster.leader.http_url) == before
