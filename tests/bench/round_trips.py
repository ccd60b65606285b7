"""Clients that wait for their own message: each publishes one, and the next when it has come back."""

from __future__ import annotations

import select
import ssl
import time
from typing import Final

from tests.bench.frames import CHANNEL, Route, ack, contents, deliver, publish
from tests.bench.in_flight import STALL_SECONDS, BenchError
from tests.bench.publisher import Published
from tests.bench.scenarios import Scenario
from tests.support.wire import Connection

#: More than one answer; an encrypted socket has nothing left after it.
_READ_BYTES: Final = 32 * 1024


class Client:
    """A client with a queue and a connection of its own."""

    def __init__(self, url: str, scenario: Scenario, route: Route, content: bytes) -> None:
        self._route, self._confirms = route, bool(scenario.confirm_window)
        self._connection = Connection(url, timeout=2 * STALL_SECONDS)
        self._channel = self._connection.channel(CHANNEL)
        if self._confirms:
            self._channel.confirm_select()
        self._channel.consume(route.queue, route.consumer_tag, no_ack=not scenario.ack_every)
        self._socket = self._connection.wire.socket
        self.descriptor = self._socket.fileno()
        self.send, self.receive = self._socket.send, self._socket.recv
        self.content = content
        self.publish = publish(route) + content
        self.answered = 0
        self.part = self.last = b""
        self.unit = len(next(iter(self._answers())))

    def begin(self) -> None:
        """Stop waiting in calls: requests through the channel have set a timeout."""
        self._socket.setblocking(False)

    def _answers(self) -> set[bytes]:
        """What the last answer may be."""
        delivery = deliver(self._route, self.answered) + self.content
        if not self._confirms:
            return {delivery}
        confirms = [ack(self.answered, multiple=multiple) for multiple in (False, True)]
        return {each for confirm in confirms for each in (confirm + delivery, delivery + confirm)}

    def check(self) -> None:
        """Compare the last answer, every byte, with what it has to be."""
        if self.answered and self.last not in self._answers():
            raise self.wrong_answer()

    def wrong_answer(self) -> BenchError:
        """Return the error that says what the last answer was."""
        return BenchError(f"answer {self.answered} is not what it has to be: {self.last!r}")

    def check_empty(self) -> None:
        """Stop consuming, and make sure that the queue has no message left, nor gets an unacknowledged one back."""
        self._channel.cancel(self._route.consumer_tag)
        self._channel.recover(requeue=True)
        left = self._channel.queue_declare(self._route.queue, passive=True).message_count
        if left:
            raise BenchError(f"{left} messages are left in {self._route.queue}")


class RoundTrips:
    """The clients of a round-trip scenario, all in this process."""

    def __init__(self, url: str, scenario: Scenario, routes: list[Route]) -> None:
        (content,) = contents(scenario)
        self._clients = [Client(url, scenario, route, content) for route in routes]
        self._by_descriptor = {client.descriptor: client for client in self._clients}
        self._acknowledges = bool(scenario.ack_every)
        self._poll = select.epoll()
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self, count: int) -> Published:
        """Let the clients publish together, until all messages have come back."""
        for client in self._clients:
            client.begin()
        began, cpu = time.monotonic(), time.process_time()
        starting = self._clients[:count]
        for client in starting:
            client.send(client.publish)
        self._exchange(count - len(starting), len(starting))
        ended, spent = time.monotonic(), time.process_time() - cpu
        for client in self._clients:
            client.check()
        return Published(count, 0, began, ended, spent)

    def _exchange(self, left: int, waiting: int) -> None:
        """Publish the next message of each client whose last one has come back, until all have."""
        clients, poll, acknowledges = self._by_descriptor, self._poll.poll, self._acknowledges
        while waiting:
            ready = poll(STALL_SECONDS)
            if not ready:
                raise BenchError(f"{waiting} clients got no answer for {STALL_SECONDS:.0f} s")
            for descriptor, _ in ready:
                client = clients[descriptor]
                try:
                    data = client.receive(_READ_BYTES)
                except (BlockingIOError, ssl.SSLWantReadError):
                    # Part of a record, or one without data.
                    continue
                if not data:
                    raise BenchError(f"the broker closed a connection after {client.part or client.last!r}")
                if client.part:
                    data = client.part + data
                    client.part = b""
                if len(data) < client.unit:
                    client.part = data
                    continue
                if len(data) > client.unit:
                    raise BenchError(f"more than the answer came: {data[-200:]!r}")
                client.last = data
                client.answered += 1
                if client.content not in data:
                    # Somebody else's message; taken for the client's own, it would leave one too many at the end.
                    raise client.wrong_answer()
                following = ack(client.answered, multiple=False) if acknowledges else b""
                if left:
                    left -= 1
                    following += client.publish
                else:
                    waiting -= 1
                if following:
                    client.send(following)

    def check_empty(self) -> None:
        """Stop consuming, and make sure that no queue has a message left."""
        for client in self._clients:
            client.check_empty()
