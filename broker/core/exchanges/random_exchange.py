"""The exchange x-random: sends each message to a binding that it chooses at random."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination
from leveret.broker.core.exchanges.choosing import ChoosingExchange
from leveret.protocol.field_table import FieldTable


class RandomExchange(ChoosingExchange):
    """Sends each message to one of its bindings, chosen at random, and ignores routing keys.

    A destination that is bound twice gets two shares.

    Spec: RabbitMQ's plugin rabbitmq_random_exchange.
    """

    __slots__ = ("_bound", "_places")

    type_name: ClassVar[str] = "x-random"
    description: ClassVar[str] = "Randomly picks a binding (queue) to route via (to)."
    uses_keys: ClassVar[bool] = False
    varies: ClassVar[bool] = True

    def _create_index(self) -> None:
        self._bound: list[Binding] = []
        #: Index of each binding in _bound.
        self._places: dict[BindingIdentity, int] = {}

    def _add(self, binding: Binding) -> None:
        self._places[binding.identity] = len(self._bound)
        self._bound.append(binding)

    def _remove(self, binding: Binding) -> None:
        # The last one takes its place.
        place, last = self._places.pop(binding.identity), self._bound.pop()
        if last is not binding:
            self._bound[place] = last
            self._places[last.identity] = place

    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Choose a binding."""
        return (random.choice(self._bound).destination,) if self._bound else ()
