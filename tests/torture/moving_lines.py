"""Queues of all kinds on a broker that is moved away from, their clients, and what must become of each message.

A line is a queue, or a chain of three by dead letters. Its messages have numbers: what was confirmed has to be consumed
at the new broker in the end, unchanged, and in order where nothing else stands behind the name of a kind.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

_PREFETCH: Final = 200
_BURST: Final = 20
#: Messages of a chain of which each second is rejected once before the move, and each fourth twice.
_STEPS: Final = ("", ".b", ".c")
_DAY_MS: Final = 24 * 3600 * 1000
#: What a connection may end with at any time.
GONE: Final = (AMQPError, OSError, AssertionError)


class Kind:
    """A kind of queue.

    Args:
        arguments: Arguments of its declaration; those of a limit depend on the number of messages.
        durable: Whether it survives the end of its broker.
        is_ordered: Whether its messages keep their order in any case.
    """

    def __init__(self, arguments: dict[str, Any], *, durable: bool = True, is_ordered: bool = True) -> None:
        self.arguments = arguments
        self.durable = durable
        self.is_ordered = is_ordered


#: All kinds. A queue that refuses what is above its limit has what it has refused tried again, behind others. Messages
#: of a chain pass three queues, which are moved side by side.
KINDS: Final = {
    "plain": Kind({}),
    "lazy": Kind({"x-queue-mode": "lazy"}),
    "priority": Kind({"x-max-priority": 5}),
    "quorum": Kind({"x-queue-type": "quorum"}),
    "limit": Kind({"x-overflow": "reject-publish"}, is_ordered=False),
    "bytes": Kind({"x-max-length-bytes": 1 << 40}),
    "chain": Kind({}, is_ordered=False),
    "stream": Kind({"x-queue-type": "stream"}),
    "ttl": Kind({"x-message-ttl": _DAY_MS}),
    "transient": Kind({}, durable=False, is_ordered=False),
}


class Line:
    """A queue, or a chain of queues, with a ledger. Any thread.

    Attributes:
        accepted: Numbers that a broker has confirmed.
        seen: Numbers that were consumed, at either broker.
        twice: How many came more than once, by reason.
    """

    def __init__(self, kind: str, number: int, limit: int, last_kill: Callable[[], str]) -> None:
        self.kind = kind
        self.name = f"{kind}-{number}"
        self.is_consumed_there = number % 2 == 1 and kind in ("plain", "lazy", "quorum", "ttl")
        self.arguments = dict(KINDS[kind].arguments)
        if kind == "limit":
            self.arguments["x-max-length"] = limit
        self.accepted: set[int] = set()
        self.refused = 0
        self.seen: set[int] = set()
        self.twice: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._acknowledged: set[int] = set()
        self._firsts: dict[int, list[int]] = {}
        self._next = 0
        self._last_kill = last_kill

    @property
    def queues(self) -> list[str]:
        """The names of its queues, in the order in which messages pass them."""
        return [self.name + step for step in _STEPS] if self.kind == "chain" else [self.name]

    def declare(self, channel: BlockingChannel) -> None:
        """Declare the queues."""
        names, durable = self.queues, KINDS[self.kind].durable
        for name, following in zip(names, [*names[1:], ""], strict=True):
            letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following} if following else {}
            channel.queue_declare(name, durable=durable, arguments=self.arguments | letters)

    def take_number(self) -> int:
        """Return the number of the next message."""
        self._next += 1
        return self._next

    def level(self, number: int) -> int:
        """Return the priority of a message in its queue."""
        return number * 31 % 6 if self.kind == "priority" else 0

    def properties(self, number: int) -> pika.BasicProperties:
        """Return what a message has beside its body. A stream of RabbitMQ 3.10 leaves out tables in headers."""
        table = {} if self.kind == "stream" else {"table": {"a": [1, True, None]}}
        return pika.BasicProperties(
            delivery_mode=2 if KINDS[self.kind].durable else 1,
            priority=self.level(number) or None,
            expiration=str(_DAY_MS) if self.kind == "ttl" and number % 2 else None,
            message_id=f"{self.name}:{number}",
            headers={"n": number, "text": "é", **table},
        )

    def body(self, number: int) -> bytes:
        """Return the body of a message."""
        return b"%d:" % number + b"x" * (number * 7919 % 150)

    def see(self, properties: pika.BasicProperties, body: bytes, redelivered: bool, is_there: bool) -> int:
        """Enter a delivery at the end of the line, before it is acknowledged; return its number."""
        number = int(body.partition(b":")[0])
        expected = self.properties(number)
        if self.kind == "chain":
            deaths = {death["queue"]: death["count"] for death in (properties.headers or {}).get("x-death", ())}
            if deaths.keys() != set(self.queues[:-1]):
                self.wrong.append(f"{number} has died in {deaths}")
        named = ("delivery_mode", "priority", "expiration", "message_id")
        changed = [name for name in named if getattr(properties, name) != getattr(expected, name)]
        # A stream has its offset, a quorum queue its count, a dead letter its deaths, beside what was published.
        headers = properties.headers or {}
        changed += [name for name, value in (expected.headers or {}).items() if headers.get(name) != value]
        if changed or body != self.body(number):
            self.wrong.append(f"changed {number}: {', '.join(changed) or 'body'}")
        if number in self.seen:
            self.twice[self._reason(number, redelivered)] += 1
        else:
            self.seen.add(number)
            if not is_there:
                self._firsts.setdefault(self.level(number), []).append(number)
        return number

    def acknowledged(self, number: int) -> None:
        """Take note that a message was acknowledged."""
        self._acknowledged.add(number)

    def _reason(self, number: int, redelivered: bool) -> str:
        if not redelivered:
            return f"moved, or dead-lettered, twice; the last kill was of {self._last_kill()}"
        if number in self._acknowledged:
            return "its acknowledgement was not on disk when its broker was killed"
        return "its consumer's connection ended"

    @property
    def missing(self) -> set[int]:
        """What was accepted and not consumed yet."""
        return self.accepted - self.seen

    def out_of_order(self) -> list[int]:
        """Return what was consumed at the new broker after what was published later, of what was accepted."""
        late: list[int] = []
        for firsts in self._firsts.values():
            kept = [number for number in firsts if number in self.accepted]
            late += [later for earlier, later in pairwise(kept) if later < earlier]
        return late

    def check(self) -> list[str]:
        """Return what is wrong in the end."""
        found = self.wrong[:20]
        if self.missing and KINDS[self.kind].durable:
            found.append(f"lost {len(self.missing)}: {sorted(self.missing)[:20]}")
        # What a consumer there had, and gave back, comes behind what the shovel took meanwhile.
        if KINDS[self.kind].is_ordered and not self.is_consumed_there and (late := self.out_of_order()):
            found.append(f"reordered {len(late)}: {late[:20]}")
        if self.kind == "stream" and self.twice:
            found.append(f"twice in a stream: {dict(self.twice)}")
        return found


class Client:
    """A thread with a connection that is opened again whenever it ends."""

    def __init__(self, url: str, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._url = url
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self.wrong: list[str] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Close the connection, and end the thread."""
        self._ends.set()
        self._thread.join(120)

    @property
    def is_running(self) -> bool:
        """Whether there is still something to do."""
        return self._thread.is_alive()

    def work(self, connection: pika.BlockingConnection) -> None:
        """Do what there is to do; return when there is no more."""
        raise NotImplementedError

    def _repeat(self) -> None:
        while not self._ends.is_set():
            try:
                connection = connect(self._url)
                try:
                    self.work(connection)
                finally:
                    with suppress(*GONE):
                        connection.close()
                return
            except GONE:
                time.sleep(0.2)
            except Exception as error:  # noqa: BLE001 - shown at the end
                self.wrong.append(f"{type(error).__name__}: {error}")
                return


class Producer(Client):
    """Publishes with confirms, to each line as many as given."""

    def __init__(self, url: str, lines: Sequence[Line], count: int) -> None:
        super().__init__(url, lines)
        self._left = dict.fromkeys(lines, count)

    def work(self, connection: pika.BlockingConnection) -> None:
        """Publish what is left."""
        channel = connection.channel()
        for line in self._lines:
            line.declare(channel)
        channel.confirm_delivery()
        while any(self._left.values()) and not self._ends.is_set():
            for line in self._lines:
                for _ in range(min(_BURST, self._left[line])):
                    self._left[line] -= 1
                    self._publish(channel, line)

    @staticmethod
    def _publish(channel: BlockingChannel, line: Line) -> None:
        number = line.take_number()
        try:
            channel.basic_publish("", line.name, line.body(number), line.properties(number), mandatory=True)
        except (NackError, UnroutableError):
            # A full queue; a transient one that went with its broker, until it is declared again.
            line.refused += 1
            if not KINDS[line.kind].durable:
                line.declare(channel)
        else:
            line.accepted.add(number)


class Consumer(Client):
    """Consumes lines to their end: it rejects in the queues of a chain but the last."""

    def __init__(self, url: str, lines: Sequence[Line], *, is_there: bool = False, arguments: Any = None) -> None:
        super().__init__(url, lines)
        self._is_there = is_there
        self._arguments = arguments

    def work(self, connection: pika.BlockingConnection) -> None:
        """Consume until it is ended."""
        channel = connection.channel()
        channel.basic_qos(prefetch_count=_PREFETCH)
        for line in self._lines:
            line.declare(channel)
            for name in line.queues[:-1]:
                channel.basic_consume(name, self._reject)
            channel.basic_consume(line.queues[-1], self._taker(line), arguments=self._arguments)
        while not self._ends.is_set():
            connection.process_data_events(0.2)

    @staticmethod
    def _reject(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        del properties, body
        channel.basic_reject(method.delivery_tag, requeue=False)

    def _taker(self, line: Line) -> Callable[..., None]:
        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            number = line.see(properties, body, method.redelivered, self._is_there)
            channel.basic_ack(method.delivery_tag)
            line.acknowledged(number)

        return take


def connect(url: str) -> pika.BlockingConnection:
    """Return a connection."""
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = 30
    parameters.blocked_connection_timeout = 300
    return pika.BlockingConnection(parameters)
