"""Gives the messages that an exchange x-recent-history remembers to a new binding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.delayed import inner_of
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange
from leveret.broker.core.messages.published import published_to, read_extra_keys
from leveret.broker.core.messages.routing import route
from leveret.broker.core.queues.target import Target
from leveret.broker.core.topology import Topology
from leveret.protocol.properties import Properties
from leveret.storage.message import Message


def replay_history(topology: Topology, binding: Binding) -> Iterator[None]:
    """Return steps that deliver what the source of a new binding remembers to its destination, oldest first.

    A step is a message; it takes a moment, so that the caller may serve others in between. What arrives then is not
    among the messages. Exchanges of other types have no steps.

    Args:
        topology: Exchanges and queues of the virtual host.
        binding: The new binding. If its destination is an exchange, the messages are routed by it.
    """
    source = inner_of(binding.source)
    if not isinstance(source, RecentHistoryExchange):
        return iter(())
    return _deliver(topology, binding, source.history())


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
