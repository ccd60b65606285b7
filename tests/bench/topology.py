"""The queues, exchanges and bindings of a scenario, with names that no other run has."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.bench.frames import Route
from tests.bench.in_flight import STALL_SECONDS
from tests.bench.scenarios import Scenario
from tests.support.tables import Triple
from tests.support.wire import Connection

_DEAD: Final = ".dead"


class Topology:
    """What a scenario needs on a broker."""

    def __init__(self, url: str, scenario: Scenario) -> None:
        self._url, self._scenario = url, scenario
        self._name = f"bench.{uuid.uuid4().hex[:12]}"
        self.queues = [f"{self._name}.{number:03}" for number in range(scenario.queues)]
        self.routes = [self._route(number) for number in range(scenario.bindings or scenario.queues)]

    def _route(self, number: int) -> Route:
        place = number % len(self.queues)
        exchange = self._name if self._scenario.exchange else ""
        return Route(exchange, self._routing_key(number), self.queues[place], f"consumer-{place:03}")

    def _routing_key(self, number: int) -> str:
        match self._scenario.exchange:
            case "fanout" | "headers":
                return self._name
            case "topic":
                return f"bench.{number:04}.created"
            case _:
                return self.queues[number]

    @property
    def published(self) -> list[Route]:
        """The routes to publish to in turn; one of them where the routing key decides nothing."""
        return self.routes[:1] if self._scenario.exchange in ("fanout", "headers") else self.routes

    def share(self, index: int, count: int) -> list[Route]:
        """Return the routes of every `count`-th queue from queue `index` on."""
        queues = set(self.queues[index::count])
        return [route for route in self.routes if route.queue in queues]

    def dead_letter_queue(self) -> str:
        """Return the name of the queue that takes the first queue's dead letters."""
        return self.queues[0] + _DEAD

    def declare(self) -> None:
        """Declare everything."""
        scenario = self._scenario
        with Connection(self._url, timeout=2 * STALL_SECONDS) as connection:
            channel = connection.channel()
            if scenario.exchange:
                channel.exchange_declare(self._name, scenario.exchange, durable=scenario.durable)
            for queue in self.queues:
                given: dict[str, int | str] = dict(scenario.arguments)
                if scenario.dead_letter:
                    channel.queue_declare(queue + _DEAD, durable=scenario.durable)
                    given |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + _DEAD}
                arguments = [(name, "S" if isinstance(value, str) else "l", value) for name, value in given.items()]
                channel.queue_declare(queue, durable=scenario.durable, arguments=arguments)
            if scenario.exchange:
                for number, route in enumerate(self.routes):
                    key, criteria = self._binding_key(number), self._criteria(number)
                    channel.queue_bind(route.queue, self._name, key, arguments=criteria)

    def _binding_key(self, number: int) -> str:
        if self._scenario.exchange == "topic":
            return f"*.{number:04}.#"
        return self.routes[number].routing_key

    def _criteria(self, number: int) -> list[Triple]:
        """Return the arguments of a binding: the headers that a message needs."""
        if self._scenario.exchange != "headers":
            return []
        headers: Any = self._scenario.properties[number]["headers"]
        return [("x-match", "S", "all"), *headers]

    def delete(self) -> None:
        """Delete everything, with the messages that are left."""
        with Connection(self._url, timeout=2 * STALL_SECONDS) as connection:
            channel = connection.channel()
            for queue in self.queues:
                channel.queue_delete(queue)
                if self._scenario.dead_letter:
                    channel.queue_delete(queue + _DEAD)
            if self._scenario.exchange:
                channel.exchange_delete(self._name)
