"""The exchange x-modulus-hash: chooses a binding by a hash of the routing key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import ClassVar

from leveret.broker.core.exchanges.base import Binding, Destination
from leveret.broker.core.exchanges.choosing import ChoosingExchange
from leveret.broker.core.exchanges.hashing import hash_octets
from leveret.protocol.field_table import FieldTable


def _order(binding: Binding) -> tuple[str, str, str, str]:
    """Return a key that sorts the bindings of an exchange in the same way after a restart."""
    _, destination_type, destination, routing_key, arguments = binding.identity
    return destination_type, destination, routing_key, repr(arguments)


class ModulusHashExchange(ChoosingExchange):
    """Sends a message to the binding whose number is the hash of its routing keys modulo the number of bindings.

    Binding keys are ignored. A new binding, or one that is removed, moves most keys.

    Spec: RabbitMQ's plugin rabbitmq_sharding.
    """

    __slots__ = ("_bound",)

    type_name: ClassVar[str] = "x-modulus-hash"
    description: ClassVar[str] = "Modulus Hashing Exchange"

    def _create_index(self) -> None:
        #: Sorted.
        self._bound: list[Binding] = []

    def _add(self, binding: Binding) -> None:
        self._bound.insert(bisect_left(self._bound, _order(binding), key=_order), binding)

    def _remove(self, binding: Binding) -> None:
        del self._bound[bisect_left(self._bound, _order(binding), key=_order)]

    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Choose a binding by all routing keys, also those of CC and BCC."""
        if not self._bound:
            return ()
        hashed = hash_octets("\0".join(keys).encode("utf-8", "surrogateescape"))
        return (self._bound[hashed % len(self._bound)].destination,)
