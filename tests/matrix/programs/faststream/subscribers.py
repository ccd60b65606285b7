"""The FastStream application that the tests start.

MATRIX_URL names the virtual host, MATRIX_NOTES the file in which subscribers note what they get.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from faststream import AckPolicy, FastStream
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import Channel, ExchangeType, QueueType, RabbitBroker, RabbitExchange, RabbitQueue

from tests.matrix.programs.notes import Notes

broker = RabbitBroker(os.environ["MATRIX_URL"])
app = FastStream(broker)
notes = Notes(Path(os.environ["MATRIX_NOTES"]))

TOPICS = RabbitExchange("topics", type=ExchangeType.TOPIC)
HEADERS = RabbitExchange("headers", type=ExchangeType.HEADERS)
FANOUT = RabbitExchange("fanout", type=ExchangeType.FANOUT)
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@broker.subscriber("notes")
async def note(text: str) -> None:
    """Note a text."""
    notes.write(text)


@broker.subscriber(RabbitQueue("quorum", queue_type=QueueType.QUORUM, durable=True))
async def note_of_quorum(text: str) -> None:
    """Note a text from a quorum queue."""
    notes.write(f"quorum {text}")


@broker.subscriber("first")
@broker.publisher("second")
async def double(number: int) -> int:
    """Send on twice a number."""
    return 2 * number


@broker.subscriber("second")
async def note_number(number: int) -> None:
    """Note a number."""
    notes.write(f"number {number}")


@broker.subscriber("questions")
async def answer(number: int) -> int:
    """Answer the request."""
    return number + 1


@broker.subscriber(RabbitQueue("sports", routing_key="*.sports.#"), TOPICS)
async def note_topic(text: str) -> None:
    """Note what is about sports."""
    notes.write(f"topic {text}")


@broker.subscriber(RabbitQueue("both", bind_arguments={"a": 1, "b": 2, "x-match": "all"}), HEADERS)
async def note_headers(text: str) -> None:
    """Note what has two headers."""
    notes.write(f"headers {text}")


@broker.subscriber(RabbitQueue("fan1"), FANOUT)
async def note_first(text: str) -> None:
    """Note one copy."""
    notes.write(f"fan1 {text}")


@broker.subscriber(RabbitQueue("fan2"), FANOUT)
async def note_second(text: str) -> None:
    """Note another copy."""
    notes.write(f"fan2 {text}")


@broker.subscriber("nacked")
async def nack_twice(text: str) -> None:
    """Give a message back twice."""
    notes.write(text)
    if len(notes.of(text)) < 3:
        raise NackMessage


@broker.subscriber(
    RabbitQueue("limited", queue_type=QueueType.QUORUM, durable=True, arguments={"x-delivery-limit": 2, **DEAD}),
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def fail(text: str) -> None:
    """Fail; the queue gives up after two redeliveries."""
    notes.write(text)
    raise ValueError("it was to fail")


@broker.subscriber(RabbitQueue("rejected", arguments=DEAD))
async def reject(text: str) -> None:
    """Reject a message."""
    notes.write(text)
    raise RejectMessage


@broker.subscriber("held", channel=Channel(prefetch_count=1))
async def hold(gate: str) -> None:
    """Note the path of a file, and work until it exists."""
    notes.write(gate)
    while not os.path.exists(gate):
        await asyncio.sleep(0.05)
