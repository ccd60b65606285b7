"""The exchange types that choose one destination for each message, by a hash value or at random."""

from __future__ import annotations

import random
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from math import log
from typing import ClassVar, Final

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination, Exchange
from leveret.broker.core.terms import to_term
from leveret.protocol.erlang_terms import format_binary
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, as_text, find
from leveret.protocol.properties import FLAGS, Properties


class ChoosingExchange(Exchange):
    """An exchange that chooses destinations by all of a message, not for each of its routing keys."""

    __slots__ = ()

    @abstractmethod
    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Choose a destination; see Exchange.find()."""

    def destinations(self, routing_key: str, headers: FieldTable) -> Iterable[Destination | None]:
        """Choose a destination for a message with one routing key and without properties."""
        return self.find((routing_key,), headers, b"")


def hash_octets(octets: bytes) -> int:
    """Return a hash value of 0 to 2^64 - 1."""
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big")


_HEADER: Final = "hash-header"
_PROPERTY: Final = "hash-property"
#: Flags of the properties that can be hashed, by name.
_PROPERTIES: Final = {name: flag for flag, name in FLAGS if name in ("message_id", "correlation_id", "timestamp")}

_MASK: Final = (1 << 64) - 1
#: A large odd number, as in MurmurHash3's last step.
_MULTIPLIER: Final = 0xFF51AFD7ED558CCD
_UNIT: Final = 2.0**-53

#: Destinations that are compared in one step.
_STEP: Final = 500


class _Member:
    """A destination with its share of the messages."""

    __slots__ = ("destination", "seed", "weight", "weights")

    def __init__(self, destination: Destination, seed: int) -> None:
        self.destination = destination
        self.seed = seed
        #: The weight of each of its bindings.
        self.weights: dict[BindingIdentity, int] = {}
        self.weight = 0.0

    def score(self, hashed: int) -> float:
        """Return the destination's bid for a hash value; the highest one gets the message."""
        mixed = (hashed ^ self.seed) * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 33) * _MULTIPLIER & _MASK
        return log(((mixed >> 11) + 0.5) * _UNIT) / self.weight


class ConsistentHashExchange(ChoosingExchange):
    """Sends each message to one destination, by a hash of its routing key, of a header or of a property.

    A binding key is a weight: destinations get messages in proportion to their weights; those of several bindings of a
    destination add up. A new destination takes over only what it gets itself, and one that is removed leaves
    everything else where it is. The choice is that of rendezvous hashing: every destination makes a bid for a hash
    value, which depends on its name and its weight only, so it is the same after a restart.

    Spec: RabbitMQ's plugin rabbitmq_consistent_hash_exchange.
    """

    __slots__ = ("_header", "_members", "_property")

    type_name: ClassVar[str] = "x-consistent-hash"
    description: ClassVar[str] = "Consistent Hashing Exchange"

    def _create_index(self) -> None:
        self._header = self._read_name(_HEADER)
        self._property = self._read_name(_PROPERTY)
        if self._header is not None and self._property is not None:
            raise precondition_failed(f"{_HEADER} and {_PROPERTY} are mutually exclusive")
        if self._property is not None and self._property not in _PROPERTIES:
            raise precondition_failed(f"Unsupported property: {self._property}")
        self.uses_headers = self._header is not None or self._property is not None
        self._members: dict[Destination, _Member] = {}

    def _read_name(self, argument: str) -> str | None:
        field = find(self.arguments, argument)
        if field is None:
            return None
        if field.kind != "S":
            raise precondition_failed(
                f"invalid type '{TYPE_NAMES[field.kind]}' for arg '{argument}'"
                f" in exchange '{self.name}' in vhost '{self.vhost_name}'"
            )
        return as_text(field)

    def _add(self, binding: Binding) -> None:
        weight = _read_weight(binding.routing_key)
        destination = binding.destination
        member = self._members.get(destination)
        if member is None:
            _, kind, name, _, _ = binding.identity
            seed = hash_octets(f"{kind} {name}".encode("utf-8", "surrogateescape"))
            member = self._members[destination] = _Member(destination, seed)
        member.weights[binding.identity] = weight
        member.weight = float(sum(member.weights.values()))

    def _remove(self, binding: Binding) -> None:
        member = self._members[binding.destination]
        del member.weights[binding.identity]
        if member.weights:
            member.weight = float(sum(member.weights.values()))
        else:
            del self._members[binding.destination]

    def find(self, keys: Sequence[str], headers: FieldTable, header: bytes) -> Iterable[Destination | None]:
        """Choose a destination by what is hashed of the message."""
        if not self._members:
            return ()
        hashed = hash_octets(self._hashed_octets(keys[0], headers, header))
        members = list(self._members.values())
        if len(members) > _STEP:
            return _choose_in_steps(members, hashed)
        return (_choose(members, hashed).destination,)

    def _hashed_octets(self, routing_key: str, headers: FieldTable, header: bytes) -> bytes:
        """Return what is hashed; nothing if the message has no such header or property."""
        if self._header is not None:
            field = find(headers, self._header)
            return b"" if field is None else repr(to_term(field)).encode("utf-8", "surrogateescape")
        if self._property is not None:
            value = Properties(header).raw(_PROPERTIES[self._property]) if header else None
            return value or b""
        return routing_key.encode("utf-8", "surrogateescape")


def _choose(members: Sequence[_Member], hashed: int) -> _Member:
    best, best_score = members[0], members[0].score(hashed)
    for member in members:
        score = member.score(hashed)
        if score > best_score:
            best, best_score = member, score
    return best


def _choose_in_steps(members: Sequence[_Member], hashed: int) -> Iterator[Destination | None]:
    """Yield the destination that very many others compete with, and a None after each step."""
    best = members[0]
    for start in range(0, len(members), _STEP):
        best = _choose([best, *members[start : start + _STEP]], hashed)
        yield None
    yield best.destination


def _read_weight(key: str) -> int:
    """Return the weight that a binding key is.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    digits = key[1:] if key[:1] in ("+", "-") else key
    if not (digits.isascii() and digits.isdigit()):
        shown = format_binary(key.encode("utf-8", "surrogateescape"))
        raise precondition_failed(f"The binding key must be an integer: {shown}")
    weight = int(key)
    if weight < 1:
        raise precondition_failed("The binding key must be greater than 0")
    return weight


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
