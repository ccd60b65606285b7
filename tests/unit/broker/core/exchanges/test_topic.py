from __future__ import annotations

import time
from itertools import product
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.exchanges import amqp_types
from leveret.broker.core.exchanges.amqp_types import TopicExchange
from tests.support.bound import bind_named, names


def matches_naively(pattern: list[str], key: list[str]) -> bool:
    """By definition, one word of the pattern at a time."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(matches_naively(pattern[1:], key[skipped:]) for skipped in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and matches_naively(pattern[1:], key[1:])


def split_naively(text: str) -> list[str]:
    return [] if text == "" else text.split(".")


words = st.sampled_from(["", "a", "b", "*", "#", "a*", "##"])
topics = st.lists(words, max_size=5).map(".".join)


@pytest.mark.parametrize("step", [1, 5, 1000])
@given(st.sets(topics, max_size=12), st.data(), st.lists(topics, min_size=1, max_size=5))
def test_matches_as_defined_after_any_binding_and_unbinding(
    step: int, patterns: set[str], data: st.DataObject, keys: list[str]
) -> None:
    """Also where finding the destinations takes several steps."""
    exchange = TopicExchange("/", "x")
    bindings = {pattern: bind_named(exchange, pattern, pattern) for pattern in sorted(patterns)}
    gone = data.draw(st.sets(st.sampled_from(sorted(patterns)))) if patterns else set()
    for pattern in gone:
        exchange.unbind(bindings[pattern])

    for key in keys:
        expected = [p for p in patterns - gone if matches_naively(split_naively(p), split_naively(key))]
        with patch.object(amqp_types, "_STEP", step):
            found = names(exchange.destinations(key, ()))
        assert found == sorted(expected)


@given(st.lists(topics, max_size=8))
def test_nothing_is_left_of_patterns_that_are_unbound(patterns: list[str]) -> None:
    exchange = TopicExchange("/", "x")
    bindings = [bind_named(exchange, str(number), pattern) for number, pattern in enumerate(patterns)]

    for binding in bindings:
        exchange.unbind(binding)

    assert not exchange._root.children
    assert not exchange._root.bound


def test_many_hashes_do_not_make_it_slow() -> None:
    """A matcher that tries all ways in turn would not come back from this one."""
    exchange = TopicExchange("/", "x")
    bind_named(exchange, "q", ".".join(["#", "a"] * 60))
    started = time.process_time()

    assert names(exchange.destinations(".".join(["a"] * 127), ())) == ["q"]
    assert names(exchange.destinations(".".join(["a"] * 126 + ["b"]), ())) == []

    assert time.process_time() - started < 2


def test_patterns_that_do_not_match_are_not_looked_at() -> None:
    exchange = TopicExchange("/", "x")
    for number in range(5_000):
        bind_named(exchange, f"q{number}", f"a.{number}.#")
    visited = 0

    class CountingChildren(dict[str, object]):
        def get(self, key: str, default: object = None) -> object:
            nonlocal visited
            visited += 1
            return super().get(key, default)

    node = exchange._root.children["a"]
    node.children = CountingChildren(node.children)  # type: ignore[assignment]

    assert names(exchange.destinations("a.17.b", ())) == ["q17"]
    assert visited <= 3


def test_much_work_has_pauses() -> None:
    """One after each step of a fixed number of nodes, so that the caller can do other work in between."""
    exchange = TopicExchange("/", "x")
    for pattern in product("*#a", repeat=7):
        bind_named(exchange, "q", ".".join(pattern))
    found = list(exchange.destinations(".".join("a" * 20), ()))
    pauses = found.count(None)
    assert pauses > 20
    # All but those that have no "#" want exactly seven words.
    assert len(found) - pauses == 3**7 - 2**7
