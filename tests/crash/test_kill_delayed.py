"""A broker that is killed again and again while messages wait in a delayed exchange: none is lost, none is early."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from tests.support.leveret_process import LeveretProcess
from tests.support.transport import ConnectionDropped
from tests.support.wire import Channel, Connection

_PATIENCE = 180.0
_QUEUE, _EXCHANGE, _KEY = "due", "delayed", "k"
#: Unconfirmed messages of the publisher.
_WINDOW = 50


class DelayLedger:
    """What has been promised, and what has arrived. Bodies are numbers.

    Attributes:
        due: Earliest time of each message, by the clock of time.monotonic().
        confirmed: Messages that the broker has promised to keep.
        arrived: Messages that have been delivered.
        early: Messages that were delivered before their time.
        twice: Number of repeated deliveries, which are allowed after a kill.
    """

    def __init__(self) -> None:
        self.due: dict[bytes, float] = {}
        self.confirmed: set[bytes] = set()
        self.arrived: set[bytes] = set()
        self.early: set[bytes] = set()
        self.twice = 0

    def arrive(self, body: bytes) -> None:
        """Note a delivery."""
        if time.monotonic() < self.due[body]:
            self.early.add(body)
        self.twice += body in self.arrived
        self.arrived.add(body)


class _Worker(threading.Thread):
    """Works with a channel until the broker is killed.

    Args:
        url: Address of the broker.
        ledger: The ledger.
        seed: Seed of the delays.
    """

    def __init__(self, url: str, ledger: DelayLedger, seed: int) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self._connection = Connection(url, timeout=_PATIENCE)
        self.channel: Channel = self._connection.channel()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
        except (ConnectionDropped, OSError):
            pass
        finally:
            self._connection.abort()

    def work(self) -> None:
        """Do something."""
        raise NotImplementedError


class _Publisher(_Worker):
    def __init__(self, url: str, ledger: DelayLedger, seed: int) -> None:
        super().__init__(url, ledger, seed)
        self.channel.confirm_select()
        self._tags: dict[int, bytes] = {}
        self._last = 0

    def work(self) -> None:
        for _ in range(self.rng.randrange(1, 20)):
            delay, body = self.rng.choice((1, 20, 200, 1000, 3000)), b"%d" % len(self.ledger.due)
            self.ledger.due[body] = time.monotonic() + delay / 1000
            self._last += 1
            self._tags[self._last] = body
            # Whatever the delivery mode, the exchange keeps it; the queue keeps persistent ones only.
            properties = {"headers": [("x-delay", "I", delay), ("n", "I", self._last)], "delivery_mode": 2}
            self.channel.publish(_EXCHANGE, _KEY, body, properties)
        self.channel.wait_until(self._has_room, "confirms", _PATIENCE)

    def _has_room(self) -> bool:
        while self.channel.confirms:
            confirm = self.channel.confirms.popleft()
            assert confirm.ack
            tags = [tag for tag in self._tags if tag <= confirm.delivery_tag] if confirm.multiple else []
            for tag in tags or [confirm.delivery_tag]:
                self.ledger.confirmed.add(self._tags.pop(tag))
        return len(self._tags) < _WINDOW


class _Consumer(_Worker):
    def __init__(self, url: str, ledger: DelayLedger, seed: int) -> None:
        super().__init__(url, ledger, seed)
        self.channel.qos(100)
        self.channel.consume(_QUEUE)

    def work(self) -> None:
        try:
            delivery = self.channel.next_delivery(0.05)
        except TimeoutError:
            return
        self.ledger.arrive(delivery.body)
        assert delivery.delivery_tag is not None
        self.channel.ack(delivery.delivery_tag)


def test_what_was_promised_arrives_and_not_too_early(tmp_path: Path, kill_rounds: int, kill_seed: int) -> None:
    rng, ledger = random.Random(kill_seed), DelayLedger()
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        with Connection(process.url, timeout=_PATIENCE) as connection:
            channel = connection.channel()
            inner = [("x-delayed-type", "S", "direct")]
            channel.exchange_declare(_EXCHANGE, "x-delayed-message", durable=True, arguments=inner)
            channel.queue_declare(_QUEUE, durable=True)
            channel.queue_bind(_QUEUE, _EXCHANGE, _KEY)
        for done in range(max(1, kill_rounds // 2)):
            workers = [each(process.url, ledger, kill_seed + done) for each in (_Publisher, _Consumer)]
            for worker in workers:
                worker.start()
            workers[0].join(rng.uniform(0.1, 1.0))
            process.kill()
            for worker in workers:
                worker.stopping.set()
                worker.join(_PATIENCE)
            process.start()
        consumer = _Consumer(process.url, ledger, 0)
        consumer.start()
        deadline = time.monotonic() + _PATIENCE
        while not ledger.confirmed <= ledger.arrived and time.monotonic() < deadline:
            consumer.join(0.05)
        consumer.stopping.set()
        consumer.join(_PATIENCE)
    confirmed, lost = len(ledger.confirmed), len(ledger.confirmed - ledger.arrived)
    early, twice = len(ledger.early), ledger.twice
    print(f"{confirmed} messages confirmed, {lost} lost, {early} early, {twice} deliveries repeated")  # noqa: T201
    assert ledger.confirmed
    assert ledger.confirmed <= ledger.arrived
    assert not ledger.early
