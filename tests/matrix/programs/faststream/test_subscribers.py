"""FastStream: subscribers and publishers, requests, exchanges, retries, dead letters, and a killed program."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue

from tests.integration.waiting import wait_until
from tests.matrix.programs.notes import Notes
from tests.matrix.programs.processes import Program
from tests.matrix.programs.vhosts import Vhost

_numbers = itertools.count(1)
T = TypeVar("T")


class Workshop:
    """A virtual host, a sender, and the notes that subscribers leave."""

    running: Program

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory
        self.notes = Notes(directory / f"notes-{next(_numbers)}")

    def with_broker(self, act: Callable[[RabbitBroker], Awaitable[T]]) -> T:
        """Call a coroutine function with a connected broker, and return its result."""

        async def acting() -> T:
            async with RabbitBroker(self._url) as broker:
                return await act(broker)

        return asyncio.run(acting())

    def publish(self, message: Any, queue: str, **options: Any) -> None:
        """Publish a message."""
        self.with_broker(lambda broker: broker.publish(message, queue, **options))

    def gate(self) -> Path:
        """A file that does not exist yet."""
        return self._directory / f"gate-{next(_numbers)}"

    def program(self) -> Program:
        """The application."""
        variables = {"MATRIX_URL": self._url, "MATRIX_NOTES": str(self.notes.path)}
        command = ["faststream", "run", "tests.matrix.programs.faststream.subscribers:app"]
        log = self._directory / f"program-{next(_numbers)}.log"
        return Program(command, variables, log, ready="FastStream app started successfully")


@contextmanager
def _running(vhost: Vhost, directory: Path) -> Iterator[Workshop]:
    workshop = Workshop(vhost.url, directory)
    with workshop.program() as workshop.running:
        yield workshop


@pytest.fixture(scope="module")
def running(vhost: Vhost, directory: Path) -> Iterator[Workshop]:
    with _running(vhost, directory) as workshop:
        yield workshop


@pytest.mark.parametrize("queue", ["notes", "quorum"])
def test_messages(running: Workshop, queue: str) -> None:
    async def publish(broker: RabbitBroker) -> None:
        for number in range(50):
            await broker.publish(f"message {number}", queue)

    running.with_broker(publish)
    start = "message" if queue == "notes" else "quorum message"
    assert [note.text for note in running.notes.wait_for(start, 50)] == [f"{start} {number}" for number in range(50)]


def test_chain_of_subscribers(running: Workshop) -> None:
    running.publish(21, "first")
    running.notes.wait_for("number 42")


def test_request(running: Workshop) -> None:
    """The answer comes by direct reply-to."""

    async def ask(broker: RabbitBroker) -> list[Any]:
        answers = [await broker.request(number, "questions", timeout=60) for number in range(10)]
        return [await answer.decode() for answer in answers]

    assert running.with_broker(ask) == list(range(1, 11))


def test_topic_exchange(running: Workshop) -> None:
    exchange = RabbitExchange("topics", type=ExchangeType.TOPIC)
    running.publish("about money", "daily.money", exchange=exchange)
    running.publish("about sports", "daily.sports.ball", exchange=exchange)
    running.notes.wait_for("topic about sports")
    assert running.notes.texts("topic") == ["topic about sports"]


def test_headers_exchange(running: Workshop) -> None:
    exchange = RabbitExchange("headers", type=ExchangeType.HEADERS)
    running.publish("with one", "", exchange=exchange, headers={"a": 1})
    running.publish("with both", "", exchange=exchange, headers={"a": 1, "b": 2, "c": 3})
    running.notes.wait_for("headers with both")
    assert running.notes.texts("headers") == ["headers with both"]


def test_fanout_exchange(running: Workshop) -> None:
    running.publish("copy", "", exchange=RabbitExchange("fanout", type=ExchangeType.FANOUT))
    running.notes.wait_for("fan1 copy")
    running.notes.wait_for("fan2 copy")


def test_nacked_message_comes_again(running: Workshop) -> None:
    running.publish("given back", "nacked")
    running.notes.wait_for("given back", 3)


def test_retries_end_at_the_delivery_limit(running: Workshop, vhost: Vhost) -> None:
    headers = _dead_letter(running, vhost, "limited")
    assert headers["x-first-death-reason"] == "delivery_limit"
    assert len(running.notes.of("dead of limited")) == 3


def test_rejected_message_is_dead_lettered(running: Workshop, vhost: Vhost) -> None:
    headers = _dead_letter(running, vhost, "rejected")
    assert headers["x-first-death-reason"] == "rejected"


def _dead_letter(running: Workshop, vhost: Vhost, queue: str) -> dict[str, Any]:
    """Send a message to a queue with dead letters, and return the letter's headers."""

    async def declare(broker: RabbitBroker) -> None:
        await broker.declare_queue(RabbitQueue("dead"))

    running.with_broker(declare)
    running.publish(f"dead of {queue}", queue)
    headers: dict[str, Any] = vhost.take("dead")["properties"]["headers"]
    return headers


def test_program_connects_again(running: Workshop, vhost: Vhost) -> None:
    wait_until(lambda: vhost.close_consumers("notes"), "there is a consumer")
    running.publish("after the cut", "notes")
    running.notes.wait_for("after the cut")


def test_killed_program(running: Workshop, vhost: Vhost, directory: Path) -> None:
    gate = running.gate()
    with _running(vhost, directory) as doomed:
        for _ in range(2):
            running.publish(str(gate), "held")
        # Each of the two programs holds one.
        wait_until(lambda: len(doomed.notes.of(str(gate))) == 1, "the program has one message")
        running.notes.wait_for(str(gate))
        doomed.running.kill()
    gate.touch()
    running.notes.wait_for(str(gate), 2)
