"""The exchange x-consistent-hash: spreads messages over its destinations, equal hash values to the same one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import log
from typing import ClassVar, Final

from leveret.broker.core.exchanges.base import Binding, BindingIdentity, Destination
from leveret.broker.core.exchanges.choosing import ChoosingExchange
from leveret.broker.core.exchanges.hashing import hash_octets
from leveret.broker.core.terms import to_term
from leveret.protocol.erlang_terms import format_binary
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable, as_text, find
from leveret.protocol.properties import FLAGS, Properties

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
    """A destination with its share of the messages.

    Args:
        destination: The destination.
        seed: A hash value of its name.
    """

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
