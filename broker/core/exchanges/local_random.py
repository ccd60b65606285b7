"""The exchange x-local-random: as x-random, for classic queues only."""

from __future__ import annotations

from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.random_exchange import RandomExchange
from leveret.protocol.faults import precondition_failed


class LocalRandomExchange(RandomExchange):
    """Sends each message to one of the classic queues that are bound, chosen at random.

    RabbitMQ chooses among the queues of the node that the publisher is connected to; here there is only one node.

    Spec: RabbitMQ 4.0.
    """

    __slots__ = ()

    type_name: ClassVar[str] = "x-local-random"
    description: ClassVar[str] = "Picks one random local binding (queue) to route via (to)."

    def _add(self, binding: Binding) -> None:
        destination = binding.destination
        if binding.routing_key:
            raise precondition_failed(f"Non empty binding '{binding.routing_key}' key not permitted")
        if isinstance(destination, Exchange):
            raise precondition_failed("Destination not found")
        if destination.queue_type != "classic":
            kind = f"rabbit_{destination.queue_type}_queue"
            raise precondition_failed(f"Queue type {kind} not valid for this exchange type")
        super()._add(binding)
