"""A broker that is killed again and again while returned messages wait: none is lost, none is early."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.transport import ConnectionDropped
from tests.support.wire import Connection, Delivery

_PATIENCE = 180.0
_QUEUES = {"classic": "c", "quorum": "q"}
_MARKER = "marker"
#: The delay of each return, in seconds.
_DELAY = 0.4


class RetryLedger:
    """What has been promised, and what has arrived. Bodies are numbers.

    Attributes:
        published: Number of messages.
        confirmed: Messages that the broker has promised to keep.
        done: Messages that have been acknowledged.
        waits_until: Earliest time of messages that certainly wait, by the clock of time.monotonic().
        unsure: Messages that may be there twice: their return, or their end, was interrupted by a kill.
        early: Messages that were delivered before their time.
        returned: Number of returns that are certain.
    """

    def __init__(self) -> None:
        self.published = self.returned = 0
        self.confirmed: set[bytes] = set()
        self.done: set[bytes] = set()
        self.waits_until: dict[bytes, float] = {}
        self.unsure: set[bytes] = set()
        self.early: set[bytes] = set()

    def interrupt(self, settled: Iterable[bytes]) -> None:
        """Note a kill.

        Args:
            settled: Messages that have been settled since it was last certain what is on disk.
        """
        now = time.monotonic()
        self.unsure.update(settled)
        # They were due: the broker was about to write that they wait no more.
        self.unsure.update(body for body, until in self.waits_until.items() if until <= now)

    def arrive(self, body: bytes) -> None:
        """Note a delivery."""
        if time.monotonic() < self.waits_until.pop(body, 0.0) and body not in self.unsure:
            self.early.add(body)


class Worker(threading.Thread):
    """Publishes, acknowledges and requeues until the broker is killed.

    Args:
        url: Address of the broker.
        ledger: The ledger.
        seed: Seed of what it does; None only acknowledges.
    """

    def __init__(self, url: str, ledger: RetryLedger, seed: int | None) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self._ledger = ledger
        self._rng = None if seed is None else random.Random(seed)
        self._connection = Connection(url, timeout=_PATIENCE)
        self._channel = self._connection.channel()
        self._channel.confirm_select()
        self._channel.qos(30)
        self._last = self._confirmed = 0
        self._returning: dict[bytes, float] = {}
        self._acknowledged: list[bytes] = []
        for queue in _QUEUES.values():
            self._channel.consume(queue)

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                if self._rng is not None:
                    self._publish(self._rng)
                for _ in range(30):
                    if not self._receive():
                        break
                self._make_certain()
        except (ConnectionDropped, OSError):
            self._ledger.interrupt([*self._returning, *self._acknowledged])
        finally:
            self._connection.abort()

    def _publish(self, rng: random.Random) -> None:
        ledger, bodies = self._ledger, list[bytes]()
        for _ in range(rng.randrange(10)):
            bodies.append(b"%d" % ledger.published)
            ledger.published += 1
            self._send(rng.choice([*_QUEUES.values()]), bodies[-1])
        self._await_confirms()
        ledger.confirmed.update(bodies)

    def _send(self, queue: str, body: bytes) -> None:
        self._last += 1
        self._channel.publish("", queue, body, {"delivery_mode": 2})

    def _await_confirms(self) -> None:
        def are_here() -> bool:
            while self._channel.confirms:
                confirm = self._channel.confirms.popleft()
                assert confirm.ack
                self._confirmed = max(self._confirmed, confirm.delivery_tag)
            return self._confirmed >= self._last

        self._channel.wait_until(are_here, "confirms", _PATIENCE)

    def _receive(self) -> bool:
        try:
            delivery: Delivery = self._channel.next_delivery(0.02)
        except TimeoutError:
            return False
        tag, body = delivery.delivery_tag, delivery.body
        assert tag is not None
        self._ledger.arrive(body)
        if self._rng is None or self._rng.random() < 0.4:
            self._ledger.done.add(body)
            self._acknowledged.append(body)
            self._channel.ack(tag)
            return True
        self._returning[body] = time.monotonic() + _DELAY
        if self._rng.random() < 0.5:
            self._channel.nack(tag)
        else:
            self._channel.reject(tag)
        return True

    def _make_certain(self) -> None:
        """Wait until what has returned is on disk, and only where it waits."""
        for _ in range(2):
            # With the second one, the event of the first turn has been written, too.
            self._send(_MARKER, b"")
            self._await_confirms()
        self._ledger.returned += len(self._returning)
        self._ledger.waits_until.update(self._returning)
        self._returning.clear()
        self._acknowledged.clear()


def test_what_waits_is_neither_lost_nor_early(tmp_path: Path, kill_rounds: int, kill_seed: int) -> None:
    rng, ledger = random.Random(kill_seed), RetryLedger()
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        with Connection(process.url, timeout=_PATIENCE) as connection:
            channel = connection.channel()
            for kind, queue in _QUEUES.items():
                arguments: list[Triple] = [("x-queue-type", "S", kind), ("x-delivery-limit", "I", -1)]
                steps: Triple = ("x-delayed-retry-steps", "S", f"{round(_DELAY * 1000)}ms")
                given = arguments if kind == "quorum" else arguments[:1]
                channel.queue_declare(queue, durable=True, arguments=[*given, steps])
            channel.queue_declare(_MARKER, durable=True, arguments=[("x-max-length", "I", 1)])
        for done in range(max(1, kill_rounds // 2)):
            worker = Worker(process.url, ledger, kill_seed + done)
            worker.start()
            worker.join(rng.uniform(0.2, 1.5))
            process.kill()
            worker.stopping.set()
            worker.join(_PATIENCE)
            process.start()
        last = Worker(process.url, ledger, None)
        last.start()
        deadline = time.monotonic() + _PATIENCE
        while not ledger.confirmed <= ledger.done and time.monotonic() < deadline:
            last.join(0.05)
        last.stopping.set()
        last.join(_PATIENCE)
    confirmed, lost = len(ledger.confirmed), len(ledger.confirmed - ledger.done)
    early, unsure = len(ledger.early), len(ledger.unsure)
    print(f"{confirmed} confirmed, {ledger.returned} returned, {unsure} unsure, {lost} lost, {early} early")  # noqa: T201
    assert ledger.returned
    assert ledger.confirmed <= ledger.done
    assert not ledger.early
