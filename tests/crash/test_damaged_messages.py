"""Stored messages are damaged while the broker is down: clients get all others, and every counter returns to 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Connection

KINDS: Final[dict[str, list[Triple]]] = {
    "classic": [],
    "lazy": [("x-queue-mode", "S", "lazy")],
    "priority": [("x-max-priority", "I", 3)],
    "quorum": [("x-queue-type", "S", "quorum")],
}
#: Messages of each queue; the first, one in the middle and the last are damaged.
BODIES: Final = [b"body-%02d-" % number + b"x" * (10 * number) for number in range(12)]
DAMAGED: Final = (0, 5, 11)
COUNTERS: Final = (
    "messages", "messages_ready", "messages_unacknowledged", "message_bytes", "message_bytes_ready",
    "message_bytes_unacknowledged", "messages_persistent", "message_bytes_persistent",
)  # fmt: skip


def damage(data: Path, body: bytes) -> None:
    """Turn one bit over in each place where a body is stored."""
    found = 0
    for path in data.rglob("*.seg"):
        octets = bytearray(path.read_bytes())
        at = octets.find(body)
        if at >= 0:
            octets[at] ^= 1
            path.write_bytes(octets)
            found += 1
    assert found == len(KINDS)


def get_all(channel: Channel, queue: str) -> list[bytes]:
    """Take all by basic.get."""
    found = []
    while (delivery := channel.get(queue)) is not None:
        found.append(delivery.body)
        channel.ack(delivery.delivery_tag)
    return found


def consume_all(channel: Channel, queue: str) -> list[bytes]:
    """Take all by basic.consume."""
    tag = channel.consume(queue).consumer_tag
    deliveries = channel.deliveries(len(BODIES) - len(DAMAGED))
    channel.ack(deliveries[-1].delivery_tag, multiple=True)
    channel.cancel(tag)
    return [delivery.body for delivery in deliveries]


def return_and_get_all(channel: Channel, queue: str) -> list[bytes]:
    """Take some, give them back, and then take all."""
    for delivery in [channel.get(queue) for _ in range(3)]:
        assert delivery is not None
        channel.nack(delivery.delivery_tag)
    return sorted(get_all(channel, queue))


@pytest.mark.parametrize("take_all", [get_all, consume_all, return_and_get_all])
def test_damaged_messages_cost_themselves_only(tmp_path: Path, take_all: Callable[[Channel, str], list[bytes]]) -> None:
    with LeveretProcess(tmp_path, settings={"log_level": "error"}) as process:
        with Connection(process.url) as connection:
            channel = connection.channel()
            channel.confirm_select()
            for queue, arguments in KINDS.items():
                channel.queue_declare(queue, durable=True, arguments=arguments)
                for body in BODIES:
                    channel.publish("", queue, body, {"delivery_mode": 2})
            assert all(channel.wait_for_confirms(len(BODIES) * len(KINDS)))
        assert process.stop() == 0
        for number in DAMAGED:
            damage(process.data_dir, BODIES[number])
        process.start()
        expected = [body for number, body in enumerate(BODIES) if number not in DAMAGED]
        with Connection(process.url) as connection:
            channel = connection.channel()
            for queue in KINDS:
                assert take_all(channel, queue) == expected
                assert channel.get(queue) is None
            management = Management(process.http_url)
            wait_until(lambda: not _left(management), "the counters are 0")
        # Each queue has said which, and nothing has failed.
        assert process.log_text().count("cannot be read; they are lost") == len(KINDS) * len(DAMAGED)
        assert "Traceback" not in process.log_text()


def _left(management: Management) -> dict[str, Any]:
    """What the queues' counters still say."""
    queues = management.request("GET", "queues")
    assert {queue["name"] for queue in queues} == KINDS.keys()
    return {
        f"{queue['name']}.{counter}": queue[counter] for queue in queues for counter in COUNTERS if queue.get(counter)
    }
