"""A broker that is killed again and again while a stream is written and read: offsets stay what they were."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Final

from tests.support.leveret_process import LeveretProcess
from tests.support.tables import Triple
from tests.support.transport import ConnectionDropped
from tests.support.wire import Channel, Connection, Delivery

_PATIENCE: Final = 180.0
_STREAM: Final = "s"
_FIRST: Final[Triple] = ("x-stream-offset", "S", "first")
#: Unconfirmed messages of the publisher.
_WINDOW: Final = 100


def _offset(delivery: Delivery) -> int:
    return next(int(value) for name, _, value in delivery.headers if name == "x-stream-offset")


class _Worker(threading.Thread):
    """Works with a channel until the broker is killed.

    Args:
        url: Address of the broker.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.failure: AssertionError | None = None
        self._connection = Connection(url, timeout=_PATIENCE)
        self.channel: Channel = self._connection.channel()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.work()
        except (ConnectionDropped, OSError):
            pass
        except AssertionError as error:
            self.failure = error
        finally:
            self._connection.abort()

    def work(self) -> None:
        """Do something."""
        raise NotImplementedError


class _Publisher(_Worker):
    def __init__(self, url: str, confirmed: set[bytes], first: int) -> None:
        super().__init__(url)
        self.channel.confirm_select()
        self.next = first
        self._confirmed = confirmed
        self._tags: dict[int, bytes] = {}
        self._last = 0

    def work(self) -> None:
        self._last += 1
        body = self._tags[self._last] = b"%d" % self.next
        self.next += 1
        self.channel.publish("", _STREAM, body, {"headers": [("n", "I", self._last)]} if self._last % 3 else None)
        self.channel.wait_until(self._has_room, "confirms", _PATIENCE)

    def _has_room(self) -> bool:
        while self.channel.confirms:
            confirm = self.channel.confirms.popleft()
            assert confirm.ack
            tags = [tag for tag in self._tags if tag <= confirm.delivery_tag] if confirm.multiple else []
            self._confirmed.update(self._tags.pop(tag) for tag in tags or [confirm.delivery_tag])
        return len(self._tags) < _WINDOW


class _Reader(_Worker):
    def __init__(self, url: str, seen: dict[int, bytes]) -> None:
        super().__init__(url)
        self._seen = seen
        self.channel.qos(500)
        self.channel.consume(_STREAM, arguments=[_FIRST])

    def work(self) -> None:
        try:
            delivery = self.channel.next_delivery(0.05)
        except TimeoutError:
            return
        # What was delivered under an offset before is delivered under it again.
        assert self._seen.setdefault(_offset(delivery), delivery.body) == delivery.body
        assert delivery.delivery_tag is not None
        self.channel.ack(delivery.delivery_tag)


class _Named(_Worker):
    """Goes on where its name has left off; `processed` has what it has dealt with, in order."""

    def __init__(self, url: str, processed: list[int]) -> None:
        super().__init__(url)
        self._processed = processed
        self.channel.qos(200)
        begin = [] if processed else [_FIRST]
        self.channel.consume(_STREAM, arguments=[("x-stream-consumer-name", "S", "reader"), *begin])

    def work(self) -> None:
        try:
            delivery = self.channel.next_delivery(0.05)
        except TimeoutError:
            return
        reached, offset = len(self._processed), _offset(delivery)
        # What was acknowledged just before a kill may come again, but nothing is left out.
        assert offset <= reached, f"offset {offset} after {reached - 1}"
        if offset == reached:
            self._processed.append(offset)
        assert delivery.delivery_tag is not None
        self.channel.ack(delivery.delivery_tag)


def test_confirmed_messages_keep_their_offsets(tmp_path: Path, kill_rounds: int, kill_seed: int) -> None:
    rng = random.Random(kill_seed)
    confirmed: set[bytes] = set()
    seen: dict[int, bytes] = {}
    processed: list[int] = []
    next_body = 0
    settings = {"storage.segment_size": 65_536, "log_level": "warning"}
    with LeveretProcess(tmp_path, settings=settings) as process:
        with Connection(process.url, timeout=_PATIENCE) as connection:
            arguments = [("x-queue-type", "S", "stream"), ("x-stream-max-segment-size-bytes", "l", 100_000)]
            connection.channel().queue_declare(_STREAM, durable=True, arguments=arguments)
        for _ in range(max(1, kill_rounds // 2)):
            publisher, reader = _Publisher(process.url, confirmed, next_body), _Reader(process.url, seen)
            named = _Named(process.url, processed)
            for worker in (publisher, reader, named):
                worker.start()
            publisher.join(rng.uniform(0.1, 1.0))
            process.kill()
            for worker in (publisher, reader, named):
                worker.stopping.set()
                worker.join(_PATIENCE)
                assert worker.failure is None
            next_body = publisher.next
            process.start()
        found = _read_all(process.url)
    assert confirmed
    assert confirmed <= set(found.values())
    assert seen.items() <= found.items()
    assert processed
    assert len(set(found.values())) == len(found)
    # Nothing is damaged, so there are no gaps.
    assert sorted(found) == list(range(len(found)))


def _read_all(url: str) -> dict[int, bytes]:
    """Return all messages of the stream by offset."""
    with Connection(url, timeout=_PATIENCE) as connection:
        channel = connection.channel()
        count = channel.queue_declare(_STREAM, passive=True).message_count
        channel.qos(1000)
        channel.consume(_STREAM, arguments=[_FIRST])
        found: dict[int, bytes] = {}
        while len(found) < count:
            delivery = channel.next_delivery()
            found[_offset(delivery)] = delivery.body
            assert delivery.delivery_tag is not None
            channel.ack(delivery.delivery_tag)
    return found
