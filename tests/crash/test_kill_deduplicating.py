"""A broker that is killed while an exchange drops duplicates: no confirmed message is there twice, none is missing."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.transport import ConnectionDropped
from tests.support.wire import Connection

_PATIENCE = 180.0
_QUEUE, _EXCHANGE = "once", "deduplicating"
#: Unconfirmed messages of the publisher.
_WINDOW = 50


class _Publisher(threading.Thread):
    """Publishes new messages, and some again that were confirmed, until the broker is killed. Bodies are the values.

    Args:
        url: Address of the broker.
        rng: Chooses.
        again: Messages without a confirm from the last broker, which are published first.
        confirmed: Messages with one; others are added.
        first: Number of the first new message.
    """

    def __init__(self, url: str, rng: random.Random, again: set[bytes], confirmed: list[bytes], first: int) -> None:
        super().__init__(daemon=True)
        self.number = first
        self.unconfirmed: set[bytes] = set(again)
        self._rng = rng
        self._confirmed = confirmed
        self._tags: dict[int, bytes] = {}
        self._last = 0
        self._connection = Connection(url, timeout=_PATIENCE)
        self._channel = self._connection.channel()
        self._channel.confirm_select()

    def run(self) -> None:
        try:
            for body in sorted(self.unconfirmed):
                self._publish(body)
            while True:
                for _ in range(self._rng.randrange(1, 20)):
                    is_new = not self._confirmed or self._rng.random() < 0.7
                    self._publish(b"%d" % self.number if is_new else self._rng.choice(self._confirmed))
                    self.number += is_new
                self._channel.wait_until(self._has_room, "confirms", _PATIENCE)
        except (ConnectionDropped, OSError):
            pass
        finally:
            self._connection.abort()

    def _publish(self, body: bytes) -> None:
        self._last += 1
        self._tags[self._last] = body
        self.unconfirmed.add(body)
        headers = [("x-deduplication-header", "S", body), ("n", "I", self._last)]
        self._channel.publish(_EXCHANGE, "", body, {"headers": headers, "delivery_mode": 2})

    def _has_room(self) -> bool:
        while self._channel.confirms:
            confirm = self._channel.confirms.popleft()
            assert confirm.ack
            tags = [tag for tag in self._tags if tag <= confirm.delivery_tag] if confirm.multiple else []
            for tag in tags or [confirm.delivery_tag]:
                body = self._tags.pop(tag)
                if body in self.unconfirmed:
                    self.unconfirmed.discard(body)
                    self._confirmed.append(body)
        return len(self._tags) < _WINDOW


@pytest.mark.parametrize("sync", ["always", "interval(100)", "off"])
def test_no_confirmed_message_is_there_twice(tmp_path: Path, kill_rounds: int, kill_seed: int, sync: str) -> None:
    rng = random.Random(kill_seed)
    settings = {"storage.segment_size": 65_536, "storage.sync": sync, "log_level": "warning"}
    confirmed: list[bytes] = []
    doubtful: set[bytes] = set()
    unconfirmed: set[bytes] = set()
    number = 0
    with LeveretProcess(tmp_path, settings=settings) as process:
        with Connection(process.url, timeout=_PATIENCE) as connection:
            channel = connection.channel()
            arguments = [("x-cache-size", "I", 1_000_000), ("x-cache-persistence", "S", "disk")]
            channel.exchange_declare(_EXCHANGE, "x-message-deduplication", durable=True, arguments=arguments)
            channel.queue_declare(_QUEUE, durable=True)
            channel.queue_bind(_QUEUE, _EXCHANGE)
        for _ in range(max(1, kill_rounds // 3)):
            publisher = _Publisher(process.url, rng, unconfirmed, confirmed, number)
            publisher.start()
            publisher.join(rng.uniform(0.1, 1.0))
            process.kill()
            publisher.join(_PATIENCE)
            number, unconfirmed = publisher.number, publisher.unconfirmed - set(confirmed)
            # Their publisher cannot know whether they are there, so it has to publish them again.
            doubtful |= unconfirmed
            process.start()
        with Connection(process.url, timeout=_PATIENCE) as connection:
            channel = connection.channel()
            count = channel.queue_declare(_QUEUE, passive=True).message_count
            channel.consume(_QUEUE, no_ack=True)
            found = Counter(delivery.body for delivery in channel.deliveries(count))
    assert confirmed
    assert set(confirmed) <= set(found)
    twice = {body for body, times in found.items() if times > 1}
    assert twice <= doubtful
