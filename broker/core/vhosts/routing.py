"""Finds the queues of a message, through exchange-to-exchange bindings and alternate exchanges.

It also publishes messages that the broker makes itself: copies of others, and events.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages import Remembering, Target
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol import properties
from leveret.protocol.constants import SHORTSTR_MAX
from leveret.protocol.field_table import FieldTable
from leveret.protocol.properties import encode_content_header, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message

#: Destinations that one step visits.
_STEP: Final = 1024


@dataclass(frozen=True, slots=True)
class Route:
    """The queues that a message is routed to, and the exchanges that keep it until it is due.

    Args:
        queues: The queues, what keeps delayed messages and what drops duplicates, each once, in an order that depends
            on the topology and the routing keys only.
        cacheable: Whether headers were irrelevant: until the topology's generation changes, messages with the same
            exchange and routing keys have the same route.
        varies: Whether even an equal message may have another route.
        histories: What has to remember the message.
    """

    queues: tuple[Target, ...]
    cacheable: bool
    varies: bool = False
    histories: tuple[Remembering, ...] = ()


def route(
    topology: Topology,
    exchange: Exchange,
    routing_keys: Sequence[str],
    headers: FieldTable,
    header: bytes = b"",
    counters: ExchangeCounters | None = None,
) -> Route:
    """Find the queues of a message in one call; see route_in_steps()."""
    steps = route_in_steps(topology, exchange, routing_keys, headers, header, counters=counters)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Route = end.value
            return found


def route_in_steps(
    topology: Topology,
    exchange: Exchange,
    routing_keys: Sequence[str],
    headers: FieldTable,
    header: bytes = b"",
    is_due: bool = False,
    counters: ExchangeCounters | None = None,
) -> Generator[None, None, Route]:
    """Find the queues of a message in steps of less than a millisecond; usually one step is enough.

    Every exchange is visited once, so that cycles end. If no binding of an exchange matches any of the keys, the
    message goes to its alternate exchange. It does not if a binding matches but leads to no queue.

    Args:
        topology: Topology of the virtual host.
        exchange: The exchange that the message is published to.
        routing_keys: The routing key of the message, then those of CC and BCC; may contain duplicates.
        headers: Headers of the message; only exchanges with uses_headers need them.
        header: Its content header, which has its properties; empty if it has none. They need it too.
        is_due: Whether the message has been delayed already.
        counters: Counters of the exchange, if the caller counts the queues of the route there.
    Spec: alternate exchanges and exchange-to-exchange bindings are RabbitMQ extensions.
    """
    keys = tuple(dict.fromkeys(routing_keys))
    return _Search(topology, keys, headers, header, is_due, counters, exchange).run(exchange, None)


class _Search:
    """The search for the queues of one message; see route_in_steps().

    Attributes:
        seen: The exchanges that have been visited, or will be.
    """

    __slots__ = ("counters", "header", "headers", "is_due", "keys", "seen", "topology")

    def __init__(
        self,
        topology: Topology,
        keys: tuple[str, ...],
        headers: FieldTable,
        header: bytes,
        is_due: bool,
        counters: ExchangeCounters | None,
        first: Exchange,
    ) -> None:
        self.topology = topology
        self.keys = keys
        self.headers = headers
        self.header = header
        self.is_due = is_due
        self.counters = counters
        self.seen: dict[Exchange, None] = {first: None}

    def run(self, exchange: Exchange, opened: Exchange | None) -> Generator[None, None, Route]:
        """Find queues from one exchange on.

        Args:
            exchange: Where to start.
            opened: The exchange itself if what is behind its filter is wanted.
        """
        seen = self.seen
        # Dictionaries as ordered sets.
        queues: dict[Target, None] = {}
        waiting = [exchange]
        histories: list[Remembering] = []
        filters: list[Exchange] = []
        cacheable, varies = True, False
        visits = 0
        while waiting:
            visited = waiting.pop()
            router = visited
            if visited.has_memory:
                keeper = None if self.is_due else visited.keeper(self.headers)
                if keeper is not None:
                    queues[keeper] = None
                    cacheable = False
                    continue
                router = visited.router()
                # A header says whether a message is delayed.
                cacheable = cacheable and (self.is_due or router is visited)
                if visited is not opened and router.is_filter:
                    filters.append(visited)
                    continue
                history = router.history(self.headers)
                if history is not None:
                    histories.append(history)
            cacheable = cacheable and not router.uses_headers
            varies = varies or router.varies
            matched = False
            for destination in router.find(self.keys, self.headers, self.header):
                visits += 1
                if visits % _STEP == 0:
                    yield
                if destination is None:
                    yield
                    continue
                matched = True
                if not isinstance(destination, Exchange):
                    queues[destination] = None
                elif destination not in seen:
                    seen[destination] = None
                    waiting.append(destination)
            visits += 1
            if visits % _STEP == 0:
                yield
            # The default exchange as an alternate routes nothing: implicit bindings do not count.
            if not matched and visited.alternate:
                alternate = self.topology.exchanges.get(visited.alternate)
                if alternate is not None and alternate not in seen:
                    seen[alternate] = None
                    waiting.append(alternate)
        for visited in filters:
            found = yield from self.run(visited, visited)
            # What a message reaches in another way, too, is not behind the filter.
            behind = tuple([target for target in found.queues if target not in queues])
            filtered = visited.router().filtered(behind, found.histories, self.counters)
            cacheable, varies = cacheable and found.cacheable and bool(behind), varies or found.varies
            if behind:
                queues[filtered] = None
            else:
                histories.append(filtered)
        return Route(tuple(queues), cacheable and not varies, varies, tuple(histories))


def publish(
    topology: Topology,
    exchange: Exchange,
    key: bytes,
    headers: FieldTable,
    bodies: Sequence[bytes],
    present: Mapping[int, bytes] | None = None,
) -> None:
    """Publish messages to an exchange.

    Args:
        key: The routing key; one that is too long is cut.
        bodies: Their bodies, all of one size.
        present: Their other properties, encoded.
    """
    octets, size = key[:SHORTSTR_MAX], len(bodies[0])
    header = encode_content_header(size, {**(present or {}), properties.HEADERS: encode_headers(headers)})
    made = Envelope(encode_shortstr(exchange.name) + encode_shortstr(octets), header)
    messages = [Message(made, body) for body in bodies]
    found = route(topology, exchange, [octets.decode("utf-8", "surrogateescape")], headers, header)
    for history in found.histories:
        history.remember(messages)
    for queue in found.queues:
        if not queue.deleted:
            queue.publish(messages, len(messages) * size)
