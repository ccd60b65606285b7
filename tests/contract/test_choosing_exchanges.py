"""Contract of the exchange types that choose one binding for each message."""

from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.base import Binding, Destination, Exchange
from leveret.broker.core.exchanges.choosing import ChoosingExchange
from leveret.broker.core.exchanges.types import EXCHANGE_TYPES
from leveret.broker.core.queues.queue import Queue
from leveret.protocol.field_table import FieldTable
from tests.support.bound import named_queue, table

CHOOSING = {name: each for name, each in EXCHANGE_TYPES.items() if issubclass(each, ChoosingExchange)}


@pytest.fixture(params=CHOOSING.values(), ids=list(CHOOSING))
def exchange(request: pytest.FixtureRequest) -> Exchange:
    made = request.param("/", "x", False, True, False, ())
    assert isinstance(made, Exchange)
    return made


def bind(exchange: Exchange, destination: Destination, *arguments: tuple[str, str, object]) -> Binding:
    key = "" if exchange.type_name == "x-local-random" else "1"
    binding = Binding(exchange, destination, key, table(*arguments))
    assert exchange.bind(binding)
    return binding


def chosen(exchange: Exchange, key: str, headers: FieldTable = ()) -> Destination:
    (only,) = (each for each in exchange.find((key,), headers, b"") if each is not None)
    return only


def test_is_slotted(exchange: Exchange) -> None:
    assert not hasattr(exchange, "__dict__")


def test_every_message_gets_one_of_the_bound_queues(exchange: Exchange) -> None:
    queues: set[Destination] = {named_queue(f"q{number}") for number in range(5)}
    for queue in queues:
        bind(exchange, queue)

    found = [chosen(exchange, f"key {number}") for number in range(1000)]

    assert set(found) == queues
    assert min(found.count(queue) for queue in queues) > 100


def test_only_types_that_say_so_vary(exchange: Exchange) -> None:
    for number in range(5):
        bind(exchange, named_queue(f"q{number}"))

    assert exchange.varies is (len({chosen(exchange, "same") for _ in range(200)}) > 1)


def test_a_destination_stays_until_its_last_binding_is_gone(exchange: Exchange) -> None:
    queue, other = named_queue("q"), named_queue("other")
    first, second = bind(exchange, queue), bind(exchange, queue, ("a", "I", 1))
    last = bind(exchange, other)

    exchange.unbind(first)
    assert {chosen(exchange, f"key {number}") for number in range(200)} == {queue, other}
    exchange.unbind(second)
    assert {chosen(exchange, f"key {number}") for number in range(200)} == {other}
    exchange.unbind(last)
    assert list(exchange.find(("k",), (), b"")) == []


def test_very_many_bindings_come_and_go(exchange: Exchange) -> None:
    queues: list[Queue] = [named_queue(f"q{number}") for number in range(2000)]
    bindings = [bind(exchange, queue) for queue in queues]
    assert chosen(exchange, "k") in queues

    for binding in bindings[::2] + bindings[3::2]:
        exchange.unbind(binding)

    assert chosen(exchange, "k") is queues[1]
