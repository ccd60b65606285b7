"""Compares what a broker's queues hold after its end with what the clients of broker_load.py were promised."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from enum import Enum

from tests.crash.broker_load import RETURNED, Client, Kind, number_of
from tests.crash.ledger import Ledger
from tests.support.wire import Channel, Connection


class End(Enum):
    """How a broker ends."""

    KILL = "kill"
    POWER = "power"
    STOP = "stop"
    #: With its disk; a backup is restored.
    LOSS = "loss"


def compare(
    url: str,
    clients: Iterable[Client],
    rng: random.Random,
    most: int,
    end: End = End.KILL,
    are_returned: bool = False,
) -> Counter[str]:
    """Compare all queues with the ledgers after the broker's end, and acknowledge a part of what is there."""
    counts: Counter[str] = Counter()
    with Connection(url, timeout=120) as connection:
        for client in clients:
            letters: set[int] = set()
            for name, kind in client.kinds.items():
                channel = connection.channel()
                ledger = client.ledgers[name]
                content = _content(channel, ledger, end, counts)
                if kind.quorum:
                    if are_returned:
                        ledger.returned(list(content.values()), RETURNED)
                    _settle(channel, content, ledger.spare(list(content.values())))
                letters |= ledger.recovered(list(content.values())) - client.transient
                _thin(channel, client, kind, content, rng, most)
            _take_letters(connection.channel(), client, letters, end, counts)
            # After this, what was returned stands where it does even if power is lost.
            client.sync(connection.channel())
    return counts


def _content(channel: Channel, ledger: Ledger, end: End, counts: Counter[str]) -> dict[int, int]:
    """Numbers of all messages of a queue by delivery tag, in order, without what came back, which it acknowledges."""
    queue = ledger.queue
    count = channel.queue_declare(queue, passive=True).message_count
    channel.consume(queue)
    deliveries = channel.deliveries(count)
    channel.expect_no_delivery(queue)
    if end is not End.STOP:
        assert all(delivery.redelivered for delivery in deliveries), f"{queue}: says that it was never delivered before"
    content = {delivery.delivery_tag: number_of(delivery) for delivery in deliveries}
    counts["found"] += count
    if end is End.POWER:
        back = ledger.power_lost(list(content.values()))
        counts["came back"] += len(back)
        _settle(channel, content, back)
    return content


def _settle(channel: Channel, content: dict[int, int], indexes: Iterable[int]) -> None:
    """Acknowledge messages, and take them out of the content."""
    tags = list(content)
    for at in indexes:
        channel.ack(tags[at])
        del content[tags[at]]


def _thin(channel: Channel, client: Client, kind: Kind, content: dict[int, int], rng: random.Random, most: int) -> None:
    """Acknowledge some of a queue's messages, and return the others."""
    ledger = client.ledgers[kind.name]
    left = min(rng.randrange(len(content) + 1), most)
    tags = sorted(rng.sample(list(content), len(content) - left))
    for tag in tags:
        channel.ack(tag)
    channel.sync(kind.name)
    ledger.ended([content.pop(tag) for tag in tags])
    channel.close()
    if kind.quorum:
        for number in content.values():
            ledger.stands([number], client.places(1, RETURNED))


def _take_letters(channel: Channel, client: Client, expected: set[int], end: End, counts: Counter[str]) -> None:
    """Compare the dead letters, of which some are expected, and acknowledge them all."""
    ledger = client.letters
    found = set(content := list(_content(channel, ledger, end, counts).values()))
    ledger.recovered(content)
    # One that was purged there is gone permanently.
    missing = expected - found - ledger.gone
    assert not missing, f"neither in their queue nor among the dead letters: {sorted(missing)}"
    if content:
        channel.ack(multiple=True)
        channel.sync(ledger.queue)
    ledger.ended(content)
    channel.close()
