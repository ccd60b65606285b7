"""Gives the messages that an exchange x-recent-history remembers to a new binding."""

from __future__ import annotations

from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.delayed import inner_of
from leveret.broker.core.exchanges.recent_history import RecentHistoryExchange
from leveret.broker.core.messages.published import published_to, read_extra_keys
from leveret.broker.core.messages.routing import route
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.target import Target
from leveret.broker.core.topology import Topology
from leveret.protocol.properties import Properties
from leveret.storage.message import Message


def replay_history(topology: Topology, binding: Binding) -> None:
    """Deliver what the source of a new binding remembers to its destination, oldest first; other types do nothing.

    Args:
        topology: Exchanges and queues of the virtual host.
        binding: The new binding. If its destination is an exchange, the messages are routed by it.
    """
    source, destination = inner_of(binding.source), binding.destination
    if not isinstance(source, RecentHistoryExchange):
        return
    for message in source.history():
        queues: tuple[Target, ...] = (destination,) if isinstance(destination, Queue) else ()
        if isinstance(destination, Exchange):
            queues = _find_queues(topology, destination, message)
        for queue in queues:
            queue.publish([message], len(message.body))


def _find_queues(topology: Topology, exchange: Exchange, message: Message) -> tuple[Target, ...]:
    envelope = message.envelope
    _, key = published_to(envelope)
    headers = Properties(envelope.header).headers()
    keys = [key, *read_extra_keys(headers, "CC"), *envelope.blind_keys]
    found = route(topology, exchange, keys, headers, envelope.header)
    for history in found.histories:
        history.remember([message])
    return found.queues
