from __future__ import annotations

import pytest

from leveret.broker.core.exchanges.direct import DirectExchange
from tests.support.bound import bind_named, names, table


@pytest.fixture
def exchange() -> DirectExchange:
    return DirectExchange("/", "x")


def test_sends_to_the_exact_key_only(exchange: DirectExchange) -> None:
    bind_named(exchange, "q1", "a")
    bind_named(exchange, "q2", "a")
    bind_named(exchange, "q3", "A")
    bind_named(exchange, "q4", "a.b")
    bind_named(exchange, "q5", "#")

    assert names(exchange.destinations("a", ())) == ["q1", "q2"]
    assert names(exchange.destinations("A", ())) == ["q3"]
    assert names(exchange.destinations("b", ())) == []


def test_the_empty_key_is_a_key_like_any_other(exchange: DirectExchange) -> None:
    bind_named(exchange, "q", "")

    assert names(exchange.destinations("", ())) == ["q"]
    assert names(exchange.destinations("a", ())) == []


def test_keys_that_are_no_utf8_stay_apart(exchange: DirectExchange) -> None:
    bind_named(exchange, "q1", b"\xff".decode("utf-8", "surrogateescape"))
    bind_named(exchange, "q2", "ÿ")

    assert names(exchange.destinations(b"\xff".decode("utf-8", "surrogateescape"), ())) == ["q1"]
    assert names(exchange.destinations("ÿ", ())) == ["q2"]


def test_one_of_two_bindings_with_the_same_key_may_go(exchange: DirectExchange) -> None:
    binding = bind_named(exchange, "q", "a", table(("n", "I", 1)))
    bind_named(exchange, "q", "a", table(("n", "I", 2)))

    exchange.unbind(binding)

    assert names(exchange.destinations("a", ())) == ["q"]
