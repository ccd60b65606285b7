from __future__ import annotations

from leveret.broker.core.exchanges.base import Binding
from leveret.broker.core.exchanges.modulus_hash import ModulusHashExchange
from tests.support.bound import named_queue, table

KEYS = [f"key {number}" for number in range(200)]


def made(*order: int) -> ModulusHashExchange:
    exchange = ModulusHashExchange("/", "x")
    queue, other = named_queue("q"), named_queue("other")
    bindings = [
        Binding(exchange, queue, "a", table(("n", "I", 1))),
        Binding(exchange, queue, "a", table(("n", "S", b"1"))),
        Binding(exchange, other, "a"),
        Binding(exchange, queue, "b"),
    ]
    for number in order:
        assert exchange.bind(bindings[number])
    return exchange


def places(exchange: ModulusHashExchange) -> list[str]:
    return [each.name for key in KEYS for each in exchange.destinations(key, ()) if each is not None]


def test_the_order_of_binding_does_not_matter() -> None:
    assert places(made(0, 1, 2, 3)) == places(made(3, 1, 0, 2))


def test_every_binding_is_a_share() -> None:
    found = places(made(0, 1, 2, 3))
    assert 110 < found.count("q") < 190
    assert found.count("q") + found.count("other") == 200


def test_all_keys_count() -> None:
    exchange = made(0, 2, 3)
    together = [next(iter(exchange.find((key, "copy"), (), b""))) for key in KEYS]
    assert [each.name for each in together if each is not None] != places(exchange)
