"""Contract of all registered exchange types that route a message by all bindings that it matches."""

from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.amqp_types import TopicExchange
from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.exchanges.choosing import ChoosingExchange
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.protocol.field_table import FieldTable
from tests.support.bound import named_queue, names, table

ARGUMENTS = table(("x-match", "S", b"all"), ("a", "I", 1), ("x-delayed-type", "S", b"topic"), ("x-cache-size", "I", 9))
HEADERS = table(("a", "I", 1), ("b", "I", 2))
#: Matched by KEY with HEADERS in any sensible type: the very key, the very headers.
KEY = "k.l"
MATCHING = {name: each for name, each in EXCHANGE_TYPES.items() if not issubclass(each, ChoosingExchange)}


@pytest.fixture(params=MATCHING.values(), ids=list(MATCHING))
def exchange(request: pytest.FixtureRequest) -> Exchange:
    made = request.param("/", "x", False, True, False, ARGUMENTS)
    assert isinstance(made, Exchange)
    return made


def binding_to(exchange: Exchange, name: str, key: str = KEY, arguments: FieldTable = ARGUMENTS) -> Binding:
    return Binding(exchange, named_queue(name), key, arguments)


def found(exchange: Exchange) -> list[str]:
    return names(exchange.destinations(KEY, HEADERS))


def test_is_slotted(exchange: Exchange) -> None:
    assert not hasattr(exchange, "__dict__")


def test_a_bound_destination_is_found(exchange: Exchange) -> None:
    binding = binding_to(exchange, "q")

    assert exchange.bind(binding)

    assert set(exchange.destinations(KEY, HEADERS)) == {binding.destination}
    assert list(exchange.bindings.values()) == [binding]


def test_exchanges_are_destinations_too(exchange: Exchange) -> None:
    other = TopicExchange("/", "other")
    exchange.bind(Binding(exchange, other, KEY, ARGUMENTS))
    exchange.bind(Binding(exchange, exchange, KEY, ARGUMENTS))

    assert set(exchange.destinations(KEY, HEADERS)) == {other, exchange}


def test_binding_is_idempotent(exchange: Exchange) -> None:
    first = binding_to(exchange, "q")
    assert exchange.bind(first)

    assert not exchange.bind(Binding(exchange, first.destination, KEY, tuple(reversed(ARGUMENTS))))

    assert list(exchange.bindings.values()) == [first]
    assert exchange.unbind(first)
    assert found(exchange) == []


def test_unbinding_takes_an_equal_binding(exchange: Exchange) -> None:
    first = binding_to(exchange, "q")
    exchange.bind(first)

    assert exchange.unbind(Binding(exchange, first.destination, KEY, tuple(reversed(ARGUMENTS))))

    assert not exchange.bindings
    assert found(exchange) == []


def test_unbinding_what_is_not_bound_changes_nothing(exchange: Exchange) -> None:
    exchange.bind(binding_to(exchange, "q"))

    assert not exchange.unbind(binding_to(exchange, "other"))
    assert not exchange.unbind(binding_to(exchange, "q", "other"))
    assert not exchange.unbind(binding_to(exchange, "q", KEY, ()))

    assert found(exchange) == ["q"]


@pytest.mark.parametrize("key", ["", ".", "*", "#", "a.#.b", "é", "\udcff", "k" * 255])
def test_any_key_can_be_bound_and_unbound(exchange: Exchange, key: str) -> None:
    kept, gone = binding_to(exchange, "kept"), binding_to(exchange, "gone", key)
    exchange.bind(kept)
    exchange.bind(gone)

    assert exchange.unbind(gone)

    assert found(exchange) == ["kept"]
    assert list(exchange.bindings.values()) == [kept]


def test_bindings_of_one_destination_are_apart(exchange: Exchange) -> None:
    one = binding_to(exchange, "q")
    other = Binding(exchange, one.destination, KEY, (*ARGUMENTS, *table(("b", "I", 2))))
    exchange.bind(one)
    assert exchange.bind(other)

    exchange.unbind(one)

    assert found(exchange) == ["q"]
    assert list(exchange.bindings.values()) == [other]


def test_many_bindings_come_and_go(exchange: Exchange) -> None:
    bindings = [binding_to(exchange, f"q{number:03}") for number in range(500)]
    for binding in bindings:
        exchange.bind(binding)
    assert found(exchange) == [f"q{number:03}" for number in range(500)]

    for binding in bindings[::2]:
        exchange.unbind(binding)
    assert found(exchange) == [f"q{number:03}" for number in range(1, 500, 2)]

    for binding in bindings[1::2]:
        exchange.unbind(binding)
    assert found(exchange) == []


def test_only_types_that_say_so_look_at_headers(exchange: Exchange) -> None:
    exchange.bind(binding_to(exchange, "q"))

    with_headers, without = found(exchange), names(exchange.destinations(KEY, ()))

    assert exchange.uses_headers or with_headers == without
    assert not exchange.varies
