"""Routes messages that exchanges have kept: those of x-delayed-message that are due, and those of x-recent-history."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from typing import Final

from leveret.broker.core.delays.waiting_messages import WaitingMessages
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.types import RecentHistoryExchange
from leveret.broker.core.messages import Target, published_to, read_extra_keys
from leveret.broker.core.scheduling.turn import Work
from leveret.broker.core.vhosts.routing import Route, route, route_in_steps
from leveret.broker.core.vhosts.topology import Topology
from leveret.protocol.header_scan import DECODE, scan_header
from leveret.protocol.properties import Properties
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: Messages that one step routes.
_STEP: Final = 128
#: Routes that are kept by routing key, until the topology changes.
_ROUTES_MAX: Final = 4096


class DueMessages:
    """Routes due messages of one virtual host, in time slices. Implements DueRouter.

    A message is published to its queues first, and settled in its exchange when these copies are on disk. After a crash
    in between it is due again: delivery is at-least-once.

    Args:
        work: Provides time slices.
    """

    def __init__(self, topology: Topology, work: Work) -> None:
        self._topology = topology
        self._work = work
        #: Routes by exchange, and its exchange and routing key as published.
        self._routes: dict[tuple[Exchange, bytes], Route] = {}
        self._generation = -1

    def begin(self, waiting: WaitingMessages) -> None:
        """Route the messages of an exchange that are due; long work is continued in later turns."""
        self._begin(waiting, self._route_due(waiting))

    def route_now(self, waiting: WaitingMessages, number: int, done: Callable[[bool], None]) -> None:
        """Route one message, whenever it is due.

        Args:
            waiting: The messages of its exchange.
            number: Number of the message.
            done: Called with whether it still waited, when it has been routed.
        """
        self._begin(waiting, self._route_number(waiting, number, done))

    def clear_cache(self) -> None:
        """Forget routes, which refer to queues and exchanges that may be deleted."""
        self._routes.clear()

    def _begin(self, waiting: WaitingMessages, steps: Iterator[None]) -> None:
        # If it fails, what was to be routed stays on disk until the next start.
        subject = f"due messages of exchange '{waiting.name}' were routed"
        self._work.begin(steps, subject, waiting.schedule.arm_next)

    def _route_due(self, waiting: WaitingMessages) -> Iterator[None]:
        """Route all that is due; a step reads or routes some messages."""
        while entries := (yield from waiting.schedule.take_due()):
            for at in range(0, len(entries), _STEP):
                yield
                yield from self._route(waiting, entries[at : at + _STEP])
            yield
        waiting.schedule.arm_next()

    def _route_number(self, waiting: WaitingMessages, number: int, done: Callable[[bool], None]) -> Iterator[None]:
        entry = waiting.schedule.take(number)
        try:
            if entry is not None:
                yield from self._route(waiting, [entry])
        finally:
            done(entry is not None)

    def _route(self, waiting: WaitingMessages, entries: Sequence[Entry]) -> Iterator[None]:
        """Publish messages to the queues that they are routed to, and settle them then: a queue may deliver them."""
        exchange = self._topology.exchanges.get(waiting.name)
        for envelope, same in groupby(entries, key=_envelope):
            run = list(same)
            if waiting.deleted or exchange is None:
                return
            found = yield from self._find(exchange, envelope)
            varies = found.varies and len(run) > 1
            for part in [[entry] for entry in run] if varies else [run]:
                if varies:
                    found = yield from self._find(exchange, envelope)
                if waiting.deleted:
                    return
                has_queue = yield from _publish(found, [Message(envelope, entry[1].body) for entry in part])
                if waiting.deleted:
                    return
                if has_queue:
                    waiting.schedule.settle(part, EventKind.ROUTED)
                else:
                    waiting.counters.count_unroutable(len(part), returned=False)
                    waiting.schedule.settle(part, EventKind.NOT_ROUTED)

    def _find(self, exchange: Exchange, envelope: Envelope) -> Generator[None, None, Route]:
        """Find the route of messages with an envelope."""
        topology, header = self._topology, envelope.header
        if self._generation != topology.generation or len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
            self._generation = topology.generation
        # Such headers have no CC.
        is_plain = not envelope.blind_keys and scan_header(header) != DECODE
        if is_plain:
            cached = self._routes.get((exchange, envelope.route))
            if cached is not None:
                return cached
        _, key = published_to(envelope)
        headers = Properties(header).headers()
        keys = [key, *read_extra_keys(headers, "CC"), *envelope.blind_keys]
        generation = topology.generation
        found = yield from route_in_steps(topology, exchange, keys, headers, header, is_due=True)
        if is_plain and found.cacheable and generation == self._generation == topology.generation:
            self._routes[exchange, envelope.route] = found
        return found


def _envelope(entry: Entry) -> Envelope:
    return entry[1].envelope


def _publish(found: Route, messages: Sequence[Message]) -> Generator[None, None, bool]:
    """Publish messages with one envelope, in runs of one size and steps of a queue; return whether there is a queue."""
    for history in found.histories:
        history.remember(messages)
    targets = [target for target in found.queues if not target.deleted]
    for size, same in groupby(messages, key=_size):
        run = list(same)
        for at, target in enumerate(targets):
            if at:
                yield
            if not target.deleted:
                target.publish(run, size * len(run))
    return bool(targets)


def _size(message: Message) -> int:
    return len(message.body)


def replay_history(topology: Topology, binding: Binding) -> Iterator[None]:
    """Return steps that deliver what the source of a new binding remembers to its destination, oldest first.

    A step is a message; it takes a moment, so that the caller may serve others in between. What arrives then is not
    among the messages. Exchanges of other types have no steps.

    Args:
        topology: Exchanges and queues of the virtual host.
        binding: The new binding. If its destination is an exchange, the messages are routed by it.
    """
    source = binding.source.router()
    if not isinstance(source, RecentHistoryExchange):
        return iter(())
    return _deliver(topology, binding, source.remembered())


def _deliver(topology: Topology, binding: Binding, messages: Sequence[Message]) -> Iterator[None]:
    destination = binding.destination
    for message in messages:
        # It may be deleted while others are served.
        queues: tuple[Target, ...] = ()
        if isinstance(destination, Exchange):
            if topology.exchanges.get(destination.name) is destination:
                queues = _find_queues(topology, destination, message)
        elif not destination.deleted:
            queues = (destination,)
        for queue in queues:
            queue.publish([message], len(message.body))
        yield


def _find_queues(topology: Topology, exchange: Exchange, message: Message) -> tuple[Target, ...]:
    envelope = message.envelope
    _, key = published_to(envelope)
    headers = Properties(envelope.header).headers()
    keys = [key, *read_extra_keys(headers, "CC"), *envelope.blind_keys]
    found = route(topology, exchange, keys, headers, envelope.header)
    for history in found.histories:
        history.remember([message])
    return found.queues
