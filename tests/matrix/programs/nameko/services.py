"""The nameko services that the tests start; MATRIX_NOTES names the file in which they note what they get."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import eventlet
from kombu.entity import Exchange, Queue
from nameko.dependency_providers import Config
from nameko.events import BROADCAST, SINGLETON, EventDispatcher, event_handler
from nameko.messaging import Publisher, consume
from nameko.rpc import RpcProxy, rpc

from tests.matrix.programs.notes import Notes

notes = Notes(Path(os.environ["MATRIX_NOTES"]))
ORDERS = Queue("orders", Exchange("shop", "direct"), "order")


class Numbers:
    """Counts."""

    name = "numbers"
    config = Config()

    @rpc
    def add(self, first: int, second: int) -> int:
        """Add two numbers."""
        return first + second

    @rpc
    def fail(self) -> None:
        """Fail."""
        raise ValueError("it was to fail")

    @rpc
    def hold(self, gate: str) -> str:
        """Note the path of a file, and work until it exists."""
        notes.write(gate)
        while not os.path.exists(gate):
            eventlet.sleep(0.05)
        return "held"


class Front:
    """Calls another service and sends events."""

    name = "front"
    numbers = RpcProxy("numbers")
    dispatch = EventDispatcher()
    publish = Publisher(exchange=ORDERS.exchange)

    @rpc
    def total(self, numbers: list[int]) -> int:
        """Add numbers, by calls that are on their way together."""
        calls = [self.numbers.add.call_async(number, number) for number in numbers]
        return sum(call.result() for call in calls)

    @rpc
    def order(self, text: str) -> None:
        """Send an event and a message."""
        self.dispatch("ordered", text)
        self.publish(text, routing_key="order")


class Back:
    """Notes events and messages."""

    name = "back"

    @event_handler("front", "ordered")
    def note_of_pool(self, text: Any) -> None:
        """Note an event that one of all such services gets."""
        notes.write(f"pool {text}")

    @event_handler("front", "ordered", handler_type=SINGLETON)
    def note_of_singleton(self, text: Any) -> None:
        """Note an event that one of all services gets."""
        notes.write(f"singleton {text}")

    @event_handler("front", "ordered", handler_type=BROADCAST, reliable_delivery=False)
    def note_of_broadcast(self, text: Any) -> None:
        """Note an event that all services get."""
        notes.write(f"broadcast {text}")

    @consume(ORDERS)
    def note_order(self, text: Any) -> None:
        """Note a message."""
        notes.write(f"message {text}")
