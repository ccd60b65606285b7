"""Publishers and consumers that race a reader of the files, and note what was promised, until the broker is killed."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tests.support.leveret_process import LeveretProcess
from tests.support.transport import ConnectionDropped
from tests.support.wire import Connection

#: Seconds.
PATIENCE: Final = 180.0
#: Unconfirmed messages of a publisher.
_WINDOW: Final = 200


class Publisher(threading.Thread):
    """Publishes to a queue until the broker is killed, and notes what was confirmed and what may be there."""

    def __init__(self, url: str, queue: str, first: int) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(url, timeout=PATIENCE)
        self._channel = self._connection.channel()
        self._channel.queue_declare(queue, durable=True)
        self._channel.confirm_select()
        self._queue = queue
        self._first = first
        self.sent = self.confirmed = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                body = b"%d" % (self._first + self.sent)
                self.sent += 1
                self._channel.publish("", self._queue, body, {"delivery_mode": 2})
                self._channel.wait_until(self._has_room, "confirms", PATIENCE)
            self._channel.wait_until(lambda: self._has_room() and self.sent == self.confirmed, "confirms", PATIENCE)
        except (ConnectionDropped, OSError):
            pass
        finally:
            self._connection.abort()

    def _has_room(self) -> bool:
        while self._channel.confirms:
            # Confirms come in order.
            self.confirmed = max(self.confirmed, self._channel.confirms.popleft().delivery_tag)
        return self.sent - self.confirmed < _WINDOW


class Consumer(threading.Thread):
    """Consumes a queue as fast as it can, and acknowledges at once."""

    def __init__(self, url: str, queue: str, no_ack: bool) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(url, timeout=PATIENCE)
        self._channel = self._connection.channel()
        self._channel.queue_declare(queue, durable=True)
        self._channel.qos(500)
        self._no_ack = no_ack
        self._channel.consume(queue, no_ack=no_ack)
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    delivery = self._channel.next_delivery(0.05)
                except TimeoutError:
                    continue
                if not self._no_ack and delivery.delivery_tag is not None:
                    self._channel.ack(delivery.delivery_tag)
        except (ConnectionDropped, OSError):
            pass
        finally:
            self._connection.abort()


class RacingClients:
    """A publisher and a consumer of each queue, round by round, with what all publishers were promised.

    Args:
        queues: Their names; the consumer of the first one does not acknowledge.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        #: Queue and number, which is the body, of each message that was published, and of each that was confirmed.
        self.sent: set[str] = set()
        self.confirmed: set[str] = set()
        self._following = dict.fromkeys(queues, 0)

    @contextmanager
    def round(self, broker: LeveretProcess, is_last: bool) -> Iterator[None]:
        """Let them work during the block; after it the broker is killed, or publishers wait for their last confirms.

        Args:
            broker: Runs, and keeps running in the last round.
            is_last: Whether it is not killed.
        """
        queues = list(self._following)
        publishers = [Publisher(broker.url, queue, first) for queue, first in self._following.items()]
        consumers = [Consumer(broker.url, queue, queue == queues[0]) for queue in queues]
        for thread in (*consumers, *publishers):
            thread.start()
        yield
        if is_last:
            for publisher in publishers:
                publisher.stopping.set()
                publisher.join()
        else:
            broker.kill()
        workers: list[Publisher | Consumer] = [*publishers, *consumers]
        for worker in workers:
            worker.stopping.set()
            worker.join()
        for queue, publisher in zip(queues, publishers, strict=True):
            first = self._following[queue]
            self.confirmed.update(f"{queue} {number}" for number in range(first, first + publisher.confirmed))
            self.sent.update(f"{queue} {number}" for number in range(first, first + publisher.sent))
            self._following[queue] += publisher.sent


def metrics_of(broker: LeveretProcess) -> str:
    """What Prometheus gets."""
    with urllib.request.urlopen(f"{broker.prometheus_url}/metrics", timeout=PATIENCE) as response:
        text: str = response.read().decode()
    return text


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is fulfilled."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
